"""Atomic and durable writes, and paths on the host. A reader sees the old content or the new content, never a mixture."""

import ctypes
import os
import stat
import struct
from contextlib import suppress
from errno import EDQUOT, EFBIG, EINVAL, EISDIR, ELOOP, ENOSPC, EXDEV
from itertools import count
from pathlib import Path

from railnet.kernel.libc import LIBC

NO_ROOM = (ENOSPC, EDQUOT)  # the file system has no free block, no free inode, or the user's quota is used up
_SYS_OPENAT2 = 437  # the same on every architecture (include/uapi/asm-generic/unistd.h)
_RESOLVE_IN_ROOT = 0x10
_MOST_LINKS = 40  # MAXSYMLINKS, include/linux/namei.h
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY  # to open a named pipe would wait until a program writes to the pipe
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_numbers = count()  # of this process's temporary files
_MOST_BYTES = 1 << 20  # the files of the host that are read here are configurations of some kilobytes


def write_atomically(path: Path, content: bytes, mode: int = 0o600, *, durable: bool = False) -> None:
    """Replace a file by rename(2) within its folder.

    With `durable`, the new content survives a power cut once this function has returned. A record on a tmpfs does not
    need it: a reboot ends the namespaces that the record describes.

    Raises:
        OSError: the folder is missing or full; the error names the file. The old content stays, and no temporary file is left.
    """
    fd, temporary = _temporary(path)
    try:
        try:
            _write_whole(fd, content)
            os.fchmod(fd, mode)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:  # write(2) knows only a descriptor
            error.filename = str(path)
        raise
    if durable:
        sync(path.parent)


def _temporary(path: Path) -> tuple[int, str]:
    """Make a new empty file beside a path, which begins with a dot and the path's name."""
    folder, name = path.parent, path.name
    while True:
        temporary = f"{folder}/.{name}.{os.getpid()}.{next(_numbers)}"
        with suppress(FileExistsError):  # of another process with this number, which may have ended
            return os.open(temporary, _NEW, 0o600), temporary


def _write_whole(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def overwrite(path: Path, content: bytes) -> None:
    """Replace a file's content in place, followed by spaces up to the file's size: this needs no new block and no new inode.

    A process that is killed during the write may leave a mixture of old and new content.

    Raises:
        OSError: ENOSPC, the content is longer than the file; or as open(2) and write(2). The error names the file.
    """
    with open(path, "r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if len(content) > size:
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(path))
        file.write(content.ljust(size))


def sync(path: Path) -> None:
    """Write a file's content, or a folder's list of names, to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(folder: Path) -> None:
    """Write a folder and everything below it to disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent, name))
        sync(Path(parent))


def below(root: Path, absolute: str) -> Path:
    """Return the path by which this process reaches the host's `absolute`. Use it for writing.

    Symbolic links in the path are followed in this process's root. For reading, `open_below` follows them in the host's root, and
    `followed` returns a path without links.
    """
    return root / absolute.lstrip("/")


def followed(root: Path, absolute: str) -> Path:
    """Return the path by which this process reaches the host's `absolute`, without the links of that path.

    Each symbolic link is followed as on the host, whose root folder is at `root`. What does not exist has no links.

    Raises:
        OSError: ELOOP, the path has more links than the kernel follows; the error names the path.
    """
    top = str(root).rstrip("/")
    pending, path, links = absolute.split("/")[::-1], top, 0
    while pending:
        name = pending.pop()
        if name == "..":
            path = path if path == top else path.rpartition("/")[0]
        elif name not in ("", "."):
            try:
                target = os.readlink(f"{path}/{name}")
            except OSError:  # it is no link, or is absent
                path = f"{path}/{name}"
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(ELOOP, os.strerror(ELOOP), absolute)
            path = top if target.startswith("/") else path
            pending += target.split("/")[::-1]
    return Path(path or "/")


def open_below(root: Path, absolute: str, flags: int = os.O_RDONLY) -> int:
    """Open a path of the host, whose root folder is at `root`: /proc/1/root from a container, else /.

    Absolute symbolic links in the path, such as Debian's /var/run, are followed as on the host. The caller owns the descriptor.

    Raises:
        OSError: as open(2); the error names the path.

    Source: openat2(2) with RESOLVE_IN_ROOT, Linux 5.6 (include/uapi/linux/openat2.h).
    """
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)  # struct open_how: flags, mode, resolve
        fd: int = LIBC.syscall(_SYS_OPENAT2, root_fd, os.fsencode(absolute), how, len(how))
        if fd < 0:
            number = ctypes.get_errno()
            if number == EXDEV:  # a magic link, such as /proc/<pid>/ns/net, leads out of every root
                return os.open(below(root, absolute), flags | os.O_CLOEXEC)
            raise OSError(number, os.strerror(number), absolute)
        return fd
    finally:
        os.close(root_fd)


def read_below(root: Path, absolute: str) -> bytes:
    """Read a regular file of the host, of 1 MiB at most. Symbolic links are followed as in `open_below`.

    Raises:
        OSError: as `open_below`; EISDIR, EINVAL: it is a folder, or a pipe, socket or device; EFBIG: it is larger.
            The error names the path. ValueError: the path contains a NUL.
    """
    if "\0" in absolute:
        raise ValueError("the path contains a NUL")
    return _content(open_below(root, absolute, _READ), absolute, _MOST_BYTES)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Read a regular file that other programs may have replaced by something else; a link at its name is not followed.

    Raises:
        OSError: as `read_below`; ELOOP, it is a link.
    """
    return _content(os.open(path, _READ | os.O_NOFOLLOW | os.O_CLOEXEC), str(path), most_bytes)


def unlink(path: Path) -> None:
    """Remove a file, or nothing. A refusal is tried once more, since the kernel may lack memory for a moment.

    Raises:
        OSError: the kernel refuses it twice, or a folder is there.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError:
        path.unlink(missing_ok=True)


def rmdir(folder: Path) -> None:
    """Remove an empty folder. A refusal is tried once more, as `unlink` does.

    Raises:
        OSError: the kernel refuses it twice.
    """
    try:
        folder.rmdir()
    except OSError:
        folder.rmdir()


def make_way(path: Path) -> None:
    """Remove what has a name that belongs to Railnet alone: a file of any kind, or an empty folder.

    An orchestrator that mounts the path of a file that does not exist yet makes an empty folder there.

    Raises:
        OSError: a folder with files is there, or the kernel refuses.
    """
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        try:
            path.rmdir()
        except OSError as error:
            why = "it is a folder where Railnet makes a file; remove the folder"
            raise OSError(error.errno, f"{error.strerror}: {why}", str(path)) from None


def _content(fd: int, path: str, most_bytes: int) -> bytes:
    """Read a regular file and close it; errors name `path`, since read(2) knows only a descriptor."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(EISDIR, os.strerror(EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(EINVAL, "it is no regular file")
        content = b""
        while chunk := os.read(fd, most_bytes + 1 - len(content)):
            content += chunk
            if len(content) > most_bytes:
                raise OSError(EFBIG, f"it is larger than {most_bytes} bytes")
    except OSError as error:
        error.filename = path
        raise
    else:
        return content
    finally:
        os.close(fd)
