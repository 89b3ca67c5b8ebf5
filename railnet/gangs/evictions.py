"""Decides which gangs are evicted: those that another pod kept from their place after they were placed, and those that give way to others.

A gang is evicted whole. One of its pods is marked first and goes last, so a leader that dies half-way leaves what tells the next one to
go on. Pods that nothing makes again are never deleted, and nothing is evicted of a job that an eviction would fail or complete.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from railnet.gangs import event_messages
from railnet.gangs.eviction_permission import ENDS_WITH_ZERO, known_tolerance, owners_of, recent_tolerance
from railnet.gangs.leader_memory import EvictingStage, Eviction, GangMemory
from railnet.gangs.life_cycle import GangEvent, GangState
from railnet.gangs.members import Members, victims
from railnet.gangs.pending_writes import PendingWrites
from railnet.gangs.placement.gang import Domain, Gang, GangKey, domain
from railnet.gangs.placement_annotation import Evicted, Placed
from railnet.gangs.planning_pass_state import PlanningPass, about
from railnet.gangs.planning_result import Annotate, Asked, Evict, Said
from railnet.gangs.pod import GangPod
from railnet.jobs.eviction_tolerance import Tolerance, job_pause_seconds
from railnet.objects.pod_name import PodName

# That a placed member may be unschedulable: kube-scheduler tries again within seconds when something changes.
STUCK_SECONDS = 30.0
COOL_SECONDS = 300.0  # that a domain is not tried again by the gang that failed there
CLOSED_SECONDS = 600.0  # that gates stay closed after members did not come to a gang that had them open
MOST_EVICTIONS = 3
LEAVING_SECONDS = (
    300.0  # that others wait for a gang to leave that was asked to; what was deleted by then ends in its own time
)
# Members that were made within this time of the others start with them; a later one takes the place of one that has died.
_TOGETHER_SECONDS = 60.0
# One that is made so long after the oldest takes the place of one that has died, however young the others are; see MEMBER_SECONDS.
_LATE_SECONDS = 600.0
_MOST_REMEMBERED = 10_000


class _Events(NamedTuple):
    """The events of an eviction that is done, of one that is not, and of one whose cost is not known yet."""

    goes: GangEvent
    stays: GangEvent
    unread: GangEvent | None


_MARKED = _Events(GangEvent.MARKED, GangEvent.MARKED_STAYS, GangEvent.MARKED_UNREAD)
_NO_NODE = _Events(GangEvent.NO_NODE, GangEvent.NO_NODE_STAYS, None)
_OVERDUE = _Events(GangEvent.OVERDUE, GangEvent.OVERDUE_STAYS, GangEvent.TO_COME)
_SPLIT = _Events(GangEvent.SPLIT, GangEvent.SPLIT_STAYS, GangEvent.SPLIT_UNREAD)
_APART = _Events(GangEvent.SPLIT, GangEvent.SPLIT_STAYS, None)
_PREEMPTED = _Events(GangEvent.PREEMPTED, GangEvent.PREEMPTED_STAYS, GangEvent.PREEMPTED_STAYS)


class GangEvictions:
    """Decides about evictions, and remembers since when pods have found no node."""

    def __init__(self, pending: PendingWrites) -> None:
        """Put writes into `pending`."""
        self._pending = pending
        self._stuck: dict[PodName, float] = {}
        self._victims: dict[GangKey, tuple[Gang, ...]] = {}
        self._owners: dict[GangKey, tuple[Asked, ...]] = {}  # of those in `_victims`
        self._may_leave: dict[GangKey, bool] = {}
        # Owners of which an eviction made a pod complete: such a pod is soon gone, and so are the others of its gang.
        self._ends_with_zero: dict[Asked, None] = {}
        self._news: list[Said] = []

    def pod_changed(self, before: GangPod, now: GangPod | None) -> None:
        """Take in that a pod is as it is now; None if it is gone."""
        if now is None or not now.unschedulable:
            self._stuck.pop(before.name, None)

    def completed(self, pod: GangPod) -> None:
        """Take in that an eviction has made a pod complete."""
        for owner in owners_of([pod]):
            if owner not in self._ends_with_zero:
                self._ends_with_zero[owner] = None
                text = event_messages.completed(ENDS_WITH_ZERO)
                self._news.append(Said(about([pod]), "GangEvicted", text, "Warning"))
        if len(self._ends_with_zero) > _MOST_REMEMBERED:
            del self._ends_with_zero[next(iter(self._ends_with_zero))]

    def news(self) -> list[Said]:
        """Return the events about pods that have changed since the last call."""
        news, self._news = self._news, []
        return news

    def gang_changed(self, key: GangKey) -> None:
        """Take in that a pod of a gang has changed."""
        self._victims.pop(key, None)
        self._owners.pop(key, None)
        self._may_leave.pop(key, None)

    def due(self, state: GangState, memory: GangMemory, pods: Members, current: PlanningPass) -> Eviction | None:
        """Return the eviction that a gang needs as its pods are; None if it needs none, or if it is not known yet what that costs.

        A mark says that an earlier leader has begun with it.
        """
        stuck = self._without_node(pods, current)
        if state is GangState.EVICTING:
            return None
        placed = next((pod.placed for pod in marked(pods)), None)
        if placed is not None and placed.evicted is not None:
            until = current.now + (CLOSED_SECONDS if placed.evicted is Evicted.LAPSED else COOL_SECONDS)
            adopted = Eviction(placed.evicted, placed.attempt, domains=[placed.domain], rests_until=until)
            return self._permitted(adopted, _MARKED, pods, current)
        if len(required_domains(pods)) > 1:
            return self._of_domains(memory, pods, current)
        return self._of_stuck(memory, pods, stuck, current) if stuck else None

    def of_split(self, memory: GangMemory, pods: Members, current: PlanningPass) -> Eviction | None:
        """Return the eviction of a gang of which one part has its place, and the other has had no room there for a while; None before."""
        since = memory.begun.split_since
        until = (current.now if since is None else since) + STUCK_SECONDS
        if current.now < until:
            current.at(until)
            return None
        text = event_messages.placed_in_part(len(pods.waiting), len(pods.begun), _domains(pods.begun))
        return self._helpful(_failed(memory, pods.begun, text, current), _SPLIT, pods, current)

    def of_overdue(self, memory: GangMemory, pods: Members, missing: int, current: PlanningPass) -> Eviction:
        """Return the eviction of a gang whose gates were opened before all members existed, and to which the others did not come in time."""
        text = event_messages.lapsed(len(pods.living), missing, len(pods.begun), CLOSED_SECONDS / 60)
        attempt = attempt_of(memory, pods.begun)
        lapsed = Eviction(Evicted.LAPSED, attempt, text, rests_until=current.now + CLOSED_SECONDS)
        return self._helpful(lapsed, _OVERDUE, pods, current)

    def of_victim(self, key: GangKey, pods: Members, by: Gang, current: PlanningPass) -> Eviction:
        """Return the eviction of a gang for another one. Its pods, or their owners, may have changed since it was offered."""
        preempted = Eviction(Evicted.PREEMPTED, 1, event_messages.preempted(by.key, by.priority))
        eviction = self._permitted(preempted, _PREEMPTED, pods, current)
        if eviction.event is not GangEvent.PREEMPTED:
            self._may_leave.pop(key, None)
        if eviction.obstacle:
            current.at(current.now)  # without it, others may give way
        return eviction

    def evict(self, why: Evicted, pods: Members, current: PlanningPass) -> None:
        """Mark a pod, then evict the others, then those that are marked."""
        last = marked(pods)
        if not last:
            pod = (*self._without_node(pods, current), *pods.begun)[0]
            self._pending.put(pod, Annotate((pod.placed or Placed((), 1))._replace(evicted=why)), current)
            return
        for pod in [member for member in pods.begun if member not in last] or last:
            if pod.owner is not None:
                self._pending.put(pod, Evict(), current)

    def victims(self, key: GangKey, pods: Members, memory: GangMemory, now: float, *, fresh: bool) -> Iterator[Gang]:
        """Yield a gang as one that may be preempted; nothing if it holds nothing, or has pods that nothing makes again.

        One that waited for a PodGroup is left out: its new pods would be started by the same PodGroup, without a new place.
        One that Railnet has not placed would come back without a gate, and take the same place. For one that should leave and does not,
        because a budget forbids it, others do not wait for ever.

        `fresh` says that the pods may be sorted in another way than the last time, although none of them has changed.
        """
        stage = memory.stage
        leaving = isinstance(stage, EvictingStage)
        if fresh or key not in self._victims:
            owned = all(pod.owner is not None for pod in pods.begun)
            ours = not pods.begun or any(pod.placed is not None or pod.gated is not None for pod in pods.begun)
            owned = owned and not any(pod.group is not None for pod in pods.begun)
            self._victims[key] = tuple(victims(key[1], pods, leaving=False)) if owned and ours else ()
            self._owners[key] = owners_of(pods.begun)
        stays = isinstance(stage, EvictingStage) and now >= stage.since + LEAVING_SECONDS
        for victim in self._victims[key]:
            if victim.leaving or not stays:
                yield replace(victim, leaving=True) if leaving else victim

    def may_leave(self, key: GangKey, current: PlanningPass) -> bool | None:
        """Return whether one of `victims` may be evicted; None if an owner is not known yet, and is asked for."""
        if not self._ends_with_zero.keys().isdisjoint(self._owners.get(key, ())):
            return False
        if key not in self._may_leave:  # asked once: there may be more owners than are remembered
            tolerance = known_tolerance(self._owners.get(key, ()), current)
            if tolerance is None:
                return None
            if tolerance.unread:
                return False
            self._may_leave[key] = tolerance.refusal is None
        return self._may_leave[key]

    def knows(self, key: GangKey) -> bool:
        """Return whether `victims` remembers a gang."""
        return key in self._victims

    def _without_node(self, pods: Members, current: PlanningPass) -> list[GangPod]:
        """Return the placed pods that the scheduler has found no node for in time."""
        stuck = []
        for pod in pods.placed:
            if not pod.unschedulable or pod.placed is None:
                continue
            until = self._stuck.setdefault(pod.name, current.now) + STUCK_SECONDS
            if current.now >= until:
                stuck.append(pod)
            else:
                current.at(until)
        return stuck

    def _tolerance(self, pods: Members, current: PlanningPass) -> Tolerance | None:
        """Return what an eviction costs the gang's jobs; None if that is not known yet. The answer causes another pass."""
        owners = owners_of(pods.begun)
        if not self._ends_with_zero.keys().isdisjoint(owners):
            return Tolerance(ENDS_WITH_ZERO)
        return recent_tolerance(owners, current)

    def _of_domains(self, memory: GangMemory, pods: Members, current: PlanningPass) -> Eviction:
        """Return the eviction of a gang that two leaders have placed in several domains, of which it requires one."""
        text = event_messages.reunited(required_domains(pods), len(pods.begun))
        apart = Eviction(Evicted.SPLIT, attempt_of(memory, pods.begun), text)
        return self._helpful(apart, _APART, pods, current)

    def _of_stuck(
        self, memory: GangMemory, pods: Members, stuck: list[GangPod], current: PlanningPass
    ) -> Eviction | None:
        """Return the eviction of a gang from a domain in which the scheduler finds no room for it."""
        # Of pods that were found unschedulable one after the other, the first one has its time over before the others.
        without_node = [pod for pod in pods.placed if pod.unschedulable]
        text = event_messages.evicted(len(without_node), len(pods.begun), _domains(without_node))
        failed = _failed(memory, stuck, text, current)
        if pods.bound and all(_is_late(pod, pods.bound) for pod in stuck):
            return _useless(failed, _NO_NODE, pods, "the others have run for long")
        return self._helpful(failed, _NO_NODE, pods, current)

    def _helpful(self, due: Eviction, events: _Events, pods: Members, current: PlanningPass) -> Eviction:
        """Return an eviction with its event: whether it can help, and is permitted."""
        if obstacle := _obstacle(due, pods):
            return _useless(due, events, pods, obstacle)
        text = f"{due.text}; this is eviction {due.attempt} of {MOST_EVICTIONS}"
        return self._permitted(due._replace(text=text), events, pods, current)

    def _permitted(self, due: Eviction, events: _Events, pods: Members, current: PlanningPass) -> Eviction:
        """Return an eviction with its event: whether the gang's jobs permit it."""
        tolerance = self._tolerance(pods, current)
        if tolerance is None:
            return due._replace(event=events.unread)
        if tolerance.refusal is not None:
            text = event_messages.not_evicted(_trouble(due, pods), tolerance.refusal)
            return due._replace(event=events.stays, text=text, obstacle=tolerance.refusal.why)
        pause = _pause(pods, tolerance, due.attempt)
        return due._replace(
            event=events.goes,
            text=due.text and due.text + event_messages.job_pause(pause),
            rests_until=due.rests_until + (pause if due.why is Evicted.FAILED else 0.0),
        )


