"""One folder of sysfs and the small files below it: what is absent is None, never an error."""

import os
from errno import ENODEV, ENOENT, ENOTDIR
from typing import Self

_READ = os.O_RDONLY | os.O_CLOEXEC
_MOST_BYTES = 256  # no file that is read here has more
# The last is of a device that goes away between the look for the file and its opening (kernfs_fop_open(), fs/kernfs/file.c).
_ABSENT = (ENOENT, ENOTDIR, ENODEV)


class Folder:
    """A folder, held open: to look its files up from there costs less than from the root each time."""

    def __init__(self, path: str) -> None:
        """Open it; a context manager closes it.

        Raises:
            OSError: ENOENT, it is not there.
        """
        self._path = path
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def text(self, name: str) -> str | None:
        """Read a file; None where it is absent, or not to be read in the device's present state."""
        try:
            fd = os.open(name, _READ, dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            return None
        try:
            return os.read(fd, _MOST_BYTES).decode().strip()
        except OSError:  # EINVAL of a link that is down, ENODEV of a device that is going away
            return None
        finally:
            os.close(fd)

    def number(self, name: str, absent: int) -> int:
        """Read a file that holds a number, with `0x` if it is hexadecimal."""
        text = self.text(name)
        return absent if text is None else int(text, 0)

    def names(self, name: str) -> list[str]:
        """List a folder below; empty where it is absent."""
        try:
            return sorted(os.listdir(f"{self._path}/{name}"))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def target(self, name: str) -> str | None:
        """Return the last part of where a link leads to; None where it is absent."""
        try:
            return os.path.basename(os.readlink(name, dir_fd=self._fd))
        except FileNotFoundError:
            return None
