"""A gang as the planner sees it, from its pods: those that wait, those that have a place, and the members that are still to come."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from railnet.gangs.placement.gang import Domain, Gang, Member
from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.placement_annotation import Placed
from railnet.gangs.planning_result import Root
from railnet.gangs.pod import GangPod
from railnet.gangs.pod_templates import PodTemplate
from railnet.jobs.gang.request import Constraint, GangRequest
from railnet.objects.pod_name import PodName

_ANYWHERE = Constraint()
_MOST_TO_COME = 20_000  # of one gang; how many start together says the rest, and the planner needs no member for each


@dataclass(frozen=True, slots=True)
class Members:
    """The pods of a gang, by how far they are.

    Attributes:
        waiting: those behind the gate, and those that wait for a PodGroup and have not been told their place.
        placed: those that have a place, and no node yet; also those whose patch is under way.
        bound: those that have a node.
        leaving: those that have been deleted, wherever they are.
        succeeded: those that are complete.
    """

    waiting: tuple[GangPod, ...]
    placed: tuple[GangPod, ...]
    bound: tuple[GangPod, ...]
    leaving: tuple[GangPod, ...]
    succeeded: tuple[GangPod, ...] = ()

    @property
    def living(self) -> tuple[GangPod, ...]:
        """All that have not been deleted."""
        return (*self.bound, *self.placed, *self.waiting)

    @property
    def came(self) -> tuple[GangPod, ...]:
        """All that have come and need not come again: complete ones as well, unless they are of an earlier run of the job."""
        living = self.living
        owners = {pod.owner for pod in living}
        oldest = min((pod.created for pod in living), default=0.0)
        return (*living, *(pod for pod in self.succeeded if pod.owner in owners or pod.created >= oldest))

    @property
    def begun(self) -> tuple[GangPod, ...]:
        """Those that have a place or a node."""
        return (*self.bound, *self.placed)

    @property
    def is_let_go(self) -> bool:
        """Whether Railnet has given a member that has begun its place, or does so now. One without a place was created without a gate."""
        return any(pod.placed is not None or pod.held is not None for pod in self.begun)


def members(gang_pods: Iterable[GangPod], assigned: Collection[PodName]) -> Members:
    """Sort the pods of a gang; `assigned` are those whose patch is under way."""
    waiting, placed, bound, leaving, succeeded = [], [], [], [], []
    for pod in sorted(gang_pods, key=lambda pod: pod.name):
        if pod.succeeded:
            succeeded.append(pod)
        elif pod.leaving:
            leaving.append(pod)
        elif pod.node:
            bound.append(pod)
        elif pod.held is None or pod.name in assigned:
            placed.append(pod)
        else:
            waiting.append(pod)
    return Members(tuple(waiting), tuple(placed), tuple(bound), tuple(leaving), tuple(succeeded))


def is_size_known(request: GangRequest, gang_pods: Members, root: Root | None) -> bool:
    """Return whether it is known how many members there will be: otherwise those that have come are all that count."""
    says_size = request.min_available is not None or any(pod.size for pod in gang_pods.living)
    return says_size or (root is not None and sum(template.count for template in root.templates) >= len(gang_pods.came))


def needs_root(request: GangRequest, gang_pods: Members) -> bool:
    """Return whether the object that makes the pods has to be read: members are missing, or it alone says how many there will be."""
    size = max((pod.size or 0 for pod in gang_pods.living), default=0) or request.min_available
    return size is None or len(gang_pods.came) < max(size, request.min_available or 0)


def needed(request: GangRequest, gang_pods: Members, root: Root | None) -> int:
    """Return how many members start together, of those that are not complete."""
    living, arrivals = len(gang_pods.living), len(gang_pods.came)
    size = request.min_available
    if size is None:
        job_size = max((pod.size or 0 for pod in gang_pods.living), default=0)
        size = max(arrivals, job_size, made(request, root))
    return max(0, size - (arrivals - living))


def makes_all(gang_pods: Members, root: Root) -> bool:
    """Return whether a root makes all pods of a gang, as far as their owners say it: a gang may have pods of several Jobs.

    The pods of one root have owners of one kind: that root itself, or what it made, such as the Jobs of a JobSet.
    """
    owners = {pod.owner for pod in gang_pods.living}
    if root.owner in owners:
        return len(owners) == 1
    return len({None if owner is None else (owner.api_version, owner.kind) for owner in owners}) == 1


def reserved_until(gang_pods: Members, assigned: Mapping[PodName, Placed]) -> int | None:
    """Return until when room is kept for the members to come of a gang whose gates were opened before all existed.

    Returns:
        None if no gate was opened so, or if all members existed since: the last one has an annotation without a time.
    """
    places = [assigned.get(pod.name) or pod.placed for pod in gang_pods.begun]
    times = [place.reserved_until for place in places if place is not None and place.reserved_until is not None]
    return min(times) if times and len(times) == len(places) else None


def made(request: GangRequest, root: Root | None) -> int:
    """Return how many pods of the gang a root makes; 0 if that is not known."""
    return sum(template.count for template in _of_gang(root, request.name))


@dataclass(frozen=True, slots=True)
class MembersToCome:
    """The members that a root will still make. Each is made when it is planned: a root may ask for a hundred thousand, at no cost.

    Attributes:
        alike: one member of each template, and the ranks of those that are like it.
    """

    alike: tuple[tuple[Member, range], ...] = ()

    @property
    def count(self) -> int:
        """How many there are; the planner is given at most so many."""
        return min(_MOST_TO_COME, sum(len(ranks) for _, ranks in self.alike))

    def members(self) -> Iterator[Member]:
        """Yield them."""
        every = (replace(member, rank=rank) for member, ranks in self.alike for rank in ranks)
        return islice(every, _MOST_TO_COME)


def to_come(request: GangRequest, gang_pods: Members, root: Root | None) -> MembersToCome:
    """Return the members that the root will still make. What exists of a role says more of its shape than the template."""
    templates = _of_gang(root, request.name)
    seen = Counter(pod.role for pod in gang_pods.came)
    like = {pod.role: pod for pod in reversed(gang_pods.came)}
    return MembersToCome(tuple(_missing(templates, seen, like)))


def _missing(
    templates: Collection[PodTemplate], seen: Mapping[str, int], like: Mapping[str, GangPod]
) -> Iterator[tuple[Member, range]]:
    roles = {template.role for template in templates}
    others = sum(count for role, count in seen.items() if role not in roles)  # they are of one of the templates
    for template in templates:
        there = seen.get(template.role, 0)
        taken = min(others, max(0, template.count - there))
        others -= taken
        pod = like.get(template.role) or (next(iter(like.values())) if len(templates) == 1 and like else None)
        asks = template.shape if pod is None else _without_place(pod)
        if asks is not None:
            role = template.role if pod is None else pod.role
            yield Member("", asks, role), range(there + taken, template.count)


NONE_TO_COME = MembersToCome()


def planned(  # noqa: PLR0913 - the facts of one gang
    request: GangRequest,
    gang_pods: Members,
    assigned: Mapping[PodName, Placed],
    *,
    waiting: bool,
    coming: MembersToCome = NONE_TO_COME,
    least: int = 0,
    excluded: frozenset[Domain] = frozenset(),
    queued: float = 0.0,
) -> Gang:
    """Return a gang for the planner; with `waiting`, the pods behind the gate are among its members."""
    constraint = request.constraint or _ANYWHERE
    pods_and_places = [(pod, assigned.get(pod.name) or pod.placed) for pod in gang_pods.begun]
    living = [
        _begun(pod, placed)
        for pod, placed in pods_and_places
        # One that is neither bound nor in a domain of this constraint was created without the gate: the scheduler may put it anywhere. A node
        # need not have the labels that are only preferred.
        if pod.node or (placed is not None and {*constraint.required} <= dict(placed.domain).keys())
    ]
    alone = len(gang_pods.begun) - len(living)
    if waiting:
        living += [Member(pod.name.name, pod.shape, pod.role, pod.rank) for pod in gang_pods.waiting]
    every = gang_pods.living
    return Gang(
        namespace=every[0].name.namespace,
        name=request.name,
        members=(*living, *coming.members()),
        needed=max(0, least - alone),
        constraint=constraint,
        # One pod of high priority, which is all that a quota may permit, must not take others' place for its whole gang.
        priority=min(pod.priority for pod in every),
        since=min(pod.created for pod in every),
        queued=queued,
        excluded=excluded,
        # Pods that do not exist count for no quota, so nothing is evicted for them.
        preempts=all(pod.preempts for pod in every) and least <= len(every),
        foreign_gates=any(pod.foreign_gates for pod in every),
    )


def victims(name: str, gang_pods: Members, *, leaving: bool) -> Iterator[Gang]:
    """Yield a gang as one that others may take the place of: its pods that hold something.

    Pods that end while others of the gang have a place again are yielded by themselves: the gang was evicted, or pods of it were made again.
    Their room will be free, and nothing has to leave for it.
    """
    ending = tuple(pod for pod in gang_pods.leaving if pod.node)
    if gang_pods.begun:
        yield _victim(name, gang_pods.begun, leaving=leaving)
    if ending:
        yield _victim(f"{name} (leaving)" if gang_pods.begun else name, ending, leaving=True)


def _victim(name: str, holding: Sequence[GangPod], *, leaving: bool) -> Gang:
    return Gang(
        namespace=holding[0].name.namespace,
        name=name,
        members=tuple(
            Member(pod.name.name, pod.shape, pod.role, pod.rank, pod.node, pod.placed and pod.placed.domain)
            for pod in holding
        ),
        priority=max(pod.priority for pod in holding),
        since=min(pod.created for pod in holding),
        leaving=leaving,
    )


def _begun(pod: GangPod, placed: Placed | None) -> Member:
    """Return a member that is bound, or that was placed."""
    pinned, seat = (None, "") if placed is None else (placed.domain, placed.node)
    return Member(pod.name.name, pod.shape, pod.role, pod.rank, pod.node, pinned, "" if pod.node else seat)


def _without_place(pod: GangPod) -> Shape:
    """Return what a pod asked for before it was placed."""
    domain = () if pod.placed is None else pod.placed.domain
    selector = tuple(label for label in pod.shape.selector if label not in domain)
    return pod.shape if selector == pod.shape.selector else replace(pod.shape, selector=selector)


def _of_gang(root: Root | None, name: str) -> list[PodTemplate]:
    """Return the templates whose pods are of the gang: all, if none says of which gang its pods are, because operators add the labels."""
    every = () if root is None else root.templates
    if not any(template.gang for template in every):
        return list(every)
    return [template for template in every if template.gang == name]
