"""What holds in every order of events: gangs come, are placed, bound and ended; pods die; foreign pods come; the planner starts again."""

from collections import Counter
from dataclasses import replace
from typing import Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Gang, Member, Seat
from railnet.gangs.placement.pod_shape import Shape
from railnet.gangs.placement.scheduling_pass import Pass
from railnet.jobs.gang.request import Constraint
from tests.railnet.gangs.placement.builders import (
    BEST_IN_ONE_LEAF,
    IN_ONE_LEAF,
    LEAF,
    SERVER,
    SMALL,
    WORKER,
    a_gang,
    a_node,
    a_pass,
    members,
    to_come,
)

CONSTRAINTS = (IN_ONE_LEAF, BEST_IN_ONE_LEAF, Constraint())
SHAPES = (WORKER, SMALL, SERVER)


Wishes = list[tuple[int, Constraint, int]]


def fits(have: dict[str, int], shape: Shape) -> int:
    return min(max(0, have.get(resource, 0)) // amount for resource, amount in shape.requests)


class World(RuleBasedStateMachine):
    """A cluster of a few leaves, with the scheduler's and the controller's parts played by the rules."""

    mixed = False

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.leaf_of: dict[str, str] = {}
        self.gangs: dict[str, Gang] = {}
        self.bound: dict[str, tuple[str, Shape]] = {}
        self.last = Pass()
        self.now = 0.0
        self.count = 0
        self.planned = True  # since the last pod was bound: before, a seat may be where another pod is now

    @initialize(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4))
    def build(self, sizes: list[int]) -> None:
        for leaf, size in enumerate(sizes):
            for index in range(size):
                self.leaf_of[f"{leaf}-{index}"] = str(leaf)
                self.cluster.set_node(a_node(f"{leaf}-{index}", str(leaf)))

    @rule(
        count=st.integers(1, 6),
        absent=st.integers(0, 2),
        server=st.booleans(),
        constraint=st.sampled_from(CONSTRAINTS),
        priority=st.integers(0, 1),
    )
    def come(self, count: int, absent: int, server: bool, constraint: Constraint, priority: int) -> None:
        self.count += 1
        name = f"g{self.count}"
        shape = SMALL if self.mixed and count > 3 else WORKER
        first = members(1, SERVER, "ps", name) if self.mixed and server else ()
        pods = (*first, *members(count, shape, gang=name), *to_come(absent, shape, "later"))
        self.gangs[name] = a_gang(members=pods, constraint=constraint, name=name, priority=priority, since=self.now)

    @rule(seconds=st.sampled_from([1, 40]))
    def time_goes_by(self, seconds: int) -> None:
        self.now += seconds

    @rule(pick=st.integers(0))
    def absent_member_comes(self, pick: int) -> None:
        absent = [(gang, one) for gang in self.gangs.values() for one in gang.members if not one.name]
        if absent:
            gang, one = absent[pick % len(absent)]
            self.change(gang, one, replace(one, name=f"{gang.name}-later-{one.rank}"))

    @rule(pick=st.integers(0))
    def scheduler_binds_a_pod(self, pick: int) -> None:
        pinned = [
            (gang, one) for gang in self.gangs.values() for one in gang.members if self.waits_for_the_scheduler(one)
        ]
        if pinned:
            gang, one = pinned[pick % len(pinned)]
            nodes = [node for node in sorted(self.leaf_of, reverse=True) if self.may_be_bound(gang, one, node)]
            if nodes:
                node = nodes[pick % len(nodes)]
                self.bound[one.name] = (node, one.shape)
                self.cluster.hold(("ml", one.name), node, one.shape)
                self.planned = False
                self.change(gang, one, replace(one, node=node))

    @rule(pick=st.integers(0))
    def bound_pod_dies_and_is_made_again(self, pick: int) -> None:
        running = [(gang, one) for gang in self.gangs.values() for one in gang.members if one.node]
        if running:
            gang, one = running[pick % len(running)]
            self.release(one.name)
            self.change(gang, one, replace(one, name=f"{one.name}+", node="", pinned=None))

    @rule(pick=st.integers(0))
    def gang_ends(self, pick: int) -> None:
        if self.gangs:
            gang = self.gangs.pop(sorted(self.gangs)[pick % len(self.gangs)])
            for one in gang.members:
                if one.node:
                    self.release(one.name)

    @rule()
    def planner_plans(self) -> None:
        self.last = a_pass(self.cluster, self.gangs.values(), self.now, self.last, hold_after=1e9)
        for placement in self.last.placements:
            gang = self.gangs[placement.gang[1]]
            domains = {seat.member: seat.domain for seat in placement.seats if seat.member}
            pods = (replace(one, pinned=domains[one.name]) if one.name in domains else one for one in gang.members)
            self.gangs[gang.name] = replace(gang, members=tuple(pods))
        self.planned = True
        self.check_what_waits()

    @rule()
    def planner_starts_again(self) -> None:
        nodes = list(self.cluster.nodes.values())
        self.cluster, self.last = Cluster(nodes), Pass()
        for name, (node, shape) in self.bound.items():
            self.cluster.hold(("ml", name), node, shape)
        self.planner_plans()

    @precondition(lambda self: self.planned)
    @invariant()
    def no_node_holds_more_than_it_has(self) -> None:
        for node in self.leaf_of:
            assert min(self.left(node).values(), default=0) >= 0, (node, self.left(node))

    @invariant()
    def required_domain_is_one(self) -> None:
        for gang in self.gangs.values():
            if gang.constraint is IN_ONE_LEAF:
                seats = self.cluster.seats(gang.key)
                found = {
                    self.leaf_of[node]
                    for node in (*(one.node for one in gang.members), *(seat.node for seat in seats))
                    if node
                }
                found |= {dict(one.pinned)[LEAF] for one in gang.members if one.pinned is not None}
                assert len(found) <= 1, (gang, seats)

    @invariant()
    def what_is_counted_is_what_is_there(self) -> None:
        for shape in SHAPES:
            slots, names = self.cluster.slots(shape, ()), self.cluster.names()
            assert slots.slots == [fits(self.left(name), shape) for name in names]
            for keys, depth in (((), 0), ((LEAF,), 0), ((LEAF,), 1)):
                level = slots.level(self.cluster.grouping(keys, depth))
                assert level.slots == [sum(slots.slots[at] for at in nodes) for nodes in level.grouping.nodes]
                assert [level.slots[number] for number in level.largest_first()] == sorted(level.slots, reverse=True)

    def check_what_waits(self) -> None:
        """A gang that waits would not fit: no leaf has the room for it. A gang that does not wait has a seat for each member."""
        waiting = {shortfall.gang: shortfall for shortfall in self.last.shortfalls}
        for gang in self.gangs.values():
            without = [one for one in gang.members if not one.node]
            seats = self.cluster.seats(gang.key)
            if gang.key not in waiting:
                assert len(seats) == len(without)
                assert {seat.member for seat in seats} == {one.name for one in without}
            elif not gang.started:
                assert not seats
                self.check_that_it_does_not_fit(gang, without)
            else:
                self.check_that_none_of_it_fits(
                    gang, [one for one in without if one.name not in {seat.member for seat in seats}]
                )

    def check_that_it_does_not_fit(self, gang: Gang, without: list[Member]) -> None:
        shapes = Counter(one.shape for one in without)
        if len(shapes) != 1 or len({one.shape for one in gang.members}) != 1:
            return  # packed by a rule of thumb: it may not find a place that there is
        ((shape, count),) = shapes.items()
        room = self.room(shape)
        if gang.constraint.required == () and (not gang.constraint.preferred or self.now - gang.since >= 30):
            assert room.total() < count
        else:
            assert all(there < count for there in room.values())

    def check_that_none_of_it_fits(self, gang: Gang, without: list[Member]) -> None:
        """A gang that has started keeps what it can: where it is, there is no room for any more of it."""
        at = {self.leaf_of[one.node] for one in gang.members if one.node}
        at |= {dict(one.pinned)[LEAF] for one in gang.members if one.pinned}
        for one in without:
            if one.name and len(at) == 1:
                room = self.room(one.shape)
                assert room[at.copy().pop()] == 0

    def room(self, shape: Shape) -> Counter[str]:
        room = Counter[str]()
        for node, leaf in self.leaf_of.items():
            room[leaf] += fits(self.left(node), shape)
        return room

    def left(self, node: str) -> dict[str, int]:
        left = Counter(self.cluster.nodes[node].allocatable)
        for at, shape in self.bound.values():
            if at == node:
                left.subtract(dict(shape.requests))
        for key in self.cluster.reserving:
            for seat in self.cluster.seats(key):
                if seat.node == node:
                    left.subtract(dict(seat.shape.requests))
        return dict(left)

    def may_be_bound(self, gang: Gang, one: Member, node: str) -> bool:
        """The scheduler sees what pods hold and not what is reserved; among members of one shape it may choose any node of the domain."""
        if self.mixed or not one.pinned:
            return node in {seat.node for seat in self.cluster.seats(gang.key) if seat.member == one.name}
        left = Counter(self.cluster.nodes[node].allocatable)
        for at, shape in self.bound.values():
            if at == node:
                left.subtract(dict(shape.requests))
        return dict(one.pinned)[LEAF] == self.leaf_of[node] and fits(dict(left), one.shape) > 0

    def waits_for_the_scheduler(self, one: Member) -> bool:
        return bool(one.name) and not one.node and one.pinned is not None

    def release(self, name: str) -> None:
        del self.bound[name]
        self.cluster.release(("ml", name))

    def change(self, gang: Gang, before: Member, after: Member) -> None:
        pods = list(gang.members)
        pods[pods.index(before)] = after
        self.gangs[gang.name] = replace(gang, members=tuple(pods))


