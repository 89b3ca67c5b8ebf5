"""A plugin of NRI on a connected socket: registers, and answers the runtime about each container that it creates.

The runtime waits two seconds for an answer (containerd/nri v0.12.3, DefaultPluginRequestTimeout) and closes a plugin that lets it wait. So each
answer has a deadline of its own, and a plugin that does not know better leaves the container as it is.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Body

from railnet.nri.api import nri_pb2 as api
from railnet.nri.api import ttrpc_pb2 as ttrpc
from railnet.nri.created_container import CreatedContainer, ResourceLimit
from railnet.nri.messages import (
    FRAME,
    MOST_FRAME,
    REQUEST,
    RESPONSE,
    TO_PLUGIN,
    TO_RUNTIME,
    BadMessage,
    Messages,
    NriMessage,
    framed,
)

_log = logging.getLogger(__name__)
_RUNTIME = "nri.pkg.api.v1alpha1.Runtime"
_NAME = "railnet"
# The last of all: a limit that another plugin sets stands. NRI refuses a container for which two plugins set the same limit.
_INDEX = "99"
_CREATE_CONTAINER = 1 << 3  # event 4 of NRI's enum Event
_REGISTRATION = NriMessage(
    1,
    REQUEST,
    ttrpc.Request(
        service=_RUNTIME,
        method="RegisterPlugin",
        payload=api.RegisterPluginRequest(plugin_name=_NAME, plugin_idx=_INDEX).SerializeToString(),
    ).SerializeToString(),
)
_UNIMPLEMENTED = 12  # gRPC's code
_REGISTRATION_SECONDS = 10.0  # the runtime gives five to each plugin, and registers one after the other
_ANSWER_SECONDS = 1.0


class RuntimeRefused(OSError):
    """The runtime does not take this plugin, or ended the connection."""


class NriPlugin:
    """One registration on one connection, which the caller owns.

    `limit` returns the limit that a container gets; None for none. `registered` is called when the runtime has taken the plugin.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limit: Callable[[CreatedContainer], Awaitable[ResourceLimit | None]],
        registered: Callable[[], None],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._limit, self._registered = limit, registered
        self._messages = {TO_PLUGIN: Messages(), TO_RUNTIME: Messages()}
        self._deadline = asyncio.timeout(None)

    async def serve(self) -> None:
        """Register and answer until the connection ends.

        Raises:
            RuntimeRefused: the runtime refused the plugin or ended the connection.
            TimeoutError: the runtime does not register the plugin in time.
            BadMessage: what came is not NRI.
        """
        self._writer.write(framed(TO_RUNTIME, _REGISTRATION))
        async with asyncio.timeout(_REGISTRATION_SECONDS) as self._deadline:
            await self._read()

    async def _read(self) -> None:
        while True:
            service, content = await self._frame()
            if service not in self._messages:
                continue  # as NRI's own library does
            for message in self._messages[service].take(content):
                if service == TO_RUNTIME:
                    _check_registration(message)
                elif message.kind == REQUEST:
                    await self._answer(message)

    async def _frame(self) -> tuple[int, bytes]:
        try:
            service, length = FRAME.unpack(await self._reader.readexactly(FRAME.size))
            if length > MOST_FRAME:
                raise BadMessage(f"a frame says that it has {length} bytes; NRI permits {MOST_FRAME}")
            return service, await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise RuntimeRefused("the container runtime ended the connection") from None

    async def _answer(self, message: NriMessage) -> None:
        try:
            request = ttrpc.Request.FromString(message.body)
            body = await self._body(request.method, request.payload)
        except DecodeError as error:
            raise BadMessage(f"a request cannot be read: {error!s:.200}") from None
        answer = (
            ttrpc.Response(payload=body.SerializeToString())
            if body is not None
            else ttrpc.Response(
                status=ttrpc.Status(code=_UNIMPLEMENTED, message=f"{_NAME} has no {request.method:.60}")
            )
        )
        self._writer.write(framed(TO_PLUGIN, NriMessage(message.call, RESPONSE, answer.SerializeToString())))
        await self._writer.drain()

    async def _body(self, method: str, payload: bytes) -> Body | None:
        """Return the answer to one request; None for a method that this plugin does not have."""
        match method:
            case "Configure":
                return api.ConfigureResponse(events=_CREATE_CONTAINER)
            case "Synchronize":
                more = api.SynchronizeRequest.FromString(payload).more
                if not more:
                    self._deadline.reschedule(None)
                    self._registered()
                return api.SynchronizeResponse(more=more)
            case "CreateContainer":
                return await self._adjusted(_created(api.CreateContainerRequest.FromString(payload)))
            case "Shutdown":
                return api.Empty()
            case _:
                return None

    async def _adjusted(self, container: CreatedContainer) -> api.CreateContainerResponse:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                limit = await self._limit(container)
        except Exception as error:  # noqa: BLE001 - a container is created without its limit rather than not at all
            _log.warning("container %s keeps the runtime's limits: %s", container.pod, str(error) or repr(error))
            limit = None
        if limit is None:
            return api.CreateContainerResponse()
        rlimit = api.POSIXRlimit(type=limit.name, hard=limit.value, soft=limit.value)
        return api.CreateContainerResponse(adjust=api.ContainerAdjustment(rlimits=[rlimit]))


def _check_registration(message: NriMessage) -> None:
    """Read the one response that the runtime owes.

    Raises:
        RuntimeRefused: it is a refusal. BadMessage: it cannot be read.
    """
    try:
        status = ttrpc.Response.FromString(message.body).status
    except DecodeError as error:
        raise BadMessage(f"the answer to the registration cannot be read: {error!s:.200}") from None
    if message.kind == RESPONSE and status.code:
        raise RuntimeRefused(f"the container runtime refused the plugin: {status.message:.200}")


def _created(request: api.CreateContainerRequest) -> CreatedContainer:
    pod, container = request.pod, request.container
    return CreatedContainer(
        f"{pod.namespace}/{pod.name} {container.name}",
        pod.uid,
        frozenset((device.major, device.minor) for device in container.linux.devices if device.type == "c"),
        frozenset(limit.type for limit in container.rlimits),
    )
