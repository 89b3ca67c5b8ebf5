"""Decides what is to be done with all gangs now, from the pods, the nodes, and what a leader remembers. No I/O, no clock, no threads.

The state of a gang is in its pods: a pod behind the gate waits; one with the annotation of its placement has been placed there; members
that are placed or bound fix the domain of the others. So a leader that begins decides as the one before it would have.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from railnet.errors import Misconfigured
from railnet.gangs import event_messages
from railnet.gangs.evictions import CLOSED_SECONDS, LEAVING_SECONDS, GangEvictions, attempt_of, is_split
from railnet.gangs.failed_gangs import FailedGangs
from railnet.gangs.gang_size import SETTLE_SECONDS, arrival, gang_size, request_of
from railnet.gangs.gate_removal_patch import HOSTNAME
from railnet.gangs.leader_memory import BegunStage, EvictingStage, Eviction, GangMemory, Tries
from railnet.gangs.life_cycle import LIFE_CYCLE, GangAction, GangEvent, GangState
from railnet.gangs.members import Members, is_size_known, makes_all, members, planned, reserved_until
from railnet.gangs.observed_state import ObservedState
from railnet.gangs.pending_writes import REFUSALS_SAID, PendingWrites, refusal_event
from railnet.gangs.placement.gang import Gang, GangKey, LostSeat
from railnet.gangs.placement.preemption import Preemption
from railnet.gangs.placement.scheduling_pass import Pass, Rules, schedule
from railnet.gangs.placement_annotation import Evicted, Placed
from railnet.gangs.planning_pass_state import Find, GangSize, PlanningPass, about
from railnet.gangs.planning_result import Admit, Annotate, Decision, Said, Withdraw, WriteOutcome
from railnet.gangs.pod import GangPod

MEMBER_SECONDS = 600.0  # that room is kept for members that do not exist yet
_COMING_SECONDS = 10.0  # since the last member came, before it is said that some are missing
_SAY_SECONDS = 60.0  # between two texts about one gang that waits
_NONE = Members((), (), (), ())


class GangPlanning:
    """Decides. One thread uses it.

    Attributes:
        observed: the pods and nodes; the caller keeps them up to date.
    """

    def __init__(self) -> None:
        self.observed = ObservedState()
        self._open: set[GangKey] = set()  # gangs that may need something
        self._memory: dict[GangKey, GangMemory] = {}
        self._pending = PendingWrites()
        self._evictions = GangEvictions(self._pending)
        self._failed = FailedGangs()
        self._last = Pass()
        self._acts = self._actions()
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

    def decide(self, now: float, wall: float, find: Find) -> Decision:
        """Decide for all gangs.

        Args:
            now: on the leader's own clock, in seconds.
            wall: in seconds since 1970.
            find: finds what is known of the owner of a pod.
        """
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
        self._admit_pods_without_gang(current)
        self._open |= self.observed.changed
        for key in self.observed.changed:
            self._evictions.gang_changed(key)
        self.observed.changed.clear()
        for key in sorted(self._open):
            self._attempt(key, partial(self._look, key, current), current)
        rules = self._rules(current)
        gangs = [gang for gang in current.gangs.values() if gang.started or not current.is_room_unknown]
        last = self._last = schedule(self.observed.cluster, gangs, current.wall, rules, self._last)
        if last.again is not None:
            current.at(current.now + last.again - current.wall)
        self._take_answer(last, current)
        self._say_lost_seats(last, current)
        self._failed.tried(current.skipped)

    def _attempt(self, key: GangKey, step: Callable[[], object], current: PlanningPass) -> None:
        """Take a step for one gang. If it fails, the gang stays as it is until a pause is over, and all others go on."""
        resumes = self._failed.rests_until(key)
        if resumes > current.now:
            current.at(resumes)
            self._skip(key, current)
            return
        memory, event_count = self._memory.get(key, GangMemory()), len(current.said)
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
        self._open.add(key)
        self._pending.undo([pod.name for pod in self.observed.of(key)], current)
        current.gangs.pop(key, None)
        current.looked.pop(key, None)
        current.skipped.add(key)
        with suppress(Exception):  # what has failed may fail here as well
            self._hold(key, current)

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
        self._withdraw_nominations(current)

    def _withdraw_nominations(self, current: PlanningPass) -> None:
        """Give back what the scheduler keeps for pods that still wait.

        A leader died before it removed their gates, the place was lost, the removal of the gate is refused again and again, or the gang cannot be read.
        """
        if current.is_room_unknown:
            return
        waiting = [(key in current.placements, pod) for key, pods in current.looked.items() for pod in pods.waiting]
        without_gang = [(False, pod) for pod in self.observed.without_gang.values()]
        for has_place, pod in (*waiting, *without_gang):
            if pod.nominated and pod.name not in self._pending.assigned and not (has_place and self._nominates(pod)):
                self._pending.put(pod, Withdraw(), current)

    def _nominates(self, pod: GangPod) -> bool:
        """Return whether a pod is nominated before its gate is removed: if that is refused again and again, the scheduler keeps no room for it."""
        return self._pending.refusals(pod.name, Admit) < REFUSALS_SAID

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

    def _members(self, key: GangKey) -> Members:
        return members(self.observed.of(key), self._pending.assigned.keys())

    # What happens to a gang.

    def _happens(self, key: GangKey, event: GangEvent, current: PlanningPass) -> GangAction:
        """Do what the life of a gang has for an event, and remember it; return what that is."""
        state = self._state(key, current)
        rule = LIFE_CYCLE.get((state, event))
        if rule is None:
            return self._leave_as_it_is(key, state, event, current)
        self._memory[key] = self._memory[key].entering(rule.then, current.now, current.evictions.get(key))
        self._acts[rule.action](key, current)
        return rule.action

    def _leave_as_it_is(self, key: GangKey, state: GangState, event: GangEvent, current: PlanningPass) -> GangAction:
        """Take in what cannot happen to a gang: it is logged once, and only the seats of its placed members are kept."""
        current.skipped.add(key)
        if (state, event) not in self._logged:
            self._logged.add((state, event))
            text = f"the event {event.name} is impossible in the state {state.name}, so the gang stays as it is"
            current.errors.append(f"gang {'/'.join(key)}: {text}; report this error")
        self._hold(key, current)
        return GangAction.HOLD

    def _state(self, key: GangKey, current: PlanningPass) -> GangState:
        memory = self._memory.setdefault(key, GangMemory())
        pods = self._pods(key, current)
        return memory.state(current.now, has_begun=bool(pods.bound or pods.placed))

    def _pods(self, key: GangKey, current: PlanningPass) -> Members:
        return current.looked.get(key) or self._members(key)

    def _look(self, key: GangKey, current: PlanningPass) -> None:
        """Find out what one gang needs; have the planner find a place for it, if that is what it needs."""
        pods = current.looked[key] = self._members(key)
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
        current.sizes[key] = size
        current.is_room_unknown |= is_reserved and not size.is_read
        if pods.begun and size.missing:
            return self._incomplete(key, pods, size, current)
        if pods.begun and size.known and is_size_known(request, pods, size.root):
            self._memory[key] = self._memory[key].with_all_members()
        return arrival(pods, size)

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

    # What is done with a gang.

    def _forget(self, key: GangKey, _: PlanningPass) -> None:
        self._open.discard(key)
        self._memory.pop(key, None)

    def _rest(self, key: GangKey, current: PlanningPass) -> None:
        current.at(self._memory[key].rests_until())

    def _open_all(self, key: GangKey, current: PlanningPass) -> None:
        for pod in current.looked[key].waiting:
            self._let(pod, None, current)
        is_over = self._memory[key].rests_until() <= current.now
        (self._forget if is_over else self._rest)(key, current)

    def _hold(self, key: GangKey, current: PlanningPass) -> None:
        """Have the placed pods of a gang keep their nodes, although the gang is not planned: the scheduler may bind them at any moment."""
        pods = self._pods(key, current)
        request = next((pod.request for pod in pods.placed if pod.request is not None), None)
        if request is not None:
            current.seated.append(planned(request, pods, self._pending.assigned, waiting=False))

    def _refuse(self, key: GangKey, current: PlanningPass) -> None:
        pods = current.looked[key]
        if pods.waiting and key in current.faults:
            current.warn(pods.living, "GangRefused", current.faults[key])
        self._hold(key, current)

    def _evict(self, key: GangKey, current: PlanningPass) -> None:
        pods, stage, eviction = self._pods(key, current), self._memory[key].stage, current.evictions.get(key)
        if not isinstance(stage, EvictingStage):
            return
        if eviction is not None and eviction.text:
            reason = "GangPreempted" if stage.why is Evicted.PREEMPTED else "GangEvicted"
            current.warn(pods.living, reason, eviction.text)
        self._open.add(key)
        if stage.since + LEAVING_SECONDS > current.now:
            current.at(stage.since + LEAVING_SECONDS)
        self._evictions.evict(stage.why, pods, current)
        self._hold(key, current)

    def _say_stays(self, key: GangKey, current: PlanningPass) -> None:
        current.warn(current.looked[key].living, "GangWaiting", current.evictions[key].text)

    def _say_absent(self, key: GangKey, current: PlanningPass) -> None:
        """Say that a gang waits for members that do not exist, when none has come for a while."""
        pods, size, settled = current.looked[key], current.sizes[key], self._newest(key) + _COMING_SECONDS
        if current.now < settled:
            current.at(settled)
            return
        only = size.root if size.root is not None and makes_all(pods, size.root) else None
        job_size, everyone = 0 if only is None else size.made, len(pods.came) + size.absent
        text = event_messages.absent(len(pods.came), everyone, job_size, None if only is None else only.owner)
        self._say_waiting(key, text, current, "GangRefused" if 0 < job_size < everyone else "GangWaiting")

    def _say_closed(self, key: GangKey, current: PlanningPass) -> None:
        seen = len(current.looked[key].came)
        current.at(self._memory[key].tries.closed_until)
        text = event_messages.closed(seen, seen + current.sizes[key].absent, CLOSED_SECONDS / 60)
        self._say_waiting(key, text, current)

    def _newest(self, key: GangKey) -> float:
        return self._memory[key].arrivals.newest

    def _give_back(self, key: GangKey, current: PlanningPass) -> None:
        eviction, living = current.evictions.get(key), current.looked[key].living
        text = event_messages.incomplete(
            len(living),
            current.sizes[key].missing,
            MEMBER_SECONDS / 60,
            "" if eviction is None else eviction.obstacle,
        )
        current.warn(living, "GangWaiting", text)
        self._plan_without(key, current)

    def _plan_without(self, key: GangKey, current: PlanningPass) -> None:
        size, living = current.sizes[key], len(current.looked[key].living)
        current.sizes[key] = replace(size, coming=(), least=min(size.least, living), absent=0)
        self._plan(key, current)

    def _plan(self, key: GangKey, current: PlanningPass) -> None:
        """Have the planner find room for the members that have none; there may be none."""
        self._announce(key, current)
        memory, pods, size = self._memory[key], current.looked[key], current.sizes[key]
        is_reserved = memory.begun.whole and self._end_reservation(pods, current)
        if not (pods.waiting or pods.placed or size.missing):
            self._forget_tries(key)
            if size.known and not (memory.news.opened or is_reserved):
                self._open.discard(key)
            return
        cooling = memory.cooling(current.now)
        gang = planned(
            size.request,
            pods,
            self._pending.assigned,
            waiting=size.known,
            coming=size.coming,
            least=size.least,
            excluded=frozenset(cooling),
            queued=memory.queued,
        )
        for until in cooling.values():
            current.at(until)
        if gang.members:
            current.gangs[key] = gang

    def _announce(self, key: GangKey, current: PlanningPass) -> None:
        """Say where a gang is placed when all its pods have been let go: once for each change, with all of its members."""
        memory, pods, size = self._memory[key], current.looked[key], current.sizes[key]
        if not memory.news.opened or pods.waiting or any(pod.name in self._pending.assigned for pod in pods.placed):
            return
        settled = self._newest(key) + SETTLE_SECONDS
        if not size.made and current.now < settled:  # more members may come, and are announced with these
            current.at(settled)
            return
        places = [pod.placed for pod in pods.begun if pod.placed is not None]
        domains, attempt = Counter(place.domain for place in places), attempt_of(memory, pods.begun)
        placed = frozenset(domains), attempt, bool(size.missing)
        if domains and placed != memory.news.placed:
            preferred = () if size.request.constraint is None else size.request.constraint.preferred
            ignored = self.observed.cluster.unknown(preferred)
            text = event_messages.placed(domains, size.missing, attempt, MEMBER_SECONDS / 60, ignored)
            current.said.append(Said(about(pods.living), "GangPlaced", text))
        news = replace(memory.news, opened=False, placed=placed, waiting="")
        self._memory[key] = replace(memory, news=news)

    def _forget_tries(self, key: GangKey) -> None:
        memory = self._memory[key]
        self._memory[key] = replace(memory, tries=Tries(closed_until=memory.tries.closed_until))

    def _end_reservation(self, pods: Members, current: PlanningPass) -> bool:
        """Write to the pods of a gang of which all members have existed that no room is kept for others; return whether there are such pods.

        Otherwise the last member alone would say so, and when it goes, the next leader would evict the others.
        """
        places = [(pod, pod.placed) for pod in pods.begun if pod.gated is None and pod.placed is not None]
        reserved = [(pod, placed) for pod, placed in places if placed.reserved_until is not None]
        for pod, placed in reserved:
            self._pending.put(pod, Annotate(placed._replace(reserved_until=None)), current)
        return bool(reserved)

    # What the planner is given.

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
        pods = _NONE if known else current.looked.get(key) or self._members(key)
        running.extend(self._evictions.victims(key, pods, self._memory.get(key), current.now, fresh=fresh))

    # What the planner answered.

    def _admit(self, key: GangKey, current: PlanningPass) -> None:
        """Have the gates removed of the pods that have a place."""
        pods, memory, seats = current.looked[key], self._memory[key], current.placements[key].seats
        waiting = {pod.name.name: pod for pod in pods.waiting}
        attempt = attempt_of(memory, pods.begun)
        until = self._reservation(pods, current) if any(not seat.member for seat in seats) else None
        for seat in seats:
            pod = waiting.get(seat.member)
            placed = Placed(seat.domain, attempt, node=seat.node, reserved_until=until)
            if pod is not None and self._let(pod, placed, current):
                self._memory[key] = replace(memory, news=replace(memory.news, opened=True))

    def _reservation(self, pods: Members, current: PlanningPass) -> int | None:
        """Return until when room is kept for members that do not exist yet; None if all have existed before."""
        if pods.begun:
            return reserved_until(pods, self._pending.assigned)
        return int(current.wall + MEMBER_SECONDS)

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

    def _say_others_leave(self, key: GangKey, current: PlanningPass) -> None:
        self._say_waiting(key, event_messages.waits_for(current.preemptions[key]), current)

    def _let(self, pod: GangPod, placed: Placed | None, current: PlanningPass) -> bool:
        """Have a gate removed; return False if that is under way, or the API server refused it a moment ago.

        A nomination that is not to be made again is withdrawn first.
        """
        if pod.gated is None:
            return False
        nominates = self._nominates(pod)
        if pod.nominated and not nominates and not self._pending.refusals(pod.name, Withdraw):
            return False
        cluster_node = None if placed is None else self.observed.cluster.nodes.get(placed.node)
        host = "" if cluster_node is None else cluster_node.labels.get(HOSTNAME, "")
        return self._pending.put(pod, Admit(pod.gated, placed, host, nominates), current)

    def _admit_pods_without_gang(self, current: PlanningPass) -> None:
        """Remove the gates of pods that are of no gang any more. A gang that cannot be read is said, and its pod waits."""
        for pod in self.observed.without_gang.values():
            if pod.leaving:
                continue
            if pod.fault and pod.name.namespace not in self.observed.off:
                current.warn([pod], "GangRefused", pod.fault)
            else:
                self._let(pod, None, current)

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

    def _find_no_room(self, key: GangKey, current: PlanningPass) -> None:
        self._happens(key, self._without_room(key, current), current)

    def _remember_split(self, key: GangKey, now: float | None) -> None:
        """Remember since when a part of a gang has no room beside the other; None: it has room."""
        memory = self._memory.get(key)
        if memory is not None and isinstance(memory.stage, BegunStage):
            since = now if now is None or memory.stage.split_since is None else memory.stage.split_since
            self._memory[key] = replace(memory, stage=replace(memory.stage, split_since=since))

    def _say_no_place(self, key: GangKey, current: PlanningPass) -> None:
        gang, shortfall = current.gangs[key], current.shortfalls[key]
        text = event_messages.waits(gang, shortfall, current.sizes[key].made)
        if gang.preempts and not shortfall.permanent:
            if any(victim.priority < gang.priority for victim in current.undecided):
                return  # it may take their place: what the API server answers about them decides
            text += event_messages.spared([victim.key for victim in current.spared if victim.priority < gang.priority])
        self._say_waiting(key, text, current, "GangRefused" if shortfall.permanent else "GangWaiting")

    def _say_room_taken(self, key: GangKey, current: PlanningPass) -> None:
        """Say that members that do not exist yet have no room beside the others any more: no gate keeps pods of no gang out."""
        pods = current.looked[key]
        missing = current.gangs[key].needed - len(pods.living)
        domains = sorted({pod.placed.domain for pod in pods.begun if pod.placed is not None})
        if missing > 0 and domains:
            text = event_messages.room_taken(missing, domains, MEMBER_SECONDS / 60)
            self._say_waiting(key, text, current)

    def _say_lost_seats(self, last: Pass, current: PlanningPass) -> None:
        """Say which placed pods lost the node that they were given."""
        by_gang: dict[GangKey, list[LostSeat]] = {}
        for lost in last.lost_seats:
            by_gang.setdefault(lost.gang, []).append(lost)
        for key, seats in by_gang.items():
            if key in current.looked:
                self._attempt(key, partial(self._say_lost, key, seats, current), current)

    @staticmethod
    def _say_lost(key: GangKey, seats: list[LostSeat], current: PlanningPass) -> None:
        current.warn(current.looked[key].living, "GangSeatLost", event_messages.seats_lost(seats))

    def _say_waiting(self, key: GangKey, text: str, current: PlanningPass, reason: str = "GangWaiting") -> None:
        """Say something of a gang that waits, if it is new, once a minute at most."""
        memory = self._memory[key]
        again = memory.news.waiting_at + _SAY_SECONDS
        if text == memory.news.waiting:
            return
        if current.now < again:
            current.at(again)
            return
        self._memory[key] = replace(memory, news=replace(memory.news, waiting=text, waiting_at=current.now))
        current.warn(current.looked[key].living, reason, text)

    def _counts(self, current: PlanningPass) -> tuple[int, int]:
        """Return how many gangs wait, and how many have a place."""
        waiting = sum(
            any(pod.name not in self._pending.assigned for pod in pods.waiting) for pods in current.looked.values()
        )
        gangs = (key for key in self.observed.gangs() if key not in self._failed)
        placed = sum(key not in current.looked or bool(current.looked[key].begun) for key in gangs)
        return waiting, placed

    def _actions(self) -> Mapping[GangAction, Callable[[GangKey, PlanningPass], None]]:
        return {
            GangAction.FORGET: self._forget,
            GangAction.REST: self._rest,
            GangAction.OPEN: self._open_all,
            GangAction.GO_ON: _nothing,
            GangAction.LEAVE: _nothing,
            GangAction.HOLD: self._hold,
            GangAction.REFUSE: self._refuse,
            GangAction.EVICT: self._evict,
            GangAction.SAY_STAYS: self._say_stays,
            GangAction.SAY_ABSENT: self._say_absent,
            GangAction.SAY_CLOSED: self._say_closed,
            GangAction.KEEP: self._plan,
            GangAction.PLAN: self._plan,
            GangAction.GIVE_BACK: self._give_back,
            GangAction.PLAN_WITHOUT: self._plan_without,
            GangAction.SETTLE: self._plan,
            GangAction.ADMIT: self._admit,
            GangAction.SAY_NO_PLACE: self._say_no_place,
            GangAction.SAY_REFUSED: self._say_no_place,
            GangAction.SAY_ROOM_TAKEN: self._say_room_taken,
            GangAction.SAY_OTHERS_LEAVE: self._say_others_leave,
        }


def _age(gang: Gang) -> tuple[float, str]:
    """Return a key that sorts the gangs of a namespace: the oldest first."""
    return gang.since, gang.name


def _nothing(_: GangKey, __: PlanningPass) -> None:
    pass
