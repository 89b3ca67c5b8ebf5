"""One pass over all gangs: the order, who may pass whom, what is held, who is preempted, what is remembered."""

from dataclasses import replace

import pytest

from railnet.gangs.placement.cluster import Cluster
from railnet.gangs.placement.gang import Gang, Placement, Reason, domain
from railnet.gangs.placement.node import Taint
from railnet.gangs.placement.pod_shape import AffinityTerm, HostPort, Shape, Unseen
from railnet.jobs.gang.node_terms import Comparison, NodeTerm, Requirement
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
    leaf_of,
    leaves,
    members,
    nodes_of,
    occupy,
    to_come,
)
from tests.railnet.gangs.placement.single_gang import plan

ANYWHERE = Constraint()


def bound(cluster: Cluster, gang: Gang, placement: Placement) -> Gang:
    """Bind a gang's members to the nodes of their seats."""
    nodes = {seat.member: seat.node for seat in placement.seats}
    for member in gang.members:
        cluster.hold((gang.namespace, member.name), nodes[member.name], member.shape)
    return replace(gang, members=tuple(replace(one, node=nodes[one.name]) for one in gang.members))


def running(cluster: Cluster, count: int, name: str, **fields: float) -> Gang:
    """Place a gang and bind it."""
    gang = a_gang(count, name=name, **fields)
    found = plan(cluster, gang)
    assert isinstance(found, Placement), found
    return bound(cluster, gang, found)


def test_higher_priority_is_first_then_age() -> None:
    gangs = [
        a_gang(2, name="young", since=2),
        a_gang(2, name="old", since=1),
        a_gang(2, name="important", since=3, priority=10),
    ]

    found = a_pass(leaves(2), gangs)

    assert [placement.gang[1] for placement in found.placements] == ["important", "old"]
    assert [shortfall.gang[1] for shortfall in found.shortfalls] == ["young"]


def test_placed_gangs_keep_their_seats_in_the_cluster() -> None:
    cluster = leaves(1)
    first = a_pass(cluster, [a_gang(2, name="first")])
    both = a_pass(cluster, [a_gang(2, name="first"), a_gang(2, name="second", priority=99)], before=first)

    assert both.placements == first.placements
    assert [shortfall.gang[1] for shortfall in both.shortfalls] == ["second"]


def test_what_a_gang_that_is_gone_had_reserved_is_free() -> None:
    cluster = leaves(1)
    first = a_pass(cluster, [a_gang(2, name="first")])

    then = a_pass(cluster, [a_gang(2, name="second")], before=first)

    assert [placement.gang[1] for placement in then.placements] == ["second"]


def test_small_gang_passes_a_blocked_one_until_that_has_waited() -> None:
    def at(now: float) -> list[str]:
        cluster = leaves(2)
        occupy(cluster, "a-0", 1)
        found = a_pass(cluster, [a_gang(4, name="large"), a_gang(1, name="small", since=1)], now, hold_after=60)
        return [placement.gang[1] for placement in found.placements]

    assert at(59) == ["small"]
    assert at(60) == []


def test_hold_for_the_head_is_said_and_leaves_other_domains_alone() -> None:
    cluster = leaves(2, 1)
    occupy(cluster, "a-0", 1)
    gangs = [a_gang(4, name="large"), a_gang(2, name="small", since=1), a_gang(1, ANYWHERE, name="next", since=2)]

    found = a_pass(cluster, gangs, now=100, hold_after=60)

    assert [leaf_of(placement) for placement in found.placements] == ["b"]
    large, late = found.shortfalls
    assert (large.reason, late.reason, late.held_for) == (Reason.NO_ROOM, Reason.HELD, ("ml", "large"))


def test_hold_ends_with_the_head() -> None:
    cluster = leaves(1)
    occupy(cluster, "a-0", 1)
    small = a_gang(1, name="small", since=1)
    held = a_pass(cluster, [a_gang(2, name="large"), small], now=100, hold_after=60)

    then = a_pass(cluster, [small], now=100, before=held, hold_after=60)

    assert held.placements == ()
    assert nodes_of(then.placements[0]) == ["a-0"]


