"""Where one gang is placed, and what is said of one that is not."""

from dataclasses import replace

import pytest

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Gang, Member, Placement, Reason, Shortfall, domain
from railnet.gangs.placement.node import Node, Taint
from railnet.gangs.placement.pod_shape import HostPort, Shape, Toleration
from railnet.gangs.placement.search import wanted
from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement
from railnet.jobs.gang.request import Constraint
from tests.railnet.gangs.placement.builders import (
    BEST_IN_ONE_LEAF,
    IN_ONE_LEAF,
    LEAF,
    SERVER,
    SMALL,
    SPINE,
    WORKER,
    a_gang,
    a_node,
    leaf_of,
    leaves,
    members,
    nodes_of,
    occupy,
    to_come,
)
from tests.railnet.gangs.placement.single_gang import plan


def a_shortfall(found: object) -> Shortfall:
    assert isinstance(found, Shortfall), found
    return found


def test_five_pods_of_the_articles_example_are_on_one_node() -> None:
    nodes = [
        Node(f"n{i}", {"kubernetes.io/hostname": f"n{i}", "test": "abc"}, {"cpu": 8000, "pods": 110}) for i in range(3)
    ]
    nodes.append(Node("big", {"kubernetes.io/hostname": "big"}, {"cpu": 99000, "pods": 110}))
    only = NodeTerm((Requirement("test", Comparison.IN, ("abc",)),))
    gang = a_gang(
        members=members(5, Shape((("cpu", 1000), ("pods", 1)))),
        constraint=Constraint("test", required=("kubernetes.io/hostname",), nodes=(only,)),
    )

    assert nodes_of(plan(Cluster(nodes), gang)) == ["n0"] * 5


def test_first_pods_node_does_not_decide() -> None:
    cluster = leaves(1, 2)

    assert leaf_of(plan(cluster, a_gang(3))) == "b"


def test_best_fit_leaves_the_large_leaf_to_a_large_gang() -> None:
    assert leaf_of(plan(leaves(4, 2, 3), a_gang(4))) == "b"


def test_of_leaves_that_fit_equally_the_one_with_fewer_nodes_is_taken_and_then_the_first() -> None:
    cluster = leaves(3, 2, 2)
    occupy(cluster, "a-0", 2)

    assert leaf_of(plan(cluster, a_gang(4))) == "b"


def test_leaves_are_in_the_order_of_numbers() -> None:
    cluster = Cluster(a_node(f"n{i}", f"leaf-{i}") for i in (10, 9, 11))

    assert leaf_of(plan(cluster, a_gang(2))) == "leaf-9"


def test_required_labels_are_one_tuple() -> None:
    cluster = Cluster(
        [
            a_node("n0", "1", {SPINE: "x"}),
            a_node("n1", "1", {SPINE: "y"}),
            a_node("n2", "2", {SPINE: "x"}),
            a_node("n3", "2", {SPINE: "x"}),
        ]
    )
    gang = a_gang(4, Constraint(required=(SPINE, LEAF)))

    found = plan(cluster, gang)

    assert nodes_of(found) == ["n2", "n2", "n3", "n3"]
    assert isinstance(found, Placement)
    assert found.seats[0].domain == domain({LEAF: "2", SPINE: "x"})


def test_node_without_the_label_is_in_no_domain() -> None:
    cluster = Cluster([a_node("n0"), a_node("n1"), a_node("n2", "a")])

    assert a_shortfall(plan(cluster, a_gang(4))).reason is Reason.TOO_LARGE


def test_gang_without_topology_gets_no_selector() -> None:
    found = plan(leaves(1, 1), a_gang(4, Constraint()))

    assert isinstance(found, Placement)
    assert [seat.domain for seat in found.seats] == [()] * 4
    assert (found.domain, found.leaves) == ((), 1)


@pytest.mark.parametrize(
    ("used", "count", "nodes"),
    [
        ((7, 6, 0), 1, ["a-0"]),  # the fullest node that has room
        ((7, 6, 0), 2, ["a-1"] * 2),
        ((7, 6, 0), 4, ["a-2"] * 4),
        (
            (7, 6, 0),
            9,
            ["a-0"] + ["a-2"] * 8,
        ),  # the emptiest, and the fullest for the rest; ranks in the order of the nodes
        ((0, 4, 6), 10, ["a-0"] * 8 + ["a-2"] * 2),
        ((7, 6, 0), 11, ["a-0"] + ["a-1"] * 2 + ["a-2"] * 8),
    ],
)
def test_members_are_on_the_fewest_nodes_of_a_leaf(used: tuple[int, ...], count: int, nodes: list[str]) -> None:
    cluster = leaves(3)
    for number, pods in enumerate(used):
        occupy(cluster, f"a-{number}", pods, SMALL)

    assert nodes_of(plan(cluster, a_gang(members=members(count, SMALL)))) == nodes


