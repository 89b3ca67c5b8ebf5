"""The command lines of the processes that a /proc shows."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class CommandLine(NamedTuple):
    """A process: its number, and the words of its command line."""

    pid: int
    words: tuple[str, ...]


def command_lines(proc: Path, may_read: Callable[[int], bool] = lambda _: True) -> Iterator[CommandLine]:
    """Yield each process with a command line; a thread of the kernel has none.

    A read waits for ever where a process hangs that holds its own memory (`mmap_lock`), as in a page fault on a dead disk. `may_read`
    is asked with the process's number before each read.
    """
    for folder in sorted(proc.glob("[1-9]*"), key=lambda path: (len(path.name), path.name)):
        with suppress(OSError):  # it has ended meanwhile
            words = _words(folder / "cmdline") if folder.name.isdecimal() and may_read(int(folder.name)) else ()
            if words:
                yield CommandLine(int(folder.name), words)


def environment(proc: Path, pid: int) -> dict[str, str]:
    """Return the environment that a process began with.

    Raises:
        OSError: it has ended, or the kernel shows it to no other user.
    """
    return dict(word.partition("=")[::2] for word in _words(proc / str(pid) / "environ"))


def _words(path: Path) -> tuple[str, ...]:
    text = path.read_bytes().decode(errors="surrogateescape")
    return tuple(text.removesuffix("\0").split("\0")) if text else ()