def test_hold_is_bounded_and_others_pass_before_it_begins_again() -> None:
    def at(now: float, whole: Gang) -> list[str]:
        cluster = leaves(2)
        occupy(cluster, "a-0", 1)
        small = a_gang(1, name="small", since=1)
        placed = a_pass(
            cluster, [whole, small], now, hold_after=60, hold_for=300, hold_for_incomplete=100, hold_pause=50
        )
        return [placement.gang[1] for placement in placed.placements]

    whole = a_gang(4, name="whole")
    assert [at(now, whole) for now in (59, 60, 359)] == [["small"], [], []]
    assert [at(now, whole) for now in (360, 409, 410)] == [["small"], ["small"], []]
    to_be = a_gang(members=(*members(1, gang="to-be"), *to_come(3)), needed=4, name="to-be")
    assert [at(now, to_be) for now in (60, 159, 160, 209, 210)] == [[], [], ["small"], ["small"], []]


def test_pass_says_when_a_hold_ends_and_when_it_begins_again() -> None:
    def again(now: float) -> float | None:
        cluster = leaves(2)
        occupy(cluster, "a-0", 1)
        return a_pass(cluster, [a_gang(4)], now, hold_after=60, hold_for=300, hold_pause=50).again

    assert [again(now) for now in (0, 60, 359, 360, 410)] == [60, 360, 360, 410, 710]


def test_room_is_held_for_the_next_gang_of_another_namespace_while_the_first_one_pauses() -> None:
    cluster = leaves(2)
    occupy(cluster, "a-0", 1)
    second = replace(a_gang(4, name="second", since=100), namespace="other")
    gangs = [a_gang(4, name="first"), second, a_gang(1, name="small", since=200)]

    found = a_pass(cluster, gangs, now=370, hold_after=60, hold_for=300, hold_pause=50)

    assert found.placements == ()
    assert found.shortfalls[2].held_for == ("other", "second")


def test_two_gangs_of_a_namespace_do_not_hold_room_by_turns_for_ever() -> None:
    """Both wait for the place of a pod that never ends. Their times do not overlap, so one of them could always have room held."""
    large = [a_gang(4, name="first"), a_gang(4, name="second", since=100)]
    small = replace(a_gang(1, name="small", since=200), namespace="other")

    def at(now: float) -> list[str]:
        cluster = leaves(2)
        occupy(cluster, "a-0", 1)
        found = a_pass(cluster, [*large, small], now, hold_after=60, hold_for=300, hold_pause=50)
        return [placement.gang[1] for placement in found.placements]

    assert [at(now) for now in (359, 360, 409, 410)] == [[], ["small"], ["small"], []]


def test_namespaces_take_turns() -> None:
    gangs = [
        *(a_gang(2, name=f"many-{index}", since=index) for index in range(3)),
        replace(a_gang(2, name="other", since=9), namespace="other"),
    ]

    found = a_pass(leaves(1, 1), gangs)
    assert [placement.gang for placement in found.placements] == [("ml", "many-0"), ("other", "other")]
    found = a_pass(leaves(1), [replace(gang, queued=10.0) if gang.namespace == "ml" else gang for gang in gangs])
    assert [placement.gang for placement in found.placements] == [("other", "other")]


def test_no_namespace_has_all_held_room() -> None:
    """It may have many gangs that are older than those of others: one of them has had its place, and the next ones go behind."""
    cluster = leaves(2)
    occupy(cluster, "a-0", 1)
    other = replace(a_gang(4, name="other", since=9), namespace="other")
    gangs = [a_gang(4, name="old", queued=20), other, a_gang(1, name="small", since=10)]

    found = a_pass(cluster, gangs, now=1000)

    assert [shortfall.held_for for shortfall in found.shortfalls if shortfall.gang == ("ml", "small")] == [other.key]


def test_gang_that_can_never_be_placed_holds_nothing() -> None:
    found = a_pass(leaves(1), [a_gang(9, name="huge"), a_gang(2, name="next", since=1)], now=1000, hold_after=60)

    assert [placement.gang[1] for placement in found.placements] == ["next"]
    assert found.shortfalls[0].permanent


