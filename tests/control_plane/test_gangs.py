"""Gangs on a whole control plane: `railnet admission --gangs` holds their pods, `railnet controllers --gangs` places them whole.

The Job controller makes the pods, kube-scheduler binds them, and they run on nodes of kwok.
"""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.cluster.process import until_found, wait_until
from tests.control_plane.cluster import Cluster
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import (
    LEAF,
    SECONDS,
    events,
    gating,
    is_gated,
    leader,
    leaf,
    leaves_of,
    messages,
    nodes_of,
    occupy,
    placements,
    preferred,
    required,
    runs,
    seats,
)
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes, node
from tests.control_plane.server import ApiServer
from tests.railnet.jobs.gang.test_recogniser import PRINTED, SHOWN

STAYS_SECONDS = 2.0


@pytest.fixture(scope="module")
def webhook(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with gating(server, tmp_path_factory.mktemp("webhook")) as found:
        yield found


@pytest.fixture(scope="module")
def controllers(server: ApiServer, webhook: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """Have one leader for all tests; their nodes come and go meanwhile."""
    with leader(server, tmp_path_factory.mktemp("controllers")) as found:
        yield found


def train_top(server: ApiServer) -> str:
    """Return what `railnet train top` prints."""
    command = [sys.executable, "-m", "railnet", "train", "top", "--kubeconfig", str(server.api.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout


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
    before = controllers.requests("patch", result="done")
    with GangJob(server, f"article-{expected}", 5, constraint) as job:
        wait_until(lambda: runs(job), SECONDS, "five pods to run")
        assert nodes_of(job) == {expected: 5}
        wait_until(lambda: "GangPlaced" in events(server, job), SECONDS, "an event")
        assert placements(job) == [{"domain": {"kubernetes.io/hostname": expected}, "attempt": 1}]
    # Each pod is nominated for its node, and loses its gate then. A write that the scheduler's or the Job controller's has overtaken is no write.
    assert controllers.requests("patch", result="done")["patch pods"] - before.get("patch pods", 0) == 2 * 5


def test_node_of_the_first_pod_does_not_decide(server: ApiServer, controllers: Controllers, nodes: Nodes) -> None:
    """The scheduler alone takes the emptiest node for the first pod; its leaf does not hold the gang."""
    nodes.create(
        [
            node("large-0", {LEAF: "large"}, rdma_ib_vf="4", cpu="128"),
            *(node(f"whole-{number}", {LEAF: "whole"}, rdma_ib_vf="2", cpu="8") for number in range(3)),
        ]
    )
    requests = {"cpu": "2"}
    server.namespace("alone")
    amounts = {"rdma/ib_vf": "1", **requests}
    container = {"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    alone = "/api/v1/namespaces/alone/pods"
    server.api.create(alone, {"metadata": {"name": "alone"}, "spec": {"containers": [container]}})
    chosen = until_found(lambda: server.api.get(f"{alone}/alone").object["spec"].get("nodeName"), SECONDS, "its node")
    server.api.delete(f"{alone}/alone?gracePeriodSeconds=0")
    with GangJob(server, "first", 5, required(), requests=requests) as job:
        wait_until(lambda: runs(job), SECONDS, "five pods to run")
        assert (chosen, leaves_of(job)) == ("large-0", {"whole"})


def test_gang_that_fits_nowhere_waits_whole_until_there_is_room(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    nodes.create([*leaf("one", 1, 4), *leaf("two", 3, 2)])
    stranger = occupy(server, "two-0", "2")
    with GangJob(server, "waiting", 5, required()) as job:
        words = "rdma/ib_vf"  # the first event may say that not all pods exist yet
        wait_until(
            lambda: job.made() == 5 and words in messages(server, job, "GangWaiting"), SECONDS, "an event that says why"
        )
        assert [is_gated(one) for one in job.pods()] == [True] * 5
        server.api.send("DELETE", f"{stranger}?gracePeriodSeconds=0")
        wait_until(lambda: runs(job), SECONDS, "five pods to run")
        assert leaves_of(job) == {"two"}


def test_gang_that_no_domain_can_hold_has_an_event_and_is_placed_when_one_can(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    nodes.create([*leaf("one", 1, 4), *leaf("two", 2, 2)])
    with GangJob(server, "larger", 5, required()) as job:
        wait_until(lambda: job.made() == 5 and LEAF in messages(server, job, "GangRefused"), SECONDS, "an event")
        assert [is_gated(one) for one in job.pods()] == [True] * 5
        assert "larger than every domain" in train_top(server)
        nodes.create(leaf("two", 3, 2)[2:])
        wait_until(lambda: runs(job), SECONDS, "five pods to run")
        assert leaves_of(job) == {"two"}


def test_pods_at_two_to_a_node_use_the_nodes_that_were_planned(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    """The Job controller makes 32 pods in batches, so pods are placed while others are not bound yet."""
    nodes.create(leaf("pairs", 24, 2))
    with GangJob(server, "pairs", 32, required()) as job:
        wait_until(lambda: runs(job), SECONDS, "32 pods to run")
        assert seats(job) == nodes_of(job)
        assert len(nodes_of(job)) == 16


def test_preferred_label_that_no_node_has_is_left_out(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    nodes.create(leaf("one", 2, 2))
    with GangJob(server, "unlabelled", 4, preferred("acme.com/pod")) as job:
        wait_until(lambda: runs(job), SECONDS, "four pods to run")
        words = "no node has the preferred label acme.com/pod"
        wait_until(lambda: words in messages(server, job, "GangPlaced"), SECONDS, "an event")


def test_nodes_without_a_preferred_label_are_used_when_the_others_are_too_few(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    """The gang need not wait until it relaxes: the labelled nodes could never hold it."""
    nodes.create([*leaf("one", 2, 2), node("plain-0", rdma_ib_vf="2"), node("plain-1", rdma_ib_vf="2")])
    with GangJob(server, "half-labelled", 8, preferred()) as job:
        wait_until(lambda: runs(job), SECONDS, "eight pods to run")
        assert nodes_of(job) == dict.fromkeys(("one-0", "one-1", "plain-0", "plain-1"), 2)


def test_gang_that_the_scheduler_would_refuse_has_no_running_gang_evicted(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    """It has the higher priority, and requires to be beside pods that do not exist: nothing but the scheduler knows that."""
    priority = "/apis/scheduling.k8s.io/v1/priorityclasses"
    made = server.api.create(priority, {"metadata": {"name": "gang-urgent"}, "value": 1000})
    assert made.status == 201, made.message
    nodes.create(leaf("taken", 2, 2))
    beside = {"labelSelector": {"matchLabels": {"app": "nothing"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    with GangJob(server, "victim", 4, required(), resource="statefulsets") as victim:
        wait_until(lambda: runs(victim), SECONDS, "the gang of low priority to run")
        fields = {"priorityClassName": "gang-urgent", "affinity": affinity}
        with GangJob(server, "urgent", 4, required(), pod_spec=fields) as urgent:
            words = "required pod affinity"
            wait_until(
                lambda: urgent.made() == 4 and words in messages(server, urgent, "GangWaiting"), SECONDS, "an event"
            )
            time.sleep(STAYS_SECONDS)
            assert [is_gated(pod) for pod in urgent.pods()] == [True] * 4
            assert (runs(victim), victim.made()) == (True, 4)
    server.api.delete(f"{priority}/gang-urgent")


def test_gangs_whose_pods_come_one_after_the_other_do_not_hold_each_other(
    server: ApiServer, controllers: Controllers, nodes: Nodes
) -> None:
    """There is room for the first pods of both, and then for the others of neither: for one gang and a half.

    A StatefulSet makes a pod when the one before it is ready, as operators make workers when the parameter servers run.
    """
    nodes.create(leaf("leaf", 3, 2))

    def gang(name: str) -> GangJob:
        ordered = {"podManagementPolicy": "OrderedReady"}
        return GangJob(server, name, 4, required(), resource="statefulsets", spec=ordered)

    with gang("dag-a") as first, gang("dag-b") as second:
        wait_until(lambda: runs(first) or runs(second), SECONDS, "the pods of one to run")
        time.sleep(STAYS_SECONDS)
        before, after = (first, second) if runs(first) else (second, first)
        assert [is_gated(pod) for pod in after.pods()] == [True]
        before.finish()
        wait_until(lambda: runs(after), SECONDS, "the pods of the other to run")
        assert leaves_of(after) == {"leaf"}