def test_preferred_domains_are_tried_from_the_smallest_up() -> None:
    nodes = [a_node(f"n{i}", f"l{i // 2}", {SPINE: f"s{i // 4}"}) for i in range(8)]
    prefers = Constraint(preferred=(LEAF, SPINE), relax_after=30)

    def placed(count: int, relaxed: bool = False) -> tuple[object, int]:
        found = plan(Cluster(nodes), a_gang(count, prefers), relaxed=relaxed)
        return (found.domain, found.leaves) if isinstance(found, Placement) else (found.reason, 0)

    assert placed(4) == (domain({LEAF: "l0", SPINE: "s0"}), 1)
    assert placed(5) == (domain({SPINE: "s0"}), 2)
    assert placed(9) == (Reason.NO_ROOM, 0)
    assert placed(9, relaxed=True) == ((), 3)


def test_gang_that_may_be_spread_has_the_fewest_leaves_and_the_last_one_fits_best() -> None:
    cluster = leaves(3, 1, 2, 4)

    found = plan(cluster, a_gang(9, BEST_IN_ONE_LEAF), relaxed=True)

    assert isinstance(found, Placement)
    assert found.leaves == 2
    assert [dict(seat.domain)[LEAF] for seat in found.seats] == ["b"] + ["d"] * 8


def test_gang_is_not_spread_before_it_may() -> None:
    cluster = leaves(1, 1)
    gang = a_gang(3, BEST_IN_ONE_LEAF)

    found = a_shortfall(plan(cluster, gang))

    assert (found.reason, found.best, found.room, found.tried) == (Reason.NO_ROOM, domain({LEAF: "b"}), 2, 2)


def test_required_domain_is_never_left_however_long_a_gang_waits() -> None:
    assert a_shortfall(plan(leaves(1, 1), a_gang(3), relaxed=True)).reason is Reason.TOO_LARGE


def test_roles_of_different_shapes_are_really_packed_the_biggest_first() -> None:
    # By sums, two nodes of 16 cores have room for three servers of 10 cores. No node has room for two.
    ten = Shape((("cpu", 10000), ("pods", 1)))
    gang = a_gang(members=(*members(2, SMALL), *members(2, ten, "ps")))
    three = a_gang(members=(*members(2, SMALL), *members(3, ten, "ps")))

    assert nodes_of(plan(leaves(2), gang)) == ["a-0", "a-1", "a-0", "a-0"]
    assert a_shortfall(plan(leaves(2), three)).reason is Reason.TOO_LARGE


def test_members_with_a_host_port_are_on_nodes_of_their_own() -> None:
    with_port = Shape((("cpu", 1000), ("pods", 1)), ports=(HostPort(8080),))
    cluster = leaves(2, 3)
    cluster.hold(("other", "web"), "b-1", Shape((("pods", 1),), ports=(HostPort(8080, "TCP", "10.0.0.1"),)))

    assert nodes_of(plan(cluster, a_gang(members=members(2, with_port)))) == ["a-0", "a-1"]
    too_many = a_shortfall(plan(cluster, a_gang(members=members(3, with_port))))
    assert (too_many.reason, too_many.lacks) == (Reason.NO_ROOM, (("host port 8080", 1),))


def test_tainted_cordoned_and_unready_nodes_have_no_room() -> None:
    gang = a_gang(2, Constraint())
    tolerates = replace(WORKER, tolerations=(Toleration("gpu", "Exists"),))
    cluster = Cluster([replace(a_node("n0"), taints=(Taint("gpu"),)), replace(a_node("n1"), ready=False)])

    assert a_shortfall(plan(cluster, gang)).reason is Reason.NO_ROOM
    assert nodes_of(plan(cluster, a_gang(members=members(2, tolerates), constraint=Constraint()))) == ["n0", "n0"]