def test_gang_without_topology_holds_no_more_nodes_than_it_would_need() -> None:
    def small_at(now: float) -> list[list[str]]:
        cluster = leaves(4)
        for node in ("a-0", "a-1", "a-2"):
            occupy(cluster, node, 1)
        gangs = [a_gang(6, ANYWHERE, name="large"), a_gang(1, ANYWHERE, name="small", since=1)]
        return [nodes_of(placement) for placement in a_pass(cluster, gangs, now, hold_after=60).placements]

    assert small_at(59) == [["a-0"]]
    assert small_at(60) == [["a-2"]]


def test_pass_says_when_time_alone_changes_something() -> None:
    def again(*gangs: Gang, now: float) -> float | None:
        cluster = leaves(1, 1)
        occupy(cluster, "a-0", 1)
        return a_pass(cluster, gangs, now, hold_after=120).again

    three = a_gang(3, BEST_IN_ONE_LEAF)
    assert again(three, now=10) == 30
    assert again(a_gang(2, since=5), now=10) is None
    assert again(a_gang(2, since=5), a_gang(2, since=6, name="next"), now=10) == 126
    assert again(a_gang(2, since=5), a_gang(2, since=6, name="next"), now=126) == 126 + 3600  # room is held so long


def test_gang_is_spread_when_its_time_has_come() -> None:
    cluster = leaves(1, 1)
    gang = a_gang(3, BEST_IN_ONE_LEAF, since=100)

    before = a_pass(cluster, [gang], 129)
    after = a_pass(cluster, [gang], 130, before=before)

    assert before.placements == ()
    assert after.placements[0].leaves == 2


def test_gang_without_a_time_is_spread_at_once() -> None:
    found = a_pass(leaves(1, 1), [a_gang(3, Constraint(preferred=(LEAF,)), since=5)], 5)

    assert found.placements[0].leaves == 2


def test_what_failed_is_tried_again_when_a_candidates_room_grew() -> None:
    cluster = leaves(1, 1)
    cluster.set_node(a_node("plain", vfs=0))
    occupy(cluster, "a-0", 2)
    occupy(cluster, "b-0", 1)
    occupy(cluster, "plain", 1, SERVER)
    gang = a_gang(2)
    first = a_pass(cluster, [gang])
    generation = first.shortfalls[0].generation

    assert not cluster.grew(gang, generation)
    occupy(cluster, "b-0", 2)
    assert not cluster.grew(gang, generation)
    cluster.release(("other", "on-a-0-4000-0"))
    assert cluster.grew(gang, generation)
    cluster.release(("other", "on-a-0-4000-1"))
    assert leaf_of(a_pass(cluster, [gang], before=first).placements[0]) == "a"


def test_many_changes_are_not_told_apart() -> None:
    cluster = leaves(1)
    elsewhere = replace(WORKER, selector=(("zone", "mars"),))
    for _ in range(100):
        cluster.hold(("other", "p"), "a-0", WORKER)
        cluster.release(("other", "p"))

    assert cluster.grew(a_gang(1, members=members(1, elsewhere)), 0)
    assert not cluster.grew(a_gang(1, members=members(1, elsewhere)), cluster.generation - 1)


def test_remembered_failure_does_not_outlive_a_change_of_the_gang() -> None:
    cluster = leaves(1)
    first = a_pass(cluster, [a_gang(3)])

    assert a_pass(cluster, [a_gang(2)], before=first).placements


def test_late_members_are_served_before_gangs_of_higher_priority() -> None:
    cluster = leaves(1)
    started = a_gang(1, name="started")
    started = bound(cluster, started, a_pass(cluster, [started]).placements[0])
    grown = replace(started, members=(*started.members, *members(1, gang="late")))

    found = a_pass(cluster, [a_gang(1, name="important", priority=99), grown])

    assert [placement.gang[1] for placement in found.placements] == ["started"]


