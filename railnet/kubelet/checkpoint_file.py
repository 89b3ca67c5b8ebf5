"""Kubelet's device checkpoint as a file: read again when it has changed, else the result of the last reading.

Here: the file. Not here: its content (`railnet.kubelet.checkpoint`), and the fallback for a checkpoint that is not understood
(`railnet.kubelet.podresources`).
"""

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from railnet.errors import NotReady
from railnet.kubelet import checkpoint, checkpointed_responses
from railnet.kubelet.checkpointed_responses import ContainerAllocation
from railnet.kubelet.file_version import FileVersion

ReadInTime = Callable[[str, Callable[[], Any]], Awaitable[Any]]


class CheckpointFile:
    """Kubelet's device checkpoint in its folder of device plugins (`host.devicePlugins` of the node configuration)."""

    def __init__(self, device_plugins: Path) -> None:
        self.path = device_plugins / "kubelet_internal_checkpoint"
        self._version: FileVersion | None = None
        self._entries: checkpoint.Entries = {}
        self._raw: bytes | None = None
        self._listed: checkpoint.Listed = []

    def read(self) -> checkpoint.Entries:
        """Return the current entries, which the caller must not change; empty if kubelet never allocated a device.

        Raises:
            NotReady: the folder is missing, so it is another one, or kubelet has not started yet.
            ValueError: the file is not understood.
            OSError: the file cannot be read.
        """
        try:
            return self._current()
        except FileNotFoundError:
            return self._absent()

    def allocations(self, pod_uid: str, resources: frozenset[str]) -> tuple[ContainerAllocation, ...]:
        """Return the allocations of one pod's containers; empty without a file.

        Raises:
            ValueError: the file is not understood.
            OSError: the file cannot be read.
        """
        try:
            return checkpointed_responses.of_pod(self._parsed(self.path.read_bytes()), pod_uid, resources)
        except FileNotFoundError:
            return ()

    def surely_names_none(self, pod_uid: str, resources: frozenset[str]) -> bool:
        """Return whether a file that is not understood surely has no device of these resources for a pod."""
        try:
            return checkpoint.surely_names_none(self.path.read_bytes(), pod_uid, resources)
        except OSError:
            return False

    def _current(self) -> checkpoint.Entries:
        if self._version == FileVersion.of(self.path.stat()):
            return self._entries
        with self.path.open("rb") as file:
            version = FileVersion.of(os.fstat(file.fileno()))
            entries = checkpoint.united(self._parsed(file.read()))
        self._version, self._entries = version if version.settled else None, entries
        return entries

    def _parsed(self, raw: bytes) -> checkpoint.Listed:
        """Parse the file, unless its content is that of the last time: an ADD asks for devices and for answers, one after the other."""
        if raw != self._raw:
            self._listed, self._raw = checkpoint.listed(raw), raw
        return self._listed

    def _absent(self) -> checkpoint.Entries:
        if not self.path.parent.is_dir():
            raise NotReady(
                f"{self.path.parent} is missing: kubelet has not started yet, or host.devicePlugins does not name its folder of device plugins"
            )
        return {}


class CheckpointReads:
    """The same file for an event loop: its disk may hang. The methods are those of `CheckpointFile`."""

    def __init__(self, device_plugins: Path, in_time: ReadInTime) -> None:
        """`in_time` does a read, whose file it is told, away from the event loop and one after the other, and raises OSError after a time."""
        self._file = CheckpointFile(device_plugins)
        self._in_time = in_time

    async def read(self) -> checkpoint.Entries:
        """Return the current entries.

        Raises:
            NotReady, ValueError, OSError: as `CheckpointFile.read`; OSError also if the file is not read in time.
        """
        entries: checkpoint.Entries = await self._in_time(str(self._file.path), self._file.read)
        return entries

    async def allocations(self, pod_uid: str, resources: frozenset[str]) -> tuple[ContainerAllocation, ...]:
        """Return the allocations of one pod's containers.

        Raises:
            ValueError, OSError: as `CheckpointFile.allocations`; OSError also if the file is not read in time.
        """
        allocations: tuple[ContainerAllocation, ...] = await self._in_time(
            str(self._file.path), partial(self._file.allocations, pod_uid, resources)
        )
        return allocations

    async def surely_names_none(self, pod_uid: str, resources: frozenset[str]) -> bool:
        """Return whether a file that is not understood surely has no device of these resources for a pod."""
        try:
            return bool(
                await self._in_time(str(self._file.path), partial(self._file.surely_names_none, pod_uid, resources))
            )
        except OSError:
            return False
