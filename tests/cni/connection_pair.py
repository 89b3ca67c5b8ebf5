"""The daemon's end of a connection and a fake executable's end, connected to each other."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path

from cni.connection import ExecutableConnection
from cni.delegate_slots import DelegateSlots
from cni.flannel_shortcut import FlannelDelegates
from cni.host.chain import Exec, ExecOutput
from tests.cni.fake_executable import FakeExecutable

NO_FLANNEL = FlannelDelegates(Path("/nonexistent"))
Play = Callable[[FakeExecutable], Awaitable[object]]


def converse(
    serve: Callable[[ExecutableConnection], Awaitable[object]],
    play: Play,
    delegate_seconds: float = 20,
    flannel: FlannelDelegates = NO_FLANNEL,
) -> list[object]:
    """Run both ends. Return what each returned, or raise what the daemon's end raised."""

    async def main() -> list[object]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        connection = ExecutableConnection(ours, delegate_seconds, DelegateSlots(), flannel)
        executable = FakeExecutable(theirs)
        try:
            return await asyncio.wait_for(asyncio.gather(serve(connection), play(executable)), 20)
        finally:
            connection.close()
            executable.close()

    return asyncio.run(main())


def executing(*steps: Exec) -> Callable[[ExecutableConnection], Awaitable[list[ExecOutput]]]:
    """Return a daemon's end that has each step executed."""

    def generator() -> Generator[Exec, ExecOutput, list[ExecOutput]]:
        outputs = []
        for step in steps:
            outputs += [(yield step)]
        return outputs

    async def serve(connection: ExecutableConnection) -> list[ExecOutput]:
        await connection.request()
        return await connection.drive(generator())

    return serve


BRIDGE = Exec("bridge", "DEL", b'{"a": 1}')
