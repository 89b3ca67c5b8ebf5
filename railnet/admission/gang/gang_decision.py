"""The decision about a pod's gang: whether the pod waits for it, and on which nodes it may be. Pure.

It says nothing about rails: `railnet.admission.decision` does, in another review of the same pod.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from railnet.admission.gang import node_affinity_narrowing
from railnet.admission.gang.engine_choice import GATES, ChosenEngine
from railnet.errors import Misconfigured
from railnet.jobs.gang.engine import pod_group_name, why_not_a_pod_group
from railnet.jobs.gang.gang_constraint import CONSTRAINT
from railnet.jobs.gang.other_placement import names_own_group, placed_by_others
from railnet.jobs.gang.recogniser import GATE, OFF, PLACEMENT, SPELLINGS, gang_request, names_gang
from railnet.jobs.gang.request import GangRequest
from railnet.jobs.operators import Default
from railnet.jobs.recogniser import recognise
from railnet.objects.pod import Pod

# What other schedulers read of a gang, and Railnet does not.
_UNREAD = ("gang.scheduling.koordinator.sh/", "scheduling.volcano.sh/")


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """The pod does not wait for a gang.

    Attributes:
        reason: why, a clause.
        gated: whether the pod has the gate, which would hold it for ever, so that it is removed.
    """

    reason: str
    gated: bool = False


@dataclass(frozen=True, slots=True)
class Waits:
    """The pod waits until its gang has its place.

    Attributes:
        request: its gang.
        gated: whether it has the gate already.
        terms: the terms of its required node affinity, which get the constraint's; None if they stay.
        unread: annotations about gangs that have no effect.
        doubt: why the gang may wait for ever, a sentence; empty if nothing says so.
        group: the PodGroup that it waits for; empty if it waits behind the gate.
        grouped: whether it names that PodGroup already.
        engine_doubt: why it waits in another way than the administrator wants, a sentence; empty if it does not.
    """

    request: GangRequest
    gated: bool = False
    terms: tuple[Mapping[str, Any], ...] | None = None
    unread: tuple[str, ...] = ()
    doubt: str = ""
    group: str = ""
    grouped: bool = False
    engine_doubt: str = ""


GangDecision = LeftAlone | Waits


def mentions(pod: Pod) -> bool:
    """Return whether a pod says anything of a gang."""
    return names_gang(pod) or CONSTRAINT in pod.annotations or GATE in pod.gates


def decide(pod: Pod, document: Mapping[str, Any], *, off: bool = False, engine: ChosenEngine = GATES) -> GangDecision:
    """Decide whether a pod waits for its gang.

    Args:
        pod: the pod.
        document: the same pod, as the API server sends it.
        off: whether the label `railnet.io/gang` of the pod's namespace is "off".
        engine: the engine for new pods.

    Raises:
        Misconfigured: the pod's labels or annotations about its gang are malformed.
    """
    others = next(_others(pod, document, off=off), None) if names_gang(pod) else None
    if others is not None:
        return LeftAlone(others, gated=GATE in pod.gates)
    request = gang_request(pod)
    if request is None:
        return LeftAlone(_no_gang(pod), gated=GATE in pod.gates)
    if PLACEMENT in pod.annotations:
        raise Misconfigured(
            f"{PLACEMENT} is written by Railnet when the gang has its place, not by the pod's author; remove it"
        )
    nodes = () if request.constraint is None else request.constraint.nodes
    terms = node_affinity_narrowing.narrowed(document, nodes)
    gated, grouped = GATE in pod.gates, names_own_group(pod, document["spec"])
    doubt, unread = _doubt(pod, request.min_available), tuple(_unread(pod))
    # One that has the gate, or names the group, keeps it: its author, or an earlier review of the same pod, chose it.
    by_group = grouped or (not gated and engine.groups and not why_not_a_pod_group(request, document["spec"]))
    if by_group:
        return Waits(request, gated, terms, unread, doubt, pod_group_name(request.name), grouped)
    return Waits(request, gated, terms, unread, doubt, engine_doubt=engine.doubt)


def _no_gang(pod: Pod) -> str:
    if CONSTRAINT in pod.annotations:
        return f"it has {CONSTRAINT}, but no label names its gang; add {SPELLINGS[0].name} and {SPELLINGS[0].least}"
    return "no label or annotation names a gang"


def _others(pod: Pod, document: Mapping[str, Any], *, off: bool) -> Iterator[str]:
    """Yield why the pod is not Railnet's to place."""
    if off:
        yield f'the label {GATE} of its namespace is "{OFF}"'
    if pod.node and not pod.mirror:
        yield "its author chose its node (spec.nodeName)"
    yield from placed_by_others(pod, document["spec"])


def _unread(pod: Pod) -> Iterator[str]:
    read = {key for spelling in SPELLINGS for key in (spelling.name, spelling.least)}
    return (key for key in sorted(pod.annotations) if key.startswith(_UNREAD) and key not in read)


def _doubt(pod: Pod, least: int | None) -> str:
    """Say that more members must start together than the job seems to have. Operators count differently, so the pod is not refused."""
    try:
        member = recognise(pod)
    except Misconfigured:  # the other review refuses the pod
        return ""
    if (
        member is None or member.size is None or member.operator.default is Default.GANG
    ):  # that one counts each group for itself
        return ""
    if least is None or least <= member.size:
        return ""
    return (
        f"{least} members must start together, and {member.operator.name} says that {member.job:.63} has {member.size} pods: if these are all, the "
        "gang waits for ever"
    )
