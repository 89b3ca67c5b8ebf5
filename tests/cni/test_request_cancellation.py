"""What ends a request early, what it does then, and what is raised if a system call does not return."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from cni.host.errors import TRY_AGAIN, CniError
from cni.request_cancellation import Operation, Operations, TimeLimits, Unfinished


class Work:
    """Runs until `end` is set. After an interruption it undoes until `undone` is set."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.end, self.undone = asyncio.Event(), asyncio.Event()

    async def do(self) -> str:
        self.log.append("begun")
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.log.append("undoing")
            await self.undone.wait()
            self.log.append("undone")
            raise
        return "done"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_run_returns_the_result_of_the_work() -> None:
    async def scenario() -> None:
        work = Work()
        work.end.set()
        assert await Operation(TimeLimits(20, 20)).run(work.do()) == "done"

    run(scenario)


def test_error_of_the_work_is_raised() -> None:
    async def fail() -> None:
        raise OSError("odd")

    async def scenario() -> None:
        with pytest.raises(OSError, match="odd"):
            await Operation(TimeLimits(20, 20)).run(fail())

    run(scenario)


def test_interrupted_work_undoes_and_ends_with_the_reason_and_a_second_interruption_changes_nothing() -> None:
    async def scenario() -> None:
        work, operation = Work(), Operation(TimeLimits(20, 20))
        outcome = asyncio.create_task(operation.run(work.do()))
        await settled()
        operation.interrupt(CniError(TRY_AGAIN, "a DEL came"))
        await settled()
        operation.interrupt(CniError(TRY_AGAIN, "the executable went, too"))
        await settled()
        assert work.log == ["begun", "undoing"]
        work.undone.set()
        with pytest.raises(CniError, match="a DEL came"):
            await outcome
        assert work.log == ["begun", "undoing", "undone"]

    run(scenario)


def test_work_that_is_interrupted_before_its_turn_never_begins() -> None:
    async def scenario() -> None:
        work, operation = Work(), Operation(TimeLimits(20, 20))
        operation.interrupt(CniError(TRY_AGAIN, "a DEL came"))
        with pytest.raises(CniError, match="a DEL came"):
            await operation.run(work.do())
        assert work.log == []

    run(scenario)


def test_interruption_after_the_end_changes_nothing() -> None:
    async def scenario() -> None:
        work, operation = Work(), Operation(TimeLimits(20, 20))
        work.end.set()
        await operation.run(work.do())
        operation.interrupt(CniError(TRY_AGAIN, "late"))
        await operation.ended()

    run(scenario)


def test_time_counts_from_the_beginning_of_the_wait_for_its_turn() -> None:
    async def scenario() -> None:
        work, operation = Work(), Operation(TimeLimits(20, 0.05))
        work.undone.set()
        await asyncio.sleep(0.06)
        with pytest.raises(CniError, match=r"longer than timeouts\.add \(0\.05 s\)") as raised:
            await operation.run(work.do())
        assert raised.value.code == TRY_AGAIN

    run(scenario)


def test_work_that_does_not_end_is_reported_and_awaited() -> None:
    async def scenario() -> None:
        work, operation = Work(), Operation(TimeLimits(0.01, 0.01))
        with pytest.raises(Unfinished, match=r"the kernel has not answered for 0\.02 s"):
            await operation.run(work.do())
        ended = asyncio.create_task(operation.ended())
        await settled()
        assert not ended.done()
        work.undone.set()
        await ended
        assert work.log[-1] == "undone"

    run(scenario)


def test_del_interrupts_other_operations_of_its_sandbox_and_no_others() -> None:
    async def scenario() -> None:
        operations, interrupted = Operations(), []

        class Noted(Operation):
            def interrupt(self, reason: Exception) -> None:
                interrupted.append((self, str(reason)))

        add, check, other, earlier, last = (Noted(TimeLimits(20, 20)) for _ in range(5))
        with (
            operations.entered("a", "ADD", add),
            operations.entered("a", "CHECK", check),
            operations.entered("b", "ADD", other),
            operations.entered("a", "DEL", earlier),
        ):
            pass
        with operations.entered("a", "DEL", last):
            pass
        assert interrupted == [
            (add, "the runtime asked for a DEL of this sandbox during its ADD"),
            (check, "the runtime asked for a DEL of this sandbox during its CHECK"),
        ]
        assert operations._of == {}

    run(scenario)
