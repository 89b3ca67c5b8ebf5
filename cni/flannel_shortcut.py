"""Decides which runs of flannel's plugin the executable leaves out: it executes flannel's delegate itself, with flannel's own state.

flannel's plugin reads `subnetFile`, merges it with its configuration, writes the sum to a file of the container (its state), and executes
the sum's `type` with it; the container's id is in the file's name only (flannel-io/cni-plugin, flannel_linux.go, all releases). So flannel
itself serves the first two pods of a configuration. If it leaves the same state for both, later pods get this state and its delegate.
A DEL executes what the container's state says, as flannel does (docs/decisions/0060).
"""

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

from cni.host import flannel_state_backup
from cni.host.chain import OURSELVES, Exec
from cni.host.environment import ADD, DEL, is_container_id
from cni.host.errors import CniError
from cni.host.json_object import load_object
from cni.host.result_version_conversion import number
from railnet.kernel.files import open_below, read_below

_log = logging.getLogger(__name__)

FLANNEL = "flannel"
_SUBNET_FILE = "/run/flannel/subnet.env"  # flannel.go, defaultSubnetFile
_CONFIGURATIONS = 8  # a node has one; and one more after each change of subnet.env
_MOST_BYTES = 16384  # of a configuration, and of a state; flannel's own have some hundred
# flannel prints its delegate's result anew, by the types of its own libcni. To results before 1.0.0 only fields of routes were added, and a
# state of flannel's has no such route. A later result may have fields that an older flannel drops, so it is printed by flannel.
_RESULTS_MAY_GROW_SINCE = (1, 0, 0)
_ELF = b"\x7fELF"


class FileIdentity(NamedTuple):
    """These facts of a file change when the file is written or replaced; the times are in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class FlannelConfiguration(NamedTuple):
    """All that flannel's plugin makes a state from: its stdin, `subnetFile`, and itself."""

    stdin: bytes
    subnet: FileIdentity
    program: FileIdentity


class StateComparison(Enum):
    """The answer to the question whether all containers of a configuration get the same state."""

    UNKNOWN = auto()
    SAME = auto()
    DIFFERENT = auto()


@dataclass(frozen=True, slots=True)
class FlannelState:
    """Flannel left this of one configuration: the first container, its state, and how the states of others compare."""

    container_id: str
    state: bytes
    verdict: StateComparison = StateComparison.UNKNOWN


def compared(before: FlannelState | None, container_id: str, state: bytes) -> FlannelState:
    """Return what is known after flannel left this state for this container. Two states that differ once differ for ever."""
    if before is None:
        return FlannelState(container_id, state)
    if before.state != state:
        return replace(before, verdict=StateComparison.DIFFERENT)
    if before.verdict is StateComparison.UNKNOWN and before.container_id != container_id:
        return replace(before, verdict=StateComparison.SAME)
    return before


def delegate_of(state: bytes) -> str | None:
    """Return the plugin that flannel executes for a state; None if it is no state, or names a plugin that cannot be right."""
    try:
        kind = load_object(state, "flannel's state").get("type")
    except CniError:
        return None
    plain = isinstance(kind, str) and kind.isascii() and kind.isprintable() and "/" not in kind and kind[:1] != "."
    return kind if plain and kind not in ("", FLANNEL, OURSELVES) else None


class Delegated(NamedTuple):
    """The plugin that is executed in place of flannel's, the path of the container's state on the host, and the state: its stdin."""

    plugin: str
    path: str
    state: bytes


class FlannelRun:
    """One run of flannel's plugin. `delegated` is what may be executed in its place, if anything."""

    __slots__ = ("_container_id", "_known_by", "_path", "configuration", "delegated")

    def __init__(
        self,
        known_by: "FlannelDelegates",
        container_id: str,
        path: str,
        configuration: FlannelConfiguration | None,
        delegated: Delegated | None,
    ) -> None:
        """`configuration`: None if this run teaches nothing."""
        self._known_by = known_by
        self._container_id = container_id
        self._path = path
        self.configuration = configuration
        self.delegated = delegated

    def succeeded(self, again: "FlannelRun | None") -> None:
        """Learn from the state that flannel left. `again` is the same run, asked for once more after it: was nothing changed meanwhile?"""
        if self.configuration is not None and again is not None and again.configuration == self.configuration:
            self._known_by.learn(self.configuration, self._container_id, self._path)


