"""A pod keeps the node that it was given until it is bound or gone: late members, other gangs and new leaders take no place of it."""

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railnet.gangs.planning import MEMBER_SECONDS
from tests.railnet.controllers.gangs.gang_cluster import IN_ONE_LEAF, LEAST, GangCluster, Leader, path
from tests.railnet.controllers.gangs.late_scheduler import bind, seat_of, unbound

SPREAD = '{"preferred":{"topologies":[{"key":"railnet.io/leaf"}]}}'
CONSTRAINTS = (IN_ONE_LEAF, SPREAD, None)
Draw = Callable[[st.SearchStrategy[Any]], Any]


def one_leaf(nodes: int) -> GangCluster:
    cluster = GangCluster()
    for number in range(nodes):
        cluster.add_node(f"a-{number:02}", "a")
    return cluster


def planned_nodes(leader: Leader, gang: str = "bert") -> Counter[str]:
    """Return for how many pods of a gang room is kept on each node."""
    return Counter(seat.node for seat in leader.gangs._planning.observed.cluster.seats(("ml", gang)))


def used_nodes(cluster: GangCluster, gang: str = "bert") -> Counter[str]:
    return Counter(node for name, node in cluster.nodes().items() if name.startswith(f"{gang}-"))


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=["required", "preferred", "anywhere"])
@pytest.mark.slow
def test_pods_that_come_and_are_bound_late_use_the_nodes_that_were_planned(constraint: str | None) -> None:
    """32 pods, two to a node: a Job's controller makes them in batches, in no order, and the scheduler binds some meanwhile."""
    cluster, order = one_leaf(24), random.Random(7)  # noqa: S311 - no secret
    owner = cluster.add_stateful_set("bert", 32, gpus=4, constraint=constraint)
    leader, ranks, planned = Leader(cluster), list(range(32)), Counter[str]()
    order.shuffle(ranks)
    while ranks or unbound(cluster, "bert"):
        batch, ranks = ranks[:3], ranks[3:]
        for rank in batch:
            cluster.add_pod(f"bert-{rank}", "bert", owner=owner, gpus=4, constraint=constraint)
        leader.settle()
        planned = planned or planned_nodes(leader)
        for name in order.sample(unbound(cluster, "bert"), k=min(2, len(unbound(cluster, "bert")))):
            assert bind(cluster, name)

    assert len(planned) == 16
    assert used_nodes(cluster) == planned


def test_room_that_appears_on_another_node_moves_no_pod_that_has_its_node() -> None:
    cluster = one_leaf(4)
    cluster.add_gang("old", 1, gpus=8)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    owner = cluster.add_stateful_set("bert", 4, gpus=4)
    for rank in (0, 1):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, gpus=4)
    leader.settle()
    cluster.remove(path("old-0"))
    for rank in (2, 3):
        cluster.add_pod(f"bert-{rank}", "bert", owner=owner, gpus=4)
    leader.settle()

    pods = cluster.pods()
    assert [seat_of(pods[f"bert-{rank}"]) for rank in range(4)] == ["a-01", "a-01", "a-02", "a-02"]


def test_new_leader_keeps_the_nodes_that_pods_were_given() -> None:
    """What it knows of them is in the pods: the nodes before theirs are free by now."""
    cluster = one_leaf(6)
    cluster.add_gang("old", 2, gpus=8)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    cluster.add_gang("bert", 4, gpus=4)
    leader.settle()
    before = planned_nodes(leader)
    cluster.remove(path("old-0"))
    cluster.remove(path("old-1"))
    leader = Leader(cluster)
    leader.settle()

    assert before == planned_nodes(leader) == Counter({"a-02": 2, "a-03": 2})


