"""A file system in memory that replaces `os` for code that reads sysfs. It is a hundred times faster than files."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from railnet.kernel.sysfs import folder, functions

ROOT = "/sys"
_Node = dict[str, "_Node | bytes | str"]  # a folder, a file's content, or a symbolic link's target


class FakeOs:
    """The used part of `os`. The tree is given as lines: `bus/pci/devices/0000:03:00.0/vendor = 0x15b3`, `… -> ../0000:03:00.1`."""

    O_RDONLY, O_CLOEXEC, O_PATH, O_DIRECTORY, O_WRONLY = (
        os.O_RDONLY,
        os.O_CLOEXEC,
        os.O_PATH,
        os.O_DIRECTORY,
        os.O_WRONLY,
    )
    path = os.path
    strerror = staticmethod(os.strerror)

    def __init__(self, lines: bytes) -> None:
        """Build the tree. A line that contradicts an earlier line is left out."""
        self.root: _Node = {}
        self._open: dict[int, _Node | bytes | str] = {}
        for path, content in entries(lines):
            self._add(path.split("/"), content)

    def _add(self, parts: list[str], content: bytes | str) -> None:
        node = self.root
        for part in parts[:-1]:
            below = node.setdefault(part, {})
            if not isinstance(below, dict):
                return
            node = below
        node.setdefault(parts[-1], content)

    def open(self, path: str, flags: int = 0, mode: int = 0, *, dir_fd: int | None = None) -> int:
        """Open a folder or a file."""
        node = self._find(path, dir_fd)
        if flags & self.O_DIRECTORY and not isinstance(node, dict):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        number = len(self._open)
        self._open[number] = node
        return number

    def close(self, fd: int) -> None:
        """Do nothing: descriptors are not reused."""

    def read(self, fd: int, size: int) -> bytes:
        """Read a file from its beginning."""
        node = self._open[fd]
        if not isinstance(node, bytes):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        if node == b"EINVAL":
            raise OSError(errno.EINVAL, "Invalid argument")
        return node[:size]

    def listdir(self, path: str) -> list[str]:
        """List a folder."""
        node = self._find(path, None)
        if not isinstance(node, dict):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return list(node)

    def stat(self, path: str) -> None:
        """Raise if the path does not exist."""
        self._find(path, None)

    def readlink(self, path: str, *, dir_fd: int | None = None) -> str:
        """Read a link."""
        node = self._find(path, dir_fd)
        if node == "gone":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if not isinstance(node, str):
            raise OSError(errno.EINVAL, "Invalid argument", path)
        return node

    def _find(self, path: str, dir_fd: int | None) -> "_Node | bytes | str":
        node: _Node | bytes | str = self.root if dir_fd is None else self._open[dir_fd]
        relative = path if dir_fd is not None else path.removeprefix(ROOT).lstrip("/")
        for part in relative.split("/") if relative else ():
            if part == ".":
                continue
            if not isinstance(node, dict):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            if part not in node:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            node = node[part]
        return node


def entries(lines: bytes) -> Iterator[tuple[str, bytes | str]]:
    """Yield path and content, or path and target of a link, for every line that a file system could contain."""
    for line in lines.split(b"\n"):
        path, separator, content = line.partition(b" = ")
        target, arrow, to = line.partition(b" -> ")
        name = os.fsdecode(target if arrow else path)
        if not (separator or arrow) or not _is_path(name):
            continue
        if not arrow:
            yield name, content + b"\n" if content != b"EINVAL" else content
        elif to and b"\0" not in to:
            yield name, os.fsdecode(to)


def _is_path(name: str) -> bool:
    return "\0" not in name and all(
        part not in ("", ".", "..") and len(os.fsencode(part)) < 256 for part in name.split("/")
    )


def lines_of(root: Path) -> bytes:
    """Return a tree on disk as lines. PCI devices become folders in place of links, since they are found by their addresses."""
    found = []
    for path in sorted(root.glob("bus/pci/devices/*")):
        for below in sorted(path.resolve().rglob("*")):
            name = f"bus/pci/devices/{path.name}/{below.relative_to(path.resolve())}"
            if below.is_symlink():
                found.append(f"{name} -> {below.readlink()}")
            elif below.is_file():
                found.append(f"{name} = {below.read_text().strip()}")
    return "\n".join(found).encode()


def write(lines: bytes, root: Path) -> None:
    """Write the lines as files and links below a folder on disk."""
    fake = FakeOs(lines)

    def put(node: "_Node | bytes | str", path: Path) -> None:
        if isinstance(node, dict):
            path.mkdir(exist_ok=True)
            for name, below in node.items():
                put(below, path / name)
        elif isinstance(node, bytes):
            path.write_bytes(node)
        else:
            path.symlink_to(node)

    put(fake.root, root)


@contextmanager
def in_place_of_files(lines: bytes) -> Iterator[None]:
    """Let `railnet.kernel.sysfs.functions` read these files."""
    fake = FakeOs(lines)
    real = folder.os, functions.os
    folder.os = functions.os = fake  # type: ignore[assignment]
    try:
        yield
    finally:
        folder.os, functions.os = real  # type: ignore[assignment]