def test_members_that_were_bound_elsewhere_in_the_domain_move_the_other_seats() -> None:
    cluster = leaves(2)
    gang = a_gang(members=(*members(1, SERVER, "ps"), *members(3)), constraint=IN_ONE_LEAF)
    first = a_pass(cluster, [gang])
    seats = {seat.member: seat for seat in first.placements[0].seats}
    pinned = replace(gang, members=tuple(replace(one, pinned=domain({LEAF: "a"})) for one in gang.members))
    wrong = next(name for name in ("a-0", "a-1") if name != seats["bert-ps-0"].node)
    cluster.hold(("ml", "bert-ps-0"), wrong, SERVER)
    server = replace(pinned.members[0], node=wrong)

    a_pass(cluster, [replace(pinned, members=(server, *pinned.members[1:]))], before=first)

    held = [seat.node for seat in cluster.seats(("ml", "bert"))]
    assert sorted([*held, wrong]) == ["a-0", "a-0", "a-1", "a-1"]


def test_pods_that_are_pinned_keep_their_room_although_one_of_them_lost_its_own() -> None:
    cluster = leaves(1)
    gang = a_gang(2)
    first = a_pass(cluster, [gang])
    occupy(cluster, "a-0", 1)
    pinned = replace(gang, members=tuple(replace(one, pinned=domain({LEAF: "a"})) for one in gang.members))

    found = a_pass(cluster, [pinned, a_gang(1, name="next", since=1)], before=first)

    assert [shortfall.gang[1] for shortfall in found.shortfalls] == ["bert", "next"]
    assert len(cluster.seats(gang.key)) == 1


def test_whole_gang_of_lower_priority_leaves_for_one_of_higher() -> None:
    cluster = leaves(2)
    low = running(cluster, 4, "low", since=1)

    found = a_pass(cluster, [a_gang(2, name="high", priority=10)], running=[low])

    assert [one.victims for one in found.preemptions] == [(("ml", "low"),)]
    assert found.preemptions[0].domain == domain({LEAF: "a"})
    assert found.shortfalls[0].gang == ("ml", "high")


def test_equal_priority_preempts_nothing_and_neither_does_the_policy_never() -> None:
    cluster = leaves(1)
    low = running(cluster, 2, "low", priority=10)

    assert not a_pass(cluster, [a_gang(2, name="equal", priority=10)], running=[low]).preemptions
    assert not a_pass(cluster, [a_gang(2, name="never", priority=99, preempts=False)], running=[low]).preemptions
    assert a_pass(cluster, [a_gang(2, name="high", priority=11)], running=[low]).preemptions


def test_fewest_victims_are_taken_and_of_equal_ones_the_youngest() -> None:
    cluster = leaves(2)
    gangs = [
        running(cluster, 1, "old", since=1),
        running(cluster, 1, "young", since=3),
        running(cluster, 1, "middle", since=2),
        running(cluster, 1, "oldest", since=0),
    ]

    one = a_pass(cluster, [a_gang(1, name="high", priority=10)], running=gangs)
    two = a_pass(cluster, [a_gang(2, name="high", priority=10)], running=gangs)

    assert one.preemptions[0].victims == (("ml", "young"),)
    assert two.preemptions[0].victims == (("ml", "young"), ("ml", "middle"))


def test_domain_with_the_lowest_highest_victim_is_taken_also_with_more_victims() -> None:
    cluster = leaves(1, 1)
    middle = running(cluster, 2, "middle", priority=5)
    low = [running(cluster, 1, f"low-{index}", priority=1) for index in range(2)]

    found = a_pass(cluster, [a_gang(2, name="high", priority=10)], running=[middle, *low])

    assert found.preemptions[0].domain == domain({LEAF: "b"})
    assert set(found.preemptions[0].victims) == {("ml", "low-0"), ("ml", "low-1")}


def test_preference_alone_preempts_nothing() -> None:
    cluster = leaves(1, 1)
    low = running(cluster, 1, "low", members=members(1, gang="low"))
    other = "b-0" if low.members[0].node == "a-0" else "a-0"
    occupy(cluster, other, 1)  # one place in each leaf
    high = a_gang(2, BEST_IN_ONE_LEAF, name="high", priority=10)

    waits = a_pass(cluster, [high], now=1.0, running=[low])
    spread = a_pass(cluster, [high], now=30.0, before=waits, running=[low])

    assert waits.placements == waits.preemptions == spread.preemptions == ()
    assert [placement.leaves for placement in spread.placements] == [2]


