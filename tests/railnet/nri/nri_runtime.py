"""The runtime's side of NRI on one end of a socket pair, as the tests script it; a plugin is served on the other end."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from google.protobuf.message import Message

from railnet.nri.api import nri_pb2 as api
from railnet.nri.api import ttrpc_pb2 as ttrpc
from railnet.nri.created_container import CreatedContainer, ResourceLimit
from railnet.nri.messages import FRAME, REQUEST, RESPONSE, TO_PLUGIN, TO_RUNTIME, Messages, NriMessage, framed
from railnet.nri.plugin import NriPlugin

Limit = Callable[[CreatedContainer], Awaitable[ResourceLimit | None]]


class NriRuntime:
    """One connection; calls are made one after the other, as by the real runtime."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._messages = {TO_PLUGIN: Messages(), TO_RUNTIME: Messages()}
        self._call = 1

    async def receive(self, service: int) -> NriMessage:
        while True:
            of, length = FRAME.unpack(await self.reader.readexactly(FRAME.size))
            whole = list(self._messages[of].take(await self.reader.readexactly(length)))
            if whole:
                assert of == service
                return whole[0]

    async def answer_registration(self, status: ttrpc.Status | None = None) -> api.RegisterPluginRequest:
        message = await self.receive(TO_RUNTIME)
        request = ttrpc.Request.FromString(message.body)
        assert (request.service, request.method) == ("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin")
        body = ttrpc.Response(status=status).SerializeToString()
        self.writer.write(framed(TO_RUNTIME, NriMessage(message.call, RESPONSE, body)))
        return api.RegisterPluginRequest.FromString(request.payload)

    def ask(self, method: str, body: Message) -> None:
        request = ttrpc.Request(service="nri.pkg.api.v1alpha1.Plugin", method=method, payload=body.SerializeToString())
        self.writer.write(framed(TO_PLUGIN, NriMessage(self._call, REQUEST, request.SerializeToString())))

    async def call(self, method: str, body: Message) -> ttrpc.Response:
        self.ask(method, body)
        answer = await self.receive(TO_PLUGIN)
        assert (answer.call, answer.kind) == (self._call, RESPONSE)
        self._call += 2
        return ttrpc.Response.FromString(answer.body)

    async def register(self) -> None:
        await self.answer_registration()
        await self.call("Configure", api.ConfigureRequest(runtime_name="containerd"))
        await self.call("Synchronize", api.SynchronizeRequest())

    async def create(self, request: api.CreateContainerRequest) -> api.CreateContainerResponse:
        return api.CreateContainerResponse.FromString((await self.call("CreateContainer", request)).payload)


@contextlib.asynccontextmanager
async def served(limit: Limit, registered: Callable[[], None]) -> AsyncIterator[tuple[NriRuntime, asyncio.Task[None]]]:
    """Yield the runtime's end and the task of the plugin; both ends are closed afterwards."""
    ours, theirs = socket.socketpair()
    plugin = await asyncio.open_connection(sock=ours)
    runtime = await asyncio.open_connection(sock=theirs)
    task = asyncio.create_task(NriPlugin(*plugin, limit, registered).serve())
    try:
        async with asyncio.timeout(20):
            yield NriRuntime(*runtime), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for _, writer in (plugin, runtime):
            writer.close()
