"""Reads of hardware's files: each has a time limit, and a function that does not answer costs itself alone.

Such a file is often a command to the card's firmware. If the firmware is dead the read never returns, and its thread cannot be
ended. So each card has a few threads of its own, a function whose read hangs is not read again before that read has
returned, and the number of hung reads is known.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable
from errno import ETIMEDOUT
from typing import Generic, TypeVar

from railnet.kernel.threads.bounded_threads import BoundedThreads, ThreadCall
from railnet.kernel.waiting import take_outcome
from railnet.vf.pci_address import PciAddress

_Found = TypeVar("_Found")
_THREADS_OF_A_CARD = 4
# mlx5's firmware answers within milliseconds; a starved processor may take a second.
_SECONDS = 3.0
_SECOND_LOOK_SECONDS = 0.2  # after the daemon itself was stopped for longer than the limit
_NEXT_CARD_SECONDS = 0.1  # a card with a hundred VFs answers sooner, and a whole look at a node is due within seconds


class DoesNotAnswer(OSError):
    """A function's files are not read, or a card's files not written, in time. The message names the remedy."""

    def __init__(self, why: str) -> None:
        super().__init__(ETIMEDOUT, why)


class _Progress(Generic[_Found]):
    """A thread's progress with its functions; written by the thread, read by the event loop."""

    def __init__(self) -> None:
        self.current: PciAddress | None = None
        self.done: dict[PciAddress, _Found | Exception] = {}
        self.abandoned = False


class BoundedReads:
    """Reads functions in threads, at most four for each card and `seconds` for each function."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._threads = BoundedThreads(_THREADS_OF_A_CARD)
        self._hung: dict[PciAddress, tuple[Hashable, ThreadCall]] = {}

    @property
    def hung(self) -> Counter[str]:
        """The number of threads that wait for a read that does not return, by card."""
        return Counter(str(card) for card, _ in set(self._hung.values()))

    async def read(self, card: Hashable, function: PciAddress, work: Callable[[], _Found]) -> _Found:
        """Read one function.

        Raises:
            DoesNotAnswer: it does not answer in time, or an earlier read of it has not returned.
            Exception: what `work` raises.
        """
        outcome = (await self.read_each(card, (function,), lambda _: (work(),)))[function]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome[0]  # in a tuple, since `work` may return an exception that is not raised

    async def read_each(
        self, card: Hashable, functions: Iterable[PciAddress], work: Callable[[PciAddress], _Found]
    ) -> dict[PciAddress, _Found | Exception]:
        """Read functions of one card, one after the other in one thread; return for each what `work` returns or raises.

        A function that does not answer has `DoesNotAnswer`, and the others are read by another thread.
        """
        wanted = tuple(functions)
        outcomes: dict[PciAddress, _Found | Exception] = {
            function: DoesNotAnswer(self._words) for function in wanted if function in self._hung
        }
        left = [function for function in wanted if function not in outcomes]
        while left:
            progress = _Progress[_Found]()
            job = self._threads.begin(card, _in_turn(progress, tuple(left), work))
            if await self._ends(job, progress):
                job.future.result()
                return outcomes | progress.done
            outcomes |= dict(progress.done)
            stuck = progress.current
            if not job.started or stuck is None or stuck in outcomes:
                hung = self.hung[str(card)]
                why = f"{hung} reads of this card hang, so no more are begun; look in dmesg, then reset the device or the node"
                return outcomes | {function: DoesNotAnswer(why) for function in left if function not in outcomes}
            outcomes[stuck] = DoesNotAnswer(self._words)
            self._note_hung(card, stuck, job)
            left = [function for function in left if function not in outcomes]
        return outcomes

    @property
    def _words(self) -> str:
        return (
            f"its files in sysfs have not answered for {self._seconds:g} s, as with dead firmware: look in dmesg, then reset "
            "the device or the node. It is read again as soon as it answers"
        )

    async def _ends(self, job: ThreadCall, progress: _Progress[_Found]) -> bool:
        """Wait for the end of a job; return False, and abandon it, if it has come no further for the time of one function."""
        try:
            while True:
                seen = progress.current, job.started
                for seconds in (self._seconds, _SECOND_LOOK_SECONDS):
                    if await job.ends_within(seconds):
                        return True
                if seen == (progress.current, job.started):
                    return False
        finally:
            progress.abandoned = job.abandoned = True

    def _note_hung(self, card: Hashable, function: PciAddress, job: ThreadCall) -> None:
        self._hung[function] = card, job

        def returned(_: object) -> None:
            if self._hung.get(function) == (card, job):
                del self._hung[function]

        job.future.add_done_callback(returned)


async def card_by_card(reads: Iterable[Coroutine[None, None, None]]) -> None:
    """Await reads of cards: each begins when the one before it has ended, or has not for a tenth of a second.

    Threads that read at once take the interpreter's lock from each other at each file: eight take twice the processor time of one,
    and are done later. A card that hangs costs the next one a tenth of a second.

    Raises:
        Exception: what one read raises; the others are cancelled then.
    """
    tasks: list[asyncio.Task[None]] = []
    try:
        for read in reads:
            tasks.append(asyncio.create_task(read))
            await asyncio.wait(tasks[-1:], timeout=_NEXT_CARD_SECONDS)
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.add_done_callback(take_outcome)
            task.cancel()


def _in_turn(
    progress: _Progress[_Found], functions: tuple[PciAddress, ...], work: Callable[[PciAddress], _Found]
) -> Callable[[], None]:
    def read() -> None:
        for function in functions:
            if progress.abandoned:
                return
            progress.current = function
            try:
                progress.done[function] = work(function)
            except Exception as error:  # noqa: BLE001 - the caller gets it
                progress.done[function] = error

    return read