def test_gang_that_fits_nowhere_preempts_also_if_it_only_prefers_a_leaf() -> None:
    cluster = leaves(1, 1)
    low = running(cluster, 1, "low", members=members(1, gang="low"))
    other = "b-0" if low.members[0].node == "a-0" else "a-0"
    occupy(cluster, other, 2)  # one place in all

    found = a_pass(cluster, [a_gang(2, BEST_IN_ONE_LEAF, name="high", priority=10)], now=1.0, running=[low])

    assert [one.victims for one in found.preemptions] == [(("ml", "low"),)]


NOWHERE = NodeTerm((Requirement("zone", Comparison("In"), ("mars",)),))
PORT = HostPort(8080)


@pytest.mark.parametrize(
    "lack",
    [
        {"unseen": (Unseen.AFFINITY,)},
        {"unseen": (Unseen.CLAIMS, Unseen.VOLUMES)},
        {"selector": (("zone", "mars"),)},
        {"affinity": (AffinityTerm(NOWHERE),)},
        {"requests": (*WORKER.requests, ("acme.com/qpu", 1))},
        {"ports": (PORT,)},
    ],
    ids=str,
)
def test_nothing_leaves_for_a_gang_that_the_scheduler_would_not_put_there(lack: dict[str, object]) -> None:
    """A pod of no gang has the port on every node."""
    cluster = leaves(2)
    low = running(cluster, 4, "low")
    for node in ("a-0", "a-1"):
        occupy(cluster, node, 1, Shape((("pods", 1),), ports=(PORT,)))
    high = a_gang(name="high", priority=10, members=members(2, replace(WORKER, **lack), gang="high"))  # type: ignore[arg-type]

    result = a_pass(cluster, [high], running=[low])

    assert (result.placements, result.preemptions) == ((), ())
    assert result.shortfalls[0].unseen == lack.get("unseen", ())


@pytest.mark.parametrize(
    "change",
    [{"taints": (Taint("maintenance"),)}, {"taints": (Taint("node.kubernetes.io/unschedulable"),)}, {"ready": False}],
    ids=str,
)
def test_nothing_leaves_nodes_that_take_no_pods_of_the_gang(change: dict[str, object]) -> None:
    cluster = leaves(2)
    low = running(cluster, 4, "low")
    for node in list(cluster.nodes.values()):
        cluster.set_node(replace(node, **change))  # type: ignore[arg-type]

    assert a_pass(cluster, [a_gang(2, name="high", priority=10)], running=[low]).preemptions == ()


def test_gang_that_could_evict_nothing_does_not_say_what_only_the_scheduler_knows() -> None:
    cluster = leaves(1)
    low = running(cluster, 2, "low", priority=10)
    shape = replace(WORKER, unseen=(Unseen.CLAIMS,))
    equal = a_gang(name="equal", priority=10, members=members(1, shape, gang="equal"))

    assert a_pass(cluster, [equal], running=[low]).shortfalls[0].unseen == ()


def test_pods_of_no_gang_are_not_preempted() -> None:
    cluster = leaves(1, 1)
    occupy(cluster, "a-0", 1)
    low = [running(cluster, 1, "low"), running(cluster, 2, "other-leaf", priority=10)]

    assert not a_pass(cluster, [a_gang(2, name="high", priority=10)], running=low).preemptions


def test_victims_that_leave_already_are_waited_for_and_no_more_are_taken() -> None:
    cluster = leaves(1, 1)
    gangs = [running(cluster, 2, "first"), running(cluster, 2, "second")]
    high = a_gang(2, name="high", priority=10)
    first = a_pass(cluster, [high], running=gangs)
    leaving = [replace(one, leaving=one.key in first.preemptions[0].victims) for one in gangs]

    then = a_pass(cluster, [high, a_gang(1, name="next", since=1)], before=first, running=leaving)

    assert len(first.preemptions[0].victims) == 1
    assert then.preemptions[0].victims == ()
    assert then.preemptions[0].domain == first.preemptions[0].domain


