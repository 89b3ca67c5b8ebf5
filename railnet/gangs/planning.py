"""Decides what is to be done with all gangs now, from the pods, the nodes, and what a leader remembers. No I/O, no clock, no threads.

The state of a gang is in its pods: a pod behind the gate waits; one with the annotation of its placement has been placed there; members
that are placed or bound fix the domain of the others. So a leader that begins decides as the one before it would have.
"""

from collections import Counter
from collections.abc import Iterator

from railnet.errors import Misconfigured
from railnet.gangs import event_messages
from railnet.gangs.evictions import CLOSED_SECONDS, GangEvictions
from railnet.gangs.gate_removal_patch import HOSTNAME
from railnet.gangs.leader_memory import GangMemory
from railnet.gangs.members import (
    Members,
    is_size_known,
    made,
    makes_all,
    members,
    needed,
    needs_root,
    planned,
    reserved_until,
    to_come,
)
from railnet.gangs.observed_state import ObservedState
from railnet.gangs.pending_writes import PendingWrites
from railnet.gangs.placement.gang import Gang, GangKey, LostSeat, Placement, Shortfall
from railnet.gangs.placement.preemption import Preemption
from railnet.gangs.placement.scheduling_pass import Pass, Rules, schedule
from railnet.gangs.placement_annotation import Placed
from railnet.gangs.planning_pass_state import Find, PlanningPass, about
from railnet.gangs.planning_result import Admit, Decision, Evict, Root, Said, Withdraw, WriteOutcome
from railnet.gangs.pod import GangPod
from railnet.jobs.gang_recogniser import agreed
from railnet.jobs.gang_request import GangRequest

