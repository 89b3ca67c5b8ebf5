"""inotify: a stream of events about the files of watched directories.

The caller acts on the events.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simnode.linux import libc

# include/uapi/linux/inotify.h
IN_CLOSE_WRITE = 0x8
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
_EVENT = struct.Struct("iIII")
_BUFFER_BYTES = 65536


class FileEvent(NamedTuple):
    """One event about the file `path`; `mask` has the IN_* bits of its kind."""

    path: Path
    mask: int


class DirectoryWatch:
    """A non-blocking inotify descriptor and the directories that it watches; `close` closes it."""

    def __init__(self) -> None:
        self._fd = libc.inotify_init(os.O_NONBLOCK | os.O_CLOEXEC)
        self._directories: dict[int, Path] = {}

    def fileno(self) -> int:
        """Return the descriptor for a selector; this object still owns it."""
        return self._fd

    def add(self, directory: Path, mask: int) -> None:
        """Watch the files of a directory."""
        self._directories[libc.inotify_add_watch(self._fd, str(directory), mask)] = directory

    def events(self) -> Iterator[FileEvent]:
        """Yield the events so far, in order; events of a directory that was removed are left out."""
        while True:
            try:
                data = os.read(self._fd, _BUFFER_BYTES)
            except BlockingIOError:
                return
            yield from self._parse(data)

    def _parse(self, data: bytes) -> Iterator[FileEvent]:
        offset = 0
        while offset < len(data):
            descriptor, mask, _, length = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size
            name = data[offset : offset + length].rstrip(b"\0").decode()
            offset += length
            directory = self._directories.get(descriptor)
            if directory is not None and name:
                yield FileEvent(directory / name, mask)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)
