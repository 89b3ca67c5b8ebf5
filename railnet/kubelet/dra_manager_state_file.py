"""Kubelet's `dra_manager_state` as a file: read again when it has changed, else the result of the last reading.

Here: the file. Not here: its content (`railnet.kubelet.dra_manager_state`), and where it is: kubelet's root folder is found while the daemon
serves.
"""

import os
from collections.abc import Callable
from errno import EFBIG, ENOENT
from functools import partial
from typing import BinaryIO

from railnet.kubelet import dra_manager_state
from railnet.kubelet.checkpoint_file import ReadInTime
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.kubelet.dra_manager_state import NAME, PreparedDevices
from railnet.kubelet.file_version import FileVersion

# Kubelet writes some 250 bytes for each device. A node has 1,016 VFs at most, and devices of other drivers.
MOST_BYTES = 16 << 20
_ABSENT = (
    "kubelet has prepared claims, and this file is not in its root folder (host.kubelet of node.yaml, else --root-dir)"
)


class DraManagerStateFile:
    """The claims with devices of Railnet's driver, by kubelet's file."""

    def __init__(self, open_file: Callable[[], int], must_exist: Callable[[], bool] = lambda: False) -> None:
        """Have read nothing yet.

        Args:
            open_file: opens the file where it is now, and returns a descriptor; it raises FileNotFoundError if there is none.
            must_exist: returns whether kubelet has such a file for sure, since it has asked to prepare a claim. Then a file that is not there
                is somewhere else.
        """
        self._open, self._must_exist = open_file, must_exist
        self._version: FileVersion | None = None
        self._claims: tuple[PreparedDevices, ...] = ()

    def read(self) -> tuple[PreparedDevices, ...]:
        """Return the claims; none if kubelet has no such file: no claim was ever prepared.

        Raises:
            ValueError: the file is not understood.
            OSError: the file cannot be read; EFBIG: it is larger than `MOST_BYTES`; ENOENT: it is not there, and it must be.
        """
        try:
            with open(self._open(), "rb") as file:  # noqa: PTH123 - a descriptor
                version = FileVersion.of(os.fstat(file.fileno()))
                if version != self._version:
                    self._claims = dra_manager_state.parse(_content(file), DRIVER)
                    self._version = version if version.settled else None
        except FileNotFoundError:
            if self._must_exist():
                raise FileNotFoundError(ENOENT, _ABSENT, NAME) from None
            return ()
        return self._claims

    def surely_names_none(self, pod_uid: str) -> bool:
        """Return whether a file that is not understood surely has no claim of Railnet's driver for a pod."""
        try:
            with open(self._open(), "rb") as file:  # noqa: PTH123 - a descriptor
                return dra_manager_state.surely_names_none(_content(file), pod_uid, DRIVER)
        except OSError:
            return False


def _content(file: BinaryIO) -> bytes:
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(EFBIG, f"kubelet's {NAME} is larger than {MOST_BYTES} bytes")
    return content


class DraManagerStateReads:
    """The same file for an event loop: its disk may hang. The methods are those of `DraManagerStateFile`."""

    def __init__(
        self, open_file: Callable[[], int], in_time: ReadInTime, must_exist: Callable[[], bool] = lambda: False
    ) -> None:
        """`in_time` is as for `railnet.kubelet.checkpoint_file.CheckpointReads`."""
        self._file = DraManagerStateFile(open_file, must_exist)
        self._in_time = in_time

    async def read(self) -> tuple[PreparedDevices, ...]:
        """Return the claims.

        Raises:
            ValueError, OSError: as `DraManagerStateFile.read`; OSError also if the file is not read in time.
        """
        claims: tuple[PreparedDevices, ...] = await self._in_time(NAME, self._file.read)
        return claims

    async def surely_names_none(self, pod_uid: str) -> bool:
        """Return whether a file that is not understood surely has no claim of Railnet's driver for a pod."""
        try:
            return bool(await self._in_time(NAME, partial(self._file.surely_names_none, pod_uid)))
        except OSError:
            return False
