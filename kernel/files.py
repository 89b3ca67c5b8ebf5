"""Files written so that a reader, or the next start, sees the old content or the new one and nothing between."""

import ctypes
import os
import struct
import tempfile
from errno import EXDEV
from pathlib import Path

_SYS_OPENAT2 = 437  # the same on every architecture (include/uapi/asm-generic/unistd.h)
_RESOLVE_IN_ROOT = 0x10


def write_atomically(path: Path, content: bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Replace a file by rename(2) within its folder.

    With `durable` it has survived a power cut when this returns. Records on a tmpfs need none: a reboot ends what they
    are about.

    Raises:
        OSError: the folder is missing or full, naming the file; the old content stays and no temporary file is left.
    """
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(fd, "wb") as file:
            file.write(content)
            os.fchmod(fd, mode)
            if durable:
                file.flush()
                os.fsync(fd)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:  # of a write, which knows a descriptor only
            error.filename = str(path)
        raise
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Put a file's content, or which names a folder has, on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(folder: Path) -> None:
    """Put a folder with all that is below it on disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))


def below(root: Path, absolute: str) -> Path:
    """Return the path by which the host's `absolute` is written to; links in it are followed in our own root.

    For reading, `open_below` follows them in the host's.
    """
    return root / absolute.lstrip("/")


def open_below(root: Path, absolute: str, flags: int = os.O_RDONLY) -> int:
    """Open a path of the host's in its mount namespace as seen at `root` (/proc/1/root from a container, else /).

    Absolute links on the way (Debian's /var/run) lead to where they lead on the host. The caller owns the descriptor.

    Raises:
        OSError: as open(2), with the path.

    Source: openat2(2) with RESOLVE_IN_ROOT, Linux 5.6 (include/uapi/linux/openat2.h).
    """
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)  # struct open_how: flags, mode, resolve
        libc = ctypes.CDLL(None, use_errno=True)
        fd: int = libc.syscall(_SYS_OPENAT2, root_fd, os.fsencode(absolute), how, len(how))
        if fd < 0:
            number = ctypes.get_errno()
            if number == EXDEV:  # a magic link, such as /proc/<pid>/ns/net, which is beneath no root
                return os.open(below(root, absolute), flags | os.O_CLOEXEC)
            raise OSError(number, os.strerror(number), absolute)
        return fd
    finally:
        os.close(root_fd)


def read_below(root: Path, absolute: str) -> bytes:
    """Read a file of the host's, as `open_below`.

    Raises:
        OSError: as `open_below`. ValueError: there is a NUL in the path.
    """
    if "\0" in absolute:
        raise ValueError("there is a NUL in it")
    with open(open_below(root, absolute), "rb") as file:
        return file.read()
