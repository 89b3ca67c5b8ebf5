"""Writes with a time limit: a card whose write hangs costs itself alone, is written to no more, and recovers by itself."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path

import pytest

from railnet.kernel import vf_provisioning
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import DoesNotAnswer
from railnet.kernel.threads.bounded_threads import BoundedThreads, ThreadCall
from railnet.kernel.threads.bounded_writes import BoundedWrites
from railnet.vf.pci_address import PciAddress
from railnet.vf.steps import CreateVfs, ProbeAgain
from tests.railnet.kernel.begun_jobs import Hangs, wait_for_begin
from tests.railnet.kernel.tree import ON_NODE, PF, Tree

CARD, OTHER = PciAddress(0, 3, 0, 0), PciAddress(0, 0x83, 0, 0)
PATIENCE = 60.0


class Firmware(Hangs):
    """A card that carries out a write when `alive` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = list[int]()

    def write(self, number: int) -> int:
        self.writes.append(number)
        self.wait()
        return number


def test_another_card_is_written_to_while_a_write_hangs() -> None:
    firmware, writes = Firmware(), BoundedWrites()

    async def main() -> tuple[bool, int]:
        hanging = asyncio.create_task(writes.write(CARD, 2 * PATIENCE, lambda: firmware.write(1)))
        await asyncio.sleep(0)
        other = await writes.write(OTHER, PATIENCE, lambda: 2)
        was_hanging = not hanging.done()
        firmware.alive.set()
        await hanging
        return was_hanging, other

    assert asyncio.run(main()) == (True, 2)


def test_hung_write_ends_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    firmware, writes = Firmware(), BoundedWrites()
    wait_for_begin(monkeypatch, firmware)

    with pytest.raises(DoesNotAnswer, match=rf"files of {CARD} has not been done in 0\.3 s.*look in dmesg"):
        asyncio.run(asyncio.wait_for(writes.write(CARD, 0.3, lambda: firmware.write(1)), PATIENCE / 2))
    firmware.alive.set()

    assert writes.hung == {str(CARD): 1}


def test_card_with_a_hung_write_is_refused_at_once_and_written_to_again_when_it_has_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    firmware, writes = Firmware(), BoundedWrites()
    wait_for_begin(monkeypatch, firmware)

    async def main() -> tuple[list[int], int]:
        waiting = [asyncio.create_task(writes.write(CARD, 0.2, lambda: firmware.write(1))) for _ in range(3)]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(DoesNotAnswer):
            writes.write(CARD, PATIENCE, lambda: firmware.write(2)).send(None)  # its first step, which awaits nothing
        assert all(isinstance(outcome, DoesNotAnswer) for outcome in outcomes)
        begun = list(firmware.writes)
        firmware.alive.set()
        while writes.hung:  # noqa: ASYNC110 - the thread reports to no event of this test
            await asyncio.sleep(0.01)
        return begun, await writes.write(CARD, PATIENCE, lambda: firmware.write(3))

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) == ([1], 3)


def test_threads_that_hang_do_not_keep_the_interpreter() -> None:
    firmware, writes, card = Firmware(), BoundedWrites(), PciAddress(0, 0x9A, 0, 0)  # no other test has it

    with pytest.raises(DoesNotAnswer):
        asyncio.run(asyncio.wait_for(writes.write(card, 0.05, lambda: firmware.write(1)), PATIENCE / 2))
    (thread,) = [thread for thread in threading.enumerate() if thread.name == str(card)]
    firmware.alive.set()

    assert thread.daemon


def test_error_of_a_write_is_raised_and_the_card_is_written_to_again() -> None:
    writes = BoundedWrites()

    def refuse() -> None:
        raise OSError(16, "busy")

    async def main() -> int:
        with pytest.raises(OSError, match="busy"):
            await writes.write(CARD, PATIENCE, refuse)
        return await writes.write(CARD, PATIENCE, lambda: 1)

    assert asyncio.run(main()) == 1


@pytest.mark.parametrize(
    "file",
    [
        f"devices/{PF}/sriov_drivers_autoprobe",
        f"devices/{PF}/sriov_numvfs",
        "drivers/mlx5_core/unbind",
        "drivers/mlx5_core/bind",
    ],
)
def test_each_file_that_the_daemon_writes_may_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    tree = Tree(tmp_path)
    tree.whole()
    hung = tree.root / "bus/pci" / file
    hung.unlink()
    os.mkfifo(hung)  # its open hangs, for nothing reads from it
    sysfs, card, vf = Sysfs(tree.root), PciAddress.parse(PF), PciAddress.parse(ON_NODE)
    works = {
        PF: partial(vf_provisioning.provision, [CreateVfs(card, 3, 3)], sysfs),
        "mlx5_core": partial(vf_provisioning.probe_again, ProbeAgain(vf, "mlx5_core"), sysfs),
    }

    begun = threading.Event()

    def work() -> None:
        begun.set()
        works[hung.parent.name]()

    begin = BoundedThreads.begin

    def begin_at_once(threads: BoundedThreads, key: Hashable, work: Callable[[], object]) -> ThreadCall:
        job = begin(threads, key, work)
        assert begun.wait(PATIENCE)  # before the limit runs: work that has not begun by its end is not done
        return job

    monkeypatch.setattr(BoundedThreads, "begin", begin_at_once)
    with pytest.raises(DoesNotAnswer, match="look in dmesg"):
        asyncio.run(asyncio.wait_for(sysfs.writes.write(card, 0.2, work), PATIENCE))
    hung_before = sysfs.writes.hung
    reader = os.open(hung, os.O_RDWR | os.O_NONBLOCK)  # the write returns
    written = read_line(reader)
    os.close(reader)

    assert hung_before == {PF: 1}
    assert written == {"sriov_drivers_autoprobe": b"0\n", "sriov_numvfs": b"0\n"}.get(hung.name, f"{vf}\n".encode())


def read_line(fd: int) -> bytes:
    """Read a line that a thread writes in a moment."""
    for _ in range(6000):
        try:
            return os.read(fd, 64)
        except BlockingIOError:
            time.sleep(0.01)
    raise AssertionError("the write did not return")
