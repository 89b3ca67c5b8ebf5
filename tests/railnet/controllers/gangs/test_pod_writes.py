"""What is asked of the API server for one pod, and what is reported of it."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.request import Request
from railnet.controllers.gangs.pod_writes import PodWrites
from railnet.gangs.gate_removal_patch import Gated
from railnet.gangs.placement_annotation import Evicted, Placed
from railnet.gangs.planning_result import Admit, Annotate, Evict, Withdraw, Write, WriteOutcome
from railnet.objects.pod_name import PodName
from tests.railnet.controllers.cluster_in_memory import Refusal
from tests.railnet.controllers.gangs.gang_cluster import GangCluster, path

ADMIT = Admit(Gated("2", 0, selects=False, annotated=True), Placed((("railnet.io/leaf", "a"),), 1))
NOMINATE = ADMIT._replace(placed=Placed((("railnet.io/leaf", "a"),), 1, node="a-0"))
MARK = Annotate(Placed((), 1, Evicted.FAILED))


class Writing:
    def __init__(self, write: Write, status: int | None = None) -> None:
        self.cluster = GangCluster()
        self.cluster.add_job("bert", 1)
        self.cluster.add_pod("bert-0", "bert")
        self.outcomes: list[WriteOutcome] = []
        if status is not None:
            self.cluster.refuse("create" if isinstance(write, Evict) else "patch", [status])
        api = StreamingApiServer(self.cluster, lambda: "a-token", "test")
        self.writes = PodWrites(api, self.outcomes.append)
        self.pod = PodName("ml", "bert-0", self.cluster.pods()["bert-0"]["metadata"]["uid"])
        self.writes.put({self.pod: write})

    def work(self) -> None:
        self.writes.reconcile(self.pod)


@pytest.mark.parametrize("write", [ADMIT, NOMINATE, Withdraw(), MARK, Evict()])
def test_write_that_is_done_is_reported_and_not_done_again(write: Write) -> None:
    one = Writing(write)
    one.work()
    done = one.cluster.requests.copy()
    one.work()

    assert one.outcomes == [WriteOutcome(one.pod, write)]
    assert one.cluster.requests == done


@pytest.mark.parametrize(
    ("write", "status"),
    [
        *product([ADMIT, NOMINATE, Withdraw(), MARK, Evict()], [429, 500, 503]),
        *product([ADMIT, Withdraw(), MARK, Evict()], [403]),
    ],
)
def test_write_that_may_succeed_later_is_reported_and_kept(write: Write, status: int) -> None:
    one = Writing(write, status)
    with pytest.raises(RequestFailed):
        one.work()
    (outcome,) = one.outcomes
    one.work()

    assert (outcome.waits, outcome.forbidden) == (True, status == 403)
    assert one.outcomes[1:] == [WriteOutcome(one.pod, write)]


@pytest.mark.parametrize(
    ("write", "status"), [*product([ADMIT, Withdraw(), MARK, Evict()], [400, 409, 413, 422]), (NOMINATE, 409)]
)
def test_write_that_is_refused_is_reported_and_dropped(write: Write, status: int) -> None:
    one = Writing(write, status)
    one.work()
    one.work()
    (outcome,) = one.outcomes

    assert "refused" in outcome.refusal
    assert outcome.waits is False
    assert one.cluster.requests.total() == 1


@pytest.mark.parametrize("write", [ADMIT, NOMINATE, Withdraw(), MARK, Evict()])
def test_pod_that_is_gone_needs_nothing(write: Write) -> None:
    one = Writing(write)
    one.cluster.remove(path("bert-0"))
    one.work()

    assert one.outcomes == [WriteOutcome(one.pod, write)]


@pytest.mark.parametrize("write", [ADMIT, NOMINATE, Withdraw(), MARK, Evict()])
def test_another_pod_of_the_same_name_is_not_written(write: Write) -> None:
    one = Writing(write)
    one.cluster.remove(path("bert-0"))
    one.cluster.add_pod("bert-0", "bert")
    before = one.cluster.pods()
    one.work()

    assert one.cluster.pods() == before


def test_newer_write_replaces_one_that_waits() -> None:
    one = Writing(ADMIT)
    one.writes.put({one.pod: Evict()})
    one.work()

    assert dict(one.cluster.requests) == {"create pods": 1}


def test_mark_leaves_the_rest_of_the_pod_as_it_is() -> None:
    one = Writing(MARK)
    one.work()
    found: dict[str, Any] = one.cluster.pods()["bert-0"]

    assert found["metadata"]["annotations"]["railnet.io/placement"] == '{"domain":{},"attempt":1,"evicted":"failed"}'
    assert found["metadata"]["annotations"]["railnet.io/explain"] == "…"
    assert found["spec"]["schedulingGates"] == [{"name": "railnet.io/gang"}]


def test_pod_is_nominated_for_its_node_before_its_gate_is_removed() -> None:
    nominating = Writing(NOMINATE)
    gates: list[Any] = []

    def note(request: Request) -> None:
        pod = nominating.cluster.pods()["bert-0"]
        gates.append(
            (request.path.endswith("/status"), pod["status"].get("nominatedNodeName"), pod["spec"]["schedulingGates"])
        )

    nominating.cluster.answered = note
    nominating.work()

    assert gates == [(True, "a-0", [{"name": "railnet.io/gang"}]), (False, "a-0", [])]


def test_pod_that_has_changed_since_is_not_nominated() -> None:
    nominating = Writing(NOMINATE)
    nominating.cluster.change("bert-0", lambda pod: pod["metadata"]["annotations"].update(changed="yes"))
    nominating.work()

    assert "resourceVersion" in nominating.outcomes[0].refusal
    assert "nominatedNodeName" not in nominating.cluster.pods()["bert-0"]["status"]
    assert dict(nominating.cluster.requests) == {"patch pods/status": 1}


@pytest.mark.parametrize("status", [429, 500, 503, 403])
def test_pod_is_nominated_once_although_its_gate_is_removed_at_the_second_try(status: int) -> None:
    nominating = Writing(NOMINATE)
    refusals = [status]

    def interfere(request: Request) -> None:
        if not request.path.endswith("/status") and refusals:
            raise Refusal(refusals.pop(), "later")

    nominating.cluster.interfere = interfere
    with pytest.raises(RequestFailed):
        nominating.work()
    nominating.work()

    assert nominating.outcomes[1:] == [WriteOutcome(nominating.pod, NOMINATE)]
    assert dict(nominating.cluster.requests) == {"patch pods/status": 1, "patch pods": 2}


@pytest.mark.parametrize("status", [400, 403, 422])
def test_gate_is_removed_without_a_nomination_that_is_forbidden(status: int) -> None:
    """A role of an earlier version lacks the right, or a policy of others forbids it."""
    nominating = Writing(NOMINATE, status)
    nominating.work()

    assert nominating.outcomes == [WriteOutcome(nominating.pod, NOMINATE)]
    assert nominating.cluster.pods()["bert-0"]["spec"]["schedulingGates"] == []
    assert dict(nominating.cluster.requests) == {"patch pods/status": 1, "patch pods": 1}


def test_nomination_is_taken_back() -> None:
    withdrawing = Writing(Withdraw())
    withdrawing.cluster.change("bert-0", lambda pod: pod["status"].update(nominatedNodeName="a-0"))
    withdrawing.work()

    assert "nominatedNodeName" not in withdrawing.cluster.pods()["bert-0"]["status"]


def test_pod_that_an_earlier_leader_nominated_is_not_nominated_again() -> None:
    """Else leaders of which each dies after its first write would never remove the gate."""
    nominating = Writing(NOMINATE)
    nominating.writes.put({nominating.pod: NOMINATE._replace(gated=replace(NOMINATE.gated, nominated="a-0"))})
    nominating.work()

    assert dict(nominating.cluster.requests) == {"patch pods": 1}
