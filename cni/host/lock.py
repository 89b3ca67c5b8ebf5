"""The lock of one container's attachment: one request at a time, also after the runtime killed an executable.

The descriptor is inheritable on purpose: every delegate a request starts holds it too, so whoever comes next waits
until nothing of that request runs any more.
"""

import fcntl
import posix
import select
import time

from cni.host.errors import TRY_AGAIN, CniError

RUN = "/run/railnet"
FOLDER = RUN + "/lock"
WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.005


def acquire(path: str, operation: int = fcntl.LOCK_EX, wait_seconds: float = WAIT_SECONDS) -> int:
    """Lock a file below `FOLDER`, made if it is absent; the caller owns the inheritable descriptor.

    Raises:
        CniError: code 11, another request still holds it after `wait_seconds`.
    """
    give_up = time.monotonic() + wait_seconds
    while True:
        fd = _open(path)
        if _locked(fd, operation, give_up) and _is_at(fd, path):
            posix.set_inheritable(fd, True)
            return fd
        posix.close(fd)
        if time.monotonic() >= give_up:
            message = (
                f"an earlier request still holds {path} after {wait_seconds:g} s: it is not finished yet, try again"
            )
            raise CniError(TRY_AGAIN, message)


def remove(path: str, fd: int) -> None:
    """Release a lock and delete its file; the descriptor is closed."""
    try:
        posix.unlink(path)  # while it is held: who waits on it finds another file, or none, at the path
    except FileNotFoundError:
        return  # somebody tidied up; it is gone, which is all that was wanted
    finally:
        posix.close(fd)


def _open(path: str) -> int:
    flags = posix.O_RDWR | posix.O_CREAT | posix.O_CLOEXEC
    try:
        return posix.open(path, flags, 0o600)
    except FileNotFoundError:  # first request since the boot: /run is a tmpfs
        for folder in (RUN, FOLDER):
            try:
                posix.mkdir(folder, 0o700)
            except FileExistsError:
                continue
        return posix.open(path, flags, 0o600)


def _locked(fd: int, operation: int, give_up: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                return False
            select.select((), (), (), _POLL_SECONDS)  # flock has no timeout
        else:
            return True


def _is_at(fd: int, path: str) -> bool:
    """Tell whether the locked file is still the one at its path: its last holder may have deleted it."""
    try:
        return posix.fstat(fd).st_ino == posix.stat(path).st_ino
    except FileNotFoundError:
        return False
