"""The rule by which a container that state files of the primary network name is alive or dead. Pure.

A container is dead if no network namespace of it is left, the runtime does not list it, and its files are older than an ADD
may take, since a runtime lists a sandbox only after its ADD. A container whose files are older than this boot is dead even
if the runtime lists it. Reclaiming what is left of it is `cni.primary_gc.collector`'s.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cni.primary_gc.state_files import StateFile
from railnet.vf.address_slice import IpAddress

_BEFORE_BOOT = "it is older than this machine's start"


@dataclass(frozen=True, slots=True)
class LivenessFacts:
    """The facts of containers that are known beside the state files, read after them.

    Times are in seconds since the epoch: `now`, and `boot` of this machine. An ADD ends within `add_seconds`. `listed` are
    the containers that the runtime lists, None if that is not known. `recorded` are those with a record in the journal,
    whose rails are taken back first. `held` are the addresses in network namespaces, `bound` the paths where namespaces are
    bound.
    """

    now: float
    boot: float
    add_seconds: float
    listed: frozenset[str] | None
    recorded: frozenset[str]
    held: frozenset[IpAddress] = frozenset()
    bound: frozenset[str] = frozenset()


class DeadContainer(NamedTuple):
    """A dead container, the reason why it is dead, and its files; the id is None for an address reserved without an owner."""

    container_id: str | None
    why: str
    files: tuple[StateFile, ...]

    @property
    def before_boot(self) -> bool:
        """Return whether its files are older than this machine's start: then the kernel has nothing of it."""
        return self.why == _BEFORE_BOOT


def dead_containers(files: Collection[StateFile], facts: LivenessFacts) -> tuple[DeadContainer, ...]:
    """Find the dead containers among those that the files name."""
    by_container: dict[str | None, list[StateFile]] = {}
    for file in files:
        by_container.setdefault(file.container_id, []).append(file)
    owners = {file.addresses[0]: file.container_id for file in files if file.folder.kind == "host-local"}
    without_owner = [(None, [file]) for file in by_container.pop(None, [])]
    dead = []
    for container_id, of_container in (*by_container.items(), *without_owner):
        why = _why_dead(container_id, of_container, facts, owners)
        if why is not None:
            dead.append(DeadContainer(container_id, why, tuple(of_container)))
    return tuple(dead)


def _why_dead(
    container_id: str | None, files: list[StateFile], facts: LivenessFacts, owners: Mapping[IpAddress, str | None]
) -> str | None:
    written = max(file.entry.modified for file in files)
    # An address in libcni's cached result may belong to another container now; then it is found in that one's namespace.
    addresses = {ip for file in files for ip in file.addresses if owners.get(ip, container_id) == container_id}
    # The files' time alone is not enough: files that were written before a clock was set right seem old.
    if container_id in facts.recorded or addresses & facts.held or _is_bound(files, facts, written):
        return None
    if written < facts.boot:
        return _BEFORE_BOOT
    if facts.now - written < facts.add_seconds:
        return None
    if container_id is None:
        return "the reservation names no owner: its host-local died while it wrote it"
    if facts.listed is None or container_id in facts.listed or not any(file.readable for file in files):
        return None
    return "the runtime does not list it, and no network namespace is left of it"


def _is_bound(files: list[StateFile], facts: LivenessFacts, written: float) -> bool:
    paths = {path for file in files if file.cached for path in file.cached.sandboxes} & facts.bound
    # After a reboot /proc/<pid>/ns/net belongs to another process.
    return any(written >= facts.boot or not path.startswith("/proc/") for path in paths)