def test_nodes_of_the_constraint_are_a_choice_of_terms() -> None:
    cluster = Cluster(a_node(f"n{i}", f"l{i}", {"pool": f"p{i}"}) for i in range(3))
    terms = tuple(NodeTerm((Requirement("pool", Comparison.IN, (value,)),)) for value in ("p1", "p2"))

    assert leaf_of(plan(cluster, a_gang(2, replace(IN_ONE_LEAF, nodes=terms)))) == "l1"


def test_members_to_come_have_their_room_reserved() -> None:
    cluster = leaves(2)
    job = a_gang(members=(*members(1, SERVER, "ps"), *to_come(3)))
    found = plan(cluster, job)
    assert isinstance(found, Placement)
    cluster.reserve(found)

    assert [seat.member for seat in found.seats] == ["bert-ps-0", "", "", ""]
    assert a_shortfall(plan(cluster, a_gang(2, name="next"))).room == 1


def test_what_is_not_known_of_members_to_come_is_taken_from_the_biggest_that_is_there() -> None:
    found = plan(leaves(3), a_gang(members=(*members(1, SMALL, "launcher"), *members(1)), needed=4))

    assert isinstance(found, Placement)
    assert [seat.shape for seat in found.seats].count(WORKER) == 3


def test_late_member_has_the_seat_that_was_reserved_for_its_rank() -> None:
    cluster = leaves(1, 2)
    job = a_gang(members=(*members(1, SERVER, "ps"), *to_come(5)), constraint=BEST_IN_ONE_LEAF)
    first = plan(cluster, job, relaxed=True)
    assert isinstance(first, Placement)
    cluster.reserve(first)
    workers = members(5)[3:]
    placed = {seat.rank: seat.domain for seat in first.seats if seat.role == "worker"}

    later = plan(cluster, replace(job, members=(*members(1, SERVER, "ps"), *to_come(3), *workers)), relaxed=True)

    assert isinstance(later, Placement)
    assert {seat.rank: seat.domain for seat in later.seats if seat.role == "worker"} == placed


def test_member_that_comes_again_is_in_the_leaf_of_its_neighbours() -> None:
    cluster = leaves(2, 2, 2)
    running = [
        Member(f"w-{rank}", WORKER, "worker", rank, node=f"{'ab'[rank // 4]}-{rank % 4 // 2}") for rank in range(8)
    ]
    for one in running[:2] + running[3:]:
        cluster.hold(("ml", one.name), one.node, WORKER)
    gang = a_gang(
        members=(*running[:2], Member("w-2-again", WORKER, "worker", 2), *running[3:]), constraint=BEST_IN_ONE_LEAF
    )

    assert nodes_of(plan(cluster, gang)) == ["a-1"]


def test_gang_that_grows_stays_in_its_domain() -> None:
    cluster = leaves(2, 3)
    bound = tuple(Member(f"w-{rank}", WORKER, "worker", rank, node="a-0") for rank in range(2))
    for one in bound:
        cluster.hold(("ml", one.name), one.node, WORKER)

    assert leaf_of(plan(cluster, a_gang(members=(*bound, *members(2))))) == "a"
    three_more = a_gang(members=(*bound, *members(3)))
    assert a_shortfall(plan(cluster, three_more)).room == 2
    elastic = plan(cluster, replace(three_more, needed=2))
    assert isinstance(elastic, Placement)
    assert [seat.member for seat in elastic.seats] == ["bert-worker-0", "bert-worker-1"]


def test_elastic_gang_starts_with_as_many_as_there_is_room_for() -> None:
    found = plan(leaves(2, 1), a_gang(7, needed=3))

    assert isinstance(found, Placement)
    assert (leaf_of(found), len(found.seats)) == ("a", 4)
    assert [seat.member for seat in found.seats] == [f"bert-worker-{rank}" for rank in range(4)]
    assert a_shortfall(plan(leaves(1, 1), a_gang(7, needed=3))).reason is Reason.TOO_LARGE


def test_excluded_domain_is_not_taken_also_not_as_a_part_of_a_larger_one() -> None:
    cools_down = frozenset({domain({LEAF: "a"})})

    assert leaf_of(plan(leaves(1, 1), a_gang(2, excluded=cools_down))) == "b"
    assert a_shortfall(plan(leaves(1, 1), a_gang(4, BEST_IN_ONE_LEAF, excluded=cools_down), relaxed=True)).room <= 4
    spread = plan(leaves(2, 1, 1), a_gang(4, BEST_IN_ONE_LEAF, excluded=cools_down), relaxed=True)
    assert isinstance(spread, Placement)
    assert {dict(seat.domain)[LEAF] for seat in spread.seats} == {"b", "c"}


