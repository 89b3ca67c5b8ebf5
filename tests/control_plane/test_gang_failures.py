"""Gangs while leaders die, requests fail, watches are cut, and others take the place that a gang was given.

The pods are those of StatefulSets, whose controller makes a pod again at once. What the Job controller makes of evicted pods is in
test_gang_jobs.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.cluster.process import wait_until
from tests.control_plane.controllers import Controllers, die_until
from tests.control_plane.gang_cluster import (
    LEAF,
    SECONDS,
    STRANGERS,
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
    seats,
)
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes
from tests.control_plane.proxy import ApiProxy, killed, none, refused
from tests.control_plane.server import ApiServer
from tests.control_plane.strangers import Strangers

STAYS_SECONDS = 2.0
WRITTEN = ("pods", "pods/status")  # a pod is nominated by its status


@pytest.fixture(scope="module")
def replica(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    with gating(server, tmp_path_factory.mktemp("webhook")):
        yield Controllers(server, tmp_path_factory.mktemp("controllers"), options=["--gangs"])


@pytest.fixture
def proxy(server: ApiServer) -> Iterator[ApiProxy]:
    with ApiProxy(server.api) as found:
        yield found


@contextmanager
def leading(replica: Controllers, proxy: ApiProxy) -> Iterator[None]:
    """Have a leader behind the proxy, in the block."""
    replica.start(proxy)
    try:
        yield
    finally:
        replica.stop()


def again(server: ApiServer, name: str, pods: int) -> GangJob:
    """Return a gang whose pods are made again at once."""
    return GangJob(server, name, pods, required(), resource="statefulsets")


def test_domain_that_another_pod_took_is_left_for_the_next(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, nodes: Nodes, measured: Callable[[str], None]
) -> None:
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    with leading(replica, proxy), again(server, "displaced", 4) as job, Strangers(server, job, most=1) as strangers:
        strangers.until(lambda: strangers.leaves != [], "the gang to lose its place")
        began = time.monotonic()
        strangers.until(lambda: runs(job) and job.made() >= 7, "the gang to run in its next domain")
        measured(f"a gang whose place was taken runs in the next domain after {time.monotonic() - began:.1f} s")
        wait_until(lambda: events(server, job)["GangEvicted"] > 0, SECONDS, "an event")
        assert leaves_of(job) == {"one", "two"}.difference(strangers.leaves)
        assert [one["attempt"] for one in placements(job)] == [2]
        assert len(server.api.items(f"/api/v1/namespaces/{STRANGERS}/pods")) == 1


def test_gang_that_is_displaced_three_times_stays_and_says_so(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, nodes: Nodes
) -> None:
    for name in ("one", "two", "three", "four", "five"):
        nodes.create(leaf(name, 2, 2))
    with (
        leading(replica, proxy),
        again(server, "unlucky", 4) as job,
        Strangers(server, job, most=5, leader=replica) as strangers,
    ):
        strangers.until(lambda: len(strangers.leaves) == 4, "the fourth try")
        wait_until(lambda: "evicted 3 times" in messages(server, job, "GangWaiting"), SECONDS, "the last event")
        made = job.made()  # at least four times four: kwok may delete a new pod that has the name of an evicted one
        time.sleep(STAYS_SECONDS)
        assert job.made() == made >= 4 * 4
        assert [is_gated(pod) for pod in job.pods()] == [False] * 4


@pytest.mark.parametrize("fault", [refused(WRITTEN), none], ids=["refused", "none"])
def test_gang_is_placed_once(
    request: pytest.FixtureRequest,
    server: ApiServer,
    replica: Controllers,
    proxy: ApiProxy,
    nodes: Nodes,
    fault: Callable[..., object],
) -> None:
    """Every other write is answered with 429, or none is."""
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    proxy.fault = fault
    with leading(replica, proxy), again(server, f"once-{request.node.callspec.id}", 4) as job:
        wait_until(lambda: runs(job), SECONDS, "four pods to run")
        assert (len(leaves_of(job)), job.made(), len(placements(job))) == (1, 4, 1)


def test_leaders_that_are_killed_at_each_write_end_as_one_leader_does(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, nodes: Nodes, measured: Callable[[str], None]
) -> None:
    """Two pods are admitted, evicted, since another pod takes their place, and admitted elsewhere: ten writes, four of them nominations."""
    nodes.create([*leaf("one", 2, 1), *leaf("two", 3, 1)])
    with again(server, "mortal-gang", 2) as job, Strangers(server, job, most=1) as strangers:
        wait_until(lambda: job.made() == 2, SECONDS, "two pods")

        def complete() -> bool:
            strangers.act()
            return runs(job) and strangers.leaves == ["one"] and leaves_of(job) == {"two"}

        died = die_until(replica, proxy, complete, WRITTEN)
        measured(f"leaders killed at their first write until a gang of two ran in its second domain: {died}")
        assert [one["domain"] for one in placements(job)] == [{LEAF: "two"}]
        assert job.made() >= 3
    assert died >= 12


def test_gang_of_which_a_dead_leader_admitted_a_part_is_not_left_so(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, nodes: Nodes
) -> None:
    """The rest of the gang has no room there any more: another pod came while nothing led."""
    nodes.create([*leaf("one", 2, 1), *leaf("two", 3, 1)])
    with again(server, "part", 2) as job:
        wait_until(lambda: job.made() == 2, SECONDS, "two pods")
        proxy.fault = killed(replica.kill, ["pods"], before=False)
        with leading(replica, proxy):
            wait_until(replica.ended, SECONDS, "the leader to die")
        proxy.fault = none
        wait_until(lambda: "Running" in [one["status"]["phase"] for one in job.pods()], SECONDS, "a pod to run")
        (first,) = (one["spec"]["nodeName"] for one in job.pods() if "nodeName" in one["spec"])
        occupy(server, "one-1" if first == "one-0" else "one-0", "1")
        assert sorted(is_gated(one) for one in job.pods()) == [False, True]
        with leading(replica, proxy):
            wait_until(lambda: runs(job), SECONDS, "two pods to run")
        assert leaves_of(job) == {"two"}


def test_gated_pod_is_not_forgotten_while_nothing_leads(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, nodes: Nodes
) -> None:
    nodes.create(leaf("leaf", 1, 4))
    with again(server, "unled", 4) as job:
        wait_until(lambda: job.made() == 4, SECONDS, "four pods")
        time.sleep(STAYS_SECONDS)
        assert [is_gated(one) for one in job.pods()] == [True] * 4
        with leading(replica, proxy):
            wait_until(lambda: runs(job), SECONDS, "four pods to run")


def test_next_leader_keeps_the_nodes_that_pods_were_given(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, nodes: Nodes
) -> None:
    """The scheduler is away while the leaders change; a node before those that were given has become free meanwhile."""
    nodes.create(leaf("one", 4, 2))
    stranger = occupy(server, "one-0", "2")
    with ExitStack() as gangs:
        job = gangs.enter_context(GangJob(server, "keeps-seats", 4, required()))
        server.plane.scheduler.stop()
        try:
            with leading(replica, proxy):
                wait_until(lambda: sum(seats(job).values()) == 4, SECONDS, "four pods without a gate")
            given = seats(job)
            server.api.send("DELETE", f"{stranger}?gracePeriodSeconds=0")
            beside = gangs.enter_context(GangJob(server, "comes-later", 2, required()))
            with leading(replica, proxy):
                wait_until(lambda: sum(seats(beside).values()) == 2, SECONDS, "two more pods without a gate")
        finally:
            server.plane.scheduler.start()
        wait_until(lambda: runs(job) and runs(beside), SECONDS, "both gangs to run")
        assert (nodes_of(job), nodes_of(beside)) == (given, seats(beside))
        assert not nodes_of(job).keys() & nodes_of(beside).keys()


def test_watch_that_is_cut_and_too_old_loses_no_gang(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, nodes: Nodes
) -> None:
    """While the leader watches nothing, a gang comes, nodes change, and the API server forgets the versions from before."""
    nodes.create(leaf("one", 2, 2))
    with leading(replica, proxy), ExitStack() as cut:
        replica.wait()
        cut.enter_context(proxy.without_watches())
        nodes.remove_all()
        nodes.create(leaf("two", 2, 2))
        with again(server, "unseen", 4) as job:
            wait_until(lambda: job.made() == 4, SECONDS, "four pods")
            server.restart()
            time.sleep(STAYS_SECONDS)
            assert [is_gated(one) for one in job.pods()] == [True] * 4
            cut.close()
            wait_until(lambda: runs(job), SECONDS, "four pods to run")
            assert leaves_of(job) == {"two"}


def test_budget_that_refuses_an_eviction_is_asked_again(
    server: ApiServer, replica: Controllers, proxy: ApiProxy, nodes: Nodes
) -> None:
    """A disrupted gang has a pod that runs and may not be evicted yet: the disruption controller counts."""
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    name = "budgeted"
    budget = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
    with leading(replica, proxy), again(server, name, 4) as job, Strangers(server, job, most=1) as strangers:
        selector = {"matchLabels": job.labels}
        spec = {"minAvailable": 3, "selector": selector}
        made = server.api.create(budget, {"metadata": {"name": "budget"}, "spec": spec})
        assert made.status == 201, made.message
        strangers.until(lambda: refused_evictions(replica), "an eviction that is refused")
        server.api.merge(f"{budget}/budget", {"spec": {"minAvailable": 0}})
        strangers.until(lambda: runs(job) and job.made() >= 7, "the gang to run in its next domain")
        wait_until(lambda: events(server, job)["GangEvicted"] > 0, SECONDS, "an event")


def refused_evictions(replica: Controllers) -> bool:
    return 'verb="create",resource="pods",result="failed"' in replica.asked("/metrics")
