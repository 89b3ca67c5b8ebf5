"""One folder of sysfs and the small files below it. An absent file or link is None, not an error."""

import os
from errno import ENODEV, ENOENT, ENOTDIR
from typing import Self

_READ = os.O_RDONLY | os.O_CLOEXEC
_MOST_BYTES = 256  # no file that Railnet reads in sysfs is longer
# ENODEV: the device went away between the lookup of the file and its opening (kernfs_fop_open(), fs/kernfs/file.c).
_ABSENT = (ENOENT, ENOTDIR, ENODEV)


class SysfsFolder:
    """An open folder of sysfs. A lookup from an open folder costs less than one from the root."""

    def __init__(self, path: str) -> None:
        """Open the folder; the context manager closes it.

        Raises:
            OSError: ENOENT, the folder is absent.
        """
        self._path = path
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def text(self, name: str) -> str | None:
        """Read a file. Return None if it is absent, or unreadable in the device's present state."""
        try:
            fd = os.open(name, _READ, dir_fd=self._fd)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            return None
        try:
            return os.read(fd, _MOST_BYTES).decode().strip()
        except OSError:  # EINVAL: the link is down; ENODEV: the device is going away
            return None
        finally:
            os.close(fd)

    def number(self, name: str, absent: int) -> int:
        """Read a file that holds a decimal number, or a hexadecimal one with `0x`. Return `absent` where there is no file."""
        text = self.text(name)
        return absent if text is None else int(text, 0)

    def names(self, name: str) -> list[str]:
        """List the names in a subfolder, sorted. Return none if it is absent."""
        try:
            return sorted(os.listdir(f"{self._path}/{name}"))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def target(self, name: str) -> str | None:
        """Return the last part of a symbolic link's target; None if the link is absent."""
        try:
            return os.path.basename(os.readlink(name, dir_fd=self._fd))
        except FileNotFoundError:
            return None