class MixedWorld(World):
    """The same with roles of different shapes."""

    mixed = True


TestOneShape = pytest.mark.slow(World.TestCase)
TestOneShape.settings = settings(max_examples=60, stateful_step_count=30)
TestMixedShapes = pytest.mark.slow(MixedWorld.TestCase)
TestMixedShapes.settings = settings(max_examples=60, stateful_step_count=30)

GANGS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from((IN_ONE_LEAF, BEST_IN_ONE_LEAF)), st.integers(0, 1)), max_size=6
)


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    before=GANGS,
    after=GANGS,
    bound=st.sets(st.integers(0, 40)),
)
def test_planner_that_starts_again_gives_the_same(
    sizes: list[int], before: Wishes, after: Wishes, bound: set[int]
) -> None:
    """The cluster is built again from pods alone: some are bound, the others pinned by their annotation. New gangs are placed as they would be."""
    nodes = [a_node(f"{leaf}-{index}", str(leaf)) for leaf, size in enumerate(sizes) for index in range(size)]
    cluster, first = Cluster(nodes), [wish(f"old-{index}", *one) for index, one in enumerate(before)]
    placed = a_pass(cluster, first, now=100)
    seats = {seat.member: seat for placement in placed.placements for seat in placement.seats}
    chosen = {name for index, name in enumerate(seats) if index in bound}
    again = Cluster(reversed(nodes))
    for name in chosen:
        for one in (cluster, again):
            one.hold(("ml", name), seats[name].node, seats[name].shape)
    gangs = [with_places(gang, seats, chosen) for gang in first]
    gangs += [wish(f"new-{index}", *one) for index, one in enumerate(after)]

    going_on = a_pass(cluster, gangs, now=200, before=placed)
    started_again = a_pass(again, reversed(gangs), now=200)

    assert where(going_on, "new") == where(started_again, "new")
    assert [one.gang for one in going_on.shortfalls] == [one.gang for one in started_again.shortfalls]
    assert [one.reason for one in going_on.shortfalls] == [one.reason for one in started_again.shortfalls]


