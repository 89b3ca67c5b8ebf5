"""The Unix sockets on which a process listens."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Of a line of /proc/net/unix: the flags, the inode, and the path as it was bound (net/unix/af_unix.c, unix_seq_show).
_LINE = re.compile(rb"[0-9a-fA-F]+: [0-9A-F]+ [0-9A-F]+ ([0-9A-F]+) [0-9A-F]+ [0-9A-F]+ +([0-9]+) (/.*)")
_LISTENS = 0x10000  # __SO_ACCEPTCON (include/uapi/linux/net.h)


def listening_paths(proc: Path, pid: int) -> Iterator[str]:
    """Yield the paths of the sockets on which a process listens, as it sees them.

    Raises:
        OSError: it has ended, or the kernel shows them to no other user.
    """
    own = set(_inodes(proc / str(pid) / "fd"))
    for line in (proc / str(pid) / "net/unix").read_bytes().split(b"\n"):
        socket = _LINE.fullmatch(line)
        if socket is not None and int(socket[1], 16) & _LISTENS and socket[2] in own:
            yield os.fsdecode(socket[3])


def _inodes(folder: Path) -> Iterator[bytes]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # it was closed meanwhile
                kind, _, inode = os.fsencode(os.readlink(entry.path)).partition(b":")
                if kind == b"socket":
                    yield inode.strip(b"[]")
