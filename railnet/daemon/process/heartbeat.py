"""The daemon's side of its supervision: its event loop sends a beat, again and again. `railnet.daemon.process.supervisor` awaits them."""

import asyncio
import faulthandler
import os
import select
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from railnet.kernel.malloc import share_one_arena
from railnet.kernel.processes.parent_death import die_with_parent

_SECONDS = 0.5
_BEAT = b"."

_Result = TypeVar("_Result")


def run(main: Coroutine[Any, Any, _Result], beats: int | None) -> _Result:
    """Run the daemon's event loop until `main` has ended, and return its result.

    Args:
        main: what the loop runs.
        beats: the descriptor of a pipe to the supervisor, which is this process's own from now on; None is a daemon without a
            supervisor. A supervised daemon ends with its supervisor.
    """
    share_one_arena()
    if beats is None:
        return asyncio.run(main)
    os.set_inheritable(beats, False)  # the plugins that this process starts are not the daemon
    os.set_blocking(beats, False)  # a supervisor that is stopped must not stop the daemon
    _end_with_supervisor(beats)
    # The supervisor asks for the stacks before it ends a silent daemon. This handler needs neither the GIL nor the event loop.
    faulthandler.register(signal.SIGUSR1, all_threads=True)

    async def beating() -> _Result:
        async with _beats(beats):
            return await main

    return asyncio.run(beating())


def _end_with_supervisor(beats: int) -> None:
    die_with_parent()
    look = select.poll()
    look.register(beats, 0)
    if look.poll(0):  # POLLERR: the pipe's other end is closed, so the supervisor had ended before
        raise SystemExit("railnet: the daemon ends, because its supervisor has ended")


@asynccontextmanager
async def _beats(fd: int) -> AsyncIterator[None]:
    task = asyncio.create_task(_beat(fd))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _beat(fd: int) -> None:
    while True:
        with suppress(BlockingIOError):  # the pipe is full, because the supervisor does not run
            os.write(fd, _BEAT)
        await asyncio.sleep(_SECONDS)
