"""The daemon's end of a connection and an executable's, talking to each other."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator

from cni.hands import Hands
from cni.host.chain import Exec, Output
from cni.places import Places
from tests.cni.executable import FakeExecutable

Play = Callable[[FakeExecutable], Awaitable[object]]


def converse(serve: Callable[[Hands], Awaitable[object]], play: Play, delegate_seconds: float = 20) -> list[object]:
    """Have the two ends talk; gives what each gave, or raises what the daemon's end raised."""

    async def main() -> list[object]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        hands, executable = Hands(ours, delegate_seconds, Places()), FakeExecutable(theirs)
        try:
            return await asyncio.wait_for(asyncio.gather(serve(hands), play(executable)), 20)
        finally:
            hands.close()
            executable.close()

    return asyncio.run(main())


def executing(*steps: Exec) -> Callable[[Hands], Awaitable[list[Output]]]:
    """Give a daemon's end that has each step executed."""

    def generator() -> Generator[Exec, Output, list[Output]]:
        outputs = []
        for step in steps:
            outputs += [(yield step)]
        return outputs

    async def serve(hands: Hands) -> list[Output]:
        await hands.request()
        return await hands.drive(generator())

    return serve


BRIDGE = Exec("bridge", "DEL", b'{"a": 1}')