def marked(pods: Members) -> list[GangPod]:
    """Return the pods that have the mark of an eviction."""
    return [pod for pod in pods.begun if pod.placed is not None and pod.placed.evicted is not None]


def is_split(pods: Members) -> bool:
    """Return whether a part of a gang has begun without the rest, which is not made again later.

    So it is when a leader dies while it lets the pods go, and another pod takes the room of the rest; or when pods were created while the
    webhook was off. A member that is made again after a node has died is another matter: the gang has started, and goes on.
    """
    newest = max((pod.created for pod in pods.begun), default=0.0)
    oldest = min(pods.waiting, key=lambda pod: pod.created)
    return bool(pods.begun) and oldest.created <= newest + _TOGETHER_SECONDS and not _is_late(oldest, pods.begun)


def attempt_of(memory: GangMemory, there: Sequence[GangPod]) -> int:
    """Return which try the present placement is. Pods that never have a gate have no annotation that counts."""
    return max([memory.tries.attempt, *(pod.placed.attempt for pod in there if pod.placed is not None)])


def _failed(memory: GangMemory, there: Sequence[GangPod], text: str, current: PlanningPass) -> Eviction:
    """Return the eviction from the domains that some pods of a gang are in."""
    until = current.now + COOL_SECONDS
    return Eviction(Evicted.FAILED, attempt_of(memory, there), text, _domains(there), until)


