"""Gangs of PodGroups while the API stops serving them, leaders die or are two, and a pod of higher priority takes the place that a gang was given.

The control plane has the feature gates for PodGroups; each test has leaders of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster.process import until_found, wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import Controllers, die_until
from tests.control_plane.gang_cluster import (
    LEAF,
    STRANGERS,
    events,
    is_gated,
    leader,
    leaf,
    leaves_of,
    messages,
    nodes_of,
    occupied,
    occupy,
    placements,
    probe,
    required,
    runs,
    seats,
)
from tests.control_plane.gang_engine_cluster import SECONDS, grouping, key_of, pod_group
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes
from tests.control_plane.proxy import Answer, ApiProxy, Passed, killed, none
from tests.control_plane.server import ApiServer

WRITTEN = ("pods", "pods/status", "podgroups")
URGENT = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="module", autouse=True)
def engine(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have Kubernetes' gangs, and pods of gangs that name a PodGroup."""
    with server.serving_pod_groups(), grouping(server, tmp_path_factory.mktemp("webhook")):
        yield


@pytest.fixture
def proxy(server: ApiServer) -> Iterator[ApiProxy]:
    with ApiProxy(server.api) as found:
        yield found


@pytest.fixture(scope="module")
def urgent(server: ApiServer) -> Iterator[str]:
    """Return a PriorityClass above that of gangs."""
    answer = server.api.create(URGENT, {"metadata": {"name": "engine-urgent"}, "value": 1000})
    assert answer.status == 201, answer.message
    yield "engine-urgent"
    server.api.delete(f"{URGENT}/engine-urgent")


def uids(job: GangJob) -> set[str]:
    return {pod["metadata"]["uid"] for pod in job.pods()}


def nominated(job: GangJob) -> list[str]:
    return sorted(pod["status"].get("nominatedNodeName", "") for pod in job.pods())


def create_urgent(server: ApiServer, priority_class: str, node: str, vfs: int) -> Callable[[], JsonObject]:
    """Create a pod of higher priority for one node; return what reads it."""
    amounts = {"rdma/ib_vf": str(vfs)}
    container = {"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    spec = {
        "containers": [container],
        "priorityClassName": priority_class,
        "nodeSelector": {"kubernetes.io/hostname": node},
    }
    server.namespace(STRANGERS)
    path = f"/api/v1/namespaces/{STRANGERS}/pods"
    answer = server.api.create(path, {"metadata": {"name": f"urgent-{node}"}, "spec": spec})
    assert answer.status == 201, answer.message
    return lambda: server.api.get(f"{path}/urgent-{node}").object


def test_gang_waits_while_the_api_serves_no_pod_groups_and_holds_no_room_of_others(
    server: ApiServer, proxy: ApiProxy, nodes: Nodes, tmp_path: Path
) -> None:
    nodes.create([*leaf("used", 1, 4), *leaf("room", 1, 4)])
    busy = occupy(server, "room-0", "1")
    with leader(server, tmp_path, proxy), ExitStack() as jobs:
        running = jobs.enter_context(GangJob(server, "lost-runs", 4, required()))
        wait_until(lambda: runs(running), SECONDS, "the first gang to run")
        waiting = jobs.enter_context(GangJob(server, "lost-waits", 4, required()))
        wait_until(lambda: events(server, waiting)["GangWaiting"] > 0, SECONDS, "the event of the one that waits")
        before = uids(running), uids(waiting)
        assert pod_group(server, waiting) is None
        with server.refusing_pod_groups():
            wait_until(lambda: is_gated(probe(server.api).object), SECONDS, "pods of gangs to be gated")
            server.api.delete(f"{busy}?gracePeriodSeconds=0")
            text = until_found(lambda: messages(server, waiting, "GangRefused"), SECONDS, "the refusal")
            assert "the API server serves no PodGroups" in text
            assert "or create the job again: new pods wait behind a gate" in text
            with GangJob(server, "lost-gated", 4, required()) as gated:
                wait_until(lambda: runs(gated), 2 * SECONDS, "a gang behind gates to have the room")
            assert nodes_of(waiting) == {"": 4}
        wait_until(lambda: runs(waiting), 2 * SECONDS, "the gang that waited to run")
        assert (uids(running), uids(waiting)) == before
        assert leaves_of(waiting) == {"room"}


