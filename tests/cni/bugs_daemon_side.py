"""Faults of the daemon's side. Not collected until they are mended: then these belong into test_hands.py and a test of rails."""

import asyncio
import os
from pathlib import Path

from cni.hands import Hands
from cni.host import chain, frames
from cni.rails import Host, Rails
from tests.cni.conversation import BRIDGE, converse, executing
from tests.cni.executable import FakeExecutable, a_request, output
from tests.deviceplugin.builders import two_rails
from vf.errors import NotReady
from vf.table import Owner, VfTable


def test_descriptor_is_not_inherited_by_children() -> None:
    async def play(executable: FakeExecutable) -> None:
        executable.send_with_descriptors(a_request(), [0])

    async def serve(hands: Hands) -> bool:
        await hands.request()
        return os.get_inheritable(hands.netns_fd)

    assert converse(serve, play)[0] is False


def test_output_that_has_begun_when_the_time_is_over_is_read_to_its_end() -> None:
    async def play(executable: FakeExecutable) -> int:
        await executable.send(a_request())
        number, *_ = await executable.executed()
        answer = output(number, b"x" * 100)
        await executable.send(answer[:50])
        kind, _ = await executable.receive()
        await executable.send(answer[50:])
        return kind

    (came,), kind = converse(executing(BRIDGE), play, delegate_seconds=0.05)

    assert (kind, came.status) == (frames.KILL, chain.TIMED_OUT)


def test_two_sandboxes_that_wait_for_one_vf_do_not_wake_each_other() -> None:
    table = VfTable(two_rails())
    (first, busy), (second, _) = ([vf.address for vf in pf.vfs] for pf in two_rails().pfs)
    table.claim(busy, Owner("dying", "eth0", "uid-0"))
    changes = []
    table.observe(lambda: changes.append(1))

    async def main() -> list[object]:
        rails = Rails(table, None, None, None, Host(Path("/"), 0.2))
        waiting = (rails._claim((vf, busy), Owner(name, "eth0", name)) for vf, name in ((first, "a"), (second, "b")))
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(ended) for ended in asyncio.run(main())] == [NotReady, NotReady]
    assert len(changes) < 20