def test_new_leader_gives_no_pod_the_node_of_a_pod_of_another_gang() -> None:
    """The pods of the first gang are of an older version, which wrote no nodes: they are put beside the second one's."""
    cluster = one_leaf(2)
    cluster.add_gang("ant", 2, gpus=4)
    leader = Leader(cluster)
    leader.settle()
    cluster.add_gang("bee", 2, gpus=4)
    leader.settle()
    assert planned_nodes(leader, "bee") == Counter({"a-01": 2})
    for name in ("ant-0", "ant-1"):
        written = {"railnet.io/placement": '{"domain":{"railnet.io/leaf":"a"},"attempt":1}'}
        cluster.change(name, lambda pod, written=written: pod["metadata"]["annotations"].update(written))
    for name in ("bee-0", "bee-1"):
        written = {"railnet.io/placement": '{"domain":{"railnet.io/leaf":"a"},"attempt":1,"node":"a-00"}'}
        cluster.change(name, lambda pod, written=written: pod["metadata"]["annotations"].update(written))
    leader = Leader(cluster)
    leader.settle()

    assert (planned_nodes(leader, "ant"), planned_nodes(leader, "bee")) == (Counter({"a-01": 2}), Counter({"a-00": 2}))


def test_gang_that_contradicts_itself_keeps_the_places_of_its_placed_pods() -> None:
    cluster = one_leaf(2)
    cluster.add_gang("bert", 2, gpus=8, least=2)
    leader = Leader(cluster)
    leader.settle()
    cluster.add_pod("bert-2", "bert", least=3)
    cluster.add_gang("other", 1, gpus=8)
    leader.settle()
    assert planned_nodes(leader) == Counter({"a-00": 1, "a-01": 1})
    assert cluster.gated() == ["bert-2", "other-0"]
    leader = Leader(cluster)
    leader.settle()
    assert planned_nodes(leader) == Counter({"a-00": 1, "a-01": 1})
    assert cluster.gated() == ["bert-2", "other-0"]

    cluster.change("bert-2", lambda pod: pod["metadata"]["labels"].update({LEAST: "2"}))
    cluster.remove(path("bert-0"))
    leader.settle()
    assert cluster.gated() == ["other-0"]


def test_gang_that_is_being_evicted_keeps_the_places_of_its_pods_until_they_are_gone() -> None:
    """The scheduler may bind them until then: without it, they and the pods of the next gang would have the same place."""
    cluster = one_leaf(2)
    cluster.add_gang("low", 2, gpus=8, priority=1)
    leader = Leader(cluster)
    leader.settle()
    cluster.refuse("create", [429] * 100)
    cluster.add_gang("high", 2, gpus=8, priority=2)
    leader.settle()

    assert planned_nodes(leader, "low") == Counter({"a-00": 1, "a-01": 1})
    assert cluster.gated() == ["high-0", "high-1"]
    leader = Leader(cluster)
    leader.settle()
    assert planned_nodes(leader, "low") == Counter({"a-00": 1, "a-01": 1})
    assert cluster.gated() == ["high-0", "high-1"]


def test_gang_whose_members_never_came_keeps_the_places_of_its_pods_until_they_are_gone() -> None:
    cluster = one_leaf(4)
    owner = cluster.add_stateful_set("dag", 4, least=4)
    cluster.add_pod("dag-0", "dag", owner=owner, least=4)
    leader = Leader(cluster)
    leader.settle()
    seat = seat_of(cluster.pods()["dag-0"])
    cluster.add_gang("next", 4)
    leader.settle()
    cluster.now += MEMBER_SECONDS
    cluster.refuse("create", [429] * 100)
    leader.settle()

    assert planned_nodes(leader, "dag") == Counter({seat: 1})
    assert len(cluster.gated()) == 4


def test_seat_whose_node_is_gone_is_lost_in_words() -> None:
    cluster = one_leaf(3)
    cluster.add_gang("bert", 2, gpus=8)
    leader = Leader(cluster)
    leader.settle()
    cluster.remove("/api/v1/nodes/a-00")
    leader.settle()
    leader.settle()

    assert [(reason, about) for reason, about, _ in cluster.events if reason == "GangSeatLost"] == [
        ("GangSeatLost", "Job/bert")
    ]
    (text,) = [text for reason, _, text in cluster.events if reason == "GangSeatLost"]
    assert text == (
        "1 member lost the node before the scheduler used it: pod bert-0 was given a-00, which is gone; room is kept for it on a-02, and the scheduler may "
        "choose another node of the domain"
    )
    assert planned_nodes(leader) == Counter({"a-01": 1, "a-02": 1})
    assert bind(cluster, "bert-0")
    assert bind(cluster, "bert-1")
    assert used_nodes(cluster) == Counter({"a-01": 1, "a-02": 1})