def test_two_leaders_for_ten_seconds_start_each_gang_once_in_one_leaf(
    server: ApiServer, proxy: ApiProxy, nodes: Nodes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The first cannot reach its Lease, and leads on as long as it may; the cluster has room for the gangs and no more."""
    nodes.create([*leaf("one", 2, 4), *leaf("two", 2, 4), *leaf("three", 2, 4)])
    files = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    with leader(server, files[0], proxy) as first:
        proxy.fault = without_lease
        with leader(server, files[1], number=1) as second, ExitStack() as started:
            jobs = [started.enter_context(GangJob(server, f"two-{number}", 4, required())) for number in range(6)]
            wait_until(lambda: all(map(runs, jobs)), 2 * SECONDS, "all gangs to run")
            assert first.leads()
            assert second.leads()
            assert [len(leaves_of(job)) for job in jobs] == [1] * 6
            assert [job.made() for job in jobs] == [4] * 6
            assert [key_of(pod_group(server, job)) for job in jobs] == [LEAF] * 6
            assert not any(events(server, job)["GangEvicted"] for job in jobs)
            wait_until(lambda: both_say(server, jobs), SECONDS, "the events")


def without_lease(passed: Passed) -> Answer:
    """Lose what is about a Lease."""
    if "leases" in passed.path:
        raise ConnectionAbortedError("the Lease cannot be reached")
    return passed.send()


def both_say(server: ApiServer, jobs: list[GangJob]) -> bool:
    return all(events(server, job)["GangPlaced"] for job in jobs)


def test_leaders_that_are_killed_at_each_nomination_and_at_the_pod_group_end_as_one_leader_does(
    server: ApiServer, proxy: ApiProxy, nodes: Nodes, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    """Two pods are nominated and told their place, and their PodGroup is created: five writes."""
    nodes.create([*leaf("one", 2, 1), *leaf("two", 2, 1)])
    replica = Controllers(server, tmp_path, options=["--gangs"])
    with GangJob(server, "engine-mortal", 2, required()) as job:
        died = die_until(replica, proxy, lambda: runs(job), WRITTEN)
        measured(f"leaders killed at their first write until a gang of two ran by its PodGroup: {died}")
        assert (len(leaves_of(job)), job.made(), len(placements(job))) == (1, 2, 1)
        assert key_of(pod_group(server, job)) == LEAF
    assert died >= 5


def test_place_that_a_pod_of_higher_priority_took_while_nothing_led_is_not_that_of_the_next_leader(
    server: ApiServer, proxy: ApiProxy, nodes: Nodes, tmp_path: Path, urgent: str
) -> None:
    """The leader dies between the last nomination and the creation of the PodGroup."""
    nodes.create([*leaf("one", 1, 4), *leaf("two", 1, 4)])
    with GangJob(server, "engine-between", 4, required()) as job:
        with dying(server, proxy, tmp_path) as replica:
            wait_until(replica.ended, SECONDS, "the leader to die")
        assert pod_group(server, job) is None
        assert nodes_of(job) == {"": 4}
        (seat,) = seats(job)
        assert nominated(job) == [seat] * 4
        before = uids(job)
        read = create_urgent(server, urgent, seat, 4)
        wait_until(lambda: read()["spec"].get("nodeName") == seat, SECONDS, "the urgent pod to be bound")
        with leader(server, tmp_path, proxy):
            wait_until(lambda: runs(job), SECONDS, "four pods to run")
        assert leaves_of(job) == {"one", "two"} - {seat.removesuffix("-0")}
        assert seats(job) == nodes_of(job)
        assert uids(job) == before


@contextmanager
def dying(server: ApiServer, proxy: ApiProxy, files: Path) -> Iterator[Controllers]:
    """Have a leader that dies before it creates a PodGroup."""
    replica = Controllers(server, files, options=["--gangs"])
    proxy.fault = killed(replica.kill, ["podgroups"], before=True)
    replica.start(proxy)
    try:
        yield replica
    finally:
        replica.stop()
        proxy.fault = none


def test_gang_whose_nominations_preemption_clears_is_placed_elsewhere(
    server: ApiServer, proxy: ApiProxy, nodes: Nodes, tmp_path: Path, urgent: str
) -> None:
    """The scheduler is away until the PodGroup exists. The urgent pod needs all of the node, of which another pod has a part."""
    nodes.create([*leaf("one", 1, 5), *leaf("two", 1, 5)])
    scheduler = server.plane.scheduler
    with occupied(server, "one-0", "1"), occupied(server, "two-0", "1"), leader(server, tmp_path, proxy):
        scheduler.stop()
        try:
            with GangJob(server, "engine-cleared", 4, required()) as job:
                wait_until(lambda: pod_group(server, job) is not None, SECONDS, "the PodGroup")
                (seat,) = seats(job)
                assert nominated(job) == [seat] * 4
                before = uids(job)
                read = create_urgent(server, urgent, seat, 5)
                scheduler.start()
                wait_until(lambda: read()["spec"].get("nodeName") == seat, SECONDS, "the urgent pod to be bound")
                wait_until(lambda: runs(job), SECONDS, "four pods to run")
                assert leaves_of(job) == {"one", "two"} - {seat.removesuffix("-0")}
                assert uids(job) == before
        finally:
            if scheduler.process is None:
                scheduler.start()
