"""A pod, reduced to what the placement of gangs reads of it: what it holds of its node, or the gang that it waits for.

Ten thousand pods have few different shapes, requests and owners, so these are shared.
"""

from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from railnet.apiserver.request import JsonObject
from railnet.errors import Misconfigured
from railnet.gangs import placement_annotation
from railnet.gangs.gate_removal_patch import Gated, gated
from railnet.gangs.placement.pod_shape import Shape, bytes_of, large_shape, shape
from railnet.gangs.placement_annotation import Placed
from railnet.gangs.pod_group import Grouped, grouped
from railnet.gangs.shared_pod_parts import SMALL_BYTES, KeptParts
from railnet.jobs.gang.gang_constraint import CONSTRAINT
from railnet.jobs.gang.other_placement import placed_by_others
from railnet.jobs.gang.recogniser import GATE, PLACEMENT, gang_request
from railnet.jobs.gang.request import GangRequest
from railnet.jobs.railnet_labels import SIZE
from railnet.jobs.recogniser import RecognisedPod
from railnet.jobs.reported_pod import ReportedPod
from railnet.objects.conditions import condition, unscheduled
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.metadata_times import created, is_deleted
from railnet.objects.owner_reference import OwnerReference, controller
from railnet.objects.pod import Pod
from railnet.objects.pod_claims import pod_claims
from railnet.objects.pod_name import PodName
from railnet.objects.pod_phase import ENDED, SUCCEEDED, phase

_NEVER = "Never"
_STAYING = ("DaemonSet", "Node")  # a Node owns the mirrors of its static pods
_MOST_SHARED = 20_000
_MOST_DIGITS = 6
_MOST_CLAIMS = 64  # that are counted of one pod: its author may name a hundred thousand
_OF_THE_SCHEDULER = ("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints")
_RANKS = 1_000_000  # a rank may have several numbers; no job has more pods (railnet.jobs.recogniser)
_CONSTRAINT_BYTES = 5  # of memory, for a character of a constraint
_TOO_MUCH = (
    f"the pods of this namespace have so many different and long annotations {CONSTRAINT} that no other one is kept; make them shorter or "
    "alike, or delete gangs that wait, and create this one anew"
)
_T = TypeVar("_T")
_Large = TypeVar("_Large", Shape, GangRequest)


@dataclass(frozen=True, slots=True)
class GangPod:
    """A pod that holds something of a node, or is of a gang, or waits behind the gate.

    Attributes:
        node: where it is bound; empty if it is not.
        leaving: whether it has been deleted; what it holds of its node is free when it is gone.
        shape: what it asks of a node.
        preempts: whether it may take the place of pods of lower priority.
        created: in seconds since 1970.
        request: what it says of its gang; None if it is of none.
        fault: why what it says of its gang cannot be read; empty if it can.
        owner: its controller; None for a pod that nothing makes again, and of a pod without a gang.
        role, rank: its place in its job; empty if it does not say it.
        size: how many pods its job has, as its author says it.
        gated: what the patch needs to know that removes its gate; None if it has none.
        foreign_gates: whether scheduling gates of others hold it.
        placed: where this controller has placed it.
        unschedulable: whether the scheduler has found no node for it.
        succeeded: whether it is complete: it holds nothing, and will not come again.
        completed_by_eviction: whether it is complete because its program ended with 0 when it was evicted.
        stays: whether it is on its node also when that has no other pods.
        group: what is to be known of it to give it a place, if it waits for a PodGroup; None if it does not.
        priority_class: the name of its PriorityClass; empty for none, and of a pod that waits for no PodGroup.
        claims: the ResourceClaims that it names itself, and those that were made of its templates.
        claims_to_come: whether a claim of a template is not made yet.
    """

    name: PodName
    node: str
    leaving: bool
    shape: Shape
    priority: int
    preempts: bool
    created: float
    request: GangRequest | None = None
    fault: str = ""
    owner: OwnerReference | None = None
    role: str = ""
    rank: int = 0
    size: int | None = None
    gated: Gated | None = None
    foreign_gates: bool = False
    placed: Placed | None = None
    unschedulable: bool = False
    succeeded: bool = False
    completed_by_eviction: bool = False
    stays: bool = False
    group: Grouped | None = None
    priority_class: str = ""
    claims: tuple[str, ...] = ()
    claims_to_come: bool = False

    @property
    def held(self) -> Gated | Grouped | None:
        """What holds it until its gang has its place; None if nothing does. One that waits for a PodGroup is let go by the annotation of its place."""
        return self.gated if self.gated is not None or self.placed is not None else self.group

    @property
    def nominated(self) -> str:
        """The node on which the scheduler keeps room for it while it is held; empty for none."""
        return "" if self.held is None else self.held.nominated

    @property
    def involved(self) -> InvolvedObject:
        """The pod as what an event is about."""
        return InvolvedObject("v1", "Pod", self.name.namespace, self.name.name, self.name.uid)


