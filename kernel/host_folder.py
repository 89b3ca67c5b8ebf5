"""The small files of one folder of the host's, in which other programs keep their books; what is absent is empty."""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kernel.files import open_below

_MOST_BYTES = 1 << 18
_LOCK_SECONDS = 1.0
_LOOK_SECONDS = 0.01


class Entry(NamedTuple):
    """A regular file: its name, at most 256 KiB of its content, and when it was written, in seconds since the epoch."""

    name: str
    content: bytes
    modified: float


def entries(root: Path, folder: str) -> tuple[Entry, ...]:
    """Read every file of the folder `folder` on the host, which is seen at `root`; links and folders in it are passed over.

    Raises:
        OSError: the folder is there and cannot be read.
    """
    try:
        with _opened(root, folder) as fd:
            found = [_entry(fd, name) for name in sorted(os.listdir(fd))]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(entry for entry in found if entry is not None)


def remove(root: Path, folder: str, entry: Entry, lock: str | None = None) -> bool:
    """Remove a file if it is still as it was read; return whether it is gone.

    Args:
        root: where the host is seen.
        folder: where the file is on the host.
        entry: the file.
        lock: the file in the folder that the folder's owner locks (flock) while it changes anything there.

    Raises:
        OSError: EAGAIN, the owner does not let go of its lock; else what is refused.
    """
    try:
        with _opened(root, folder) as fd, _locked(fd, lock):
            now = _entry(fd, entry.name)
            if now is not None and now != entry:
                return False
            with suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError):
        return True
    return True


@contextmanager
def _opened(root: Path, folder: str) -> Iterator[int]:
    fd = open_below(root, folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _locked(folder_fd: int, lock: str | None) -> Iterator[None]:
    if lock is None:
        yield
        return
    # Made if it is absent, as its owner does: both then lock the same file, whichever program comes first.
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder_fd)
    try:
        _lock(fd)
        yield
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    give_up = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                raise
            time.sleep(_LOOK_SECONDS)
        else:
            return


def _entry(folder_fd: int, name: str) -> Entry | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_fd)
    except OSError:  # ELOOP: a link; ENOENT: its owner removed it meanwhile; ENXIO: a socket
        return None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            return None
        return Entry(name, os.read(fd, _MOST_BYTES), facts.st_mtime)
    finally:
        os.close(fd)
