"""Decides what is to be done with all gangs now, from the pods, the nodes, and what a leader remembers. No I/O, no clock, no threads.

The state of a gang is in its pods: a pod behind the gate waits; one with the annotation of its placement has been placed there; members
that are placed or bound fix the domain of the others. So a leader that begins decides as the one before it would have.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from railnet.errors import Misconfigured
from railnet.gangs.actions import MEMBER_SECONDS, GangActions
from railnet.gangs.evictions import GangEvictions, is_split
from railnet.gangs.gang_error_backoff import FailedGangs
from railnet.gangs.gang_size import arrival, gang_size, request_of
from railnet.gangs.leader_memory import BegunStage, Eviction, GangMemories
from railnet.gangs.life_cycle import LIFE_CYCLE, GangAction, GangEvent, GangState
from railnet.gangs.members import Members, is_size_known, reserved_until
from railnet.gangs.observed_state import ObservedState
from railnet.gangs.pending_writes import PendingWrites, refusal_event
from railnet.gangs.placement.gang import Gang, GangKey, LostSeat
from railnet.gangs.placement.preemption import Preemption
from railnet.gangs.placement.scheduling_pass import Pass, Rules, schedule
from railnet.gangs.planning_pass_state import Find, GangSize, PlanningPass
from railnet.gangs.planning_result import Decision, Said, WriteOutcome
from railnet.gangs.pod import GangPod
from railnet.gangs.pod_groups import GroupOutcome, PodGroups, outcome_event

_NONE = Members((), (), (), ())
_READS_SECONDS = 30.0  # of a new leader, that no gang begins before it has read for how many members others keep room


class GangPlanning:
    """Decides. One thread uses it.

    Attributes:
        observed: the pods and nodes; the caller keeps them up to date.
    """

    def __init__(self) -> None:
        self.observed = ObservedState()
        self._memory = GangMemories()
        self._pending = PendingWrites()
        self._evictions = GangEvictions(self._pending)
        self._actions = GangActions(self.observed, self._pending, self._evictions, self._memory)
        self._failed = FailedGangs()
        self._groups = PodGroups(self._pending)
        self._last = Pass()
        self._began = float("inf")
        self._logged: set[tuple[GangState, GangEvent]] = set()  # impossible pairs

    def pod_changed(self, before: GangPod | None, after: GangPod | None) -> None:
        """Take in a pod that is new, changed or gone."""
        self.observed.change_pod(before, after)
        if after is not None and after.completed_by_eviction:  # also one that a leader sees when it begins
            self._evictions.completed(after)
        if before is None:
            return
        now = after if after is not None and after.name == before.name else None  # another pod may have the name
        self._pending.pod_changed(before, now)
        self._evictions.pod_changed(before, now)

    def outcome(self, outcome: WriteOutcome, now: float, jitter: float) -> Said | None:
        """Take in the outcome of a write; return the event about it, None if there is none.

        Args:
            outcome: that of the write.
            now: on the leader's own clock, in seconds.
            jitter: a random number in [0, 1), of the pause after a refusal.
        """
        if not outcome.refusal:
            return None
        times, pod = self._pending.refused(outcome, now, jitter), self.observed.named(outcome.pod)
        return None if pod is None else refusal_event(outcome, times, pod)

    def group_outcome(self, outcome: GroupOutcome, now: float) -> Said | None:
        """Take in what came of a PodGroup, at a moment on the leader's own clock; return the event about it, None if there is none."""
        if outcome.refusal:
            self._groups.refused(outcome.gang, now)
            self.observed.changed.add(outcome.gang)
        return outcome_event(outcome, self._pending.members(self.observed.of(outcome.gang)).living)

    def decide(self, now: float, wall: float, find: Find) -> Decision:
        """Decide for all gangs.

        Args:
            now: on the leader's own clock, in seconds.
            wall: in seconds since 1970.
            find: finds what is known of the owner of a pod.
        """
        self._began = min(self._began, now)
        current = PlanningPass(now, wall, find)
        try:
            self._decide(current)
        except BaseException:
            self._pending.undo((*current.writes,), current)
            raise
        again = None if current.due is None else max(0.0, current.due - now)
        waiting, placed = self._counts(current)
        return Decision(
            current.writes,
            current.groups,
            tuple(current.said),
            tuple(current.asked_again),
            tuple(current.errors),
            tuple(current.failures),
            again,
            waiting,
            placed,
            len(self._failed),
        )

    def _decide(self, current: PlanningPass) -> None:
        current.said.extend(self._evictions.news())
        self._actions.admit_pods_without_gang(current)
        self._memory.open |= self.observed.changed
        for key in self.observed.changed:
            self._evictions.gang_changed(key)
        self.observed.changed.clear()
        for key in sorted(self._memory.open):
            self._attempt(key, partial(self._look, key, current), current)
        rules = self._rules(current)
        gangs = [gang for gang in current.gangs.values() if gang.started or not current.is_room_unknown]
        last = self._last = schedule(self.observed.cluster, gangs, current.wall, rules, self._last)
        if last.again is not None:
            current.at(current.now + last.again - current.wall)
        self._take_answer(last, current)
        self._say_lost_seats(last, current)
        for key, pods in list(current.looked.items()):
            look = partial(self._groups.look, key, pods, current, off=key[0] in self.observed.off)
            self._attempt(key, look, current)
        self._failed.tried(current.skipped)

    def _attempt(self, key: GangKey, step: Callable[[], object], current: PlanningPass) -> None:
        """Take a step for one gang. If it fails, the gang stays as it is until a pause is over, and all others go on."""
        resumes = self._failed.rests_until(key)
        if resumes > current.now:
            current.at(resumes)
            self._skip(key, current)
            return
        memory, event_count = self._memory[key], len(current.said)
        try:
            step()
        except Exception as error:  # noqa: BLE001 - an error of Railnet itself, in what belongs to this gang
            self._memory[key] = memory
            del current.said[event_count:]
            failure = self._failed.failed(key, error, current.now)
            current.failures.append(failure)
            current.at(current.now + failure.pause)
            self._skip(key, current)

    def _skip(self, key: GangKey, current: PlanningPass) -> None:
        """Leave a gang as it is in this pass: nothing of it is written, and its placed members keep their seats."""
        self._memory.open.add(key)
        self._pending.undo([pod.name for pod in self.observed.of(key)], current)
        current.gangs.pop(key, None)
        current.looked.pop(key, None)
        current.skipped.add(key)
        with suppress(Exception):  # what has failed may fail here as well
            self._actions.hold(key, current)

    # What is seen of a gang.

    def _look(self, key: GangKey, current: PlanningPass) -> None:
        """Find out what one gang needs; have the planner find a place for it, if that is what it needs."""
        pods = current.looked[key] = self._pending.members(self.observed.of(key))
        if self._state(key, current) is GangState.EVICTING and not pods.begun:
            self._happens(key, GangEvent.ALL_LEFT, current)
        event = self._departure(key, pods, current)
        if event is None or self._happens(key, event, current) is GangAction.SAY_STAYS:
            self._happens(key, self._arrival(key, pods, current), current)

    def _departure(self, key: GangKey, pods: Members, current: PlanningPass) -> GangEvent | None:
        """Return the event by which members of a gang go, have gone or should go; None if there is none."""
        if not pods.living:
            return GangEvent.NO_MEMBER
        if key[0] in self.observed.off:
            return GangEvent.SWITCHED_OFF
        state = self._state(key, current)
        eviction = self._evictions.due(state, self._memory[key], pods, current)
        if eviction is not None:
            current.evictions[key] = eviction
            return eviction.event
        return GangEvent.STILL_THERE if state is GangState.EVICTING else None

    def _arrival(self, key: GangKey, pods: Members, current: PlanningPass) -> GangEvent:
        """Return the event by which members of a gang come, are complete, or do not come."""
        try:
            request = request_of(pods)
        except Misconfigured as error:
            current.faults[key] = str(error)
            request = None
        if request is None:
            return GangEvent.CONTRADICTORY
        newest = max(pod.created for pod in pods.living)
        is_reserved = reserved_until(pods, self._pending.assigned) is not None
        is_old = not (pods.waiting or pods.placed) and current.wall - newest > MEMBER_SECONDS
        has_run = is_old and not is_reserved
        size, self._memory[key] = gang_size(self._memory[key], pods, request, current, has_run=has_run)
        if self._groups.rests_until(key) > current.now:
            current.sizes[key] = replace(size, known=False)
            return GangEvent.GROUP_REFUSED
        current.sizes[key] = size
        if is_reserved and not size.is_read and current.now < self._began + _READS_SECONDS:
            current.is_room_unknown = True
        has_begun = _has_begun(pods, current)
        if has_begun and size.missing:
            return self._incomplete(key, pods, size, current)
        if has_begun and size.known and is_size_known(request, pods, size.root):
            self._memory[key] = self._memory[key].with_all_members()
        return arrival(pods, size, has_begun=has_begun)

    def _incomplete(self, key: GangKey, pods: Members, size: GangSize, current: PlanningPass) -> GangEvent:
        """Return the event of a gang that has begun, and of which members do not exist: whether they still may come."""
        memory = self._memory[key]
        until = None if memory.begun.whole else reserved_until(pods, self._pending.assigned)
        since = current.now if memory.begun.incomplete_since is None else memory.begun.incomplete_since
        end = since + MEMBER_SECONDS
        if until is not None:  # an account that may patch pods can write any time there, and a clock may be set back
            end = min(end, current.now + until - current.wall)
        if current.now < end:
            current.at(end)
            return GangEvent.TO_COME
        # Long after that time, all members may have existed, and the one that had no time is gone.
        is_recent = until is not None and current.wall < until + MEMBER_SECONDS
        if memory.begun.lapsed or not is_recent:
            current.evictions.pop(key, None)
            return GangEvent.OVERDUE_STAYS
        eviction = current.evictions[key] = self._evictions.of_overdue(memory, pods, size.missing, current)
        return eviction.event or GangEvent.TO_COME

    # What happens to it: an event, the table, and the action.

    def _happens(self, key: GangKey, event: GangEvent, current: PlanningPass) -> GangAction:
        """Do what the life of a gang has for an event, and remember it; return what that is."""
        state = self._state(key, current)
        rule = LIFE_CYCLE.get((state, event))
        if rule is None:
            return self._leave_as_it_is(key, state, event, current)
        self._memory[key] = self._memory[key].entering(rule.then, current.now, current.evictions.get(key))
        self._actions.acts[rule.action](key, current)
        return rule.action

    def _leave_as_it_is(self, key: GangKey, state: GangState, event: GangEvent, current: PlanningPass) -> GangAction:
        """Take in what cannot happen to a gang: it is logged once, and only the seats of its placed members are kept."""
        current.skipped.add(key)
        if (state, event) not in self._logged:
            self._logged.add((state, event))
            text = f"the event {event.name} is impossible in the state {state.name}, so the gang stays as it is"
            current.errors.append(f"gang {'/'.join(key)}: {text}; report this error")
        self._actions.hold(key, current)
        return GangAction.HOLD

    def _state(self, key: GangKey, current: PlanningPass) -> GangState:
        pods = self._pods(key, current)
        return self._memory[key].state(current.now, has_begun=bool(pods.bound or pods.placed))

    def _pods(self, key: GangKey, current: PlanningPass) -> Members:
        return current.looked.get(key) or self._pending.members(self.observed.of(key))

    # What the planner is given, and what it answers.

    def _rules(self, current: PlanningPass) -> Rules:
        """Return what the planner goes by: the gangs that may be preempted, if a gang waits that preempts."""
        waiting = [gang for key, gang in current.gangs.items() if current.looked[key].waiting and gang.preempts]
        if not waiting:
            return Rules(seated=current.seated)
        highest = max(gang.priority for gang in waiting)
        keys = (
            key
            for key in sorted(self.observed.gangs())
            if key[0] not in self.observed.off and key not in current.skipped
        )
        running: list[Gang] = []
        for key in keys:
            self._attempt(key, partial(self._add_victims, key, running, current), current)
        lower = [victim for victim in running if not victim.leaving and victim.priority < highest]
        may_leave = {victim.key: self._evictions.may_leave(victim.key, current) for victim in lower}
        current.spared = [victim for victim in lower if may_leave[victim.key] is False]
        current.undecided = [victim for victim in lower if may_leave[victim.key] is None]
        victims = tuple(victim for victim in running if victim.leaving or may_leave.get(victim.key))
        return Rules(running=victims, seated=current.seated)

    def _add_victims(self, key: GangKey, running: list[Gang], current: PlanningPass) -> None:
        fresh = key in current.looked
        known = not fresh and self._evictions.knows(key)
        pods = _NONE if known else current.looked.get(key) or self._pending.members(self.observed.of(key))
        running.extend(self._evictions.victims(key, pods, self._memory[key], current.now, fresh=fresh))

    def _take_answer(self, last: Pass, current: PlanningPass) -> None:
        self._queue_again(last, current)
        for placement in last.placements:
            current.placements[placement.gang] = placement
            place_found = partial(self._happens, placement.gang, GangEvent.PLACE_FOUND, current)
            self._attempt(placement.gang, place_found, current)
        current.preemptions.update((preemption.gang, preemption) for preemption in last.preemptions)
        current.shortfalls.update((shortfall.gang, shortfall) for shortfall in last.shortfalls)
        for key in current.shortfalls:
            if key not in current.preemptions:
                self._attempt(key, partial(self._find_no_room, key, current), current)
        for preemption in last.preemptions:
            self._attempt(preemption.gang, partial(self._preempt, preemption, current), current)
        for key in current.looked.keys() - current.shortfalls.keys():
            self._remember_split(key, None)
        self._actions.withdraw_nominations(current)

    def _queue_again(self, last: Pass, current: PlanningPass) -> None:
        """Put the younger gangs of a namespace behind those of others when one of its gangs gets its place."""
        served: dict[tuple[str, int], tuple[float, str]] = {}  # of each namespace and priority the oldest gang
        for placement in last.placements:
            gang = current.gangs[placement.gang]
            if not gang.started:
                group = gang.namespace, gang.priority
                served[group] = min(_age(gang), served.get(group, _age(gang)))
        for shortfall in last.shortfalls if served else ():
            gang = current.gangs[shortfall.gang]
            group = gang.namespace, gang.priority
            if group in served and served[group] < _age(gang):
                self._memory[gang.key] = replace(self._memory[gang.key], queued=current.wall)

    def _find_no_room(self, key: GangKey, current: PlanningPass) -> None:
        self._happens(key, self._without_room(key, current), current)

    def _without_room(self, key: GangKey, current: PlanningPass) -> GangEvent:
        """Return the event of a gang for which the planner has no room; if a part of it cannot join the other, it is to be evicted."""
        pods, shortfall = current.looked[key], current.shortfalls[key]
        if not pods.waiting:
            return GangEvent.ROOM_TAKEN
        if is_split(pods):
            self._remember_split(key, current.now)
            eviction = self._evictions.of_split(self._memory[key], pods, current)
            if eviction is not None:
                current.evictions[key] = eviction
                return eviction.event or GangEvent.SPLIT_UNREAD
        return GangEvent.NEVER_A_PLACE if shortfall.permanent else GangEvent.NO_PLACE

    def _remember_split(self, key: GangKey, now: float | None) -> None:
        """Remember since when a part of a gang has no room beside the other; None: it has room."""
        memory = self._memory[key]
        if isinstance(memory.stage, BegunStage):
            since = now if now is None or memory.stage.split_since is None else memory.stage.split_since
            self._memory[key] = replace(memory, stage=replace(memory.stage, split_since=since))

    def _preempt(self, preemption: Preemption, current: PlanningPass) -> None:
        """Have the gangs evicted that must leave their place to another gang, if all of them may."""
        evictions: dict[GangKey, Eviction] = {}
        by = current.gangs[preemption.gang]
        for key in preemption.victims:
            self._attempt(key, partial(self._find_eviction, key, by, evictions, current), current)
        may_leave = all(eviction.event is GangEvent.PREEMPTED for eviction in evictions.values())
        may_leave = may_leave and current.skipped.isdisjoint(preemption.victims)
        event = GangEvent.PREEMPTED if may_leave else GangEvent.PREEMPTED_STAYS
        current.evictions |= evictions
        for key in evictions:
            self._attempt(key, partial(self._happens, key, event, current), current)
        if may_leave:
            self._happens(preemption.gang, GangEvent.OTHERS_GIVE_WAY, current)

    def _find_eviction(self, key: GangKey, by: Gang, evictions: dict[GangKey, Eviction], current: PlanningPass) -> None:
        """Add the eviction of a gang for another one, unless it is evicted already."""
        pods = self._pods(key, current)
        if self._state(key, current) is not GangState.EVICTING and pods.begun:
            evictions[key] = self._evictions.of_victim(key, pods, by, current)

    def _say_lost_seats(self, last: Pass, current: PlanningPass) -> None:
        """Say which placed pods lost the node that they were given."""
        by_gang: dict[GangKey, list[LostSeat]] = {}
        for lost in last.lost_seats:
            by_gang.setdefault(lost.gang, []).append(lost)
        for key, seats in by_gang.items():
            if key in current.looked:
                self._attempt(key, partial(self._actions.say_lost, key, seats, current), current)

    def _counts(self, current: PlanningPass) -> tuple[int, int]:
        """Return how many gangs wait, and how many have a place."""
        waiting = sum(
            any(pod.name not in self._pending.assigned for pod in pods.waiting) for pods in current.looked.values()
        )
        gangs = (key for key in self.observed.gangs() if key not in self._failed)
        placed = sum(key not in current.looked or bool(current.looked[key].begun) for key in gangs)
        return waiting, placed


def _has_begun(pods: Members, current: PlanningPass) -> bool:
    """Return whether members have begun in such a way that others follow them.

    One that was created without a gate, because the webhook did not answer in time, begins alone. The others still begin together, unless
    they do not come for so long that the gang counts as one that ran before.
    """
    if not pods.begun or pods.is_let_go:
        return bool(pods.begun)
    left = min(pod.created for pod in pods.living) + MEMBER_SECONDS - current.wall
    if left > 0:
        current.at(current.now + left)
    return left <= 0


def _age(gang: Gang) -> tuple[float, str]:
    """Return a key that sorts the gangs of a namespace: the oldest first."""
    return gang.since, gang.name
