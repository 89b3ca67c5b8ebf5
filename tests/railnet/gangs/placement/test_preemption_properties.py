"""Gangs are evicted only for a place that the scheduler takes afterwards, whatever nodes and pods require."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Gang
from railnet.gangs.placement.node import Node, Taint, tolerated
from railnet.gangs.placement.pod_shape import AffinityTerm, HostPort, Shape, Toleration
from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement
from railnet.jobs.gang.request import Constraint
from tests.railnet.gangs.placement.builders import (
    BEST_IN_ONE_LEAF,
    IN_ONE_LEAF,
    SMALL,
    WORKER,
    a_gang,
    a_node,
    a_pass,
    members,
)

FAST = AffinityTerm(NodeTerm((Requirement("disk", Comparison("In"), ("fast",)),)))
TAINT, TOLERATES = Taint("team", "a"), Toleration("team", "Exists")

nodes = st.builds(
    lambda leaf, fast, tainted, ready: (leaf, fast, tainted, ready),
    st.sampled_from(("", "a", "b")),
    st.booleans(),
    st.booleans(),
    st.sampled_from((True, True, True, False)),
)
shapes = st.builds(
    lambda shape, port, fast, selects, tolerates: replace(
        shape,
        ports=(HostPort(80),) if port else (),
        affinity=(FAST,) if fast else None,
        selector=(("disk", "fast"),) if selects else (),
        tolerations=(TOLERATES,) if tolerates else (),
    ),
    st.sampled_from((WORKER, SMALL)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
gangs = st.tuples(st.integers(1, 5), shapes, st.sampled_from((IN_ONE_LEAF, BEST_IN_ONE_LEAF, Constraint())))


def a_cluster(wanted: list[tuple[str, bool, bool, bool]]) -> Cluster:
    built = [
        replace(
            a_node(f"n-{number}", leaf, {"disk": "fast"} if fast else {}),
            taints=(TAINT,) if tainted else (),
            ready=ready,
        )
        for number, (leaf, fast, tainted, ready) in enumerate(wanted)
    ]
    return Cluster(built)


def a_gang_of(name: str, wanted: tuple[int, Shape, Constraint], priority: int) -> Gang:
    count, shape, constraint = wanted
    return a_gang(members=members(count, shape, gang=name), constraint=constraint, name=name, priority=priority)


def running(cluster: Cluster, gang: Gang) -> Gang | None:
    """Place a gang and bind it; None if it has no place."""
    placements = a_pass(cluster, [gang], now=100).placements
    if not placements:
        return None
    at = {seat.member: seat.node for seat in placements[0].seats}
    for member in gang.members:
        cluster.hold(("ml", member.name), at[member.name], member.shape)
    return replace(gang, members=tuple(replace(member, node=at[member.name]) for member in gang.members))


def would_be_bound(node: Node, shape: Shape) -> bool:
    """Return whether the scheduler's filters for one pod and an empty node are passed."""
    return node.ready and tolerated(node.taints, shape.tolerations) and shape.may_be_on(node.name, node.labels)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    wanted=st.lists(nodes, min_size=1, max_size=5),
    low=st.lists(gangs, min_size=1, max_size=4),
    high=gangs,
    cordoned=st.sets(st.integers(0, 4), max_size=1),
)
def test_gang_for_which_others_leave_is_placed_when_they_are_gone(
    wanted: list[tuple[str, bool, bool, bool]],
    low: list[tuple[int, Shape, Constraint]],
    high: tuple[int, Shape, Constraint],
    cordoned: set[int],
) -> None:
    cluster = a_cluster(wanted)
    placed = (running(cluster, a_gang_of(f"low-{number}", of, 0)) for number, of in enumerate(low))
    lower = [gang for gang in placed if gang is not None]
    for number in cordoned:
        if node := cluster.nodes.get(f"n-{number}"):
            cluster.set_node(replace(node, taints=(*node.taints, Taint("node.kubernetes.io/unschedulable"))))
    urgent = a_gang_of("high", high, 10)
    first = a_pass(cluster, [urgent], now=100, running=lower)
    for preemption in first.preemptions:
        assert preemption.victims
        for gang in lower:
            if gang.key in preemption.victims:
                for member in gang.members:
                    cluster.release(("ml", member.name))
        (placement,) = a_pass(cluster, [urgent], now=100, before=first).placements
        assert all(would_be_bound(cluster.nodes[seat.node], seat.shape) for seat in placement.seats)
