"""A leader that dies at any write, before or after it is done, has a successor that reaches the same end."""

from collections.abc import Callable

import pytest

from railnet.apiserver.request import JsonObject, Request
from railnet.gangs import evictions, planning
from tests.railnet.controllers.gangs.eviction_rounds import take
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader, path, work

pytestmark = pytest.mark.slow
Story = Callable[["Succession"], None]
WRITES = ("patch", "create")


class Died(BaseException):
    """The process of the leader has ended."""


class Succession:
    """One leader after the other: the first dies at one write.

    Attributes:
        writes: how many writes there were.
        at_death: called before the next leader begins.
    """

    def __init__(self, dies_at: int | None, *, done: bool) -> None:
        self.cluster = GangCluster()
        self.writes = 0
        self.at_death: Callable[[], object] = lambda: None
        self._dies_at, self._done = dies_at, done
        self.cluster.interfere = self._before
        self.cluster.answered = self._after
        self._leader = Leader(self.cluster)

    def settle(self) -> None:
        try:
            self._leader.settle()
        except Died:
            self.at_death()
            self._leader = Leader(self.cluster)
            self._leader.settle()

    def _before(self, request: Request) -> None:
        if request.verb.right in WRITES:
            self.writes += 1
            if self.writes == self._dies_at and not self._done:
                raise Died

    def _after(self, request: Request) -> None:
        if request.verb.right in WRITES and self.writes == self._dies_at and self._done:
            raise Died


def leaves_of_gangs(cluster: GangCluster) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for pod, leaf in cluster.leaves().items():
        found.setdefault(pod.split("-")[0], set()).add(leaf)
    return found


def two_gangs(story: Succession) -> None:
    for number in range(8):
        story.cluster.add_node(f"{'ab'[number % 2]}-{number}", "ab"[number % 2])
    story.cluster.add_gang("bert", 3)
    story.cluster.add_gang("gpt", 4)
    story.settle()
    story.cluster.schedule()
    story.settle()


def spread_over_leaves(story: Succession) -> None:
    """A gang that is larger than a leaf: each pod has the leaf of its rank."""
    for number in range(8):
        story.cluster.add_node(f"{'ab'[number % 2]}-{number}", "ab"[number % 2])
    story.cluster.add_gang("bert", 6, constraint='{"preferred":{"topologies":[{"key":"railnet.io/leaf"}]}}')
    story.settle()
    story.cluster.schedule()
    story.settle()


def place_is_taken(story: Succession) -> None:
    for leaf in "ab":
        for number in range(4):
            story.cluster.add_node(f"{leaf}-{number}", leaf)
    story.cluster.add_gang("bert", 4)
    story.settle()
    take(story.cluster, "a-0")
    for _ in range(4):
        story.cluster.schedule()
        story.settle()
        story.cluster.now += evictions.STUCK_SECONDS + 1
        story.settle()
        story.cluster.end_leaving()
        story.cluster.make_again("bert", 4)
        story.settle()


def place_is_kept(story: Succession) -> None:
    for leaf in "ab":
        for number in range(4):
            story.cluster.add_node(f"{leaf}-{number}", leaf)
    story.cluster.add_gang("bert", 4)
    for _ in range(4):
        story.settle()
        story.cluster.schedule()
        story.settle()
        story.cluster.now += evictions.STUCK_SECONDS + 1
        story.settle()
        story.cluster.end_leaving()
        story.cluster.make_again("bert", 4)
        story.settle()
        story.cluster.schedule()


def gives_way(story: Succession) -> None:
    for number in range(4):
        story.cluster.add_node(f"a-{number}", "a")
    story.cluster.add_gang("low", 4, priority=1)
    story.settle()
    story.cluster.schedule()
    story.cluster.add_gang("high", 4, priority=2)
    for _ in range(4):
        story.settle()
        story.cluster.end_leaving()
        story.cluster.make_again("low", 4, priority=1)
        story.settle()
        story.cluster.schedule()


def comes_in_stages(story: Succession) -> None:
    """A gang becomes whole, and then its last member goes."""
    for leaf in "ab":
        for number in range(3):
            story.cluster.add_node(f"{leaf}-{number}", leaf)
    owner = story.cluster.add_stateful_set("dag", 3)
    for rank in range(3):
        story.cluster.add_pod(f"dag-{rank}", "dag", owner=owner)
        story.settle()
        story.cluster.schedule()
    story.settle()
    story.cluster.now += planning.MEMBER_SECONDS + 5
    story.cluster.remove(path("dag-2"))
    story.settle()
    story.settle()
    story.cluster.add_pod("dag-2", "dag", owner=owner)
    story.settle()
    story.cluster.schedule()


