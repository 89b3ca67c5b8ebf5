"""Kubelet's device checkpoint as a file that changes: read when it changed, remembered while it did not.

Here: the file. Not here: its content (`kubelet.checkpoint`), and what to do when it is not understood (the fallback
is `kubelet.podresources`).
"""

import os
import time
from pathlib import Path
from typing import NamedTuple

from kubelet import allocations, checkpoint
from kubelet.allocations import Answer
from vf.errors import NotReady

# The kernel stamps a file with its coarse clock, 1 to 10 ms a tick (CONFIG_HZ): two writes within one tick can look
# the same. What was read so soon after it was written is therefore not remembered.
_SETTLED_NS = 100_000_000


class _Version(NamedTuple):
    """What tells one content of the file from the next: kubelet writes a new file and renames it."""

    inode: int
    mtime_ns: int
    size: int


class CheckpointFile:
    """Kubelet's device checkpoint below its state folder (`host.kubelet` of the node configuration)."""

    def __init__(self, kubelet: Path) -> None:
        self.path = kubelet / "device-plugins" / "kubelet_internal_checkpoint"
        self._version: _Version | None = None
        self._entries: checkpoint.Entries = {}

    def read(self) -> checkpoint.Entries:
        """Return the entries of now; empty where kubelet never allocated a device. Not to be changed by the caller.

        Raises:
            NotReady: the device-plugins folder is missing, so this is not kubelet's state folder, or not yet.
            ValueError: the file is not understood.
            OSError: the file cannot be read.
        """
        try:
            return self._current()
        except FileNotFoundError:
            return self._absent()

    def answers(self, pod_uid: str, resources: frozenset[str]) -> tuple[Answer, ...]:
        """Return what was answered for one pod's containers; nothing where there is no file.

        Raises:
            ValueError: the file is not understood. OSError: it cannot be read.
        """
        try:
            return allocations.parse(self.path.read_bytes(), pod_uid, resources)
        except FileNotFoundError:
            return ()

    def _current(self) -> checkpoint.Entries:
        if self._version == _version(self.path.stat()):
            return self._entries
        with self.path.open("rb") as file:
            version = _version(os.fstat(file.fileno()))
            entries = checkpoint.parse(file.read())
        settled = time.time_ns() - version.mtime_ns > _SETTLED_NS
        self._version, self._entries = version if settled else None, entries
        return entries

    def _absent(self) -> checkpoint.Entries:
        if not self.path.parent.is_dir():
            raise NotReady(
                f"{self.path.parent} is missing: kubelet has not started yet, or host.kubelet does not name its folder"
            )
        return {}


def _version(stat: os.stat_result) -> _Version:
    return _Version(stat.st_ino, stat.st_mtime_ns, stat.st_size)