def test_room_that_victims_give_is_kept_for_the_gang_that_preempts() -> None:
    cluster = leaves(1)
    gangs = [running(cluster, 1, "low"), running(cluster, 1, "lower", priority=-1)]
    high, sneaky = a_gang(2, name="high", priority=10), a_gang(1, name="sneaky", since=9)
    first = a_pass(cluster, [high, sneaky], running=gangs)
    cluster.release(("ml", "low-worker-0"))
    leaving = [replace(gangs[1], leaving=True)]

    half = a_pass(cluster, [high, sneaky], before=first, running=leaving)
    cluster.release(("ml", "lower-worker-0"))
    whole = a_pass(cluster, [high, sneaky], before=half)

    assert half.placements == ()
    assert half.shortfalls[1].reason is Reason.HELD
    assert [placement.gang[1] for placement in whole.placements] == ["high"]


def test_two_gangs_that_preempt_have_victims_of_their_own() -> None:
    cluster = leaves(1, 1)
    gangs = [running(cluster, 2, f"low-{index}", since=index) for index in range(2)]

    found = a_pass(cluster, [a_gang(2, name=name, priority=10) for name in ("x", "y")], running=gangs)

    assert sorted(victim for one in found.preemptions for victim in one.victims) == [("ml", "low-0"), ("ml", "low-1")]


def test_gang_that_has_a_place_and_does_not_run_yet_may_be_preempted() -> None:
    cluster = leaves(1)
    low = a_gang(members=(*members(1, gang="low"), *to_come(1)), name="low")
    first = a_pass(cluster, [low])

    found = a_pass(cluster, [low, a_gang(2, name="high", priority=10)], before=first, running=[low])

    assert found.preemptions[0].victims == (("ml", "low"),)


def test_relaxed_gang_may_preempt_in_several_leaves() -> None:
    cluster = leaves(1, 1)
    gangs = [running(cluster, 2, f"low-{index}") for index in range(2)]

    found = a_pass(cluster, [a_gang(3, BEST_IN_ONE_LEAF, name="high", priority=10)], now=30, running=gangs)

    assert len(found.preemptions[0].victims) == 2
    assert found.preemptions[0].place.leaves == 2


def test_victims_that_free_a_place_only_together_are_found() -> None:
    cluster = leaves(1)
    occupy(cluster, "a-0", 1)
    gangs = []
    for index in range(2):
        gang = a_gang(name=f"small-{index}", members=members(1, SMALL, gang=f"small-{index}"))
        found = plan(cluster, gang)
        assert isinstance(found, Placement)
        gangs.append(bound(cluster, gang, found))

    preempted = a_pass(cluster, [a_gang(1, name="high", priority=10)], running=gangs).preemptions

    assert preempted[0].victims == (("ml", "small-0"), ("ml", "small-1"))


def test_pods_of_another_shape_are_not_put_where_pods_are_being_bound() -> None:
    cluster = leaves(2)
    first = a_gang(1, name="first")
    other = a_gang(members=members(1, SMALL, gang="small"), name="small", since=1)
    gangs = [first, a_gang(1, name="alike", since=1), other]

    placed = a_pass(cluster, gangs, apart=True)
    bound(cluster, first, placed.placements[0])
    bound(cluster, gangs[1], placed.placements[1])
    then = a_pass(cluster, [other], before=placed, apart=True)

    assert [placement.gang[1] for placement in placed.placements] == ["first", "alike"]
    assert placed.shortfalls[0].reason is Reason.BINDING
    assert [placement.gang[1] for placement in then.placements] == ["small"]
    assert len(a_pass(leaves(2), gangs).placements) == 3


