"""What other gang and topology schedulers got wrong, each as a test under the number of the issue that reports it.

kueue is kubernetes-sigs/kueue; koordinator, volcano and scheduler-plugins are the projects of those names.
"""

from dataclasses import replace

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Member, Placement, Reason, Shortfall, domain
from railnet.gangs.placement.pod_shape import Shape
from railnet.jobs.gang.request import Constraint
from tests.railnet.gangs.placement.builders import (
    BEST_IN_ONE_LEAF,
    IN_ONE_LEAF,
    LEAF,
    SERVER,
    WORKER,
    a_gang,
    a_node,
    a_pass,
    leaf_of,
    leaves,
    members,
    nodes_of,
    occupy,
    to_come,
)
from tests.railnet.gangs.placement.single_gang import plan


def test_kueue_4270_pods_count_as_a_resource() -> None:
    tiny = Shape((("cpu", 1), ("pods", 1)))
    cluster = leaves(2, pods=3)
    cluster.hold(("kube-system", "dns"), "a-0", tiny)

    found = plan(cluster, a_gang(members=members(6, tiny)))

    assert isinstance(found, Shortfall)
    assert (found.room, found.lacks) == (5, (("pods", 1),))
    assert nodes_of(plan(cluster, a_gang(members=members(5, tiny)))) == ["a-0", "a-0", "a-1", "a-1", "a-1"]


def test_kueue_10076_terminating_pod_holds_its_resources_until_it_is_gone() -> None:
    # A pod that is deleted is not reported to the cluster before it is gone: its second report, still bound, changes nothing.
    cluster = leaves(1)
    cluster.hold(("ml", "old"), "a-0", WORKER)
    cluster.hold(("ml", "old"), "a-0", WORKER)
    gang = a_gang(2)

    waits = plan(cluster, gang)
    cluster.release(("ml", "old"))

    assert isinstance(waits, Shortfall)
    assert nodes_of(plan(cluster, gang)) == ["a-0", "a-0"]


def test_kueue_14570_one_place_is_never_two_gangs() -> None:
    cluster = leaves(1)

    both = a_pass(cluster, [a_gang(2, name="one"), a_gang(2, name="two", since=1)])
    again = a_pass(cluster, [a_gang(2, name="two", since=1), a_gang(2, name="one")], before=both)

    assert [placement.gang[1] for placement in both.placements] == ["one"]
    assert [placement.gang[1] for placement in again.placements] == ["one"]


def test_kueue_14570_pod_counts_once_when_it_is_bound_on_another_node_than_its_seat() -> None:
    cluster = leaves(2)
    found = plan(cluster, a_gang(2))
    assert isinstance(found, Placement)
    cluster.reserve(found)

    for name in ("bert-worker-0", "bert-worker-1"):
        cluster.hold(("ml", name), "a-1", WORKER)

    assert cluster.seats(("ml", "bert")) == ()
    assert nodes_of(plan(cluster, a_gang(2, name="next"))) == ["a-0", "a-0"]


def test_kueue_11858_pin_to_a_leaf_outlives_the_node_that_a_seat_was_on() -> None:
    cluster = leaves(2)
    gang = a_gang(2)
    first = a_pass(cluster, [gang])
    pinned = replace(gang, members=tuple(replace(one, pinned=domain({LEAF: "a"})) for one in gang.members))

    cluster.remove_node("a-0")
    a_pass(cluster, [pinned], before=first)

    assert nodes_of(first.placements[0]) == ["a-0", "a-0"]
    assert [seat.node for seat in cluster.seats(gang.key)] == ["a-1", "a-1"]


def test_kueue_14917_pod_made_again_after_its_node_died_goes_to_another_node_of_its_leaf() -> None:
    cluster = leaves(2, 2)
    bound = tuple(Member(f"w-{rank}", WORKER, "worker", rank, node="a-0") for rank in range(2))
    for one in bound:
        cluster.hold(("ml", one.name), one.node, WORKER)
    cluster.set_node(replace(a_node("a-0", "a"), ready=False))
    cluster.release(("ml", "w-1"))

    found = plan(cluster, a_gang(members=(bound[0], Member("w-1-again", WORKER, "worker", 1))))

    assert (leaf_of(found), nodes_of(found)) == ("a", ["a-1"])


def test_kueue_9615_seat_on_a_node_that_takes_no_pods_any_more_is_given_up() -> None:
    cluster = leaves(1, 1)
    gang = a_gang(2)
    first = a_pass(cluster, [gang])

    cluster.set_node(replace(a_node("a-0", "a"), ready=False))
    then = a_pass(cluster, [gang], before=first)

    assert leaf_of(first.placements[0]) == "a"
    assert leaf_of(then.placements[0]) == "b"


def test_kueue_11858_pods_that_may_be_anywhere_take_no_pinned_pods_room_after_a_restart() -> None:
    cluster = leaves(1, 1)
    anywhere = tuple(replace(one, pinned=()) for one in members(2, gang="anywhere"))
    in_a = tuple(replace(one, pinned=domain({LEAF: "a"})) for one in members(2, gang="in-a"))
    first = a_gang(2, Constraint(), "anywhere", members=anywhere, priority=10)

    a_pass(cluster, [first, a_gang(name="in-a", members=in_a)])

    assert [seat.node for seat in cluster.seats(("ml", "in-a"))] == ["a-0", "a-0"]
    assert [seat.node for seat in cluster.seats(("ml", "anywhere"))] == ["b-0", "b-0"]


