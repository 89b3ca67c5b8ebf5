"""The cluster's resources against the jobs that request them: what is there, requested and free, and what waiting pods wait for.

Pure: nodes and pods are reduced one by one to a few numbers, and added up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from railnet.errors import Misconfigured
from railnet.fabric.published_reach import UNPUBLISHED, PublishedReach
from railnet.jobs.gang.overview import GangPart, GangUse, GangWait, MemberUse, gang_part, gangs
from railnet.jobs.gpus import is_gpu
from railnet.jobs.operators import Operator
from railnet.jobs.pod_progress import Stage, progress
from railnet.jobs.rails_apart import RailsApart, RailsOfPod, rails_apart
from railnet.jobs.recogniser import recognise
from railnet.objects import pod as pods
from railnet.objects.conditions import is_ready
from railnet.objects.network_status import numbers_of, rails_of_pod
from railnet.objects.pod import Pod
from railnet.objects.resource_amounts import CPU, MEMORY, Amounts, allocatable, requested

_ENDED = (Stage.SUCCEEDED, Stage.FAILED)


class Share(NamedTuple):
    """Thousandths of cores, bytes of memory, GPUs and rails."""

    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    rails: int = 0

    def plus(self, other: "Share") -> "Share":
        """Return both together."""
        return Share(*(mine + others for mine, others in zip(self, other, strict=True)))

    def minus(self, other: "Share") -> "Share":
        """Return what is left of this one without the other."""
        return Share(*(mine - others for mine, others in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node.

    Attributes:
        usable: whether it is ready and takes pods.
        room: what it has for pods.
    """

    name: str
    usable: bool
    room: Share


@dataclass(frozen=True, slots=True)
class PodUse:
    """A pod that has not ended.

    Attributes:
        job: its training job; empty if it is no pod of one.
        operator: the name of its operator; empty without a job.
        node: empty before it is bound.
        held: what it requests.
        why: what it waits for, if it does not run; may be empty.
        gang: what it says of its gang; None if it is of none.
        rails: the numbers of the rails that it has.
    """

    namespace: str
    name: str
    job: str
    operator: str
    node: str
    held: Share
    runs: bool
    why: str
    gang: GangPart | None = None
    rails: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class JobUse:
    """A job, or the pods of a namespace that are of no job (`name` is empty).

    Attributes:
        waiting: how many do not run yet, or not at the moment.
        held: what its bound pods request.
        wanted: what its pods request that no node has taken yet.
        reasons: what pods wait for, the most frequent first, each with the number of pods.
        apart: two pods of the job that do not reach each other; None if all do, or if that is not known.
    """

    namespace: str
    name: str
    operator: str
    running: int
    waiting: int
    held: Share
    wanted: Share
    reasons: tuple[tuple[str, int], ...]
    apart: RailsApart | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """The whole view.

    Attributes:
        usable: how many of them are ready and take pods.
        room: what the usable nodes have for pods.
        held: what pods on usable nodes request.
        jobs: sorted by namespace and name; the pods of no job come last in their namespace.
        free: the resources of usable nodes that no pod requests. CPU, memory and GPUs are negative where the pods of nodes request more than
            they still have. Rails are counted for each node, and are never negative: a node whose VFs fail keeps the pods that have them.
        nodes_of_unknown_rails: how many usable nodes have pods with rails and no rails among their resources: they offer VFs by ResourceSlices,
            which are not read here, or their device plugin has not registered. Then the rails of `room` and `free` are those of the other nodes.
        gangs: sorted by namespace and name.
        reach: what is published of which rails reach each other.
    """

    nodes: int
    usable: int
    room: Share
    held: Share
    free: Share
    nodes_of_unknown_rails: int
    jobs: tuple[JobUse, ...]
    gangs: tuple[GangUse, ...] = ()
    reach: PublishedReach = UNPUBLISHED

    @property
    def namespaces(self) -> dict[str, tuple[JobUse, ...]]:
        """The jobs of each namespace."""
        return {name: tuple(jobs) for name, jobs in groupby(self.jobs, lambda job: job.namespace)}


def node_room(node: Mapping[str, Any], rails: frozenset[str]) -> NodeRoom:
    """Reduce a node; `rails` are the resources that are VFs."""
    spec = node.get("spec") or {}
    usable = is_ready(node) and not spec.get("unschedulable")
    return NodeRoom(node["metadata"]["name"], usable, _share(allocatable(node), rails))