ENDS: list[tuple[Story, dict[str, set[str | None]], list[str]]] = [
    (two_gangs, {"bert": {"a"}, "gpt": {"b"}}, []),
    (spread_over_leaves, {"bert": {"a", "b"}}, []),
    (place_is_taken, {"bert": {"b"}, "foreign": {None}}, []),
    (comes_in_stages, {"dag": {"a"}}, []),
    (gives_way, {"high": {"a"}, "low": {None}}, ["low"] * 4),
]


@pytest.mark.parametrize(("story", "leaves", "gated"), ENDS, ids=lambda one: getattr(one, "__name__", ""))
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_leader_that_dies_at_any_write_has_the_same_end(
    story: Story, leaves: dict[str, set[str | None]], gated: list[str], *, done: bool
) -> None:
    whole = Succession(None, done=done)
    story(whole)
    assert whole.writes
    for dies_at in (*range(1, whole.writes + 1), None):
        one = Succession(dies_at, done=done)
        story(one)

        assert leaves_of_gangs(one.cluster) == leaves, f"died at write {dies_at}"
        assert [pod.split("-")[0] for pod in one.cluster.gated()] == gated, f"died at write {dies_at}"
        assert len(one.cluster.nodes()) == len(one.cluster.pods()) - len(gated), f"died at write {dies_at}"


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_gang_whose_room_is_taken_while_no_leader_works_ends_whole(*, done: bool) -> None:
    for dies_at in range(1, 5):
        one = Succession(dies_at, done=done)
        one.at_death = lambda cluster=one.cluster: take(cluster, "a-3")  # type: ignore[misc]
        place_is_kept(one)

        assert len(leaves_of_gangs(one.cluster)["bert"]) == 1, f"died at write {dies_at}"
        assert one.cluster.gated() == [], f"died at write {dies_at}"
        assert len(one.cluster.nodes()) == 5, f"died at write {dies_at}"


def test_leader_that_does_not_know_that_it_is_followed_changes_nothing() -> None:
    """It decided before the other one, and its patches come after the other one's."""
    cluster = GangCluster()
    for leaf in "ab":
        for number in range(4):
            cluster.add_node(f"{leaf}-{number}", leaf)
    cluster.add_gang("bert", 4, least=4)
    old = Leader(cluster)
    old.learn()
    old.gangs.reconcile("all gangs")
    take(cluster, "a-0")
    Leader(cluster).settle()
    assert set(cluster.leaves().values()) == {None, "b"}
    before = cluster.pods()
    work(old.gangs.writes.queue, old.gangs.writes.reconcile)

    assert cluster.pods() == before
    assert (cluster.requests["patch pods/status"], cluster.requests["patch pods"]) == (8, 4)


def test_next_leader_takes_back_nominations_of_a_gang_that_has_no_place_any_more() -> None:
    """The leader before it died when it had nominated the pods, and had removed no gate."""
    cluster = GangCluster()
    for number in range(4):
        cluster.add_node(f"a-{number}", "a")
    cluster.add_gang("bert", 4, least=4)
    for number in range(4):
        nominate(cluster, f"bert-{number}", f"a-{number}")
    take(cluster, "a-0")
    Leader(cluster).settle()

    assert [pod["status"].get("nominatedNodeName") for pod in cluster.pods().values() if is_gated(pod)] == [None] * 4


def test_next_leader_goes_on_with_pods_that_are_nominated() -> None:
    cluster = GangCluster()
    for number in range(4):
        cluster.add_node(f"a-{number}", "a")
    cluster.add_gang("bert", 4, least=4)
    nominate(cluster, "bert-0", "a-3")
    Leader(cluster).settle()

    assert cluster.gated() == []
    assert cluster.pods()["bert-0"]["status"]["nominatedNodeName"] == "a-0"


def test_next_leader_asks_for_nothing_when_all_runs() -> None:
    story = Succession(None, done=False)
    two_gangs(story)
    story.cluster.requests.clear()
    story.cluster.now += planning.MEMBER_SECONDS
    Leader(story.cluster).settle()

    assert not story.cluster.requests
    assert len(story.cluster.events) == 2


def nominate(cluster: GangCluster, pod: str, node: str) -> None:
    cluster.change(pod, lambda found: found["status"].update(nominatedNodeName=node))


def is_gated(pod: JsonObject) -> bool:
    return bool(pod["spec"].get("schedulingGates"))
