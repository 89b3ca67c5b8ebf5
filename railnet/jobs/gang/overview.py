"""The gangs of a cluster as a user looks at them: which pods wait, where the others were placed, and what a gang waits for. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from railnet.errors import Misconfigured
from railnet.jobs.gang.other_placement import waits_for_its_group
from railnet.jobs.gang.queue import in_turn
from railnet.jobs.gang.recogniser import GATE, PLACEMENT, described, gang_request
from railnet.jobs.gang.request import Constraint
from railnet.objects.metadata_times import created, created_text
from railnet.objects.owner_reference import controlling, references
from railnet.objects.pod import Pod

WAITING, REFUSED = "GangWaiting", "GangRefused"  # events with these reasons say why a gang has no place
# How the text of such an event begins if the gang has been let go, has members without a node, and is not evicted.
STAYS = "members have no nodes"
_LONGEST_PLACEMENT = 4096
_LONGEST = 1024  # no event about a gang is longer


class GangWait(NamedTuple):
    """An event that says what a gang waits for: about which object, and when it was last said."""

    namespace: str
    name: str
    uid: str
    said: str
    last: str


class GangPart(NamedTuple):
    """A gang, as one pod says it.

    Attributes:
        least: how many members must start together; None if it does not say it.
        gated: whether it waits behind the gate, or for a PodGroup.
        place: the labels of the nodes that it was placed on; None if it has not been placed.
        known_as: the names and UIDs by which an event may be about its gang.
        constraint: where its gang may be; None if it does not say it.
        created: when it was created, as the API server writes times.
        since: the same in seconds since 1970.
    """

    name: str
    least: int | None
    gated: bool
    place: tuple[tuple[str, str], ...] | None
    known_as: frozenset[str]
    constraint: Constraint | None = None
    priority: int = 0
    created: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class GangUse:
    """A gang.

    Attributes:
        pods: how many of its pods have not ended.
        gated: how many of them wait behind the gate, or for a PodGroup.
        least: how many must start together; None if no pod says it.
        places: where its pods were placed; empty if none was.
        why: what it waits for, or why it is not evicted although members have no node, as the latest event says it; may be empty.
        level: where it may be, in words.
        priority: the lowest of its pods.
        created: when its oldest pod was created, as the API server writes times; `since` in seconds since 1970.
        behind: the gang that is served before it, of those that are shown, as `namespace/name`; empty if there is none, or if it does not wait.
    """

    namespace: str
    name: str
    pods: int
    gated: int
    running: int
    least: int | None
    places: tuple[tuple[tuple[str, str], ...], ...]
    why: str
    level: str = ""
    priority: int = 0
    created: str = ""
    since: float = 0.0
    behind: str = ""

    @property
    def queued(self) -> float:
        """Unknown: when an older gang of its namespace got its place is remembered by the controllers alone."""
        return 0.0

    @property
    def waits(self) -> bool:
        """True if no member has begun."""
        return self.gated == self.pods


class MemberUse(NamedTuple):
    """A pod of a gang that has not ended; `bound` says whether it has a node."""

    namespace: str
    runs: bool
    part: GangPart
    bound: bool = True


def gang_part(
    pod: Pod, metadata: Mapping[str, Any], job: str, priority: int = 0, spec: Mapping[str, Any] = MappingProxyType({})
) -> GangPart | None:
    """Reduce a pod; None if it is of no gang. `metadata` and `spec` are its own, `job` the name of its training job, empty for none."""
    try:
        request = gang_request(pod)
    except Misconfigured:  # the webhook refuses such a pod; it was created without the webhook
        return None
    if request is None:
        return None
    owner = controlling(references(metadata)) or {}
    uids, names = {metadata.get("uid"), owner.get("uid")}, {request.name, job, owner.get("name")}
    return GangPart(
        name=request.name,
        least=request.min_available,
        gated=GATE in pod.gates or waits_for_its_group(pod, spec),
        place=_place(pod.annotations.get(PLACEMENT)),
        known_as=frozenset(text for text in (*uids, *names) if text),
        constraint=request.constraint,
        priority=priority,
        created=created_text(metadata),
        since=created(metadata),
    )


def gang_wait(event: Mapping[str, Any]) -> GangWait | None:
    """Reduce an event; None if it does not say why a gang has no place."""
    about = event.get("involvedObject") or {}
    if event.get("reason") not in (WAITING, REFUSED):
        return None
    return GangWait(
        namespace=str(about.get("namespace") or ""),
        name=str(about.get("name") or ""),
        uid=str(about.get("uid") or ""),
        said=f"{' '.join(str(event.get('message') or '').split()):.{_LONGEST}}",
        last=str(event.get("lastTimestamp") or ""),
    )


def gangs(members: Iterable[MemberUse], waits: Iterable[GangWait] = ()) -> tuple[GangUse, ...]:
    """Add up pods by gang, sorted by namespace and name."""

    def key(member: MemberUse) -> tuple[str, str]:
        return member.namespace, member.part.name

    told = sorted(waits, key=lambda wait: wait.last)
    return _with_queue([_gang(name, list(group), told) for name, group in groupby(sorted(members, key=key), key)])


def _with_queue(all_gangs: Sequence[GangUse]) -> tuple[GangUse, ...]:
    """Say of each gang that waits which one is before it."""
    queue = in_turn(gang for gang in all_gangs if gang.waits)
    before = {(gang.namespace, gang.name): first for first, gang in pairwise(queue)}
    return tuple(
        replace(gang, behind=f"{first.namespace}/{first.name}")
        if (first := before.get((gang.namespace, gang.name))) is not None
        else gang
        for gang in all_gangs
    )


def _gang(key: tuple[str, str], members: list[MemberUse], told: list[GangWait]) -> GangUse:
    namespace, name = key
    gated = sum(member.part.gated for member in members)
    known_as = frozenset().union(*(member.part.known_as for member in members))
    reasons = [wait.said for wait in told if wait.namespace == namespace and known_as & {wait.uid, wait.name}]
    oldest = min((member.part for member in members), key=lambda part: part.since)
    constraints = (member.part.constraint for member in members if member.part.constraint is not None)
    return GangUse(
        namespace=namespace,
        name=name,
        pods=len(members),
        gated=gated,
        running=sum(member.runs for member in members),
        least=max((member.part.least for member in members if member.part.least is not None), default=None),
        places=tuple(sorted({member.part.place for member in members if member.part.place is not None})),
        why=_why(members, reasons[-1] if reasons else ""),
        level=described(next(constraints, Constraint())),
        priority=min(member.part.priority for member in members),
        created=oldest.created,
        since=oldest.since,
    )


def _why(members: Iterable[MemberUse], last: str) -> str:
    """Return what the last event about a gang says, if it still holds: an event stays for an hour."""
    if any(member.part.gated for member in members):
        return last
    return last if last.startswith(STAYS) and not all(member.bound for member in members) else ""


def _place(text: str | None) -> tuple[tuple[str, str], ...] | None:
    """Read a placement; what the controllers did not write is none."""
    if text is None or len(text) > _LONGEST_PLACEMENT:
        return None
    try:
        domain = json.loads(text)["domain"]
        return tuple(sorted((str(key), str(value)) for key, value in domain.items()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
