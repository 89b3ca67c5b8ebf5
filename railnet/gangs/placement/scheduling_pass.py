"""One pass over all gangs: which gangs get a place, which wait and why, and for which gangs room is kept or made."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import (
    Domain,
    Gang,
    GangKey,
    LostSeat,
    Member,
    Placement,
    Reason,
    Seat,
    SeatLoss,
    Shortfall,
)
from railnet.gangs.placement.held_nodes import best_to_hold, kept_nodes
from railnet.gangs.placement.pod_shape import Shape, Unseen
from railnet.gangs.placement.preemption import Preemption, Preemptions
from railnet.gangs.placement.search import place, place_pinned, place_seated, place_some, placement_of
from railnet.gangs.placement.shortage import Shortages, prefers_in_vain
from railnet.jobs.gang.queue import Turns


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a pass.

    Attributes:
        hold_after: seconds that a gang may be passed by later and smaller ones; then the best domain is held for it.
        hold_for: seconds that room is held for a gang all of whose members exist, at a time.
        hold_for_incomplete: the same for one of which members are still to come.
        hold_pause: seconds after them in which no room is held for the gang, and others pass; then it is held again.
        running: the gangs that may be preempted, whether they run or only have a place; empty: there is no preemption.
        most_preemptions: for how many gangs victims are looked for in one pass, which takes some milliseconds for each.
        apart: whether a gang waits for a domain in which pods of another shape have a place and are not bound yet. The scheduler does not know of
            seats: it may bind those pods so that one of the gang does not fit any more. Pods of one shape cannot do that to each other.
        seated: gangs that get no place now, because they are being evicted or contradict themselves. Their placed pods keep their seats.
    """

    hold_after: float = 120.0
    hold_for: float = 3600.0
    hold_for_incomplete: float = 600.0
    hold_pause: float = 600.0
    running: Sequence[Gang] = ()
    most_preemptions: int = 20
    apart: bool = False
    seated: Sequence[Gang] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """The decisions of one pass.

    Attributes:
        placements: gangs with members that get their place now, in the order of the queue. Their seats are reserved in the cluster.
        shortfalls: gangs that wait.
        preemptions: gangs that wait for others to leave; each is in `shortfalls` as well.
        lost_seats: those whose node is gone, or may not have their pods any more.
        again: when another pass may decide otherwise although nothing has changed: a gang relaxes, or room is held for it. None: never.
        remembered: what failed, for the next pass.
    """

    placements: tuple[Placement, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    lost_seats: tuple[LostSeat, ...] = ()
    again: float | None = None
    remembered: Mapping[GangKey, tuple[Gang, bool, Shortfall]] = field(default_factory=dict)


def schedule(cluster: Cluster, gangs: Iterable[Gang], now: float, rules: Rules, before: Pass) -> Pass:
    """Decide for all gangs that have members without a node.

    Order: first gangs whose seats were taken or lost; then gangs that have started, whose late members keep their domain; then priority descending;
    then by turns of the namespaces, and by age (`railnet.jobs.gang.queue`).

    Args:
        cluster: as it is now. The seats of gangs that get a place are reserved in it; what other gangs have reserved is given back,
            unless they are in `rules.seated`.
        gangs: every gang of which a member, existing or still to come, is not bound. Others may be among them.
        now: on the scale of `Gang.since`.
        rules: what the pass goes by.
        before: the pass before; `Pass()` for the first.
    """
    this_round = _Round(cluster, now, rules, before)
    queue = sorted(gangs, key=lambda gang: (-gang.priority, max(gang.since, gang.queued), gang.key))
    try:
        this_round.give_back(queue)
        lost = cluster.lost_seats()
        this_round.note_lost(queue, lost)
        waiting = [gang for gang in queue if not this_round.is_placed(gang, lost)]
        # First those whose seats were lost, while nothing else is counted on the places that were taken instead of theirs.
        waiting.sort(key=lambda gang: (lost.isdisjoint(cluster.seats(gang.key)), not gang.started))
        this_round.seat_pinned(waiting)
        this_round.serve_all(waiting, lost)
    finally:
        cluster.keep_free(())
    return this_round.result(queue)


class _HoldTime(NamedTuple):
    """The time in which room is held for a gang: the present one, or the next.

    Attributes:
        is_paused: whether it was held before, and is not for now.
    """

    begins: float
    ends: float
    is_paused: bool = False


class _Round:
    """A pass while it goes on."""

    def __init__(self, cluster: Cluster, now: float, rules: Rules, before: Pass) -> None:
        self._cluster = cluster
        self._now = now
        self._rules = rules
        self._before = before
        self._leaving: Preemptions | None = None
        self._searched = 0
        self._placements: dict[GangKey, Placement] = {}
        self._failed: list[tuple[Gang, bool]] = []
        self._binding: dict[Domain, set[tuple[GangKey, Shape]]] = {}
        self._wait_for_others: set[GangKey] = set()
        self._preemptions: list[Preemption] = []
        self._unseen: dict[GangKey, tuple[Unseen, ...]] = {}
        self._lost: list[tuple[GangKey, Seat]] = []
        self._kept: set[str] = set()
        self._kept_for: GangKey | None = None
        self._head: Gang | None = None
        self._paused: set[str] = set()  # namespaces that have a gang for which room was held before, and is not for now
        self._times: list[float] = []

    def give_back(self, gangs: Sequence[Gang]) -> None:
        """Give back what gangs have reserved that are not served any more."""
        served = {gang.key for gang in gangs}
        seated = {gang.key: gang for gang in self._rules.seated}
        for key in self._cluster.reserving:
            if key not in served and key not in seated:
                self._cluster.unreserve(key)
        for gang in seated.values():
            self._keep_seats(gang)
        for key in self._cluster.reserving:
            self._note_binding(key, self._cluster.seats(key))

    def is_placed(self, gang: Gang, lost: frozenset[Seat]) -> bool:
        """Return whether all members have their places, and say so again for those that have not been told."""
        seats = self._cluster.seats(gang.key)
        waiting = [member for member in gang.members if not member.node]
        if not waiting and len(gang.members) >= gang.needed:
            self._cluster.unreserve(gang.key)
            return True
        if not seats or not lost.isdisjoint(seats) or not _seats_all(gang, waiting, seats):
            return False
        if any(member.name and member.pinned is None for member in waiting):
            self._note_placement(gang, placement_of(gang.key, seats))
        return True

    def seat_pinned(self, gangs: Iterable[Gang]) -> None:
        """Keep room for pods that can go nowhere else, before any other gets a seat: after a restart, none has one.

        First each gets the node that its pod was told. Of the others, those that are pinned by the most labels come first: the rest have more
        nodes to choose from.
        """
        started = [gang for gang in gangs if gang.started and not self._cluster.seats(gang.key)]
        for gang in started:
            if any(member.seat for member in gang.members) and (placement := place_seated(self._cluster, gang)):
                self._reserve(placement)
        for gang in sorted(started, key=_labels, reverse=True):
            if _pinned(gang) != {seat.member for seat in self._cluster.seats(gang.key)}:
                self._seat_pinned(gang)

    def note_lost(self, gangs: Iterable[Gang], lost: frozenset[Seat]) -> None:
        """Note the seats of placed pods whose node is gone or may not have them any more; where they are full, others of the gang took them."""
        if not lost:
            return
        for gang in gangs:
            pinned = _pinned(gang)
            self._lost += [
                (gang.key, seat)
                for seat in self._cluster.seats(gang.key)
                if seat in lost and seat.member in pinned and self._cluster.loss(seat) is not None
            ]

    def serve_all(self, waiting: Sequence[Gang], lost: frozenset[Seat]) -> None:
        """Serve gangs: those that have started, or whose seats were lost, in this order; then the others by turns of the namespaces."""
        is_first = [gang.started or not lost.isdisjoint(self._cluster.seats(gang.key)) for gang in waiting]
        turns = Turns(gang for gang, first in zip(waiting, is_first, strict=True) if not first)
        for gang, first in zip(waiting, is_first, strict=True):
            if first:
                self._serve(gang)
        for gang in turns:
            if self._serve(gang):
                turns.take_place()

    def _serve(self, gang: Gang) -> bool:
        """Give a gang its place, or find out what it waits for; return whether it has a place."""
        relaxed = self._is_relaxed(gang)
        placement = None if self._still_fails(gang, relaxed=relaxed) else self._place(gang, relaxed=relaxed)
        if placement is not None:
            self._reserve(placement)
            self._note_placement(gang, placement)
            return True
        self._failed.append((gang, relaxed))
        if gang.key not in self._wait_for_others:
            self._make_way(gang, relaxed=relaxed)
        return False

    def result(self, queue: Sequence[Gang]) -> Pass:
        """Return what was decided, in the order of the queue; nothing is held in the cluster any more."""
        shortages = Shortages(self._cluster)
        remembered: dict[GangKey, tuple[Gang, bool, Shortfall]] = {}
        for gang, relaxed in self._failed:
            remembered[gang.key] = (gang, relaxed, self._shortfall(shortages, gang, relaxed=relaxed))
        return Pass(
            placements=tuple(self._placements[gang.key] for gang in queue if gang.key in self._placements),
            shortfalls=tuple(shortfall for _, _, shortfall in remembered.values()),
            preemptions=tuple(self._preemptions),
            lost_seats=tuple(self._lost_seats()),
            again=min((time for time in self._times if time > self._now), default=None),
            remembered=remembered,
        )

    def _lost_seats(self) -> Iterator[LostSeat]:
        """Yield the seats that were lost, each with the node that its pod has instead."""
        now = {
            (key, seat.member): seat.node for key in {key for key, _ in self._lost} for seat in self._cluster.seats(key)
        }
        for key, seat in self._lost:
            reason = self._cluster.loss(seat) or SeatLoss.CLOSED
            yield LostSeat(key, seat.member, seat.node, reason, now.get((key, seat.member), ""))

    def _keep_seats(self, gang: Gang) -> None:
        """Keep the seats of the placed pods of a gang, and no others of it."""
        seats = self._cluster.seats(gang.key)
        pinned = _pinned(gang)
        if {seat.member for seat in seats} == pinned and len(seats) == len(pinned):
            return
        self._seat_pinned(gang)

    def _seat_pinned(self, gang: Gang) -> None:
        self._cluster.unreserve(gang.key)
        if (placement := place_pinned(self._cluster, gang)) is not None:
            self._cluster.reserve(placement)

    def _place(self, gang: Gang, *, relaxed: bool) -> Placement | None:
        seats = self._cluster.seats(gang.key)
        self._cluster.unreserve(gang.key)
        binding = set() if gang.started else {at for at, seated in self._binding.items() if _differ(gang, seated)}
        if not binding:
            return place(self._cluster, gang, seats, relaxed=relaxed)
        elsewhere = replace(gang, excluded=gang.excluded | binding)
        placement = place(self._cluster, elsewhere, seats, relaxed=relaxed)
        if placement is None and place(self._cluster, gang, seats, relaxed=relaxed):
            self._wait_for_others.add(gang.key)
        return placement

    def _note_placement(self, gang: Gang, placement: Placement) -> None:
        if ignored := self._cluster.unknown(gang.constraint.preferred):
            placement = replace(placement, ignored=ignored)
        self._placements[gang.key] = placement

    def _reserve(self, placement: Placement) -> None:
        self._cluster.reserve(placement)
        self._note_binding(placement.gang, placement.seats)

    def _note_binding(self, gang: GangKey, seats: Iterable[Seat]) -> None:
        """Note the shapes of the pods that have a place in each domain and are not bound."""
        for seat in seats if self._rules.apart else ():
            if seat.member and seat.domain:
                self._binding.setdefault(seat.domain, set()).add((gang, seat.shape))

    def _is_relaxed(self, gang: Gang) -> bool:
        """Return whether a gang may leave its preferred domains: it has waited, or they could never have it and other nodes might."""
        relaxes = gang.since + (gang.constraint.relax_after or 0.0)
        if relaxes <= self._now or prefers_in_vain(self._cluster, gang):
            return True
        if gang.constraint.preferred:
            self._times.append(relaxes)
        return False

    def _still_fails(self, gang: Gang, *, relaxed: bool) -> bool:
        """Return whether it is remembered that the gang has no place, and nothing has changed for it."""
        before = self._before.remembered.get(gang.key)
        if before is None or gang.started:
            return False
        then, was_relaxed, shortfall = before
        return (
            shortfall.reason not in (Reason.HELD, Reason.BINDING)
            and was_relaxed == relaxed
            and not self._cluster.grew(gang, shortfall.generation)
            and then == gang
        )

    def _make_way(self, gang: Gang, *, relaxed: bool) -> None:
        """Let others leave for a gang that has no place, or hold the best domain for it if it is the head of the queue."""
        if gang.started:
            self._seat_some(gang, relaxed=relaxed)
        if preemption := self._preempt(gang, relaxed=relaxed):
            self._preemptions.append(preemption)
            self._keep(kept_nodes(self._cluster, gang, preemption.domain, preemption.place), gang)
        elif self._head is None and not gang.started:
            self._hold(gang, relaxed=relaxed)

    def _preempt(self, gang: Gang, *, relaxed: bool) -> Preemption | None:
        if not self._rules.running or self._searched >= self._rules.most_preemptions:
            return None
        if self._leaving is None:
            self._leaving = Preemptions(self._cluster, self._rules.running)
        if not self._leaving.may_help(gang, relaxed=relaxed):
            return None
        if unseen := gang.unseen:  # the scheduler might refuse the place, and the victims had gone for nothing
            self._unseen[gang.key] = unseen
            return None
        if self._only_prefers(gang, relaxed=relaxed):
            return None
        self._searched += 1
        return self._leaving.preempt(gang, relaxed=relaxed)

    def _only_prefers(self, gang: Gang, *, relaxed: bool) -> bool:
        """Return whether the gang fits as soon as it relaxes: a preference alone evicts no other gang, as in the kube-scheduler."""
        may_relax = bool(gang.constraint.preferred) and not (relaxed or gang.started)
        return may_relax and place(self._cluster, gang, relaxed=True) is not None

    def _hold(self, gang: Gang, *, relaxed: bool) -> None:
        hold = self._hold_time(gang)
        if hold.is_paused:
            self._times.append(hold.begins)
            self._paused.add(gang.namespace)
            return  # others pass, and the next one is the head
        if gang.namespace in self._paused:
            return  # two gangs of one author would hold room by turns, and nothing would ever pass
        nodes = best_to_hold(self._cluster, gang, relaxed=relaxed)
        if nodes is None:
            return  # it can have no place at all, so the next one is the head
        self._times += [hold.begins, hold.ends]
        self._head = gang
        if hold.begins <= self._now:
            self._keep(nodes, gang)

    def _hold_time(self, gang: Gang) -> "_HoldTime":
        """Return when room is held for a gang: nothing is remembered of it, so the next leader holds it at the same times."""
        seconds = self._rules.hold_for_incomplete if gang.is_incomplete else self._rules.hold_for
        first = gang.since + self._rules.hold_after
        period = seconds + self._rules.hold_pause
        begins = first + max(0.0, (self._now - first) // period) * period
        if self._now >= begins + seconds:
            return _HoldTime(begins + period, begins + period, is_paused=True)
        return _HoldTime(begins, begins + seconds)

    def _keep(self, nodes: Iterable[str], gang: Gang) -> None:
        self._kept.update(nodes)
        self._kept_for = self._kept_for or gang.key
        self._cluster.keep_free(self._kept)

    def _seat_some(self, gang: Gang, *, relaxed: bool) -> None:
        """Keep the places of the members that have one, although others have none."""
        if (placement := place_some(self._cluster, gang, relaxed=relaxed)) is not None:
            self._reserve(placement)

    def _shortfall(self, shortages: Shortages, gang: Gang, *, relaxed: bool) -> Shortfall:
        shortfall = shortages.shortfall(gang, relaxed=relaxed)
        if gang.key in self._unseen and not shortfall.permanent:
            shortfall = replace(shortfall, unseen=self._unseen[gang.key])
        if gang.key in self._wait_for_others:
            return replace(shortfall, reason=Reason.BINDING)
        if self._kept and not shortfall.permanent and place(self._cluster, gang, relaxed=relaxed):
            return replace(shortfall, reason=Reason.HELD, held_for=self._kept_for)
        return shortfall


def _differ(gang: Gang, seated: Iterable[tuple[GangKey, Shape]]) -> bool:
    """Return whether members of a gang and those of others in a domain have several shapes."""
    others = {shape for key, shape in seated if key != gang.key}
    return bool(others) and len(others | gang.shapes) > 1


def _pinned(gang: Gang) -> set[str]:
    """Return the members that were placed and are not bound."""
    return {member.name for member in gang.members if member.pinned is not None and not member.node}


def _labels(gang: Gang) -> int:
    """Return how many labels pin the gang's members that are not bound; -1 if none is pinned."""
    return max(
        (len(member.pinned) for member in gang.members if member.pinned is not None and not member.node), default=-1
    )


def _seats_all(gang: Gang, waiting: Sequence[Member], seats: Sequence[Seat]) -> bool:
    """Return whether seats are those of exactly these members: of those that exist by name, of the others by number."""
    named = {seat.member for seat in seats if seat.member}
    nameless_count = sum(1 for member in waiting if not member.name) + max(0, gang.needed - len(gang.members))
    return named == {member.name for member in waiting if member.name} and len(seats) == len(named) + nameless_count
