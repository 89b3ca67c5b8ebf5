"""Small state files that another program keeps in one folder on the host: read them, remove one if it is unchanged.

An absent folder counts as an empty one.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EAGAIN
from pathlib import Path
from typing import NamedTuple

from railnet.kernel.files import open_below
from railnet.kernel.waiting import block_until

_MOST_BYTES = 1 << 18
_LOCK_SECONDS = 1.0
_LOCK_CHECK_SECONDS = 0.01


class Entry(NamedTuple):
    """A regular file: its name, at most 256 KiB of its content, and its modification time in seconds since the epoch."""

    name: str
    content: bytes
    modified: float


def entries(root: Path, folder: str, modified_since: float | None = None) -> tuple[Entry, ...]:
    """Read every regular file of `folder` on the host, whose root is at `root`. Symbolic links and folders in it are skipped.

    Files that were last modified before `modified_since`, in seconds since the epoch, are skipped before they are read.

    Raises:
        OSError: the folder exists and cannot be read.
    """
    try:
        with _opened(root, folder) as fd:
            files = [_entry(fd, name, modified_since) for name in sorted(os.listdir(fd))]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(entry for entry in files if entry is not None)


def remove(root: Path, folder: str, entry: Entry, lock: str | None = None) -> bool:
    """Remove a file if it is still as it was read. Return whether the file is gone.

    Args:
        root: the path of the host's root folder.
        folder: the file's folder on the host.
        entry: the file.
        lock: the file in the folder that the other program locks (flock) while it changes the folder.

    Raises:
        OSError: EAGAIN, the other program holds its lock for longer than a second; else what the kernel refused.
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
    # An absent lock file is created, as the other program does. So both programs lock the same file.
    fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder_fd)
    try:
        _lock(fd, lock)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, lock: str) -> None:
    if not block_until(lambda: _try_lock(fd), _LOCK_SECONDS, _LOCK_CHECK_SECONDS):
        raise BlockingIOError(EAGAIN, f"another program has held the lock for {_LOCK_SECONDS:g} s", lock)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _entry(folder_fd: int, name: str, modified_since: float | None = None) -> Entry | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_fd)
    except OSError:  # ELOOP: a symbolic link; ENOENT: removed meanwhile; ENXIO: a socket
        return None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or (modified_since is not None and facts.st_mtime < modified_since):
            return None
        return Entry(name, os.read(fd, _MOST_BYTES), facts.st_mtime)
    finally:
        os.close(fd)