def wish(name: str, count: int, constraint: Constraint, priority: int) -> Gang:
    return a_gang(count, constraint, name, priority=priority)


def with_places(gang: Gang, seats: dict[str, Seat], bound: set[str]) -> Gang:
    """Return a gang as its pods are after the controller's patches."""
    pods = (
        replace(one, pinned=seats[one.name].domain, node=seats[one.name].node if one.name in bound else "")
        if one.name in seats
        else one
        for one in gang.members
    )
    return replace(gang, members=tuple(pods))


def where(found: Pass, name: str) -> dict[str, list[object]]:
    return {
        placement.gang[1]: [(seat.member, seat.domain) for seat in placement.seats]
        for placement in found.placements
        if placement.gang[1].startswith(name)
    }


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    wanted=st.lists(st.tuples(st.integers(1, 5), st.sampled_from((WORKER, SMALL))), min_size=2, max_size=6),
    data=st.data(),
)
def test_kept_apart_pods_of_single_shapes_fit_wherever_the_scheduler_puts_them(
    sizes: list[int], wanted: list[tuple[int, Shape]], data: st.DataObject
) -> None:
    left = unbound_after_all_were_placed(sizes, wanted, data, apart=True)

    assert not left


def test_without_it_the_scheduler_can_put_pods_of_two_shapes_so_that_one_does_not_fit() -> None:
    class Spread:
        """The scheduler binds the last pod first: the first time to the first node, then to the last."""

        def __init__(self) -> None:
            self.drawn = 0

        def draw(self, strategy: object) -> int:
            self.drawn += 1
            return 0 if self.drawn == 2 else -1

    workers_and_small = [(3, WORKER), (4, SMALL)]

    assert unbound_after_all_were_placed([2], workers_and_small, Spread(), apart=False)
    assert not unbound_after_all_were_placed([2], workers_and_small, Spread(), apart=True)


