"""Labels that a gang prefers, and that no node or only some nodes have: a preference never holds a gang up for ever."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Placement, Reason, domain
from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement
from railnet.jobs.gang.request import Constraint
from tests.railnet.gangs.placement.builders import (
    BEST_IN_ONE_LEAF,
    IN_ONE_LEAF,
    LEAF,
    SPINE,
    WORKER,
    a_gang,
    a_node,
    a_pass,
    leaf_of,
    leaves,
    members,
    nodes_of,
    occupy,
)
from tests.railnet.gangs.placement.single_gang import plan

ABSENT = "acme.com/pod"


@pytest.mark.parametrize("preferred", [(ABSENT,), (LEAF, ABSENT), (ABSENT, LEAF)], ids=str)
def test_preferred_label_that_no_node_has_counts_for_nothing_and_is_said(preferred: tuple[str, ...]) -> None:
    (placement,) = a_pass(leaves(2, 2), [a_gang(3, Constraint(preferred=preferred, relax_after=30))]).placements

    assert placement.ignored == (ABSENT,)
    assert [ABSENT in dict(seat.domain) for seat in placement.seats] == [False] * 3
    if LEAF in preferred:
        assert leaf_of(placement) == "a"


def test_said_again_in_the_pass_in_which_a_pod_is_told_its_place_again() -> None:
    cluster, gang = leaves(2), a_gang(3, Constraint(preferred=(ABSENT,)))
    first = a_pass(cluster, [gang])

    assert a_pass(cluster, [gang], before=first).placements == first.placements


def test_label_that_some_node_has_by_now_counts() -> None:
    cluster, gang = leaves(1), a_gang(3, Constraint(preferred=(SPINE,), relax_after=30))
    assert not a_pass(cluster, [gang]).placements
    for number in range(2):
        cluster.set_node(a_node(f"s-{number}", "s", {SPINE: "x"}))
    (placement,) = a_pass(cluster, [gang]).placements

    assert (placement.ignored, placement.domain) == ((), domain({SPINE: "x"}))


def test_required_label_that_no_node_has_is_refused_in_words() -> None:
    (shortfall,) = a_pass(leaves(1), [a_gang(1, Constraint(required=(ABSENT,), preferred=(LEAF,)))]).shortfalls

    assert (shortfall.reason, shortfall.keys) == (Reason.UNKNOWN_KEY, (ABSENT,))


def test_required_labels_that_no_node_has_together_are_refused_in_words() -> None:
    nodes = [a_node("x", "x"), a_node("y", labels={SPINE: "y"})]
    (shortfall,) = a_pass(Cluster(nodes), [a_gang(1, Constraint(required=(SPINE, LEAF)))]).shortfalls

    assert (shortfall.reason, shortfall.keys) == (Reason.UNKNOWN_KEY, (SPINE, LEAF))


def test_nodes_without_the_label_are_used_when_the_gang_relaxes() -> None:
    cluster = leaves(2)
    occupy(cluster, "a-0", 1)
    cluster.set_node(a_node("plain"))
    gang = a_gang(4, BEST_IN_ONE_LEAF)
    before = a_pass(cluster, [gang], 29)
    (placement,) = a_pass(cluster, [gang], 30, before=before).placements

    assert (before.placements, before.again) == ((), 30)
    assert nodes_of(placement) == ["a-0", "a-1", "a-1", "plain"]
    assert [dict(seat.domain) for seat in placement.seats] == [{LEAF: "a"}] * 3 + [{}]
    assert (placement.domain, placement.leaves, placement.ignored) == ((), 2, ())


def test_nodes_without_the_label_are_used_at_once_if_the_others_could_never_have_the_gang() -> None:
    cluster = leaves(1, 1)
    cluster.set_node(a_node("plain"))

    assert len(a_pass(cluster, [a_gang(3, BEST_IN_ONE_LEAF)], 1).placements) == 1
    assert a_pass(leaves(1, 1), [a_gang(3, BEST_IN_ONE_LEAF)], 1).placements == ()


def test_nodes_without_the_label_are_used_at_once_if_the_gang_may_have_no_others() -> None:
    cluster = leaves(4)
    cluster.set_node(a_node("plain", labels={"pool": "old"}))
    old = NodeTerm((Requirement("pool", Comparison("In"), ("old",)),))
    gang = a_gang(2, Constraint(preferred=(LEAF,), relax_after=30, nodes=(old,)))

    assert nodes_of(a_pass(cluster, [gang], 1).placements[0]) == ["plain"] * 2


def test_nodes_without_the_smaller_label_are_in_the_larger_domain() -> None:
    nodes = [a_node("n0", "l0", {SPINE: "s"}), a_node("n1", labels={SPINE: "s"}), a_node("n2", "l2")]
    gang = a_gang(4, Constraint(preferred=(LEAF, SPINE), relax_after=30))
    (placement,) = a_pass(Cluster(nodes), [gang], 1).placements

    assert nodes_of(placement) == ["n0", "n0", "n1", "n1"]
    assert placement.domain == domain({SPINE: "s"})
    assert [dict(seat.domain) for seat in placement.seats] == [{LEAF: "l0", SPINE: "s"}] * 2 + [{SPINE: "s"}] * 2


def test_whole_leaf_is_taken_before_nodes_without_the_label() -> None:
    cluster = leaves(2)
    cluster.set_node(a_node("plain"))

    assert leaf_of(a_pass(cluster, [a_gang(2, BEST_IN_ONE_LEAF)], 100).placements[0]) == "a"


def test_nodes_without_a_required_label_are_in_no_domain() -> None:
    cluster = leaves(1)
    cluster.set_node(a_node("plain"))

    assert a_pass(cluster, [a_gang(3, IN_ONE_LEAF)], 100).placements == ()


def test_gang_has_others_evicted_from_nodes_without_the_label() -> None:
    cluster = Cluster([a_node("plain-0"), a_node("plain-1"), a_node("a-0", "a", vfs=0)])
    low = a_gang(4, Constraint(), name="low")
    (placement,) = a_pass(cluster, [low]).placements
    for seat in placement.seats:
        cluster.hold(("ml", seat.member), seat.node, seat.shape)
    running = a_gang(4, Constraint(), name="low", since=1)
    high = a_gang(4, BEST_IN_ONE_LEAF, name="high", priority=10)

    (preemption,) = a_pass(cluster, [high], 1, running=[running]).preemptions
    assert (preemption.victims, preemption.domain) == ((("ml", "low"),), ())
    assert {seat.node for seat in preemption.place.seats} == {"plain-0", "plain-1"}


SIZES = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@given(labelled=SIZES, plain=st.integers(0, 3), taken=st.sets(st.integers(0, 11)), count=st.integers(1, 12))
def test_relaxed_gang_has_a_place_if_and_only_if_there_is_room(
    labelled: list[int], plain: int, taken: set[int], count: int
) -> None:
    nodes = [a_node(f"{leaf}-{number}", str(leaf)) for leaf, size in enumerate(labelled) for number in range(size)]
    nodes += [a_node(f"plain-{number}") for number in range(plain)]
    cluster = Cluster(nodes)
    for position in taken:
        if position < len(nodes):
            occupy(cluster, nodes[position].name, 1)
    room = 2 * len(nodes) - len([position for position in taken if position < len(nodes)])
    found = plan(cluster, a_gang(members=members(count), constraint=BEST_IN_ONE_LEAF), relaxed=True)

    assert isinstance(found, Placement) == (count <= room)
    if isinstance(found, Placement):
        used = Counter(seat.node for seat in found.seats)
        assert all(used[name] <= cluster.look(cluster.names().index(name)).slots(WORKER) for name in used)
        for seat in found.seats:
            leaf = cluster.nodes[seat.node].labels.get(LEAF)
            # While no node has the label, or all of the room is there, it is no part of the domain.
            assert dict(seat.domain) == ({} if leaf is None else {LEAF: leaf})