class GangPods:
    """Reduces pods, and shares what many of them have in common. One thread uses it."""

    def __init__(self) -> None:
        """Begin without anything to share."""
        self._shared: dict[object, object] = {}
        self._parts: KeptParts[Shape | GangRequest] = KeptParts()

    def reduce(self, reported: ReportedPod) -> GangPod | None:
        """Reduce a pod as the API server reports it; None if it holds nothing and waits for no gang.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the API server sends no such pod.
        """
        pod = reported.document
        spec, metadata = pod["spec"], pod["metadata"]
        ended = phase(pod) in ENDED
        node, behind = "" if ended else spec.get("nodeName") or "", gated(pod)
        request, fault = self._request(reported)
        if (request or fault) and not behind and _is_others(reported):
            request, fault = None, ""
        if not (node or behind or request or fault) or (ended and not _counts(pod, request)):
            return None
        owner, (claims, claims_to_come) = controller(pod), _claims(pod)
        common = GangPod(
            name=PodName(self._share(metadata["namespace"]), metadata["name"], metadata["uid"]),
            node=self._share(node),
            leaving=is_deleted(metadata),
            shape=self._shape(metadata["namespace"], spec if behind or request or fault else _bound(spec)),
            priority=int(spec.get("priority") or 0),
            preempts=spec.get("preemptionPolicy") != _NEVER,
            created=created(metadata),
            stays=owner is not None and owner.kind in _STAYING,
            claims=claims,
            claims_to_come=claims_to_come,
        )
        if not (behind or request or fault):
            return common
        role, rank = _place(reported.member)
        return replace(
            common,
            request=request,
            fault=fault,
            owner=self._share(owner),
            role=self._share(role),
            rank=rank,
            size=_size(metadata),
            gated=behind,
            foreign_gates=any(gate.get("name") != GATE for gate in spec.get("schedulingGates") or ()),
            placed=self._share(_placed(metadata)),
            unschedulable=not node and _is_unschedulable(pod),
            succeeded=ended,
            completed_by_eviction=ended and _is_disrupted(pod),
            group=None if request is None else grouped(pod, request.name),
            priority_class=spec.get("priorityClassName") or "",
        )

    def _shape(self, namespace: str, spec: JsonObject) -> Shape:
        """Return the shape of a pod; without its requirements of a node, if its namespace has too many different ones."""
        kept = self._kept(namespace, shape(spec), bytes_of(spec))
        return self._share(large_shape(spec)) if kept is None else kept

    def _request(self, reported: ReportedPod) -> tuple[GangRequest | None, str]:
        """Return what a pod says of its gang, and why that cannot be read, or is too much for its namespace."""
        request, fault = _request(reported)
        if request is None:
            return None, fault
        metadata = reported.document["metadata"]
        size = _CONSTRAINT_BYTES * len((metadata.get("annotations") or {}).get(CONSTRAINT) or "")
        kept = self._kept(metadata["namespace"], request, size)
        return kept, "" if kept is not None else _TOO_MUCH

    def _kept(self, namespace: str, part: _Large, size: int) -> _Large | None:
        """Return a part that may be large, shared; None if it is one too many of its namespace."""
        if size <= SMALL_BYTES:
            return self._share(part)
        kept: _Large | None = self._parts.keep(namespace, part, size)  # type: ignore[assignment]
        return kept

    def _share(self, part: _T) -> _T:
        if len(self._shared) >= _MOST_SHARED:  # those of pods that are gone are among them
            self._shared.clear()
        first: _T = self._shared.setdefault(part, part)  # type: ignore[assignment]
        return first


def _bound(spec: JsonObject) -> JsonObject:
    """Return the part of a bound pod's specification that says what it holds. The affinity of a DaemonSet's pod names its node, so each is different."""
    return {key: part for key, part in spec.items() if key not in _OF_THE_SCHEDULER}


def _counts(pod: JsonObject, request: GangRequest | None) -> bool:
    """Return whether a pod that has ended counts as a member that came: one that has failed is made again."""
    return request is not None and phase(pod) == SUCCEEDED


def _request(reported: ReportedPod) -> tuple[GangRequest | None, str]:
    """Return what a pod says of its gang, and why that cannot be read."""
    try:
        return gang_request(reported.pod or _with_labels(reported.document["metadata"])), ""
    except Misconfigured as error:  # the webhook refuses such a pod; its labels were changed since
        return None, str(error)


def _with_labels(metadata: JsonObject) -> Pod:
    """Return a pod that cannot be parsed, as far as `gang_request` reads it: its node has to be counted."""
    return Pod(
        name=metadata["name"],
        namespace=metadata["namespace"],
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        containers=(),
    )


def _is_others(reported: ReportedPod) -> bool:
    """Return whether another scheduler places a pod: then it holds what it holds, and is of no gang of Railnet's."""
    pod = reported.pod
    return (
        pod is not None and PLACEMENT not in pod.annotations and any(placed_by_others(pod, reported.document["spec"]))
    )


def _place(member: RecognisedPod | None) -> tuple[str, int]:
    """Return a pod's role and rank in its job, as far as its labels say them."""
    if member is None:
        return "", 0
    rank = 0
    for number in member.rank:
        rank = rank * _RANKS + number
    return member.role.lower(), rank


def _size(metadata: JsonObject) -> int | None:
    """Return the size of the job if its author says it. What operators write counts other things: processes, or pods of one role."""
    text = (metadata.get("annotations") or {}).get(SIZE, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _placed(metadata: JsonObject) -> Placed | None:
    text = (metadata.get("annotations") or {}).get(PLACEMENT)
    return None if text is None else placement_annotation.parse(text)


def _claims(pod: JsonObject) -> tuple[tuple[str, ...], bool]:
    """Return the claims of a pod, of very many the first ones, and whether one of a template is not made yet."""
    named = tuple(pod_claims(pod))
    claims = dict.fromkeys(claim.claim for claim in named if claim.claim)
    return tuple(islice(claims, _MOST_CLAIMS)), not all(claim.is_made for claim in named)


def _is_disrupted(pod: JsonObject) -> bool:
    """Return whether a pod was evicted, by anyone: the API server says so in a condition of the pod."""
    disrupted = condition(pod, "DisruptionTarget")
    return disrupted is not None and disrupted.is_true


def _is_unschedulable(pod: JsonObject) -> bool:
    scheduled = unscheduled(pod)
    return scheduled is not None and scheduled.reason == "Unschedulable"
