"""Decides which gangs are evicted: those that another pod kept from their place after they were placed, and those that give way to others.

A gang is evicted whole. One of its pods is marked first and goes last, so a leader that dies half-way leaves what tells the next one to
go on. Pods that nothing makes again are never deleted, and nothing is evicted of a job that an eviction would fail or complete.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from railnet.gangs import event_messages
from railnet.gangs.eviction_permission import ENDS_WITH_ZERO, EvictionPermissions, owners_of
from railnet.gangs.leader_memory import GangMemory
from railnet.gangs.members import Members, victims
from railnet.gangs.pending_writes import PendingWrites
from railnet.gangs.placement.gang import Domain, Gang, GangKey
from railnet.gangs.placement_annotation import Evicted, Placed
from railnet.gangs.planning_pass_state import PlanningPass, about
from railnet.gangs.planning_result import Asked, Evict, Mark, Said
from railnet.gangs.pod import GangPod
from railnet.jobs.eviction_tolerance import Tolerance, job_pause_seconds
from railnet.objects.pod_name import PodName

# That a placed member may be unschedulable: kube-scheduler tries again within seconds when something changes.
STUCK_SECONDS = 30.0
COOL_SECONDS = 300.0  # that a domain is not tried again by the gang that failed there
CLOSED_SECONDS = 600.0  # that gates stay closed after members did not come to a gang that had them open
MOST_EVICTIONS = 3
_LEAVING_SECONDS = (
    300.0  # that others wait for a gang to leave that was asked to; what was deleted by then ends in its own time
)
# Members that were made within this time of the others start with them; a later one takes the place of one that has died.
_TOGETHER_SECONDS = 60.0
# One that is made so long after the oldest takes the place of one that has died, however young the others are; see MEMBER_SECONDS.
_LATE_SECONDS = 600.0
_MOST_REMEMBERED = 10_000


class GangEvictions:
    """Decides about evictions, and remembers since when pods have found no node."""

    def __init__(self, pending: PendingWrites) -> None:
        """Put writes into `pending`."""
        self._pending = pending
        self._stuck: dict[PodName, float] = {}
        # Since when a part of a gang has its place, and the others have no room there.
        self._in_part: dict[GangKey, float] = {}
        self._victims: dict[GangKey, tuple[Gang, ...]] = {}
        self._owners: dict[GangKey, tuple[Asked, ...]] = {}  # of those in `_victims`
        self._may_leave: dict[GangKey, bool] = {}
        self._permissions = EvictionPermissions()
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

    def goes_on(self, memory: GangMemory, pods: Members, current: PlanningPass) -> bool:
        """Evict a gang if it must go; return whether it goes: those of its pods that have come back wait for the others to be gone."""
        marked = [pod for pod in pods.begun if pod.placed is not None and pod.placed.evicted is not None]
        stuck = self._without_node(pods, current)
        if marked and memory.evicting is None:
            tolerance = self._tolerance(pods, current)
            if tolerance is None:
                return True
            if tolerance.refusal is None:
                self._adopt(memory, pods, marked[0].placed, tolerance, current)
            else:
                self._refuse(pods, marked, tolerance, current)
        elif stuck and memory.evicting is None:
            self._give_up(memory, pods, stuck, current)
        if not pods.begun:
            memory.evicting = None
        if memory.evicting is not None:
            if memory.evicting_since + _LEAVING_SECONDS > current.now:
                current.at(memory.evicting_since + _LEAVING_SECONDS)
            self._evict(memory.evicting, pods, marked, stuck, current)
        return memory.evicting is not None

    def preempt(self, memory: GangMemory, pods: Members, by: Gang, current: PlanningPass) -> bool:
        """Evict a gang for another one; return False if it goes already."""
        if memory.evicting is not None or not pods.begun:
            return False
        tolerance = self._tolerance(pods, current)
        if tolerance is None or tolerance.refusal is not None:  # a victim's pods may have changed since it was offered
            return False
        memory.evicting, memory.evicting_since = Evicted.PREEMPTED, current.now
        text = event_messages.preempted(by.key, by.priority)
        current.warn(pods.living, "GangPreempted", text + event_messages.job_pause(_pause(pods, tolerance)))
        self._evict(Evicted.PREEMPTED, pods, [], [], current)
        return True

    def victims(
        self, key: GangKey, pods: Members, memory: GangMemory | None, now: float, *, fresh: bool
    ) -> Iterator[Gang]:
        """Yield a gang as one that may be preempted; nothing if it holds nothing, or has pods that nothing makes again.

        One that Railnet has not placed would come back without a gate, and take the same place. For one that should leave and does not,
        because a budget forbids it, others do not wait for ever.

        `fresh` says that the pods may be sorted in another way than the last time, although none of them has changed.
        """
        leaving = memory is not None and memory.evicting is not None
        if fresh or key not in self._victims:
            owned = all(pod.owner is not None for pod in pods.begun)
            ours = not pods.begun or any(pod.placed is not None or pod.gated is not None for pod in pods.begun)
            self._victims[key] = tuple(victims(key[1], pods, leaving=False)) if owned and ours else ()
            self._owners[key] = owners_of(pods.begun)
        stays = memory is not None and leaving and now >= memory.evicting_since + _LEAVING_SECONDS
        for victim in self._victims[key]:
            if victim.leaving or not stays:
                yield replace(victim, leaving=True) if leaving else victim

    def may_leave(self, key: GangKey, current: PlanningPass) -> bool | None:
        """Return whether one of `victims` may be evicted; None if an owner is not known yet, and is asked for."""
        if not self._ends_with_zero.keys().isdisjoint(self._owners.get(key, ())):
            return False
        if key not in self._may_leave:  # asked once: there may be more owners than are remembered
            tolerance = self._permissions.find(self._owners.get(key, ()), current)
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
        return self._permissions.find(owners, current)

    @staticmethod
    def _refuse(pods: Members, there: Sequence[GangPod], tolerance: Tolerance, current: PlanningPass) -> None:
        """Say why a gang stays."""
        if tolerance.refusal is not None:
            current.warn(pods.living, "GangWaiting", event_messages.not_evicted(_domains(there), tolerance.refusal))

    def _adopt(
        self, memory: GangMemory, pods: Members, placed: Placed | None, tolerance: Tolerance, current: PlanningPass
    ) -> None:
        """Go on with an eviction that an earlier leader has begun."""
        if placed is not None:
            memory.evicting, memory.evicting_since = placed.evicted, current.now
            if placed.evicted is Evicted.FAILED:
                pause = _pause(pods, tolerance, placed.attempt)
                memory.fails(placed.attempt, placed.domain, current.now + COOL_SECONDS + pause)
            elif placed.evicted is Evicted.LAPSED:
                memory.lapses(placed.attempt, current.now + CLOSED_SECONDS)

    def evict_if_in_part(self, key: GangKey, memory: GangMemory, pods: Members, current: PlanningPass) -> bool:
        """Have a gang evicted of which one part has its place, and the other has had no room there for a while; return whether it is.

        So it is when a leader dies while it lets the pods go, and another pod takes the room of the rest; or when pods were created while
        the webhook was off. A member that is made again after a node has died is another matter: the gang has started, and goes on.
        """
        newest = max((pod.created for pod in pods.begun), default=0.0)
        oldest = min(pods.waiting, key=lambda pod: pod.created)
        if not pods.begun or oldest.created > newest + _TOGETHER_SECONDS or _is_late(oldest, pods.begun):
            return False
        until = self._in_part.setdefault(key, current.now) + STUCK_SECONDS
        if current.now < until:
            current.at(until)
            return False
        text = event_messages.placed_in_part(len(pods.waiting), len(pods.begun), _domains(pods.begun))
        self._fail(memory, pods, pods.begun, text, current)
        if memory.evicting is not None:
            self._evict(memory.evicting, pods, [], [], current)
        return True

    def evict_lapsed(self, memory: GangMemory, pods: Members, missing: int, current: PlanningPass) -> str | None:
        """Evict a gang whose gates were opened before all members existed, and to which the others did not come in time.

        Returns:
            Why it stays; empty if it goes; None if it is not known yet what that costs its job.
        """
        attempt = _attempt(memory, pods.begun)
        why = _stays(pods, attempt)
        if why:
            return why
        tolerance = self._tolerance(pods, current)
        if tolerance is None:
            return None
        if tolerance.refusal is not None:
            return tolerance.refusal.why
        memory.evicting, memory.evicting_since = Evicted.LAPSED, current.now
        memory.lapses(attempt, current.now + CLOSED_SECONDS)
        text = event_messages.lapsed(len(pods.living), missing, len(pods.begun), CLOSED_SECONDS / 60)
        count = f"; this is eviction {attempt} of {MOST_EVICTIONS}"
        current.warn(
            pods.living, "GangEvicted", text + count + event_messages.job_pause(_pause(pods, tolerance, attempt))
        )
        self._evict(Evicted.LAPSED, pods, [], [], current)
        return ""

    def whole(self, key: GangKey) -> None:
        """Take in that no part of a gang lacks room now."""
        self._in_part.pop(key, None)

    def _give_up(self, memory: GangMemory, pods: Members, stuck: list[GangPod], current: PlanningPass) -> None:
        """Have a gang evicted from a domain in which the scheduler finds no room for it."""
        if pods.bound and all(_is_late(pod, pods.bound) for pod in stuck):
            why = "the others have run for long"
            current.warn(pods.living, "GangWaiting", event_messages.stays(_domains(stuck), why))
            return
        # Of pods that were found unschedulable one after the other, the first one has its time over before the others.
        without_node = [pod for pod in pods.placed if pod.unschedulable]
        text = event_messages.evicted(len(without_node), len(pods.begun), _domains(without_node))
        self._fail(memory, pods, stuck, text, current)

    def _fail(
        self, memory: GangMemory, pods: Members, there: Sequence[GangPod], text: str, current: PlanningPass
    ) -> None:
        """Have a gang evicted from the domains that some of its pods are in, unless that cannot help."""
        attempt = _attempt(memory, there)
        why = _stays(pods, attempt)
        if why:
            current.warn(pods.living, "GangWaiting", event_messages.stays(_domains(there), why))
            return
        tolerance = self._tolerance(pods, current)
        if tolerance is None:
            return
        if tolerance.refusal is not None:
            self._refuse(pods, there, tolerance, current)
            return
        pause = _pause(pods, tolerance, attempt)
        memory.evicting, memory.evicting_since = Evicted.FAILED, current.now
        for domain in _domains(there):
            memory.fails(attempt, domain, current.now + COOL_SECONDS + pause)
        count = f"; this is eviction {attempt} of {MOST_EVICTIONS}"
        current.warn(pods.living, "GangEvicted", text + count + event_messages.job_pause(pause))

    def _evict(
        self, why: Evicted, pods: Members, marked: list[GangPod], stuck: list[GangPod], current: PlanningPass
    ) -> None:
        """Mark a pod, then evict the others, then those that are marked."""
        if not marked:
            last = (*stuck, *pods.begun)[0]
            self._pending.put(last, Mark((last.placed or Placed((), 1))._replace(evicted=why)), current)
            return
        for pod in [member for member in pods.begun if member not in marked] or marked:
            if pod.owner is not None:
                self._pending.put(pod, Evict(), current)


def _domains(pods: Sequence[GangPod]) -> list[Domain]:
    return sorted({pod.placed.domain for pod in pods if pod.placed is not None}) or [()]


def _attempt(memory: GangMemory, there: Sequence[GangPod]) -> int:
    """Return which try the present placement is. Pods that never have a gate have no annotation that counts."""
    return max([memory.attempt, *(pod.placed.attempt for pod in there if pod.placed is not None)])


def _pause(pods: Members, tolerance: Tolerance, attempt: int = 1) -> float:
    """Return the seconds until the gang's Jobs make its pods again. The Job controller counts the pods of earlier evictions, too."""
    most = max(Counter(pod.owner for pod in pods.begun).values(), default=0)
    return job_pause_seconds(most * attempt) if tolerance.pauses else 0.0


def _is_late(pod: GangPod, others: Sequence[GangPod]) -> bool:
    """Return whether a member was made when the gang had long started."""
    return pod.created > min(member.created for member in others) + _LATE_SECONDS


def _stays(pods: Members, attempt: int) -> str:
    """Return why evicting a gang cannot help; empty if it can."""
    least = max((pod.request.min_available or 0 for pod in pods.living if pod.request is not None), default=0)
    if any(pod.owner is None for pod in pods.begun):
        return "pods that no other object makes again are never deleted"
    if attempt > MOST_EVICTIONS:
        return f"it was evicted {MOST_EVICTIONS} times already"
    if 0 < least <= len(pods.bound):
        return f"{len(pods.bound)} members have nodes, and min-available is {least}"
    return ""
