"""Who is dead: the rule by which the primary's books are compared with what else is known of a container. Pure.

Dead is who no namespace is left of, whom the runtime does not list, and who is older than an ADD may take, since a runtime
lists a sandbox only after its ADD. What is older than this machine's start is dead whoever lists it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cni.primary_gc.state_files import Trace
from vf.address_slice import IpAddress

_BEFORE_BOOT = "it is older than this machine's start"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known besides the books, and was read after them.

    Times are in seconds since the epoch: `now`, and `boot` of this machine. An ADD ends within `add_seconds`. `listed` are
    the containers that the runtime has, None where that is not known. `recorded` are those with a record in the journal,
    which is first to be done. `held` are the addresses in the namespaces that live, `bound` the paths where some are bound.
    """

    now: float
    boot: float
    add_seconds: float
    listed: frozenset[str] | None
    recorded: frozenset[str]
    held: frozenset[IpAddress] = frozenset()
    bound: frozenset[str] = frozenset()


class DeadContainer(NamedTuple):
    """A dead container, why it is known to be, and all that there is of it; without an id, only an address of nobody's."""

    container_id: str | None
    why: str
    traces: tuple[Trace, ...]

    @property
    def before_boot(self) -> bool:
        """Tell whether it is of before this machine's start: then there is nothing of it in the kernel."""
        return self.why == _BEFORE_BOOT


def dead(traces: Collection[Trace], facts: Facts) -> tuple[DeadContainer, ...]:
    """Find the dead among those that the books name."""
    by_container: dict[str | None, list[Trace]] = {}
    for trace in traces:
        by_container.setdefault(trace.container_id, []).append(trace)
    owners = {trace.addresses[0]: trace.container_id for trace in traces if trace.book.kind == "host-local"}
    nobodys = [(None, [trace]) for trace in by_container.pop(None, [])]
    found = []
    for container_id, its in (*by_container.items(), *nobodys):
        why = _why_dead(container_id, its, facts, owners)
        if why is not None:
            found.append(DeadContainer(container_id, why, tuple(its)))
    return tuple(found)


def _why_dead(
    container_id: str | None, traces: list[Trace], facts: Facts, owners: Mapping[IpAddress, str | None]
) -> str | None:
    written = max(trace.entry.modified for trace in traces)
    # What libcni remembers may since have been given to another, whose it is then in the namespace.
    its_own = {ip for trace in traces for ip in trace.addresses if owners.get(ip, container_id) == container_id}
    # The time of its files alone is not believed: before a clock was set right, all was written long ago.
    if container_id in facts.recorded or its_own & facts.held or _is_bound(traces, facts, written):
        return None
    if written < facts.boot:
        return _BEFORE_BOOT
    if facts.now - written < facts.add_seconds:
        return None
    if container_id is None:
        return "whoever reserved it died before saying for whom"
    if facts.listed is None or container_id in facts.listed or not any(trace.sure for trace in traces):
        return None
    return "the runtime does not list it, and no network namespace is left of it"


def _is_bound(traces: list[Trace], facts: Facts, written: float) -> bool:
    paths = {path for trace in traces if trace.cached for path in trace.cached.sandboxes} & facts.bound
    # /proc/<pid>/ns/net is another process's after a reboot.
    return any(written >= facts.boot or not path.startswith("/proc/") for path in paths)
