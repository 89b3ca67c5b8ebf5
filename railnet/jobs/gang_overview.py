"""The gangs of a cluster as a user looks at them: which pods wait behind the gate, where the others were placed, and what a gang waits for. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from railnet.errors import Misconfigured
from railnet.jobs.gang_recogniser import GATE, PLACEMENT, gang_request
from railnet.objects.owner_reference import controlling, references
from railnet.objects.pod import Pod

WAITING = "GangWaiting"  # the reason of the events that the controllers write
# How the text of such an event begins if the gang has been let go, has members without a node, and is not evicted.
STAYS = "members have no nodes"
_LONGEST_PLACEMENT = 4096
_LONGEST = 300


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
        gated: whether it waits behind the gate.
        place: the labels of the nodes that it was placed on; None if it has not been placed.
        known_as: the names and UIDs by which an event may be about its gang.
    """

    name: str
    least: int | None
    gated: bool
    place: tuple[tuple[str, str], ...] | None
    known_as: frozenset[str]


@dataclass(frozen=True, slots=True)
class GangUse:
    """A gang.

    Attributes:
        pods: how many of its pods have not ended.
        gated: how many of them wait behind the gate.
        least: how many must start together; None if no pod says it.
        places: where its pods were placed; empty if none was.
        why: what it waits for, or why it is not evicted although members have no node, as the latest event says it; may be empty.
    """

    namespace: str
    name: str
    pods: int
    gated: int
    running: int
    least: int | None
    places: tuple[tuple[tuple[str, str], ...], ...]
    why: str


class MemberUse(NamedTuple):
    """A pod of a gang that has not ended; `bound` says whether it has a node."""

    namespace: str
    runs: bool
    part: GangPart
    bound: bool = True


def gang_part(pod: Pod, metadata: Mapping[str, Any], job: str) -> GangPart | None:
    """Reduce a pod; None if it is of no gang. `metadata` is its own, `job` the name of its training job, empty for none."""
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
        gated=GATE in pod.gates,
        place=_place(pod.annotations.get(PLACEMENT)),
        known_as=frozenset(text for text in (*uids, *names) if text),
    )


def gang_wait(event: Mapping[str, Any]) -> GangWait | None:
    """Reduce an event; None if it says nothing of a gang that waits."""
    about = event.get("involvedObject") or {}
    if event.get("reason") != WAITING:
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
    return tuple(_gang(name, list(group), told) for name, group in groupby(sorted(members, key=key), key))


def _gang(key: tuple[str, str], members: list[MemberUse], told: list[GangWait]) -> GangUse:
    namespace, name = key
    gated = sum(member.part.gated for member in members)
    known_as = frozenset().union(*(member.part.known_as for member in members))
    reasons = [wait.said for wait in told if wait.namespace == namespace and known_as & {wait.uid, wait.name}]
    return GangUse(
        namespace=namespace,
        name=name,
        pods=len(members),
        gated=gated,
        running=sum(member.runs for member in members),
        least=max((member.part.least for member in members if member.part.least is not None), default=None),
        places=tuple(sorted({member.part.place for member in members if member.part.place is not None})),
        why=_why(members, reasons[-1] if reasons else ""),
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
