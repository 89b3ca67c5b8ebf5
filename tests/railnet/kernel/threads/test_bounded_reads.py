"""Reads with a time limit: a function that hangs costs itself alone, its threads are bounded, and it recovers by itself."""

import asyncio
import gc
import threading
from typing import Any

import pytest

from railnet.kernel.threads.bounded_reads import BoundedReads, DoesNotAnswer, card_by_card
from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel.begun_jobs import Hangs, wait_for_begin

CARD = PciAddress(0, 3, 0, 0)
OTHER = PciAddress(0, 0x83, 0, 0)
VFS = tuple(PciAddress(0, 3, device, function) for device in range(2) for function in range(8))


class Hardware(Hangs):
    """Functions that answer with their address; those in `dead` answer when `alive` is set."""

    def __init__(self, *dead: PciAddress) -> None:
        super().__init__()
        self.dead, self.reads = set(dead), list[PciAddress]()

    def read(self, function: PciAddress) -> PciAddress:
        self.reads.append(function)
        if function in self.dead:
            self.wait()
        return function


@pytest.mark.slow
def test_function_that_hangs_costs_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware, reads = Hardware(VFS[3], VFS[7]), BoundedReads(0.2)
    wait_for_begin(monkeypatch, hardware)

    async def main() -> dict[PciAddress, object]:
        return await reads.read_each(CARD, VFS, hardware.read)

    outcomes = asyncio.run(main())
    hardware.alive.set()

    assert {vf for vf, outcome in outcomes.items() if isinstance(outcome, DoesNotAnswer)} == {VFS[3], VFS[7]}
    assert all(outcomes[vf] == vf for vf in VFS if vf not in hardware.dead)
    assert reads.hung == {str(CARD): 2}


@pytest.mark.slow
def test_function_that_hangs_is_refused_at_once_and_read_again_when_it_has_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hardware, reads = Hardware(VFS[0]), BoundedReads(0.2)
    wait_for_begin(monkeypatch, hardware)

    async def main() -> tuple[int, PciAddress]:
        with pytest.raises(DoesNotAnswer, match="have not answered for"):
            await reads.read(CARD, VFS[0], lambda: hardware.read(VFS[0]))
        for _ in range(2):
            with pytest.raises(DoesNotAnswer, match="have not answered for"):
                reads.read(CARD, VFS[0], lambda: hardware.read(VFS[0])).send(
                    None
                )  # its first step, which awaits nothing
        begun = len(hardware.reads)
        hardware.alive.set()
        while reads.hung:  # noqa: ASYNC110 - the thread reports to no event of this test
            await asyncio.sleep(0.01)
        return begun, await reads.read(CARD, VFS[0], lambda: hardware.read(VFS[0]))

    assert asyncio.run(main()) == (1, VFS[0])


@pytest.mark.slow
def test_threads_of_a_card_are_bounded_and_another_card_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    hardware, reads, card = Hardware(*VFS), BoundedReads(0.1), PciAddress(0, 0x99, 0, 0)
    wait_for_begin(monkeypatch, hardware)

    async def main() -> tuple[dict[PciAddress, object], PciAddress]:
        outcomes = await reads.read_each(card, VFS, hardware.read)
        return outcomes, await reads.read(OTHER, OTHER, lambda: hardware.read(OTHER))

    outcomes, other = asyncio.run(main())
    threads = [thread for thread in threading.enumerate() if thread.name == str(card)]
    hardware.alive.set()

    assert all(isinstance(outcome, DoesNotAnswer) for outcome in outcomes.values())
    assert (len(threads), len(hardware.reads), other) == (4, 5, OTHER)
    assert all(thread.daemon for thread in threads)  # the interpreter's end does not wait for them


def test_error_of_a_read_is_raised() -> None:
    def refuse() -> None:
        raise ValueError("no number")

    with pytest.raises(ValueError, match="no number"):
        asyncio.run(BoundedReads().read(CARD, CARD, refuse))


def test_error_that_a_read_returns_is_not_raised() -> None:
    returned = ValueError("a problem, told as a value")

    assert asyncio.run(BoundedReads().read(CARD, CARD, lambda: returned)) is returned


def test_work_that_has_not_begun_when_its_caller_is_cancelled_is_not_done() -> None:
    release, done = threading.Event(), list[int]()

    async def main() -> None:
        threads = BoundedThreads(1)
        first = asyncio.create_task(threads.run(CARD, lambda: release.wait(30)))
        second = asyncio.create_task(threads.run(CARD, lambda: done.append(2)))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.wait((second,))
        release.set()
        await first
        await threads.run(CARD, lambda: done.append(3))

    asyncio.run(main())

    assert done == [3]


def test_card_is_read_after_the_one_before_it_has_answered() -> None:
    log: list[str] = []

    async def read(card: str) -> None:
        log.append(f"{card} begins")
        await asyncio.sleep(0.001)
        log.append(f"{card} ends")

    asyncio.run(card_by_card(read(card) for card in ("one", "two")))

    assert log == ["one begins", "one ends", "two begins", "two ends"]


def test_card_that_hangs_is_passed_by_the_next_one() -> None:
    async def main() -> bool:
        alive = asyncio.Event()

        async def hang() -> None:
            await alive.wait()

        async def revive() -> None:
            alive.set()

        await asyncio.wait_for(card_by_card(read() for read in (hang, revive)), 10)
        return alive.is_set()

    assert asyncio.run(main())


def test_error_of_a_card_is_raised_and_a_hanging_card_is_not_waited_for() -> None:
    hang_ended: list[bool] = []

    async def refuse() -> None:
        raise OSError(24, "too many open files")

    async def main() -> None:
        async def hang() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                hang_ended.append(True)

        with pytest.raises(OSError, match="too many"):
            await card_by_card(read() for read in (hang, refuse))
        await asyncio.sleep(0)

    asyncio.run(main())

    assert hang_ended == [True]


def test_cancelled_caller_cancels_the_reads_of_cards() -> None:
    ended: list[str] = []

    async def main() -> None:
        began = asyncio.Event()

        async def hang(card: str) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(card)

        reading = asyncio.create_task(card_by_card(hang(card) for card in ("one", "two")))
        await began.wait()
        reading.cancel()
        await asyncio.wait((reading,))
        await asyncio.sleep(0)

    asyncio.run(main())

    assert ended == ["one"]


def test_error_of_a_card_whose_caller_was_cancelled_is_not_logged() -> None:
    reported: list[dict[str, Any]] = []

    async def failing() -> None:
        raise OSError("dead")

    async def waiting() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        reading = asyncio.create_task(card_by_card((failing(), waiting())))
        await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait((reading,))
        del reading
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(main())

    assert reported == []
