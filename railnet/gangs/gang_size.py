"""Finds out how many members a gang has and will have: from its pods, from what makes them, and from when they came. No I/O, no clock."""

from dataclasses import replace

from railnet.errors import Misconfigured
from railnet.gangs.leader_memory import Arrivals, GangMemory
from railnet.gangs.life_cycle import GangEvent
from railnet.gangs.members import NONE_TO_COME, Members, is_size_known, made, needed, needs_root, to_come
from railnet.gangs.planning_pass_state import GangSize, PlanningPass, about
from railnet.gangs.planning_result import Root
from railnet.jobs.gang.recogniser import agreed
from railnet.jobs.gang.request import GangRequest

# For each one the room of all nodes is counted, and the planner keeps so many. Pods of one template have one; one that has its place has a
# selector of its own.
_MOST_SHAPES = 256
SETTLE_SECONDS = 1.0  # of a gang that does not say its size, since its last member came
_JOIN_SECONDS = 10.0  # in which a pod without a gate is bound, since it was created
_ASK_SECONDS = 60.0  # until a root is read again while members are missing: the job may have been scaled


def request_of(pods: Members) -> GangRequest | None:
    """Return what all members say together; None if they say nothing.

    Raises:
        Misconfigured: they contradict each other, or those that wait are too different.
    """
    if len({pod.shape for pod in pods.waiting}) > _MOST_SHAPES:
        # Without the number: each pod that comes would be another event.
        raise Misconfigured(
            f"the pods of the gang that wait ask for more than {_MOST_SHAPES} different sets of resources, selectors, affinities, tolerations and "
            "host ports, and so many are not planned together: give the pods of one role the same ones, or make more gangs of them"
        )
    requests: dict[GangRequest, str] = {}
    for pod in pods.living:
        if pod.request is not None:
            requests.setdefault(pod.request, pod.name.name)
    return agreed((name, request) for request, name in requests.items())


def gang_size(
    memory: GangMemory, pods: Members, request: GangRequest, current: PlanningPass, *, has_run: bool
) -> tuple[GangSize, GangMemory]:
    """Return the size of a gang, and what is to be remembered of it. What has to be read for it is asked for.

    `has_run` says that all members have nodes and are so old that no room is kept for others: a leader that did not place them asks for nothing.
    """
    root, is_read, memory = _root(memory, pods, request, current, has_run=has_run)
    if not is_read:
        return GangSize(request, root, False, 0, NONE_TO_COME, len(pods.begun), 0, is_read=False), memory
    arrivals = memory.arrivals.with_members(len(pods.living), current.now)
    if arrivals is not memory.arrivals:
        memory = replace(memory, arrivals=arrivals)
    known = _has_settled(arrivals, pods, request, root, current) and not _is_joined(pods, current)
    least = needed(request, pods, root) if known else len(pods.begun)
    coming = to_come(request, pods, root) if known else NONE_TO_COME
    absent = max(0, least - len(pods.living))
    return GangSize(request, root, known, made(request, root), coming, least, absent), memory


def arrival(pods: Members, size: GangSize, *, has_begun: bool) -> GangEvent:
    """Return the event by which members of a gang have come, or are awaited before any begins. Where the gang has begun, none is awaited."""
    if not size.known:
        return GangEvent.UNCERTAIN
    if not (pods.waiting or pods.placed):
        return GangEvent.ALL_HAVE_NODES
    if not size.absent or has_begun:
        return GangEvent.COMPLETE
    in_stages = size.root is not None and bool(size.root.stages) and size.made >= len(pods.came) + size.absent
    return GangEvent.STAGED if in_stages else GangEvent.ABSENT


def _root(
    memory: GangMemory, pods: Members, request: GangRequest, current: PlanningPass, *, has_run: bool
) -> tuple[Root | None, bool, GangMemory]:
    """Return what makes the pods, and whether all is known that can be."""
    asked = about(pods.living).owner
    if asked is None or not needs_root(request, pods) or (memory.asked is None and has_run):
        return None, True, memory
    root = current.find(asked)
    if asked != memory.asked:
        memory = replace(memory, asked=asked, asked_at=current.now)
    if root is not None and pods.waiting and needed(request, pods, root) > len(pods.living):
        if current.now - memory.asked_at >= _ASK_SECONDS:
            memory = replace(memory, asked_at=current.now)
            current.asked_again.append(asked)
        current.at(memory.asked_at + _ASK_SECONDS)
    return root, root is not None, memory


def _has_settled(
    arrivals: Arrivals, pods: Members, request: GangRequest, root: Root | None, current: PlanningPass
) -> bool:
    """Return whether all members have come, as far as can be known."""
    if not pods.waiting or pods.begun or is_size_known(request, pods, root):
        return True
    current.at(arrivals.newest + SETTLE_SECONDS)
    return current.now - arrivals.newest >= SETTLE_SECONDS


def _is_joined(pods: Members, current: PlanningPass) -> bool:
    """Return whether the scheduler is about to bind a member that was created without the gate: its node fixes the domain."""
    young = [
        pod.created + _JOIN_SECONDS - current.wall
        for pod in pods.placed
        if pod.gated is None
        and pod.group is None
        and pod.placed is None
        # Later than now it was created only by a clock that is before this one.
        and pod.created <= current.wall + _JOIN_SECONDS
    ]
    left = max(young, default=0.0)
    if pods.waiting and left > 0:
        current.at(current.now + left)
    return left > 0