MEMBER_SECONDS = 600.0  # that room is kept for members that do not exist yet
_COMING_SECONDS = 10.0  # since the last member came, before it is said that some are missing
_SETTLE_SECONDS = 1.0  # of a gang that does not say its size, since its last member came
_JOIN_SECONDS = 10.0  # in which a pod without a gate is bound, since it was created
_SAY_SECONDS = 60.0  # between two texts about one gang that waits
_ASK_SECONDS = 60.0  # until a root is read again while members are missing: the job may have been scaled
_REFUSALS_SAID = 5  # a stale patch is refused once or twice; a policy refuses it always
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
        self._last = Pass()

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
        if pod is None:
            return None
        if isinstance(outcome.write, Evict):
            text = event_messages.eviction_refused(outcome.pod.name, outcome.refusal)
            return Said(about([pod]), "GangEvicted", text, "Warning")
        if times < _REFUSALS_SAID and not (outcome.waits and outcome.forbidden):
            return None
        return Said(
            about([pod]), "GangRefused", event_messages.patch_refused(outcome.pod.name, outcome.refusal), "Warning"
        )

    def decide(self, now: float, wall: float, find: Find) -> Decision:
        """Decide for all gangs.

        Args:
            now: on the leader's own clock, in seconds.
            wall: in seconds since 1970.
            find: finds what is known of the owner of a pod; None if it is not known yet.
        """
        current = PlanningPass(now, wall, find)
        try:
            self._decide(current)
        except BaseException:
            self._pending.undo(current)
            raise
        again = None if current.due is None else max(0.0, current.due - now)
        return Decision(current.writes, tuple(current.said), tuple(current.asked_again), again, *self._counts(current))

    def _decide(self, current: PlanningPass) -> None:
        current.said.extend(self._evictions.news())
        self._admit_pods_without_gang(current)
        self._open |= self.observed.changed
        for key in self.observed.changed:
            self._evictions.gang_changed(key)
        self.observed.changed.clear()
        for key in sorted(self._open):
            self._look(key, current)
        last = self._last = schedule(
            self.observed.cluster, current.gangs.values(), current.wall, self._rules(current), self._last
        )
        if last.again is not None:
            current.at(current.now + last.again - current.wall)
        self._take_answer(last, current)
        self._say_lost_seats(last, current)

    def _take_answer(self, last: Pass, current: PlanningPass) -> None:
        self._queue_again(last, current)
        for placement in last.placements:
            self._admit(placement, current)
        making_room = {preemption.gang for preemption in last.preemptions}
        for shortfall in last.shortfalls:
            if shortfall.gang not in making_room:
                self._wait(shortfall, current)
        for preemption in last.preemptions:
            self._preempt(preemption, current)
        for key in current.looked.keys() - {shortfall.gang for shortfall in last.shortfalls}:
            self._evictions.whole(key)
        self._withdraw_nominations(current)

    def _withdraw_nominations(self, current: PlanningPass) -> None:
        """Give back what the scheduler keeps for pods that still wait: a leader died before it removed their gates, or the place was lost."""
        for pods in current.looked.values():
            for pod in pods.waiting:
                if pod.nominated and pod.name not in self._pending.assigned:
                    self._pending.put(pod, Withdraw(), current)

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
                self._memory[gang.key].queued = current.wall

    def _members(self, key: GangKey) -> Members:
        return members(self.observed.of(key), self._pending.assigned.keys())

    # One gang.

    def _look(self, key: GangKey, current: PlanningPass) -> None:
        """Find out what one gang needs; have the planner find a place for it, if that is what it needs."""
        pods = self._members(key)
        current.looked[key] = pods
        if not pods.living:
            self._close(key, current)
            return
        if key[0] in self.observed.off:
            for pod in pods.waiting:
                self._let(pod, None, current)
            self._close(key, current)
            return
        memory = self._memory.setdefault(key, GangMemory())
        if self._evictions.goes_on(memory, pods, current):
            self._keep_seats(pods, current)
            return
        request = self._request(pods, current)
        if request is None:
            self._keep_seats(pods, current)
        else:
            self._plan(key, memory, pods, request, current)

    def _keep_seats(self, pods: Members, current: PlanningPass) -> None:
        """Have the placed pods of a gang keep their nodes, although the gang is not planned: the scheduler may bind them at any moment."""
        request = next((pod.request for pod in pods.placed if pod.request is not None), None)
        if request is not None:
            current.seated.append(planned(request, pods, self._pending.assigned, waiting=False))

    def _request(self, pods: Members, current: PlanningPass) -> GangRequest | None:
        """Return what all members say together; None if they contradict each other, which is said."""
        requests: dict[GangRequest, str] = {}
        for pod in pods.living:
            if pod.request is not None:
                requests.setdefault(pod.request, pod.name.name)
        try:
            return agreed((name, request) for request, name in requests.items())
        except Misconfigured as error:
            if pods.waiting:
                current.warn(pods.living, "GangRefused", str(error))
            return None

    def _plan(
        self, key: GangKey, memory: GangMemory, pods: Members, request: GangRequest, current: PlanningPass
    ) -> None:
        root, ready = self._root(memory, pods, request, current)
        ready = ready and self._has_settled(memory, pods, request, root, current) and not self._is_joined(pods, current)
        memory.made = made(request, root)
        coming = to_come(request, pods, root) if ready else ()
        least = needed(request, pods, root) if ready else len(pods.begun)
        absent = max(0, least - len(pods.living))
        missing = max(absent, len(coming))
        memory.whole = bool(pods.begun) and (memory.whole or (ready and not missing))
        if self._has_lapsed(memory, pods, missing, current):
            if memory.evicting is not None:
                self._keep_seats(pods, current)
                return
            coming, least, missing = (), min(least, len(pods.living)), 0
        if not pods.begun:
            memory.announced = None
        size = len(pods.came) + absent
        if ready and absent and not pods.begun and not self._opens_early(memory, size, root, current):
            self._wait_for_members(key, pods, size, root, current)
            return
        self._announce(memory, pods, request, missing, current)
        if not (pods.waiting or pods.placed or missing):
            self._settle(key, memory)
            return
        gang = planned(
            request,
            pods,
            self._pending.assigned,
            waiting=ready,
            coming=coming,
            least=least,
            excluded=memory.excluded(current.now),
            queued=memory.queued,
        )
        for until in memory.cooling.values():
            current.at(until)
        if gang.members:
            current.gangs[key] = gang

    def _root(
        self, memory: GangMemory, pods: Members, request: GangRequest, current: PlanningPass
    ) -> tuple[Root | None, bool]:
        """Return what makes the pods, and whether all is known that can be."""
        asked = about(pods.living).owner
        if asked is None or not needs_root(request, pods) or (memory.asked is None and _has_run(pods, current)):
            return None, True
        root = current.find(asked)
        if asked != memory.asked:
            memory.asked, memory.asked_at = asked, current.now
        if root is not None and pods.waiting and needed(request, pods, root) > len(pods.living):
            if current.now - memory.asked_at >= _ASK_SECONDS:
                memory.asked_at = current.now
                current.asked_again.append(asked)
            current.at(memory.asked_at + _ASK_SECONDS)
        return root, root is not None

    def _has_settled(
        self, memory: GangMemory, pods: Members, request: GangRequest, root: Root | None, current: PlanningPass
    ) -> bool:
        """Return whether all members have come, as far as can be known."""
        if len(pods.living) > memory.seen:
            memory.newest = current.now
        memory.seen = len(pods.living)
        if not pods.waiting or pods.begun or is_size_known(request, pods, root):
            return True
        current.at(memory.newest + _SETTLE_SECONDS)
        return current.now - memory.newest >= _SETTLE_SECONDS

    @staticmethod
    def _is_joined(pods: Members, current: PlanningPass) -> bool:
        """Return whether the scheduler is about to bind a member that was created without the gate: its node fixes the domain."""
        young = [
            pod.created + _JOIN_SECONDS - current.wall
            for pod in pods.placed
            if pod.gated is None
            and pod.placed is None
            # Later than now it was created only by a clock that is before this one.
            and pod.created <= current.wall + _JOIN_SECONDS
        ]
        left = max(young, default=0.0)
        if pods.waiting and left > 0:
            current.at(current.now + left)
        return left > 0

    @staticmethod
    def _opens_early(memory: GangMemory, size: int, root: Root | None, current: PlanningPass) -> bool:
        """Return whether the gates of a gang are opened although members that start together do not exist.

        If its root creates its pods in stages, the gang would wait for ever for the later ones. So the room of all is reserved, and those that
        exist begin.
        """
        in_stages = root is not None and bool(root.stages) and memory.made >= size
        return in_stages and memory.closed_until <= current.now

    def _wait_for_members(
        self, key: GangKey, pods: Members, size: int, root: Root | None, current: PlanningPass
    ) -> None:
        """Say that a gang waits for members that do not exist, when none has come for a while."""
        memory, seen = self._memory[key], len(pods.came)
        if memory.closed_until > current.now:
            current.at(memory.closed_until)
            self._say_waiting(key, event_messages.closed(seen, size, CLOSED_SECONDS / 60), current)
            return
        settled = memory.newest + _COMING_SECONDS
        if current.now < settled:
            current.at(settled)
            return
        only = root if root is not None and makes_all(pods, root) else None
        job_size = 0 if only is None else memory.made
        text = event_messages.absent(seen, size, job_size, None if only is None else only.owner)
        self._say_waiting(key, text, current, "GangRefused" if 0 < job_size < size else "GangWaiting")

    def _has_lapsed(self, memory: GangMemory, pods: Members, missing: int, current: PlanningPass) -> bool:
        """Return whether members have not come for so long that no room is kept for them any more.

        If the gates were opened before all members existed, it is then as if they had never been: those that have begun are evicted.
        """
        if not missing or not pods.begun:
            memory.incomplete_since, memory.lapsed = None, False
            return False
        if memory.incomplete_since is None:
            memory.incomplete_since = current.now
        until = None if memory.whole else reserved_until(pods, self._pending.assigned)
        end = memory.incomplete_since + MEMBER_SECONDS
        if until is not None:  # whoever may patch the pods can write any time, and clocks are set back
            end = min(end, current.now + until - current.wall)
        if current.now < end:
            current.at(end)
            return False
        if not memory.lapsed:
            # Long after that time, all members may have existed, and the one that had no time is gone.
            is_recent = until is not None and current.wall < until + MEMBER_SECONDS
            why = self._evictions.evict_lapsed(memory, pods, missing, current) if is_recent else ""
            if why is None:  # the answer causes another pass
                return False
            memory.lapsed = True
            if memory.evicting is None:
                text = event_messages.incomplete(len(pods.living), missing, MEMBER_SECONDS / 60, why)
                current.warn(pods.living, "GangWaiting", text)
        return True

    def _announce(
        self, memory: GangMemory, pods: Members, request: GangRequest, missing: int, current: PlanningPass
    ) -> None:
        """Say where a gang is placed when all its pods have been let go: once for each change, with all of its members."""
        if not memory.announces or pods.waiting or any(pod.name in self._pending.assigned for pod in pods.placed):
            return
        settled = memory.newest + _SETTLE_SECONDS
        if not memory.made and current.now < settled:  # more members may come, and are announced with these
            current.at(settled)
            return
        memory.announces, memory.waiting_text = False, ""
        places = [pod.placed for pod in pods.begun if pod.placed is not None]
        domains, attempt = Counter(place.domain for place in places), _attempt(memory, pods)
        now_announced = frozenset(domains), attempt, bool(missing)
        if domains and now_announced != memory.announced:
            preferred = () if request.constraint is None else request.constraint.preferred
            ignored = self.observed.cluster.unknown(preferred)
            text = event_messages.placed(domains, missing, attempt, MEMBER_SECONDS / 60, ignored)
            current.said.append(Said(about(pods.living), "GangPlaced", text))
        memory.announced = now_announced

    def _settle(self, key: GangKey, memory: GangMemory) -> None:
        """Forget the tries of a gang whose members all have a node."""
        memory.attempt, memory.cooling = 1, {}
        if not memory.announces:
            self._open.discard(key)

    def _close(self, key: GangKey, current: PlanningPass) -> None:
        """Forget a gang, unless it has been evicted and its pods are yet to come back."""
        memory = self._memory.get(key)
        if memory is not None and (rests := memory.rests_until(current.now)) > current.now:
            memory.evicting = None
            current.at(rests)
            return
        self._open.discard(key)
        self._memory.pop(key, None)

    # What the planner is given.

    def _rules(self, current: PlanningPass) -> Rules:
        """Return what the planner goes by: the gangs that may be preempted, if a gang waits that preempts."""
        waiting = [gang for key, gang in current.gangs.items() if current.looked[key].waiting and gang.preempts]
        if not waiting:
            return Rules(seated=current.seated)
        highest = max(gang.priority for gang in waiting)
        keys = (key for key in sorted(self.observed.gangs()) if key[0] not in self.observed.off)
        running = [victim for key in keys for victim in self._victims(key, current)]
        lower = [victim for victim in running if not victim.leaving and victim.priority < highest]
        may_leave = {victim.key: self._evictions.may_leave(victim.key, current) for victim in lower}
        current.spared = [victim for victim in lower if may_leave[victim.key] is False]
        current.undecided = [victim for victim in lower if may_leave[victim.key] is None]
        victims = tuple(victim for victim in running if victim.leaving or may_leave.get(victim.key))
        return Rules(running=victims, seated=current.seated)

    def _victims(self, key: GangKey, current: PlanningPass) -> Iterator[Gang]:
        fresh = key in current.looked
        known = not fresh and self._evictions.knows(key)
        pods = _NONE if known else current.looked.get(key) or self._members(key)
        return self._evictions.victims(key, pods, self._memory.get(key), current.now, fresh=fresh)

    # What the planner answered.

    def _admit(self, placement: Placement, current: PlanningPass) -> None:
        """Have the gates removed of the pods that have a place."""
        pods, memory = current.looked[placement.gang], self._memory[placement.gang]
        waiting = {pod.name.name: pod for pod in pods.waiting}
        attempt = _attempt(memory, pods)
        until = self._reservation(pods, current) if any(not seat.member for seat in placement.seats) else None
        for seat in placement.seats:
            pod = waiting.get(seat.member)
            placed = Placed(seat.domain, attempt, node=seat.node, reserved_until=until)
            if pod is not None and self._let(pod, placed, current):
                memory.announces = True

    def _reservation(self, pods: Members, current: PlanningPass) -> int | None:
        """Return until when room is kept for members that do not exist yet; None if all have existed before."""
        if pods.begun:
            return reserved_until(pods, self._pending.assigned)
        return int(current.wall + MEMBER_SECONDS)

    def _preempt(self, preemption: Preemption, current: PlanningPass) -> None:
        """Have the gangs evicted that must leave their place to another gang."""
        for key in preemption.victims:
            memory = self._memory.setdefault(key, GangMemory())
            pods = current.looked.get(key) or self._members(key)
            if self._evictions.preempt(memory, pods, current.gangs[preemption.gang], current):
                self._open.add(key)
        self._say_waiting(preemption.gang, event_messages.waits_for(preemption), current)

    def _let(self, pod: GangPod, placed: Placed | None, current: PlanningPass) -> bool:
        """Have a gate removed; return False if that is under way, or the API server refused it a moment ago."""
        if pod.gated is None:
            return False
        cluster_node = None if placed is None else self.observed.cluster.nodes.get(placed.node)
        host = "" if cluster_node is None else cluster_node.labels.get(HOSTNAME, "")
        return self._pending.put(pod, Admit(pod.gated, placed, host), current)

    def _admit_pods_without_gang(self, current: PlanningPass) -> None:
        """Remove the gates of pods that are of no gang any more. A gang that cannot be read is said, and its pod waits."""
        for pod in self.observed.without_gang.values():
            if pod.leaving:
                continue
            if pod.fault and pod.name.namespace not in self.observed.off:
                current.warn([pod], "GangRefused", pod.fault)
            else:
                self._let(pod, None, current)

    def _wait(self, shortfall: Shortfall, current: PlanningPass) -> None:
        """Say why a gang waits; if a part of it cannot join the other, have it evicted."""
        pods, memory = current.looked[shortfall.gang], self._memory[shortfall.gang]
        if not pods.waiting:
            self._say_room_taken(shortfall.gang, pods, current)
        elif not self._evictions.evict_if_in_part(shortfall.gang, memory, pods, current):
            gang = current.gangs[shortfall.gang]
            text = event_messages.waits(gang, shortfall, self._memory[shortfall.gang].made)
            if gang.preempts and not shortfall.permanent:
                if any(victim.priority < gang.priority for victim in current.undecided):
                    return  # it may take their place: what the API server answers about them decides
                spared = [victim.key for victim in current.spared if victim.priority < gang.priority]
                text += event_messages.spared(spared)
            self._say_waiting(shortfall.gang, text, current, "GangRefused" if shortfall.permanent else "GangWaiting")

    def _say_room_taken(self, key: GangKey, pods: Members, current: PlanningPass) -> None:
        """Say that members that do not exist yet have no room beside the others any more: no gate keeps pods of no gang out."""
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
            current.warn(current.looked[key].living, "GangSeatLost", event_messages.seats_lost(seats))

    def _say_waiting(self, key: GangKey, text: str, current: PlanningPass, reason: str = "GangWaiting") -> None:
        """Say something of a gang that waits, if it is new, once a minute at most."""
        memory = self._memory[key]
        if text == memory.waiting_text:
            return
        if current.now < memory.waiting_said + _SAY_SECONDS:
            current.at(memory.waiting_said + _SAY_SECONDS)
            return
        memory.waiting_text, memory.waiting_said = text, current.now
        current.warn(current.looked[key].living, reason, text)

    def _counts(self, current: PlanningPass) -> tuple[int, int]:
        """Return how many gangs wait, and how many have a place."""
        waiting = sum(
            any(pod.name not in self._pending.assigned for pod in pods.waiting) for pods in current.looked.values()
        )
        placed = sum(key not in current.looked or bool(current.looked[key].begun) for key in self.observed.gangs())
        return waiting, placed


def _age(gang: Gang) -> tuple[float, str]:
    """Return a key that sorts the gangs of a namespace: the oldest first."""
    return gang.since, gang.name


def _attempt(memory: GangMemory, pods: Members) -> int:
    """Return which try the present placement is, or the next one."""
    return max([memory.attempt, *(pod.placed.attempt for pod in pods.begun if pod.placed is not None)])


def _has_run(pods: Members, current: PlanningPass) -> bool:
    """Return whether all members are so old that no room is kept for others: a leader that did not place them need not ask for their root."""
    newest = max(pod.created for pod in pods.living)
    return not pods.waiting and not pods.placed and current.wall - newest > MEMBER_SECONDS