def pod_use(pod: Mapping[str, Any], rails: frozenset[str]) -> PodUse | None:
    """Reduce a pod; None if it has ended. `rails` are the resources that are VFs."""
    stage, why = progress(pod)
    if stage in _ENDED:
        return None
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    known = _parsed(pod)
    operator, job = (None, "") if known is None else _job(known)
    return PodUse(
        namespace=metadata["namespace"],
        name=metadata["name"],
        job=job,
        operator=operator.name if operator else "",
        node=spec.get("nodeName") or "",
        held=_share(requested(spec), rails),
        runs=stage is Stage.RUNNING,
        why=why,
        gang=None if known is None else gang_part(known, metadata, job, int(spec.get("priority") or 0), spec),
        rails=numbers_of(rails_of_pod(pod)) if spec.get("nodeName") else frozenset(),
    )


def usage(
    nodes: Iterable[NodeRoom],
    pod_uses: Iterable[PodUse],
    waits: Iterable[GangWait] = (),
    reach: PublishedReach = UNPUBLISHED,
) -> Usage:
    """Add up nodes and pods; `waits` are events about gangs, `reach` says which rails reach each other."""
    all_nodes, all_pods = tuple(nodes), tuple(pod_uses)
    usable = {node.name: node.room for node in all_nodes if node.usable}
    held_on = dict.fromkeys(usable, Share())
    for pod in all_pods:
        if pod.node in usable:
            held_on[pod.node] = held_on[pod.node].plus(pod.held)
    room, held = _total(usable.values()), _total(held_on.values())
    by_job: dict[tuple[str, bool, str], list[PodUse]] = {}
    for pod in all_pods:
        by_job.setdefault((pod.namespace, not pod.job, pod.job), []).append(pod)
    return Usage(
        nodes=len(all_nodes),
        usable=len(usable),
        room=room,
        held=held,
        free=room.minus(held)._replace(
            rails=sum(max(0, mine.rails - held_on[name].rails) for name, mine in usable.items())
        ),
        nodes_of_unknown_rails=sum(not mine.rails and held_on[name].rails > 0 for name, mine in usable.items()),
        jobs=tuple(_job_use(by_job[key], reach) for key in sorted(by_job)),
        gangs=gangs(_members(all_pods), waits),
        reach=reach,
    )


def _members(all_pods: Iterable[PodUse]) -> Iterator[MemberUse]:
    for pod in all_pods:
        if pod.gang is not None:
            yield MemberUse(pod.namespace, pod.runs, pod.gang, bound=bool(pod.node))


def _job_use(pod_uses: list[PodUse], reach: PublishedReach) -> JobUse:
    waiting = [pod for pod in pod_uses if not pod.runs]
    reasons = Counter(pod.why for pod in waiting if pod.why)
    return JobUse(
        namespace=pod_uses[0].namespace,
        name=pod_uses[0].job,
        operator=pod_uses[0].operator,
        running=len(pod_uses) - len(waiting),
        waiting=len(waiting),
        held=_total(pod.held for pod in pod_uses if pod.node),
        wanted=_total(pod.held for pod in pod_uses if not pod.node),
        reasons=tuple(reasons.most_common()),
        apart=rails_apart((RailsOfPod(pod.name, pod.rails) for pod in pod_uses), reach) if pod_uses[0].job else None,
    )


def _parsed(pod: Mapping[str, Any]) -> Pod | None:
    """Parse a pod; None for one that the webhook would refuse: it was created without the webhook."""
    try:
        return pods.parse(pod)
    except Misconfigured:
        return None


def _job(pod: Pod) -> tuple[Operator | None, str]:
    try:
        member = recognise(pod)
    except Misconfigured:
        member = None
    return (member.operator, member.job) if member else (None, "")


def _share(amounts: Amounts, rails: frozenset[str]) -> Share:
    def of(counts: Callable[[str], bool]) -> int:
        return sum(amount for resource, amount in amounts.items() if counts(resource))

    return Share(amounts.get(CPU, 0), amounts.get(MEMORY, 0), of(is_gpu), of(lambda resource: resource in rails))


def _total(shares: Iterable[Share]) -> Share:
    total = Share()
    for share in shares:
        total = total.plus(share)
    return total
