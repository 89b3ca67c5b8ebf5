"""Gangs for which a step of a pass fails by an error of Railnet: they stay as they are and are tried again, and all other gangs go on."""

from collections.abc import Callable

import pytest

from railnet.gangs.life_cycle import GangAction
from railnet.gangs.placement.gang import GangKey
from railnet.gangs.planning_pass_state import PlanningPass
from tests.railnet.controllers.gangs.eviction_rounds import take
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, Leader

BAD = ("ml", "bad")


def fail(leader: Leader, action: GangAction, key: GangKey = BAD, *, after: bool = False) -> Callable[[], None]:
    """Have an action fail for one gang, also after it was done; return what ends that."""
    acts = leader.gangs._planning._actions.acts
    done = acts[action]

    def failing(of: GangKey, current: PlanningPass) -> None:
        if of != key or after:
            done(of, current)
        if of == key:
            raise RuntimeError("an error of Railnet")

    acts[action] = failing
    return lambda: acts.update({action: done})


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("after", [False, True], ids=["before it is done", "after it is done"])
@pytest.mark.parametrize("action", [GangAction.PLAN, GangAction.ADMIT])
def test_gang_of_which_an_action_fails_stops_no_other_gang(
    cluster: GangCluster, caplog: pytest.LogCaptureFixture, action: GangAction, after: bool
) -> None:
    cluster.add_gang("bad", 4, least=4)
    cluster.add_gang("good", 4, least=4)
    leader = Leader(cluster)
    mend = fail(leader, action, after=after)
    leader.settle()
    assert cluster.gated() == [f"bad-{rank}" for rank in range(4)]
    assert errors(caplog) == [
        "a step for gang ml/bad failed, so it stays as it is and is tried again in 1 s; report this error, and delete its job if it waits for long"
    ]
    assert "an error of Railnet" in caplog.text
    assert {name: leader.gangs.figures()[name] for name in ("waiting", "placed", "failed")} == {
        "waiting": 0,
        "placed": 1,
        "failed": 1,
    }

    mend()
    leader.settle()
    assert len(cluster.gated()) == 4  # until the pause is over
    cluster.now += 1
    leader.settle()
    assert cluster.gated() == []
    assert leader.gangs.figures()["failed"] == 0


def test_gang_of_which_an_action_says_no_place_fails_stops_no_other_gang(cluster: GangCluster) -> None:
    cluster.add_gang("bad", 5, least=5)
    cluster.add_gang("good", 4, least=4)
    leader = Leader(cluster)
    fail(leader, GangAction.SAY_REFUSED)
    leader.settle()

    assert {name[:3] for name in cluster.gated()} == {"bad"}
    assert not [about for _, about, _ in cluster.events if about == "Job/bad"]


@pytest.mark.slow
def test_pauses_between_tries_grow_and_a_change_of_its_pods_shortens_none(
    cluster: GangCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_gang("bad", 4, least=4)
    leader = Leader(cluster)
    fail(leader, GangAction.ADMIT)
    for number in range(600):
        cluster.change("bad-0", lambda pod, number=number: pod["status"].update(message=str(number)))
        leader.settle()
        cluster.now += 1

    assert [text.split("in ")[-1].split(" s;")[0] for text in errors(caplog)] == [
        *("1", "2", "4", "8", "16", "32", "64", "128", "256"),
        "300",
    ]


def test_gang_that_goes_away_while_it_fails_is_forgotten(cluster: GangCluster) -> None:
    cluster.add_gang("bad", 4, least=4)
    leader = Leader(cluster)
    fail(leader, GangAction.ADMIT)
    leader.settle()
    for name in cluster.pods():
        cluster.remove(f"/api/v1/namespaces/ml/pods/{name}")
    cluster.now += 1

    assert leader.settle() is None
    assert leader.gangs.figures()["failed"] == 0


def test_placed_gang_of_which_an_action_fails_keeps_its_places(cluster: GangCluster) -> None:
    cluster.add_gang("bad", 4, least=4, priority=1)
    leader = Leader(cluster)
    leader.settle()
    fail(leader, GangAction.PLAN)
    for number in range(4):
        take(cluster, f"b-{number}")
    cluster.change("bad-0", lambda pod: pod["status"].update(message="changed"))
    cluster.add_gang("high", 4, least=4, priority=10)
    leader.settle()

    assert len(cluster.gated()) == 4
    assert cluster.requests["create pods"] == 0
    seats = leader.gangs._planning.observed.cluster.seats(BAD)
    assert sorted(seat.node for seat in seats) == [f"a-{number}" for number in range(4)]


def test_gang_whose_eviction_fails_does_not_stop_others_from_giving_way(cluster: GangCluster) -> None:
    """The one of the lowest priority would be the first."""
    cluster.add_gang("bad", 4, least=4, priority=1)
    cluster.add_gang("good", 4, least=4, priority=2)
    leader = Leader(cluster)
    leader.settle()
    cluster.schedule()
    leader.settle()
    fail(leader, GangAction.EVICT)
    cluster.add_gang("high", 4, least=4, priority=10)
    leader.settle()
    leader.settle()

    leaving = {name for name, pod in cluster.pods().items() if "deletionTimestamp" in pod["metadata"]}
    assert leaving == {f"good-{rank}" for rank in range(4)}