def required_domains(pods: Members) -> Counter[Domain]:
    """Return how many placed members are in each domain of the labels that their gang requires, as their annotations say."""
    keys = {_required(pod) for pod in pods.begun}
    domains = Counter[Domain]()
    if len(keys) != 1:  # the members contradict each other
        return domains
    (required,) = keys
    for place, count in Counter(pod.placed.domain for pod in pods.begun if pod.placed is not None).items():
        labels = dict(place)
        if labels.keys() >= {*required}:
            domains[domain({key: labels[key] for key in required})] += count
    return domains


def _required(pod: GangPod) -> tuple[str, ...]:
    return () if pod.request is None or pod.request.constraint is None else pod.request.constraint.required


def _trouble(due: Eviction, pods: Members) -> str:
    """Return what is wrong with a gang that is to be evicted, a clause."""
    domains = required_domains(pods)
    return event_messages.apart(domains) if len(domains) > 1 else event_messages.without_nodes(due.domains)


def _useless(due: Eviction, events: _Events, pods: Members, obstacle: str) -> Eviction:
    text = event_messages.stays(_trouble(due, pods), obstacle)
    return due._replace(event=events.stays, text=text, obstacle=obstacle)


def _domains(pods: Sequence[GangPod]) -> list[Domain]:
    return sorted({pod.placed.domain for pod in pods if pod.placed is not None}) or [()]