class FlannelDelegates:
    """Keeps the states that flannel left for pods of this node, in memory alone: a new daemon asks flannel for two pods again."""

    def __init__(self, root: Path) -> None:
        """`root` is where the host's mount namespace is seen."""
        self._root = root
        self._seen: dict[FlannelConfiguration, FlannelState] = {}

    def run(self, step: Exec, environ: Mapping[bytes, bytes]) -> FlannelRun | None:
        """Look at a step of a request with this environment; None: it is not flannel's, or flannel has to run in any case."""
        if step.plugin != FLANNEL or step.command not in (ADD, DEL) or len(step.stdin) > _MOST_BYTES:
            return None
        try:
            program = self._program(environ.get(b"CNI_PATH", b"").decode())
            container_id = environ.get(b"CNI_CONTAINERID", b"").decode()
            if program is None or not is_container_id(container_id):
                return None
            conf = load_object(step.stdin, "flannel's configuration")
            path = f"{conf.get('dataDir') or flannel_state_backup.FOLDER}/{container_id}"
            if step.command == DEL:
                return FlannelRun(self, container_id, path, None, _delegated(path, read_below(self._root, path)))
            subnet = self._identity(str(conf.get("subnetFile") or _SUBNET_FILE))
        except (OSError, ValueError, CniError):  # flannel itself says what is wrong
            return None
        grows = number(str(conf.get("cniVersion", "0.1.0"))) >= _RESULTS_MAY_GROW_SINCE
        return None if grows else self._add(FlannelConfiguration(step.stdin, subnet, program), container_id, path)

    def _add(self, configuration: FlannelConfiguration, container_id: str, path: str) -> FlannelRun | None:
        seen = self._seen.get(configuration)
        if seen is None or seen.verdict is StateComparison.UNKNOWN:
            return FlannelRun(self, container_id, path, configuration, None)
        if seen.verdict is StateComparison.DIFFERENT:
            return None
        return FlannelRun(self, container_id, path, None, _delegated(path, seen.state))

    def learn(self, configuration: FlannelConfiguration, container_id: str, path: str) -> None:
        """Read the state that flannel left for this container, and compare it with those before."""
        try:
            state = read_below(self._root, path)
        except (OSError, ValueError):
            return
        before = self._seen.pop(configuration, None)
        self._seen[configuration] = now = compared(before, container_id, state)
        while len(self._seen) > _CONFIGURATIONS:
            del self._seen[next(iter(self._seen))]
        plugin = delegate_of(state)
        if plugin is not None and before is not None and before.verdict is not now.verdict:
            _log.info(_LEARNT[now.verdict], plugin)

    def _program(self, cni_path: str) -> FileIdentity | None:
        """Identify the flannel in CNI_PATH; None if it is no ELF program: a script may do more for each pod than flannel does."""
        for folder in filter(None, cni_path.split(":")):
            try:
                fd = open_below(self._root, f"{folder}/{FLANNEL}", os.O_RDONLY | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
                    return _identity(status) if os.read(fd, len(_ELF)) == _ELF else None
            finally:
                os.close(fd)
        return None

    def _identity(self, path: str) -> FileIdentity:
        fd = open_below(self._root, path, os.O_PATH)
        try:
            return _identity(os.fstat(fd))
        finally:
            os.close(fd)


_LEARNT = {
    StateComparison.SAME: "flannel made the same configuration for two pods: the executable runs %s itself until flannel's files change",
    StateComparison.DIFFERENT: "flannel makes another configuration for each pod: it is run for every pod (the last one executes %s)",
}


def _identity(status: os.stat_result) -> FileIdentity:
    return FileIdentity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _delegated(path: str, state: bytes) -> Delegated | None:
    plugin = delegate_of(state) if len(state) <= _MOST_BYTES else None
    return None if plugin is None else Delegated(plugin, path, state)