def test_koordinator_3181_late_member_cannot_escape_its_gangs_domain() -> None:
    cluster = leaves(1, 2)
    first = Member("bert-worker-0", WORKER, "worker", 0, node="a-0")
    cluster.hold(("ml", first.name), "a-0", WORKER)
    occupy(cluster, "a-0", 1)
    gang = a_gang(members=(first, *members(2)[1:]))

    found = plan(cluster, gang)

    assert isinstance(found, Shortfall)
    assert (found.reason, found.best, found.room) == (Reason.NO_ROOM, domain({LEAF: "a"}), 0)
    cluster.release(("other", "on-a-0-4000-0"))
    assert leaf_of(plan(cluster, gang)) == "a"


def test_koordinator_3181_pod_that_is_pinned_and_not_bound_yet_fixes_the_domain_as_well() -> None:
    cluster = leaves(1, 2)
    pinned = Member("bert-worker-0", WORKER, "worker", 0, pinned=domain({LEAF: "b"}))

    found = plan(cluster, a_gang(members=(pinned, *members(2)[1:])))

    assert leaf_of(found) == "b"


def test_volcano_5189_label_that_no_node_has_is_said_and_never_ignored() -> None:
    cluster = leaves(2)
    for constraint in (Constraint(required=("no/such",)), Constraint(required=("no/such",), preferred=(LEAF,))):
        found = plan(cluster, a_gang(1, constraint), relaxed=True)

        assert isinstance(found, Shortfall)
        assert (found.reason, found.keys, found.permanent) == (Reason.UNKNOWN_KEY, ("no/such",), True)


def test_volcano_5189_labels_that_no_node_has_together_are_said() -> None:
    cluster = Cluster([a_node("n0", "a"), a_node("n1", "", {"rack": "r"})])

    found = plan(cluster, a_gang(1, Constraint(required=(LEAF, "rack"))))

    assert isinstance(found, Shortfall)
    assert (found.reason, found.keys) == (Reason.UNKNOWN_KEY, (LEAF, "rack"))


def test_scheduler_plugins_930_no_part_of_a_gang_is_placed() -> None:
    cluster = leaves(1, 1)

    found = a_pass(cluster, [a_gang(3)])

    assert found.placements == ()
    assert cluster.reserving == ()
    assert leaf_of(a_pass(cluster, [a_gang(2, name="next")]).placements[0]) == "a"


def test_scheduler_plugins_930_members_beyond_the_minimum_wait() -> None:
    found = a_pass(leaves(1), [a_gang(3, needed=2)])

    assert [seat.member for seat in found.placements[0].seats] == ["bert-worker-0", "bert-worker-1"]


def test_scheduler_plugins_117_two_jobs_that_wait_for_members_to_come_do_not_block_each_other() -> None:
    # Each parameter server would fit, and then no job's workers: all wait for ever. Room for all members is reserved before the first starts.
    cluster = leaves(2)
    jobs = [
        a_gang(members=(*members(1, SERVER, "ps", name), *to_come(2)), name=name, since=age)
        for age, name in enumerate(("one", "two"))
    ]
    first = a_pass(cluster, jobs)
    seats = {seat.role: seat for seat in first.placements[0].seats}
    cluster.hold(("ml", "one-ps-0"), seats["ps"].node, SERVER)
    server = replace(jobs[0].members[0], node=seats["ps"].node)
    whole = replace(jobs[0], members=(server, *members(2, gang="one")))

    then = a_pass(cluster, [whole, jobs[1]], before=first)

    assert [placement.gang[1] for placement in first.placements] == ["one", "two"]
    assert {seat.member for seat in then.placements[0].seats} == {"one-worker-0", "one-worker-1"}
    full = leaves(1)
    assert [placement.gang[1] for placement in a_pass(full, jobs).placements] == ["one"]


def test_mpi_launcher_that_comes_after_its_workers_has_room() -> None:
    cluster = leaves(1)
    job = a_gang(members=(*members(2), *to_come(1, SERVER, "launcher")))

    found = a_pass(cluster, [job])

    assert len(found.placements[0].seats) == 3
    assert a_pass(cluster, [job, a_gang(1, name="next", members=members(1, SERVER), since=1)], before=found).shortfalls


def test_kueue_3533_ranks_that_follow_each_other_are_in_one_leaf_whatever_the_order_of_pods() -> None:
    cluster = leaves(2, 2, 2)
    shuffled = tuple(sorted(members(11), key=lambda one: hash((one.rank * 7919) % 11)))

    found = plan(cluster, a_gang(members=shuffled, constraint=BEST_IN_ONE_LEAF), relaxed=True)

    assert isinstance(found, Placement)
    ranks = [seat.rank for seat in found.seats]
    places = [dict(seat.domain)[LEAF] for seat in found.seats]
    edges = sum(here != there for here, there in zip(places, places[1:] + places[:1], strict=True))
    assert ranks == list(range(11))
    assert edges == found.leaves == 3


def test_kueue_3533_names_without_a_rank_are_in_the_order_of_their_numbers() -> None:
    pods = tuple(Member(f"w-{number}", WORKER) for number in (10, 2, 1))

    found = plan(leaves(2), a_gang(members=pods, constraint=IN_ONE_LEAF))

    assert isinstance(found, Placement)
    assert [seat.member for seat in found.seats] == ["w-1", "w-2", "w-10"]
