"""The daemon's end of a connection and an executable's, talking to each other."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator

from cni.connection import ExecutableConnection
from cni.delegate_slots import DelegateSlots
from cni.host.chain import Exec, Output
from tests.cni.executable import FakeExecutable

Play = Callable[[FakeExecutable], Awaitable[object]]


def converse(
    serve: Callable[[ExecutableConnection], Awaitable[object]], play: Play, delegate_seconds: float = 20
) -> list[object]:
    """Have the two ends talk; gives what each gave, or raises what the daemon's end raised."""

    async def main() -> list[object]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        connection, executable = ExecutableConnection(ours, delegate_seconds, DelegateSlots()), FakeExecutable(theirs)
        try:
            return await asyncio.wait_for(asyncio.gather(serve(connection), play(executable)), 20)
        finally:
            connection.close()
            executable.close()

    return asyncio.run(main())


def executing(*steps: Exec) -> Callable[[ExecutableConnection], Awaitable[list[Output]]]:
    """Give a daemon's end that has each step executed."""

    def generator() -> Generator[Exec, Output, list[Output]]:
        outputs = []
        for step in steps:
            outputs += [(yield step)]
        return outputs

    async def serve(connection: ExecutableConnection) -> list[Output]:
        await connection.request()
        return await connection.drive(generator())

    return serve


BRIDGE = Exec("bridge", "DEL", b'{"a": 1}')