def test_cluster_is_not_changed_by_planning() -> None:
    cluster = leaves(1)
    gang = a_gang(2)
    first = plan(cluster, gang)
    assert isinstance(first, Placement)
    cluster.reserve(first)
    generation = cluster.generation

    assert plan(cluster, gang) == first
    assert cluster.generation == generation
    assert cluster.seats(gang.key) == first.seats


def test_shortfall_says_what_the_event_needs() -> None:
    cluster = leaves(2, 4)
    occupy(cluster, "b-0", 2)
    occupy(cluster, "b-1", 1)
    gang = a_gang(members=(*members(6), *to_come(2)))

    found = a_shortfall(plan(cluster, gang))

    assert (found.reason, found.permanent) == (Reason.NO_ROOM, False)
    assert (found.seen, found.needed, found.tried) == (6, 8, 2)
    assert (found.best, found.room) == (domain({LEAF: "b"}), 5)
    assert found.lacks == (("rdma/ib_vf", 12),)


@pytest.mark.parametrize("relaxed", [False, True])
def test_selectors_that_match_no_node_are_said_at_once(relaxed: bool) -> None:
    nowhere = replace(WORKER, selector=(("zone", "mars"),))

    found = a_shortfall(plan(leaves(2), a_gang(members=members(1, nowhere)), relaxed=relaxed))

    assert (found.reason, found.permanent) == (Reason.NO_NODE, True)


def test_gang_larger_than_the_empty_cluster_is_said_at_once_also_while_nodes_are_not_ready() -> None:
    cluster = Cluster([a_node("n0", "a"), replace(a_node("n1", "a"), ready=False)])
    occupy(cluster, "n0", 2)

    assert a_shortfall(plan(cluster, a_gang(4))).reason is Reason.NO_ROOM
    assert a_shortfall(plan(cluster, a_gang(5))).reason is Reason.TOO_LARGE


def test_gang_is_not_called_too_large_while_a_device_plugin_starts_again() -> None:
    starting = replace(a_node("n0", "a", vfs=0), at_best=a_node("n0").allocatable)

    assert a_shortfall(plan(Cluster([starting]), a_gang(2))).reason is Reason.NO_ROOM
    assert a_shortfall(plan(Cluster([starting]), a_gang(3))).reason is Reason.TOO_LARGE


def test_members_that_are_bound_in_two_domains_are_said_at_once() -> None:
    cluster = leaves(1, 1)
    split = tuple(Member(f"w-{leaf}", SMALL, node=f"{leaf}-0") for leaf in "ab")

    assert a_shortfall(plan(cluster, a_gang(members=(*split, Member("late", SMALL))))).reason is Reason.SPLIT


def test_gang_without_members_or_without_nodes_is_no_error() -> None:
    assert plan(Cluster(), Gang("ml", "empty", ())) == Placement(("ml", "empty"), (), ())
    assert a_shortfall(plan(Cluster(), a_gang(1))).reason is Reason.NO_NODE


def test_gang_of_a_million_costs_no_more_members_than_the_cluster_could_have() -> None:
    """The number is a label that any author of pods may write."""
    cluster, gang = leaves(2, 2), a_gang(1, needed=999_999)
    found = a_shortfall(plan(cluster, gang))

    assert (
        len(wanted(cluster, gang).loose) == 4 * 2 + 2
    )  # two workers for each node; the one that exists, and one too many
    assert (found.reason, found.needed) == (Reason.TOO_LARGE, 999_999)


def test_levels_that_users_name_are_kept_for_a_while_only() -> None:
    """Each is a list of all nodes; and what is planned is the same, also by a level that was forgotten."""
    keys = [f"k{number}" for number in range(300)]
    cluster = Cluster(a_node(f"n{index}", labels=dict.fromkeys(keys, f"v{index % 2}")) for index in range(4))
    plan(cluster, a_gang(2, Constraint(required=("k0",))))
    occupy(cluster, "n0", 2)
    for key in keys:
        assert nodes_of(plan(cluster, a_gang(3, Constraint(required=(key,))))) == ["n1", "n1", "n3"]
    occupy(cluster, "n1", 2)

    assert nodes_of(plan(cluster, a_gang(2, Constraint(required=("k0",))))) == ["n2", "n2"]
    assert len(cluster._groupings) <= 256
    assert all(len(slots._levels) <= 256 for slots in cluster._slots.values())
