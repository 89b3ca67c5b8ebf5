"""Gangs in a new API server: `railnet admission --gangs` holds their pods, `railnet controllers --gangs` places them whole.

Nodes, kubelets, scheduler and the controllers of jobs are stand-ins (`stand_in_*.py`), which speak to the API server alone.
"""

import time
from collections.abc import Iterator

import pytest

from tests.cluster.process import wait_until
from tests.genericapiserver.cluster import Cluster
from tests.genericapiserver.controllers import Controllers
from tests.genericapiserver.gang_cluster import (
    LEAF,
    SECONDS,
    clear,
    events,
    gating,
    is_gated,
    leaf,
    leaves_of,
    messages,
    nodes_of,
    occupy,
    placements,
    required,
    runs,
)
from tests.genericapiserver.server import ApiServer
from tests.genericapiserver.stand_in_jobs import JobController
from tests.genericapiserver.stand_in_nodes import Kubelets, Nodes, node
from tests.genericapiserver.stand_in_scheduler import Scheduler
from tests.stand_ins.gang_job import GangJob
from tests.stand_ins.pod_scheduler import PodScheduler
from tests.training.test_gang_labels import PRINTED, SHOWN

FIVE = {"worker": 5}
STAYS_SECONDS = 2.0


@pytest.fixture(scope="module")
def webhook(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with gating(server, tmp_path_factory.mktemp("webhook")) as found:
        yield found


@pytest.fixture(scope="module")
def controllers(server: ApiServer, webhook: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """Have one leader for all tests; their nodes come and go meanwhile."""
    found = Controllers(server, tmp_path_factory.mktemp("controllers"), options=["--gangs"])
    found.start()
    try:
        found.wait()
        yield found
    finally:
        found.stop()


@pytest.fixture
def nodes(server: ApiServer) -> Iterator[Nodes]:
    yield Nodes(server.api)
    clear(server)


@pytest.mark.parametrize(
    ("constraint", "expected"), [(PRINTED, "abc-large"), (SHOWN, "a")], ids=["as printed", "as its result has it"]
)
def test_articles_example_ends_with_five_pods_on_one_node(
    server: ApiServer, controllers: Controllers, nodes: Nodes, constraint: str, expected: str
) -> None:
    nodes.create(
        [
            node("abc-small", {"test": "abc"}, rdma_ib_vf="4"),
            node("abc-large", {"test": "abc"}, rdma_ib_vf="5"),
            node("a", {"test": "a"}, rdma_ib_vf="8"),
            node("plain", rdma_ib_vf="8"),
        ]
    )
    before = controllers.requests("patch")
    job = GangJob(f"article-{expected}", FIVE)
    with Scheduler(server), Kubelets(server), JobController(server, job, constraint) as jobs:
        wait_until(lambda: runs(jobs), SECONDS, "five pods to run")
        assert nodes_of(jobs) == {expected: 5}
        wait_until(lambda: "GangPlaced" in events(server, jobs), SECONDS, "an event")

    assert placements(jobs) == [{"domain": {"kubernetes.io/hostname": expected}, "attempt": 1}]
    assert controllers.requests("patch")["patch pods"] - before.get("patch pods", 0) == 5


def test_node_of_the_first_pod_does_not_decide(server: ApiServer, controllers: Controllers, nodes: Nodes) -> None:
    """The scheduler alone takes the emptiest node for the first pod; its leaf does not hold the gang."""
    made = [*leaf("large", 1, 4), *leaf("whole", 3, 2)]
    nodes.create(made)
    job = GangJob("first", FIVE)
    jobs = JobController(server, job, required())
    alone = PodScheduler(made, []).place(jobs.pod("worker", 0))
    with Scheduler(server), Kubelets(server), jobs:
        wait_until(lambda: runs(jobs), SECONDS, "five pods to run")
        assert (alone, leaves_of(jobs)) == ("large-0", {"whole"})


def test_gang_that_fits_nowhere_waits_whole_until_there_is_room(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    nodes.create([*leaf("one", 1, 4), *leaf("two", 3, 2)])
    stranger = occupy(server.api, "two-0", "2")
    with Scheduler(server), Kubelets(server), JobController(server, GangJob("waiting", FIVE), required()) as jobs:
        wait_until(lambda: "GangWaiting" in events(server, jobs), SECONDS, "an event")
        assert [is_gated(one) for one in jobs.pods()] == [True] * 5
        assert "rdma/ib_vf" in messages(server, jobs, "GangWaiting")
        server.api.send("DELETE", f"{stranger}?gracePeriodSeconds=0")
        wait_until(lambda: runs(jobs), SECONDS, "five pods to run")
        assert leaves_of(jobs) == {"two"}


def test_gang_that_no_domain_can_hold_has_an_event_and_is_placed_when_one_can(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    nodes.create([*leaf("one", 1, 4), *leaf("two", 2, 2)])
    with Scheduler(server), Kubelets(server), JobController(server, GangJob("larger", FIVE), required()) as jobs:
        wait_until(lambda: "GangRefused" in events(server, jobs), SECONDS, "an event")
        assert [is_gated(one) for one in jobs.pods()] == [True] * 5
        assert LEAF in messages(server, jobs, "GangRefused")
        nodes.create(leaf("two", 3, 2)[2:])
        wait_until(lambda: runs(jobs), SECONDS, "five pods to run")
        assert leaves_of(jobs) == {"two"}


def test_jobs_whose_workers_wait_for_parameter_servers_do_not_hold_each_other(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    """There is room for both parameter servers, and then for the workers of neither: for one gang and a half."""
    nodes.create(leaf("leaf", 3, 2))
    roles = {"ps": 1, "worker": 3}
    with Scheduler(server), Kubelets(server), JobController(server, GangJob("dag-a", roles, True), required()) as first:
        wait_until(lambda: first.made != [], SECONDS, "the first job's parameter server")
        with JobController(server, GangJob("dag-b", roles, True), required()) as second:
            wait_until(lambda: runs(first), SECONDS, "the first job to run")
            time.sleep(STAYS_SECONDS)
            assert [is_gated(one) for one in second.pods()] == [True]
            first.finish()
            wait_until(lambda: runs(second), SECONDS, "the second job to run")
            assert leaves_of(second) == {"leaf"}