def _pause(pods: Members, tolerance: Tolerance, attempt: int) -> float:
    """Return the seconds until the gang's Jobs make its pods again. The Job controller counts the pods of earlier evictions, too."""
    most = max(Counter(pod.owner for pod in pods.begun).values(), default=0)
    return job_pause_seconds(most * attempt) if tolerance.pauses else 0.0


def _is_late(pod: GangPod, others: Sequence[GangPod]) -> bool:
    """Return whether a member was made when the gang had long started."""
    return pod.created > min(member.created for member in others) + _LATE_SECONDS


def _obstacle(due: Eviction, pods: Members) -> str:
    """Return why evicting a gang cannot help; empty if it can. Members of several domains that run are not what the gang requires."""
    least = max((pod.request.min_available or 0 for pod in pods.living if pod.request is not None), default=0)
    if any(pod.group is not None for pod in pods.begun):
        return "what was decided for a PodGroup cannot be changed, and new pods would wait for the same one"
    if any(pod.owner is None for pod in pods.begun):
        return "pods that no other object makes again are never deleted"
    if due.attempt > MOST_EVICTIONS:
        return f"it was evicted {MOST_EVICTIONS} times already"
    if 0 < least <= len(pods.bound) and due.why is not Evicted.SPLIT:
        return f"{len(pods.bound)} members have nodes, and min-available is {least}"
    return ""
