"""Reads of files on disks: a disk that hangs costs its file's readers alone, and they are told in time."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from errno import ETIMEDOUT
from functools import partial
from pathlib import Path

import pytest

from railnet.kernel.threads.file_reads import FileReads


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_file_that_hangs_is_an_error_in_time_and_other_files_are_read(tmp_path: Path) -> None:
    hung, good = tmp_path / "hung", tmp_path / "good"
    os.mkfifo(hung)
    good.write_bytes(b"good")

    async def scenario() -> None:
        reads = FileReads(0.05)
        with pytest.raises(OSError, match="does its disk answer") as raised:
            await reads.read(str(hung), hung.read_bytes)
        assert (raised.value.errno, raised.value.filename) == (ETIMEDOUT, str(hung))
        assert await reads.read(str(good), good.read_bytes) == b"good"
        with pytest.raises(OSError, match="does its disk answer"):  # at once, and no second thread waits for it
            await asyncio.wait_for(reads.read(str(hung), partial(pytest.fail, "it is read twice")), 0.02)
        hung.write_bytes(b"late")
        await asyncio.sleep(0.1)
        assert await reads.read(str(hung), good.read_bytes) == b"good"

    run(scenario)


def test_end_of_late_work_can_be_awaited_and_work_in_time_needs_no_wait(tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    os.mkfifo(hung)

    async def scenario() -> None:
        reads = FileReads(0.05)
        await reads.answered(str(hung))
        with pytest.raises(TimeoutError):
            await reads.read(str(hung), hung.read_bytes)
        answer = asyncio.create_task(reads.answered(str(hung)))
        await asyncio.sleep(0.02)
        assert not answer.done()
        hung.write_bytes(b"late")
        await answer
        await reads.answered(str(hung))

    run(scenario)


def test_event_loop_goes_on_while_a_file_hangs(tmp_path: Path) -> None:
    hung = tmp_path / "hung"
    os.mkfifo(hung)

    async def scenario() -> None:
        reading = asyncio.create_task(FileReads(0.2).read(str(hung), hung.read_bytes))
        beats = 0
        while not reading.done():
            await asyncio.sleep(0.01)
            beats += 1
        assert beats > 5
        assert isinstance(reading.exception(), TimeoutError)
        hung.write_bytes(b"")

    run(scenario)


def test_error_of_a_read_is_the_readers() -> None:
    async def scenario() -> None:
        with pytest.raises(FileNotFoundError):
            await FileReads().read("absent", Path("/nonexistent/file").read_bytes)

    run(scenario)


def test_cancelled_reader_leaves_no_work_behind(tmp_path: Path) -> None:
    hung, log = tmp_path / "hung", []
    os.mkfifo(hung)

    async def scenario() -> None:
        reads = FileReads(10)
        first = asyncio.create_task(reads.read("file", hung.read_bytes))
        second = asyncio.create_task(reads.read("file", partial(log.append, "read")))
        await asyncio.sleep(0.05)
        for task in (first, second):
            task.cancel()
        await asyncio.wait((first, second))
        with suppress(OSError):  # ENXIO: the thread of the read had not begun, and now does not begin
            os.close(os.open(hung, os.O_WRONLY | os.O_NONBLOCK))
        await asyncio.sleep(0.05)

    run(scenario)

    assert log == []