def test_seat_on_a_node_that_takes_no_pods_any_more_is_lost_in_words() -> None:
    cluster = one_leaf(2)
    cluster.add_gang("bert", 2, gpus=8)
    leader = Leader(cluster)
    leader.settle()
    about = "/api/v1/nodes/a-01"
    cluster.put(about, {**cluster.objects[about], "spec": {"unschedulable": True}})
    leader.settle()
    (text,) = [text for reason, _, text in cluster.events if reason == "GangSeatLost"]

    assert "pod bert-1 was given a-01, which does not take it any more (not ready, cordoned, or" in text
    assert "its domain has no other room for it now" in text


class World:
    """Jobs whose pods come in batches, in any order, while leaders change and gangs end."""

    def __init__(self, sizes: list[int], plain: int, jobs: list[tuple[int, int]], constraint: str | None) -> None:
        self.cluster = GangCluster()
        for number in range(plain):
            self.cluster.add_node(f"plain-{number}")
        for leaf, size in enumerate(sizes):
            for number in range(size):
                self.cluster.add_node(f"{leaf}-{number}", str(leaf))
        self.leader = Leader(self.cluster)
        self.to_make: dict[str, list[str]] = {}
        self._make: dict[str, Callable[[str], None]] = {}
        for index, (pods, gpus) in enumerate(jobs):
            gang = f"g{index}"
            owner = self.cluster.add_stateful_set(gang, pods, gpus=gpus, constraint=constraint)
            self.to_make[gang] = [f"{gang}-{rank}" for rank in range(pods)]
            self._make[gang] = partial(self.cluster.add_pod, gang=gang, owner=owner, gpus=gpus, constraint=constraint)

    def make(self, gang: str, draw: Draw) -> None:
        for _ in range(min(draw(st.integers(1, 3)), len(self.to_make[gang]))):
            name = draw(st.sampled_from(self.to_make[gang]))
            self.to_make[gang].remove(name)
            self._make[gang](name)

    def bind(self, gang: str, draw: Draw) -> None:
        if waiting := unbound(self.cluster, gang):
            self.bind_pod(draw(st.sampled_from(waiting)))

    def lead(self, gang: str, draw: Draw) -> None:
        self.leader = Leader(self.cluster)

    def end(self, gang: str, draw: Draw) -> None:
        for name in list(self.cluster.pods()):
            if name.startswith(f"{gang}-"):
                self.cluster.remove(path(name))

    def bind_pod(self, name: str) -> None:
        """Bind a pod; its node is the one that it was given."""
        seat = seat_of(self.cluster.pods()[name])
        assert bind(self.cluster, name)
        assert self.cluster.nodes()[name] == seat


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 8), min_size=1, max_size=3),
    plain=st.sampled_from((0, 0, 3)),
    jobs=st.lists(st.tuples(st.integers(4, 12), st.sampled_from((2, 4, 8))), min_size=1, max_size=3),
    constraint=st.sampled_from(CONSTRAINTS),
    steps=st.lists(st.sampled_from(("make", "make", "bind", "bind", "bind", "lead", "end")), min_size=10, max_size=40),
    data=st.data(),
)
def test_every_pod_is_bound_to_the_node_that_it_was_given(
    sizes: list[int],
    plain: int,
    jobs: list[tuple[int, int]],
    constraint: str | None,
    steps: list[str],
    data: st.DataObject,
) -> None:
    """Nothing else takes a seat: no late member, no other gang, no new leader, in whatever order the scheduler binds."""
    world = World(sizes, plain, jobs, constraint)
    for step in steps:
        getattr(world, step)(data.draw(st.sampled_from(sorted(world.to_make))), data.draw)
        world.leader.settle()
    for gang in world.to_make:
        for name in unbound(world.cluster, gang):
            world.bind_pod(name)
