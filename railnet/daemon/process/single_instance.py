"""Being the one daemon that owns this node's VFs."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from cni.host import lock
from railnet.health_server import Health, Pages
from railnet.kernel.files import NO_ROOM, make_way

_log = logging.getLogger(__name__)
_RUN = Path(lock.RUN)
_LOOK_SECONDS = 0.05
_SAY_AGAIN_SECONDS = 5.0
_WAITS = "another railnet daemon owns this node's VFs; this one waits for its end"


@asynccontextmanager
async def alone(health: Health) -> AsyncIterator[None]:
    """Be the one owner of this node's VFs, as soon as the one before has ended.

    The lock is in the host's /run/railnet, so it counts for every container and for none. To wait for it, rather than to
    end, saves the pause that kubelet would make before another start.
    """
    fd = await _lock(_RUN / "daemon.lock", health)
    try:
        yield
    finally:
        os.close(fd)


async def _lock(path: Path, health: Health) -> int:
    """Lock a file, made if it is absent; the caller owns the descriptor. A refusal of the file is logged, and the lock is tried again."""
    last_why, last_time = "", 0.0
    while True:
        why, fd = _WAITS, None
        try:
            fd = _try_lock(path)
        except OSError as error:
            why = f"{path} cannot be locked ({error.strerror}); it is tried again"
            if error.errno in NO_ROOM:
                why += f": free space or inodes there (`df -i {path.parent}`)"
        if fd is not None:
            return fd
        health.show(Pages(partial(list, (why,))))
        if why != last_why or time.monotonic() - last_time >= _SAY_AGAIN_SECONDS:
            _log.warning("%s", why)
            last_why, last_time = why, time.monotonic()
        await asyncio.sleep(_LOOK_SECONDS)


def _try_lock(path: Path) -> int | None:
    _make_folders()
    try:
        return lock.open_locked(str(path), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    except FileNotFoundError:  # the daemon that is uninstalled removes the folder
        return None
    except IsADirectoryError:
        make_way(path)
        return None


def _make_folders() -> None:
    for folder in (_RUN, Path(lock.FOLDER)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
