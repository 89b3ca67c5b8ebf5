"""One folder of sysfs and the small files below it. An absent file or link is None, not an error.

A value that cannot be read or understood is no error either: the caller gets the fact's default, and the folder notes the fault in
words. So one bad file of a function costs that function alone, and the caller decides what is done with the function.
"""

import os
import re
from collections.abc import Callable
from errno import EACCES, EINVAL, EIO, EMFILE, ENFILE, ENODATA, ENODEV, ENOENT, ENOMEM, ENOTDIR, EOPNOTSUPP, EPERM
from typing import Self, TypeVar

_Value = TypeVar("_Value")
_READ = os.O_RDONLY | os.O_CLOEXEC
_MOST_BYTES = 256  # no file that Railnet reads in sysfs is longer
# ENODEV: the device went away between the lookup of the file and its opening (kernfs_fop_open(), fs/kernfs/file.c).
_ABSENT = (ENOENT, ENOTDIR, ENODEV)
# EINVAL: the link is down; ENODEV: the device is going away; the others: the driver has no such fact.
_NOT_NOW = (EINVAL, ENODEV, EOPNOTSUPP, ENODATA)
OF_THE_DAEMON = (EMFILE, ENFILE, ENOMEM)  # the daemon or the node lacks something: no fault of the function
_NUMBER = re.compile(r"-?[0-9]{1,10}|0x[0-9a-f]{1,8}")
_LARGEST = 0xFFFFFFFF  # no number that Railnet reads has more than 32 bits
_REMEDY = "look in dmesg, then bind the driver again or reset the device"
NOT_PERMITTED = "this process lacks the right to read it, which says nothing of the device"
"""The end of a fault that is the reader's."""


class Unreadable(OSError):
    """A fact of a function cannot be read or understood. The message names the file, the value and the remedy."""

    def __init__(self, fault: str) -> None:
        super().__init__(EIO, fault)


class SysfsFolder:
    """An open folder of sysfs. A lookup from an open folder costs less than one from the root.

    Attributes:
        fault: the first value that could not be read or understood, with the remedy; None if there is none.
        faults: how many there are.
    """

    def __init__(self, path: str) -> None:
        """Open the folder; the context manager closes it.

        Raises:
            OSError: ENOENT, the folder is absent.
        """
        self.fault: str | None = None
        self.faults = 0
        self._path = path
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def text(self, name: str) -> str | None:
        """Read a file. Return None if it is absent, or unreadable in the device's present state; any other error is a fault."""
        try:
            fd = os.open(name, _READ, dir_fd=self._fd)
        except OSError as error:
            self._note_refusal(name, error, _ABSENT)
            return None
        try:
            return os.read(fd, _MOST_BYTES).decode(errors="backslashreplace").strip()
        except OSError as error:
            self._note_refusal(name, error, _NOT_NOW)
            return None
        finally:
            os.close(fd)

    def value(self, name: str, parse: Callable[[str], _Value]) -> _Value | None:
        """Read a file and parse its text; a ValueError of `parse` is a fault. Return None if the file is absent, or at a fault."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.note(name, str(error))
            return None

    def number(self, name: str, absent: int) -> int:
        """Read a file that holds a decimal number, or a hexadecimal one with `0x`.

        Return `absent` where there is no file, and at a fault.
        """
        number = self.value(name, _parse_number)
        return absent if number is None else number

    def names(self, name: str) -> list[str]:
        """List the names in a subfolder, sorted. Return none if it is absent, or at a fault."""
        try:
            return sorted(os.listdir(f"{self._path}/{name}"))
        except OSError as error:
            self._note_refusal(name, error, _ABSENT)
            return []

    def target(self, name: str) -> str | None:
        """Return the last part of a symbolic link's target; None if the link is absent, or at a fault."""
        try:
            return os.path.basename(os.readlink(name, dir_fd=self._fd))
        except OSError as error:
            self._note_refusal(name, error, _ABSENT)
            return None

    def note(self, name: str, what: str, remedy: str = _REMEDY) -> None:
        """Note a fault of a file; the first one is kept in words."""
        self.faults += 1
        self.fault = self.fault or f"{self._path}/{name}: {what}; {remedy}"

    def require(self) -> None:
        """Raise if there is a fault.

        Raises:
            Unreadable: there is one.
        """
        if self.fault is not None:
            raise Unreadable(self.fault)

    def _note_refusal(self, name: str, error: OSError, expected: tuple[int, ...]) -> None:
        if error.errno in OF_THE_DAEMON:
            raise error
        if error.errno not in expected:
            remedy = NOT_PERMITTED if error.errno in (EACCES, EPERM) else _REMEDY
            self.note(name, f"cannot be read: {error.strerror}", remedy)


def _parse_number(text: str) -> int:
    if (
        _NUMBER.fullmatch(text) is None
        or not -1 <= (number := int(text, 16 if text.startswith("0x") else 10)) <= _LARGEST
    ):
        raise ValueError(f"{text!r:.80} is not a number of at most 32 bits")
    return number
