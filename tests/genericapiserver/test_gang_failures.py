"""Gangs in a new API server, while leaders die, requests fail, watches are cut, and others take the place that a gang was given."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.cluster.process import wait_until
from tests.genericapiserver.api import Api, JsonObject
from tests.genericapiserver.controllers import Controllers, die_until
from tests.genericapiserver.gang_cluster import (
    LEAF,
    SECONDS,
    STRANGERS,
    clear,
    events,
    gating,
    is_gated,
    leaf,
    leaves_of,
    messages,
    occupy,
    placements,
    required,
    runs,
)
from tests.genericapiserver.server import ApiServer
from tests.genericapiserver.stand_in_jobs import GROUP, JobController
from tests.genericapiserver.stand_in_nodes import Kubelets, Nodes
from tests.genericapiserver.stand_in_scheduler import Scheduler
from tests.stand_ins.gang_job import GangJob

FOUR = {"worker": 4}
STAYS_SECONDS = 2.0


@pytest.fixture(scope="module")
def replica(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    server.api.create("/api/v1/namespaces", {"metadata": {"name": "railnet"}})
    with gating(server, tmp_path_factory.mktemp("webhook")):
        yield Controllers(server, tmp_path_factory.mktemp("controllers"), options=["--gangs"])


@pytest.fixture
def nodes(server: ApiServer) -> Iterator[Nodes]:
    yield Nodes(server.api)
    clear(server)


class Strangers:
    """Take a VF of the leaf that a gang was given, when the scheduler looks at one of its pods there."""

    def __init__(self, most: int, *, hasty: bool = False) -> None:
        """Do so in `most` leaves: when the whole gang is there without gates, or `hasty`, when its first pod is."""
        self._most, self._hasty = most, hasty
        self.leaves: list[str] = []

    def __call__(self, api: Api, pod: JsonObject) -> Iterable[JsonObject]:
        found = pod["spec"].get("nodeSelector", {}).get(LEAF)
        if found is None or found in self.leaves or len(self.leaves) >= self._most:
            return []
        gang = api.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods").object["items"]
        whole = len(gang) == int(pod["metadata"]["labels"][f"{GROUP}/min-available"])
        if not (self._hasty or (whole and not any(is_gated(one) for one in gang))):
            return []
        self.leaves.append(found)
        used = Counter(one["spec"].get("nodeName") for one in gang)
        nodes = [one["metadata"]["name"] for one in api.get("/api/v1/nodes").object["items"]]
        free = min((one for one in nodes if one.startswith(found)), key=lambda one: (used[one], one))
        return [api.get(occupy(api, free, "1")).object]


def test_domain_that_another_pod_took_is_left_for_the_next(
    server: ApiServer, replica: Controllers, nodes: Nodes, measured: Callable[[str], None]
) -> None:
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    strangers = Strangers(most=1)
    replica.start("none")
    began = time.monotonic()
    try:
        with (
            Scheduler(server, strangers),
            Kubelets(server),
            JobController(server, GangJob("displaced", FOUR), required()) as jobs,
        ):
            wait_until(lambda: runs(jobs) and len(jobs.made) == 8, SECONDS, "the gang to run in its next domain")
            measured(f"a gang whose place was taken runs in the next domain after {time.monotonic() - began:.1f} s")
            wait_until(lambda: events(server, jobs)["GangEvicted"] > 0, SECONDS, "an event")
            assert leaves_of(jobs) == {"one", "two"}.difference(strangers.leaves)
            assert [one["attempt"] for one in placements(jobs)] == [2]
    finally:
        replica.stop()
    assert len(server.api.get(f"/api/v1/namespaces/{STRANGERS}/pods").object["items"]) == 1


def test_gang_that_is_displaced_three_times_stays_and_says_so(
    server: ApiServer, replica: Controllers, nodes: Nodes
) -> None:
    for name in ("one", "two", "three", "four", "five"):
        nodes.create(leaf(name, 2, 2))
    strangers = Strangers(most=5)
    replica.start("none")
    try:
        with (
            Scheduler(server, strangers),
            Kubelets(server),
            JobController(server, GangJob("unlucky", FOUR), required()) as jobs,
        ):
            wait_until(lambda: len(strangers.leaves) == 4, SECONDS, "the fourth try")
            wait_until(lambda: "evicted 3 times" in messages(server, jobs, "GangWaiting"), SECONDS, "the last event")
            time.sleep(STAYS_SECONDS)
            assert len(jobs.made) == 4 * 4
            assert [is_gated(one) for one in jobs.pods()] == [False] * 4
    finally:
        replica.stop()


@pytest.mark.parametrize("fault", ["refused:pods", "none"])
def test_gang_is_placed_once(server: ApiServer, replica: Controllers, nodes: Nodes, fault: str) -> None:
    """Every other write is answered with 429, or none is."""
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    replica.start(fault)
    name = f"once-{fault.partition(':')[0]}"
    try:
        with Scheduler(server), Kubelets(server), JobController(server, GangJob(name, FOUR), required()) as jobs:
            wait_until(lambda: runs(jobs), SECONDS, "four pods to run")
            assert (len(leaves_of(jobs)), len(jobs.made), len(placements(jobs))) == (1, 4, 1)
    finally:
        replica.stop()


def test_leaders_that_are_killed_at_each_write_end_as_one_leader_does(
    server: ApiServer, replica: Controllers, nodes: Nodes, measured: Callable[[str], None]
) -> None:
    """Two pods are admitted, evicted, since another pod takes their place, and admitted elsewhere: six writes."""
    nodes.create([*leaf("one", 2, 1), *leaf("two", 3, 1)])
    strangers = Strangers(most=1)
    with (
        Scheduler(server, strangers),
        Kubelets(server),
        JobController(server, GangJob("mortal-gang", {"worker": 2}), required()) as jobs,
    ):
        wait_until(lambda: len(jobs.made) == 2, SECONDS, "two pods")
        died = die_until(replica, lambda: runs(jobs) and strangers.leaves == ["one"], "pods")
        measured(f"leaders killed at their first write until a gang of two ran in its second domain: {died}")
        assert leaves_of(jobs) == {"two"}
        assert [one["domain"] for one in placements(jobs)] == [{LEAF: "two"}]
        assert len(jobs.made) == 4
    assert died >= 12


def test_gang_of_which_a_dead_leader_admitted_a_part_is_not_left_so(
    server: ApiServer, replica: Controllers, nodes: Nodes
) -> None:
    """The rest of the gang has no room there any more: another pod came while nothing led."""
    nodes.create([*leaf("one", 2, 1), *leaf("two", 3, 1)])
    strangers = Strangers(most=1, hasty=True)
    with (
        Scheduler(server, strangers),
        Kubelets(server),
        JobController(server, GangJob("part", {"worker": 2}), required()) as jobs,
    ):
        wait_until(lambda: len(jobs.made) == 2, SECONDS, "two pods")
        replica.start("after:pods")
        wait_until(replica.ended, SECONDS, "the leader to die")
        wait_until(lambda: strangers.leaves == ["one"], SECONDS, "another pod")
        assert sorted(is_gated(one) for one in jobs.pods()) == [False, True]
        replica.start("none")
        try:
            wait_until(lambda: runs(jobs), SECONDS, "two pods to run")
        finally:
            replica.stop()
        assert leaves_of(jobs) == {"two"}


def test_gated_pod_is_not_forgotten_while_nothing_leads(server: ApiServer, replica: Controllers, nodes: Nodes) -> None:
    nodes.create(leaf("leaf", 1, 4))
    with Scheduler(server), Kubelets(server), JobController(server, GangJob("unled", FOUR), required()) as jobs:
        wait_until(lambda: len(jobs.made) == 4, SECONDS, "four pods")
        time.sleep(STAYS_SECONDS)
        assert [is_gated(one) for one in jobs.pods()] == [True] * 4
        replica.start("none")
        try:
            wait_until(lambda: runs(jobs), SECONDS, "four pods to run")
        finally:
            replica.stop()


def test_watch_that_is_cut_and_too_old_loses_no_gang(
    server: ApiServer, replica: Controllers, nodes: Nodes, tmp_path: Path
) -> None:
    """While the leader watches nothing, a gang comes, nodes change, and the API server forgets the versions from before."""
    nodes.create(leaf("one", 2, 2))
    cut = tmp_path / "cut"
    replica.start(f"cut:{cut}")
    try:
        replica.wait()
        cut.touch()
        server.restart()
        server.api.send("DELETE", "/api/v1/nodes")
        nodes.create(leaf("two", 2, 2))
        with Scheduler(server), Kubelets(server), JobController(server, GangJob("unseen", FOUR), required()) as jobs:
            wait_until(lambda: len(jobs.made) == 4, SECONDS, "four pods")
            server.restart()
            time.sleep(STAYS_SECONDS)
            assert [is_gated(one) for one in jobs.pods()] == [True] * 4
            cut.unlink()
            wait_until(lambda: runs(jobs), SECONDS, "four pods to run")
            assert leaves_of(jobs) == {"two"}
    finally:
        replica.stop()


def test_budget_that_refuses_an_eviction_is_asked_again(server: ApiServer, replica: Controllers, nodes: Nodes) -> None:
    """A disrupted gang has a pod that runs and may not be evicted yet."""
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    strangers = Strangers(most=1)
    job = GangJob("budgeted", FOUR)
    replica.start("none")
    try:
        with (
            Scheduler(server, strangers),
            Kubelets(server),
            JobController(server, job, required()) as jobs,
        ):
            budgets = f"/apis/policy/v1/namespaces/{job.name}/poddisruptionbudgets"
            selector = {"matchLabels": jobs.labels}
            made = server.api.create(budgets, {"metadata": {"name": "budget"}, "spec": {"selector": selector}})
            assert made.status == 201, made.message
            wait_until(lambda: refused(replica), SECONDS, "an eviction that is refused")
            status = {"disruptionsAllowed": 4, "currentHealthy": 4, "desiredHealthy": 0, "expectedPods": 4}
            server.api.merge(f"{budgets}/budget/status", {"status": status})
            wait_until(lambda: runs(jobs) and len(jobs.made) == 8, SECONDS, "the gang to run in its next domain")
            assert messages(server, jobs, "GangEvicted")
    finally:
        replica.stop()


def refused(replica: Controllers) -> bool:
    return 'verb="create",resource="pods",result="failed"' in replica.asked("/metrics")
