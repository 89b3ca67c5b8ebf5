"""Files of the simulated sysfs that lie or hang: a file with a bad value, and a file whose read does not return.

The simulated HCA goes on meanwhile. It rewrites some files itself, so only the files that it never rewrites may hang.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from simnode.hardware.hca import Hca


@contextmanager
def bad_value(hca: Hca, path: Path, text: str) -> Iterator[None]:
    """Have a file contain `text` inside the block. A file that the HCA rewrote meanwhile is left as it is then."""
    before: list[str] = []

    def spoil() -> None:
        with suppress(OSError):
            before.append(path.read_text())
            path.write_text(text)

    def restore() -> None:
        with suppress(OSError):
            if before and path.read_text() == text:
                path.write_text(before[0])

    hca.call(spoil)
    try:
        yield
    finally:
        hca.call(restore)


@contextmanager
def hanging(hca: Hca, path: Path) -> Iterator[None]:
    """Have reads of a file hang inside the block. After the block they return an empty text, and new ones the file's own."""
    held: list[tuple[int, str]] = []

    def spoil() -> None:
        staged = path.with_name(f".{path.name}.fifo")
        with suppress(OSError):
            content = path.read_text()
            os.mkfifo(staged)
            # O_RDWR: a reader's open(2) succeeds, and its read(2) waits as long as this descriptor may still write.
            held.append((os.open(staged, os.O_RDWR | os.O_CLOEXEC), content))
            staged.rename(path)

    def restore() -> None:
        for fd, content in held:
            with suppress(OSError):
                if stat.S_ISFIFO(path.stat().st_mode):  # else the function has gone and come back meanwhile
                    staged = path.with_name(f".{path.name}.own")
                    staged.write_text(content)
                    staged.rename(path)
            os.close(fd)

    hca.call(spoil)
    try:
        yield
    finally:
        hca.call(restore)
