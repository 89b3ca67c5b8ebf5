"""Being the one daemon that owns this node's VFs."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from cni.host import lock
from kernel.files import NO_ROOM
from railnet.health import Health

_log = logging.getLogger(__name__)
_RUN = Path(lock.RUN)
_LOOK_SECONDS = 0.05
_SAY_AGAIN_SECONDS = 5.0


@asynccontextmanager
async def alone(health: Health) -> AsyncIterator[None]:
    """Be the one owner of this node's VFs, as soon as the one before has ended.

    The lock is in the host's /run/railnet, so it counts for every container and for none. To wait for it, rather than to
    end, saves the pause that kubelet would make before another start.
    """
    health.reasons = lambda: ["another railnet daemon owns this node's VFs; this one waits for its end"]
    fd = await _lock(_RUN / "daemon.lock")
    try:
        yield
    finally:
        os.close(fd)


async def _lock(path: Path) -> int:
    """Lock a file, made if it is absent, as soon as its folder has room for it; the caller owns the descriptor."""
    said_at = -_SAY_AGAIN_SECONDS
    while True:
        why = "another railnet daemon owns this node's VFs: waiting for its end"
        try:
            fd = _try_lock(path)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            fd = None
            why = f"{path} cannot be made ({error.strerror}): free space or inodes there (`df -i {path.parent}`)"
        if fd is not None:
            return fd
        if time.monotonic() - said_at >= _SAY_AGAIN_SECONDS:
            _log.warning("%s", why)
            said_at = time.monotonic()
        await asyncio.sleep(_LOOK_SECONDS)


def _try_lock(path: Path) -> int | None:
    _make_folders()
    with suppress(FileNotFoundError):  # the daemon that is uninstalled removes the folder
        return lock.open_locked(str(path), os.O_RDWR | os.O_CREAT)
    return None


def _make_folders() -> None:
    for folder in (_RUN, Path(lock.FOLDER)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
