"""Gangs that Kubernetes starts itself, by PodGroups of Railnet's: on a whole control plane with the feature gates for them.

`railnet admission --gang-engine=auto` has pods name a PodGroup; `railnet controllers --gangs` finds a place, and creates it.
"""

import json
from collections.abc import Iterator

import pytest

from railnet.jobs.gang.engine import pod_group_name
from tests.cluster.process import until_found, wait_until
from tests.control_plane.controllers import Controllers
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
    placements,
    preferred,
    required,
    runs,
    seats,
)
from tests.control_plane.gang_engine_cluster import SECONDS, grouping, key_of, names_group, pod_group
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes
from tests.control_plane.server import ApiServer

_SPREADS = json.dumps({"preferred": {"topologies": [{"key": LEAF}]}})


@pytest.fixture(scope="module")
def engine(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """Have Kubernetes' gangs, the webhook, and one leader for all tests."""
    with (
        server.serving_pod_groups(),
        grouping(server, tmp_path_factory.mktemp("webhook")),
        leader(server, tmp_path_factory.mktemp("controllers")) as found,
    ):
        yield found


@pytest.mark.usefixtures("engine")
def test_gang_of_a_job_is_started_on_one_leaf_by_a_pod_group(server: ApiServer, nodes: Nodes) -> None:
    nodes.create([*leaf("small", 1, 4), *leaf("fits", 2, 4), *leaf("large", 4, 4)])
    with GangJob(server, "engine-leaf", 8, required()) as job:
        wait_until(lambda: runs(job), SECONDS, "all eight pods to run")
        assert len(leaves_of(job)) == 1
        assert not any(is_gated(pod) or not names_group(pod) for pod in job.pods())
        found = pod_group(server, job)
        assert found is not None
        assert key_of(found) == LEAF
        assert found["spec"]["schedulingPolicy"] == {"gang": {"minCount": 8}}
        assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [job.root.object["metadata"]["uid"]]
        assert len(placements(job)) == 1
        wait_until(lambda: events(server, job)["GangPlaced"] == 1, SECONDS, "the event")
    wait_until(lambda: pod_group(server, job) is None, SECONDS, "the PodGroup to go with its Job")


@pytest.mark.usefixtures("engine")
def test_level_of_a_preferring_gang_is_the_smallest_with_room(server: ApiServer, nodes: Nodes) -> None:
    nodes.create([*leaf("one", 2, 4), *leaf("two", 2, 4)])
    with GangJob(server, "engine-prefers", 8, preferred()) as whole:
        wait_until(lambda: runs(whole), SECONDS, "eight pods to run")
        assert key_of(pod_group(server, whole)) == LEAF
        assert len(leaves_of(whole)) == 1
    with GangJob(server, "engine-spreads", 12, _SPREADS) as wide:
        wait_until(lambda: runs(wide), SECONDS, "twelve pods to run")
        assert key_of(pod_group(server, wide)) == ""
        assert nodes_of(wide) == seats(wide)  # the scheduler uses the nodes for which the pods are nominated
        assert len(nodes_of(wide)) == 3


@pytest.mark.usefixtures("engine")
def test_required_level_without_room_waits_and_starts_when_there_is_room(server: ApiServer, nodes: Nodes) -> None:
    nodes.create([*leaf("busy", 1, 8), *leaf("free", 1, 4)])
    with occupied(server, "busy-0", "4"), GangJob(server, "engine-waits", 6, required()) as job:
        wait_until(lambda: events(server, job)["GangWaiting"] > 0, SECONDS, "the event")
        assert pod_group(server, job) is None
        assert not any(nodes_of(job)[name] for name in ("busy-0", "free-0"))
        server.api.delete(f"/api/v1/namespaces/{STRANGERS}/pods/on-busy-0?gracePeriodSeconds=0")
        wait_until(lambda: runs(job), SECONDS, "all six pods to run")
        assert leaves_of(job) == {"busy"}


@pytest.mark.usefixtures("engine")
def test_gang_that_is_larger_than_the_cluster_is_refused_in_words(server: ApiServer, nodes: Nodes) -> None:
    nodes.create(leaf("little", 1, 4))
    with GangJob(server, "engine-large", 5, required()) as job:
        text = until_found(lambda: messages(server, job, "GangRefused"), SECONDS, "the refusal")
        assert "make the gang smaller, or add nodes" in text
        assert pod_group(server, job) is None


@pytest.mark.usefixtures("engine")
def test_pod_group_of_someone_else_is_left_alone(server: ApiServer, nodes: Nodes) -> None:
    nodes.create(leaf("other", 1, 8))
    name, path = "engine-foreign", "/apis/scheduling.k8s.io/v1beta1/namespaces/engine-foreign/podgroups"
    server.namespace(name)
    foreign = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": pod_group_name(name)},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 9}}},
    }
    assert server.api.create(path, foreign).status == 201
    with GangJob(server, name, 4, required()) as job:
        text = until_found(lambda: messages(server, job, "GangRefused"), SECONDS, "the refusal")
        assert "someone else has created a PodGroup" in text
        found = pod_group(server, job)
        assert found is not None
        assert found["spec"]["schedulingPolicy"] == {"gang": {"minCount": 9}}


@pytest.mark.usefixtures("engine")
def test_group_that_the_author_names_is_the_authors(server: ApiServer, nodes: Nodes) -> None:
    nodes.create(leaf("own", 1, 8))
    pod_spec = {"schedulingGroup": {"podGroupName": "authors"}}
    with GangJob(server, "engine-own", 2, required(), pod_spec=pod_spec) as job:
        wait_until(lambda: len(job.pods()) == 2, SECONDS, "the pods")
        assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in job.pods()} == {"authors"}
        assert not any(is_gated(pod) for pod in job.pods())
        path = "/apis/scheduling.k8s.io/v1beta1/namespaces/engine-own/podgroups"
        own = {"metadata": {"name": "authors"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
        kind = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
        assert server.api.create(path, kind | own).status == 201
        wait_until(lambda: runs(job), SECONDS, "the author's PodGroup to start them")
        assert placements(job) == []


@pytest.mark.usefixtures("engine")
def test_room_that_is_taken_after_the_pod_group_is_created_is_waited_for_with_the_same_pods(
    server: ApiServer, nodes: Nodes
) -> None:
    """The scheduler does not run in between, and a pod that names its node needs no scheduler."""
    nodes.create(leaf("taken", 1, 4))
    server.plane.scheduler.stop()
    try:
        with GangJob(server, "engine-taken", 4, required()) as job:
            wait_until(lambda: pod_group(server, job) is not None, SECONDS, "the PodGroup")
            before = {pod["metadata"]["uid"] for pod in job.pods()}
            with occupied(server, "taken-0", "1"):
                server.plane.scheduler.start()
                text = until_found(lambda: messages(server, job, "GangWaiting"), 2 * SECONDS, "the event")
                assert "what was decided for a PodGroup cannot be changed" in text
                assert nodes_of(job) == {"": 4}
            wait_until(lambda: runs(job), 2 * SECONDS, "all four pods to run")
            assert {pod["metadata"]["uid"] for pod in job.pods()} == before
    finally:
        server.plane.scheduler.restart()
