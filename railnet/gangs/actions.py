"""Does the actions of the table of a gang's life: each decides what is written to the gang's pods, said of it, or asked of the planner.

No I/O, no clock, no threads.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from railnet.gangs import event_messages
from railnet.gangs.evictions import CLOSED_SECONDS, LEAVING_SECONDS, GangEvictions, attempt_of
from railnet.gangs.gang_size import SETTLE_SECONDS
from railnet.gangs.gate_removal_patch import HOSTNAME
from railnet.gangs.leader_memory import EvictingStage, GangMemories, Tries
from railnet.gangs.life_cycle import GangAction
from railnet.gangs.members import NONE_TO_COME, Members, makes_all, planned, reserved_until
from railnet.gangs.observed_state import ObservedState
from railnet.gangs.pending_writes import REFUSALS_SAID, PendingWrites
from railnet.gangs.placement.gang import GangKey, LostSeat
from railnet.gangs.placement_annotation import Evicted, Placed
from railnet.gangs.planning_pass_state import PlanningPass, about
from railnet.gangs.planning_result import Admit, Annotate, Said, Withdraw
from railnet.gangs.pod import GangPod
from railnet.gangs.pod_group import Grouped

MEMBER_SECONDS = 600.0  # that room is kept for members that do not exist yet
_COMING_SECONDS = 10.0  # since the last member came, before it is said that some are missing
_SAY_SECONDS = 60.0  # between two texts about one gang that waits


class GangActions:
    """Does the actions.

    Attributes:
        acts: what does each action for a gang.
    """

    def __init__(
        self, observed: ObservedState, pending: PendingWrites, evictions: GangEvictions, memory: GangMemories
    ) -> None:
        """Put writes into `pending`, and into `memory` what is to be remembered."""
        self._observed, self._pending, self._evictions, self._memory = observed, pending, evictions, memory
        self.acts: dict[GangAction, Callable[[GangKey, PlanningPass], None]] = {
            GangAction.FORGET: self._forget,
            GangAction.REST: self._rest,
            GangAction.OPEN: self._open_all,
            GangAction.GO_ON: _nothing,
            GangAction.LEAVE: _nothing,
            GangAction.HOLD: self.hold,
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

    def hold(self, key: GangKey, current: PlanningPass) -> None:
        """Have the placed pods of a gang keep their nodes, although the gang is not planned: the scheduler may bind them at any moment."""
        pods = self._pods(key, current)
        request = next((pod.request for pod in pods.placed if pod.request is not None), None)
        if request is not None:
            current.seated.append(planned(request, pods, self._pending.assigned, waiting=False))

    def admit_pods_without_gang(self, current: PlanningPass) -> None:
        """Remove the gates of pods that are of no gang any more. A gang that cannot be read is said, and its pod waits."""
        for pod in self._observed.without_gang.values():
            if pod.leaving:
                continue
            if pod.fault and pod.name.namespace not in self._observed.off:
                current.warn([pod], "GangRefused", pod.fault)
            else:
                self._let(pod, None, current)

    def withdraw_nominations(self, current: PlanningPass) -> None:
        """Give back what the scheduler keeps for pods that still wait.

        A leader died before it removed their gates, the place was lost, the removal of the gate is refused again and again, or the gang cannot be read.
        """
        if current.is_room_unknown:
            return
        waiting = [
            (key in current.placements, pod)
            for key, pods in current.looked.items()
            for pod in pods.waiting
            if pod.group is None or not pods.begun  # its PodGroup may exist: then the scheduler nominates pods, too
        ]
        without_gang = [(False, pod) for pod in self._observed.without_gang.values()]
        for has_place, pod in (*waiting, *without_gang):
            if pod.nominated and pod.name not in self._pending.assigned and not (has_place and self._nominates(pod)):
                self._pending.put(pod, Withdraw(), current)

    @staticmethod
    def say_lost(key: GangKey, seats: Sequence[LostSeat], current: PlanningPass) -> None:
        """Say which placed pods of a gang lost the node that they were given."""
        current.warn(current.looked[key].living, "GangSeatLost", event_messages.seats_lost(seats))

    def _forget(self, key: GangKey, _: PlanningPass) -> None:
        self._memory.open.discard(key)
        self._memory.pop(key, None)

    def _rest(self, key: GangKey, current: PlanningPass) -> None:
        current.at(self._memory[key].rests_until())

    def _open_all(self, key: GangKey, current: PlanningPass) -> None:
        for pod in current.looked[key].waiting:
            self._let(pod, None, current)
        if any(isinstance(pod.held, Grouped) for pod in current.looked[key].waiting):
            return  # their PodGroup is still to be created
        is_over = self._memory[key].rests_until() <= current.now
        (self._forget if is_over else self._rest)(key, current)

    def _refuse(self, key: GangKey, current: PlanningPass) -> None:
        pods = current.looked[key]
        if pods.waiting and key in current.faults:
            current.warn(pods.living, "GangRefused", current.faults[key])
        self.hold(key, current)

    def _evict(self, key: GangKey, current: PlanningPass) -> None:
        pods, stage, eviction = self._pods(key, current), self._memory[key].stage, current.evictions.get(key)
        if not isinstance(stage, EvictingStage):
            return
        if eviction is not None and eviction.text:
            reason = "GangPreempted" if stage.why is Evicted.PREEMPTED else "GangEvicted"
            current.warn(pods.living, reason, eviction.text)
        self._memory.open.add(key)
        if stage.since + LEAVING_SECONDS > current.now:
            current.at(stage.since + LEAVING_SECONDS)
        self._evictions.evict(stage.why, pods, current)
        self.hold(key, current)

    def _say_stays(self, key: GangKey, current: PlanningPass) -> None:
        current.warn(current.looked[key].living, "GangWaiting", current.evictions[key].text)

    def _say_absent(self, key: GangKey, current: PlanningPass) -> None:
        """Say that a gang waits for members that do not exist, when none has come for a while."""
        pods, size = current.looked[key], current.sizes[key]
        settled = self._memory[key].arrivals.newest + _COMING_SECONDS
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
        current.sizes[key] = replace(size, coming=NONE_TO_COME, least=min(size.least, living), absent=0)
        self._plan(key, current)

    def _plan(self, key: GangKey, current: PlanningPass) -> None:
        """Have the planner find room for the members that have none; there may be none."""
        self._announce(key, current)
        memory, pods, size = self._memory[key], current.looked[key], current.sizes[key]
        is_reserved = memory.begun.whole and self._end_reservation(pods, current)
        if not (pods.waiting or pods.placed or size.missing):
            self._forget_tries(key)
            if size.known and not (memory.news.opened or is_reserved):
                self._memory.open.discard(key)
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
        settled = memory.arrivals.newest + SETTLE_SECONDS
        if not size.made and current.now < settled:  # more members may come, and are announced with these
            current.at(settled)
            return
        places = [pod.placed for pod in pods.begun if pod.placed is not None]
        domains, attempt = Counter(place.domain for place in places), attempt_of(memory, pods.begun)
        placed = frozenset(domains), attempt, bool(size.missing)
        if domains and placed != memory.news.placed:
            preferred = () if size.request.constraint is None else size.request.constraint.preferred
            ignored = self._observed.cluster.unknown(preferred)
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

    def _say_others_leave(self, key: GangKey, current: PlanningPass) -> None:
        self._say_waiting(key, event_messages.waits_for(current.preemptions[key]), current)

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

    def _let(self, pod: GangPod, placed: Placed | None, current: PlanningPass) -> bool:
        """Have a gate removed; return False if that is under way, or the API server refused it a moment ago.

        A nomination that is not to be made again is withdrawn first.
        """
        held = pod.held
        if held is None:
            return False
        if isinstance(held, Grouped) and placed is None:  # a PodGroup lets those go that have no place
            return False
        nominates = self._nominates(pod)
        if pod.nominated and not nominates and not self._pending.refusals(pod.name, Withdraw):
            return False
        cluster_node = None if placed is None else self._observed.cluster.nodes.get(placed.node)
        host = "" if cluster_node is None else cluster_node.labels.get(HOSTNAME, "")
        return self._pending.put(pod, Admit(held, placed, host, nominates), current)

    def _nominates(self, pod: GangPod) -> bool:
        """Return whether a pod is nominated before its gate is removed: if that is refused again and again, the scheduler keeps no room for it."""
        return self._pending.refusals(pod.name, Admit) < REFUSALS_SAID

    def _pods(self, key: GangKey, current: PlanningPass) -> Members:
        return current.looked.get(key) or self._pending.members(self._observed.of(key))


def _nothing(_: GangKey, __: PlanningPass) -> None:
    pass