class Draws(Protocol):
    def draw(self, strategy: st.SearchStrategy[int]) -> int: ...


def unbound_after_all_were_placed(
    sizes: list[int], wanted: list[tuple[int, Shape]], data: Draws, *, apart: bool
) -> list[str]:
    """Plan, and bind pods in any order to any node of their leaves that has room; return those for which there is none."""
    nodes = [a_node(f"{leaf}-{index}", str(leaf)) for leaf, size in enumerate(sizes) for index in range(size)]
    leaf_of = {node.name: node.labels[LEAF] for node in nodes}
    left = {node.name: dict(node.allocatable) for node in nodes}
    cluster, last = Cluster(nodes), Pass()
    gangs = [
        a_gang(0, IN_ONE_LEAF, f"g{index}", members=members(count, shape, gang=f"g{index}"), since=index)
        for index, (count, shape) in enumerate(wanted)
    ]
    for _ in range(len(gangs) + 1):
        last = a_pass(cluster, gangs, before=last, apart=apart, hold_after=1e9)
        seats = [seat for placement in last.placements for seat in placement.seats]
        gangs = [gang for gang in gangs if gang.key not in {placement.gang for placement in last.placements}]
        while seats:
            seat = seats.pop(data.draw(st.integers(0, len(seats) - 1)))
            fitting = [
                name
                for name, have in left.items()
                if leaf_of[name] == dict(seat.domain)[LEAF] and fits(have, seat.shape)
            ]
            if not fitting:
                return [seat.member]
            node = fitting[data.draw(st.integers(0, len(fitting) - 1))]
            for resource, amount in seat.shape.requests:
                left[node][resource] -= amount
            cluster.hold(("ml", seat.member), node, seat.shape)
    return []