def test_gang_that_only_waits_for_others_to_be_bound_preempts_nothing_and_goes_elsewhere_if_it_can() -> None:
    cluster = leaves(2)
    low = running(cluster, 1, "low")
    small = a_gang(members=members(1, SMALL, gang="small"), name="small", since=1, priority=1)

    waits = a_pass(cluster, [a_gang(1, name="first", priority=1), small], running=[low], apart=True)
    elsewhere = a_pass(leaves(1, 1), [a_gang(1, name="first", priority=1), small], apart=True)

    assert waits.preemptions == ()
    assert [leaf_of(placement) for placement in elsewhere.placements] == ["a", "b"]


def test_search_for_victims_is_bounded_in_one_pass() -> None:
    cluster = leaves(1, 1, 1)
    gangs = [running(cluster, 2, f"low-{index}") for index in range(3)]
    high = [a_gang(2, name=f"high-{index}", priority=10) for index in range(3)]

    found = a_pass(cluster, high, running=gangs, most_preemptions=2)

    assert len(found.preemptions) == 2


def test_search_that_was_in_vain_is_not_made_again_for_a_gang_of_the_same_kind() -> None:
    cluster = leaves(1, 1)
    occupy(cluster, "a-0", 1)
    gangs = [running(cluster, 1, "low"), running(cluster, 2, "equal", priority=10)]
    in_vain = [a_gang(2, name=f"large-{index}", priority=10) for index in range(3)]

    found = a_pass(
        cluster, [*in_vain, a_gang(1, name="small", since=9, priority=10)], running=gangs, most_preemptions=2
    )

    assert [one.gang[1] for one in found.preemptions] == ["small"]


def test_gang_that_needs_the_place_of_pods_of_no_gang_keeps_no_room_from_others() -> None:
    """They may be of a Deployment, which never ends: everything behind the gang would wait for ever."""
    cluster = leaves(2)
    cluster.hold(("other", "server"), "a-0", WORKER, plain=True)
    occupy(cluster, "a-1", 1)
    whole, small = a_gang(4, name="whole"), a_gang(1, name="small", since=1)

    found = a_pass(cluster, [whole, small], now=1000)
    assert [placement.gang for placement in found.placements] == [small.key]
    assert [(shortfall.gang, shortfall.reason) for shortfall in found.shortfalls] == [(whole.key, Reason.NO_ROOM)]

    cluster.release(("other", "server"))
    cluster.hold(("ml", "of-a-gang"), "a-0", WORKER)
    cluster.unreserve(small.key)
    assert [one.reason for one in a_pass(cluster, [whole, small], now=1000).shortfalls] == [Reason.NO_ROOM, Reason.HELD]


def test_room_beside_pods_of_no_gang_is_kept_for_few_shapes() -> None:
    """Each gang that waits may be unlike all others: on a thousand nodes the room of one takes 8 KB."""
    cluster = leaves(1)
    cluster.hold(("other", "plain"), "a-0", WORKER, plain=True)
    for number in range(300):
        cluster.slots_beside_plain(Shape((("cpu", 1000 + number), ("pods", 1))), ())

    assert len(cluster._beside_plain) == 256


def test_gang_that_only_a_node_without_daemons_would_hold_keeps_no_room_from_others() -> None:
    """It would wait at the head of the queue for ever, and everything behind it."""
    cluster = leaves(1)
    daemon = Shape((("cpu", 500), ("pods", 1)))
    cluster.hold(("kube-system", "agent"), "a-0", daemon, stays=True)
    whole = a_gang(members=members(1, Shape((("cpu", 16_000), ("pods", 1)))), name="whole")
    small = a_gang(1, name="small", since=1)
    found = a_pass(cluster, [whole, small], now=1000)

    assert [placement.gang for placement in found.placements] == [small.key]
    assert [(shortfall.gang, shortfall.reason) for shortfall in found.shortfalls] == [(whole.key, Reason.TOO_LARGE)]

    cluster.release(("kube-system", "agent"))
    assert [one.reason for one in a_pass(cluster, [whole, small], now=1000).shortfalls] == [Reason.NO_ROOM]
    cluster.hold(("kube-system", "agent"), "a-0", daemon, stays=True)
    cluster.remove_node("a-0")
    cluster.set_node(a_node("a-0", "a"))
    assert [one.reason for one in a_pass(cluster, [whole], now=1000).shortfalls] == [Reason.TOO_LARGE]
