"""What the Job controller, quotas and Railnet's gangs make of each other. What is marked `xfail` is a fault of Railnet that is known."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from railnet.gangs.gate_removal_patch import HOSTNAME
from railnet.jobs.pod_failure_policy import IGNORES_EVICTIONS
from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import (
    SECONDS,
    events,
    gating,
    is_gated,
    leaf,
    leaves_of,
    messages,
    nodes_of,
    required,
    runs,
)
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes
from tests.control_plane.proxy import ApiProxy
from tests.control_plane.server import ApiServer
from tests.control_plane.strangers import Strangers

STAYS_SECONDS = 5.0
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="module")
def leader(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """Have one leader for all tests."""
    with gating(server, tmp_path_factory.mktemp("webhook")), ApiProxy(server.api) as proxy:
        found = Controllers(server, tmp_path_factory.mktemp("controllers"), options=["--gangs"])
        found.start(proxy)
        try:
            found.wait()
            yield found
        finally:
            found.stop()


def has_failed(job: GangJob) -> bool:
    return any(one["type"] == "Failed" and one["status"] == "True" for one in job.status().get("conditions", ()))


def test_pod_that_is_made_again_comes_to_the_others(server: ApiServer, leader: Controllers, nodes: Nodes) -> None:
    nodes.create([*leaf("one", 2, 4), *leaf("two", 2, 4)])
    with GangJob(server, "member-dies", 4, required()) as job:
        wait_until(lambda: runs(job), SECONDS, "four pods to run")
        before = leaves_of(job)
        victim = job.pods()[0]["metadata"]["name"]
        server.api.delete(f"{job.pods_path}/{victim}")
        wait_until(lambda: job.made() == 5 and runs(job), SECONDS, "the pod to be made again, after ten seconds")

        assert leaves_of(job) == before
        assert not has_failed(job)


def test_gang_that_is_moved_keeps_its_job(
    server: ApiServer, leader: Controllers, nodes: Nodes, measured: Callable[[str], None]
) -> None:
    """Evicted pods would count against the Job's `backoffLimit`; the webhook has given the Job the rule by which they do not.

    The Job controller pauses for 40 s before it makes three pods again.
    """
    nodes.create([*leaf("one", 3, 1), *leaf("two", 3, 1)])
    job = GangJob(server, "moved", 3, required(), spec={"backoffLimit": 1})
    with job, Strangers(server, job, most=1) as strangers:
        began = time.monotonic()
        strangers.until(lambda: has_failed(job) or (job.made() >= 6 and runs(job)), "new pods to run", 4 * SECONDS)
        measured(f"a gang of 3 that was evicted runs elsewhere {time.monotonic() - began:.0f} s after its creation")

        assert not has_failed(job)
        assert not job.status().get("failed", 0)
        assert leaves_of(job) == {"one", "two"}.difference(strangers.leaves)
        words = "counts a pod as complete whose program ends with 0 on SIGTERM"
        wait_until(lambda: words in messages(server, job, "GangEvicted"), SECONDS, "an event")


def test_job_of_a_gang_is_given_the_rule_when_it_is_created(
    server: ApiServer, leader: Controllers, nodes: Nodes
) -> None:
    first = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    written = {"podFailurePolicy": {"rules": [first]}}
    with GangJob(server, "given", 1) as job, GangJob(server, "added", 1, spec=written) as other:
        assert job.root.object["spec"]["podFailurePolicy"] == {"rules": [IGNORES_EVICTIONS]}
        assert job.root.object["spec"]["podReplacementPolicy"] == "Failed"
        assert job.root.warnings == []
        assert other.root.object["spec"]["podFailurePolicy"]["rules"] == [first, IGNORES_EVICTIONS]


@pytest.mark.parametrize(
    ("name", "spec", "pod_spec"),
    [("never-retried", {"backoffLimit": 0}, {}), ("on-failure", {}, {"restartPolicy": "OnFailure"})],
)
def test_gang_whose_job_an_eviction_would_fail_stays_and_says_what_to_do(
    server: ApiServer, leader: Controllers, nodes: Nodes, name: str, spec: JsonObject, pod_spec: JsonObject
) -> None:
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    job = GangJob(server, name, 4, required(), spec=spec, pod_spec=pod_spec)
    with job, Strangers(server, job, most=1) as strangers:
        (warning,) = job.root.warnings
        assert warning.startswith("Railnet will not move this gang")
        strangers.until(lambda: "podFailurePolicy" in messages(server, job, "GangWaiting"), "an event that says why")
        time.sleep(STAYS_SECONDS)

        assert f"Job {name} counts evicted pods as failures" in messages(server, job, "GangWaiting")
        assert events(server, job)["GangEvicted"] == 0
        assert job.made() == 4
        assert not has_failed(job)


def test_gang_whose_job_an_eviction_would_fail_does_not_give_way(
    server: ApiServer, leader: Controllers, nodes: Nodes
) -> None:
    """Of two gangs of low priority, the one whose Job survives it is preempted, although it is as good a victim as the other."""
    urgent = {"metadata": {"name": "urgent-gang"}, "value": 1000}
    made = server.api.create(CLASSES, urgent)
    assert made.status == 201, made.message
    nodes.create([*leaf("one", 2, 2), *leaf("two", 2, 2)])
    try:
        with (
            GangJob(server, "stays", 4, required(), spec={"backoffLimit": 0}) as stays,
            GangJob(server, "leaves", 4, required(), spec={"backoffLimit": 1}) as leaves,
        ):
            wait_until(lambda: runs(stays) and runs(leaves), SECONDS, "both gangs to run")
            with GangJob(server, "urgent", 4, required(), pod_spec={"priorityClassName": "urgent-gang"}) as high:
                wait_until(lambda: runs(high), SECONDS, "the gang of high priority to run")
                wait_until(lambda: events(server, leaves)["GangPreempted"] > 0, SECONDS, "an event")

                assert runs(stays)
                assert stays.made() == 4
                assert events(server, stays)["GangPreempted"] == 0
                assert events(server, leaves)["GangPreempted"] == 1
                assert not has_failed(leaves)
                assert not leaves.status().get("failed", 0)
    finally:
        server.api.delete(f"{CLASSES}/urgent-gang")


def test_gang_of_which_a_quota_permits_a_part_does_not_start(
    server: ApiServer, leader: Controllers, nodes: Nodes
) -> None:
    nodes.create(leaf("one", 2, 4))
    server.namespace("scarce")
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"pods": "3"}}}
    made = server.api.create("/api/v1/namespaces/scarce/resourcequotas", quota)
    assert made.status == 201, made.message
    with GangJob(server, "scarce", 4, required()) as job:
        wait_until(lambda: len(job.pods()) == 3, SECONDS, "three pods")
        words = "3 of the 4 members that start together exist"
        wait_until(lambda: words in messages(server, job, "GangWaiting"), SECONDS, "an event, after ten seconds")

        assert nodes_of(job) == {"": 3}
        assert [is_gated(pod) for pod in job.pods()] == [True] * 3


def test_pod_that_wants_all_places_for_members_that_never_come_stops_no_other_gang(
    server: ApiServer, leader: Controllers, nodes: Nodes
) -> None:
    nodes.create(leaf("one", 2, 4))
    with GangJob(server, "greedy", 1, required(), gang=("greedy", 8)) as greedy:
        wait_until(lambda: len(greedy.pods()) == 1, SECONDS, "a pod")
        with GangJob(server, "modest", 8, required()) as job:
            wait_until(lambda: runs(job), SECONDS, "eight pods to run")
        words = "Job greedy makes 1 pod: set min-available to 1 at most"
        wait_until(lambda: words in messages(server, greedy, "GangRefused"), SECONDS, "an event")

        assert [is_gated(pod) for pod in greedy.pods()] == [True]


def test_stateful_set_that_makes_a_pod_when_the_one_before_is_ready_starts_with_room_for_all(
    server: ApiServer, leader: Controllers, nodes: Nodes
) -> None:
    nodes.create([*leaf("one", 2, 1), *leaf("two", 2, 2)])
    ordered = {"podManagementPolicy": "OrderedReady"}
    with GangJob(server, "in-stages", 4, required(), resource="statefulsets", spec=ordered) as job:
        wait_until(lambda: runs(job), SECONDS, "four pods to run")

        assert leaves_of(job) == {"two"}
        assert job.made() == 4


def test_gang_in_stages_whose_other_members_never_come_gives_its_room_back(
    server: ApiServer, leader: Controllers, nodes: Nodes, measured: Callable[[str], None]
) -> None:
    """A quota permits two of its four pods. This leader keeps the room of the others for a minute."""
    nodes.create(leaf("one", 2, 2))
    server.namespace("half-made")
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"pods": "2"}}}
    made = server.api.create("/api/v1/namespaces/half-made/resourcequotas", quota)
    assert made.status == 201, made.message
    ordered = {"podManagementPolicy": "OrderedReady"}
    with GangJob(server, "half-made", 4, required(), resource="statefulsets", spec=ordered) as job:
        wait_until(lambda: nodes_of(job).total() == 2 and "" not in nodes_of(job), SECONDS, "two pods to be bound")
        began = time.monotonic()
        with GangJob(server, "after-it", 4, required()) as other:
            wait_until(lambda: "GangWaiting" in events(server, other), SECONDS, "the other gang to wait for the room")
            assert [is_gated(pod) for pod in other.pods()] == [True] * 4
            wait_until(lambda: runs(other), 4 * SECONDS, "the other gang to have the room")
            measured(f"the room of members that never come is another gang's after {time.monotonic() - began:.0f} s")

            wait_until(lambda: {is_gated(pod) for pod in job.pods()} == {True}, SECONDS, "its pods to wait again")
            words = "2 of 4 members were not created"
            wait_until(lambda: words in messages(server, job, "GangEvicted"), SECONDS, "an event")


def test_placement_of_a_gang_is_said_once(server: ApiServer, leader: Controllers, nodes: Nodes) -> None:
    """The Job controller makes pods in batches, and each batch is let go when it comes."""
    nodes.create(leaf("one", 16, 2))
    with GangJob(server, "said-once", 32, required(), gang=("said-once", 2)) as job:
        wait_until(lambda: runs(job), SECONDS, "32 pods to run")
        wait_until(lambda: events(server, job)["GangPlaced"] > 0, SECONDS, "an event")
        time.sleep(STAYS_SECONDS)

        assert events(server, job)["GangPlaced"] == 1
        assert messages(server, job, "GangPlaced").endswith("members placed in fabric.topograph.run/tier-0=one")


def _node_given(pod: JsonObject) -> str:
    """Return the node that a pod selects, or prefers."""
    selected: str | None = pod["spec"].get("nodeSelector", {}).get(HOSTNAME)
    if selected is not None:
        return selected
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    ((preferred,),) = (one["values"] for one in term["preference"]["matchExpressions"])
    return str(preferred)


@pytest.mark.parametrize("seen", ["as they come", "all at once"])
def test_gang_whose_pods_are_not_bound_yet_keeps_its_seats(
    server: ApiServer, leader: Controllers, nodes: Nodes, measured: Callable[[str], None], seen: str
) -> None:
    """The scheduler is away, while the Job controller makes more and more pods, and the leader opens their gates.

    A leader that sees many pods at its first look places them on more than one node, and selects none: each pod prefers its node then.
    """
    nodes.create(leaf("one", 20, 2))
    preferred = json.dumps({"name": "test", "preferred": {"topologies": [{"key": HOSTNAME}]}})
    server.plane.scheduler.stop()
    try:
        with ExitStack() as frozen, GangJob(server, "seats", 32, preferred, gang=("seats", 2)) as job:
            if seen == "all at once":
                frozen.enter_context(leader.frozen())
                wait_until(lambda: job.made() == 32, SECONDS, "all pods to be made")
                frozen.close()
            wait_until(lambda: [is_gated(one) for one in job.pods()] == [False] * 32, SECONDS, "32 pods without a gate")
            given = Counter(map(_node_given, job.pods()))
            measured(
                f"of a gang of 32 seen {seen}, two to a node: the nodes that are named have {sorted(given.values())} pods"
            )

            assert max(given.values()) <= 2
    finally:
        server.plane.scheduler.start()
