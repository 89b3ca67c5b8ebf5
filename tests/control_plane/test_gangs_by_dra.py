"""Gangs on nodes whose VFs are in ResourceSlices alone, by both engines: the real scheduler makes the claims, and allocates their devices."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from railnet.dra.resource_slices import NodeIdentity, existing_slice, own_slices, writes
from railnet.kubelet.dra_driver_name import DRIVER
from tests.cluster.chart import GANGS, render
from tests.cluster.process import until_found, wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.gang_cluster import LEAF, SECONDS, gating, leader, messages, nodes_of, required, runs
from tests.control_plane.gang_engine_cluster import grouping
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.nodes import Nodes, node
from tests.control_plane.server import ApiServer
from tests.railnet.dra.slice_store import a_device

VF = "rdma/ib_vf"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
TEMPLATES = "resourceclaimtemplates"


@pytest.fixture(scope="module", params=["gates", "podgroups"])
def engine(
    request: pytest.FixtureRequest, server: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Have the webhook, one leader, and the DeviceClasses of the chart; with `podgroups`, Kubernetes starts the gangs."""
    name: str = request.param
    files = tmp_path_factory.mktemp
    with ExitStack() as made:
        if name == "podgroups":
            made.enter_context(server.serving_pod_groups())
        made.enter_context((gating if name == "gates" else grouping)(server, files("webhook")))
        for found in render({**GANGS, "offer": "dra"}):
            if found["kind"] == "DeviceClass":
                answer = server.api.create(CLASSES, found)
                assert answer.status == 201, answer.message
                made.callback(server.api.delete, f"{CLASSES}/{found['metadata']['name']}")
        made.enter_context(leader(server, files("controllers")))
        yield name


def offer(server: ApiServer, name: str, vfs: int, unhealthy: int = 0) -> None:
    """Write the slices of a node as its daemon does: so many VFs, of which the first are unhealthy."""
    identity = NodeIdentity(name, server.api.get(f"/api/v1/nodes/{name}").object["metadata"]["uid"])
    about = own_slices(name)
    documents = server.api.items(f"{about.path}?{about.query()}")
    devices = [
        a_device(number, "the port is DOWN" if number < unhealthy else None, resource=VF, rdma=True)
        for number in range(vfs)
    ]
    for request in writes([existing_slice(document, name) for document in documents], devices, identity):
        answer = server.api.send(request.method, request.path, request.body, content_type=request.content_type)
        assert answer.status in (200, 201), answer.message


def nodes_by_dra(server: ApiServer, nodes: Nodes, leaf: str, *vfs: int, unhealthy: int = 0) -> None:
    """Have nodes of one leaf, of which each offers so many VFs by DRA."""
    nodes.create(node(f"{leaf}-{number}", {LEAF: leaf}) for number in range(len(vfs)))
    for number, count in enumerate(vfs):
        offer(server, f"{leaf}-{number}", count, unhealthy)


def of_template(count: int) -> JsonObject:
    """Return the part of a pod that asks for VFs by a claim template."""
    container = {"name": "main", "image": "train:1", "resources": {"claims": [{"name": "vf"}]}}
    return {
        "containers": [container],
        "resourceClaims": [{"name": "vf", "resourceClaimTemplateName": f"{count}-vfs"}],
    }


def create_template(server: ApiServer, namespace: str, count: int) -> None:
    request = {"name": "vf", "exactly": {"deviceClassName": DRIVER, "count": count}}
    body = {"metadata": {"name": f"{count}-vfs"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    server.namespace(namespace)
    answer = server.api.create(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/{TEMPLATES}", body)
    assert answer.status == 201, answer.message


def test_gang_on_nodes_whose_vfs_are_only_in_slices_runs(server: ApiServer, engine: str, nodes: Nodes) -> None:
    nodes_by_dra(server, nodes, "dra", 2, 2)
    with GangJob(server, f"dra-{engine}", 4, required()) as job:
        wait_until(lambda: runs(job), SECONDS, "four pods to run")
        assert nodes_of(job) == {"dra-0": 2, "dra-1": 2}
        assert all(pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"] for pod in job.pods())


def test_gang_larger_than_the_free_devices_waits_with_words(server: ApiServer, engine: str, nodes: Nodes) -> None:
    nodes_by_dra(server, nodes, "busy", 4)
    with GangJob(server, f"dra-first-{engine}", 3, required()) as first:
        wait_until(lambda: runs(first), SECONDS, "the first gang to run")
        with GangJob(server, f"dra-second-{engine}", 2, required()) as second:
            words = f"best busy has room for 1 (short: {VF} 1)"
            wait_until(
                lambda: second.made() == 2 and words in messages(server, second, "GangWaiting"), SECONDS, "the event"
            )
            assert nodes_of(second) == {"": 2}
            first.finish()
            wait_until(lambda: runs(second), SECONDS, "the second gang to run")


def test_tainted_devices_are_not_counted_until_they_are_well(server: ApiServer, engine: str, nodes: Nodes) -> None:
    nodes_by_dra(server, nodes, "sick", 3, unhealthy=1)
    with GangJob(server, f"dra-sick-{engine}", 3, required()) as job:
        words = f"best sick has room for 2 (short: {VF} 1)"
        wait_until(lambda: job.made() == 3 and words in messages(server, job, "GangWaiting"), SECONDS, "the event")
        assert nodes_of(job) == {"": 3}
        offer(server, "sick-0", 3)
        wait_until(lambda: runs(job), SECONDS, "three pods to run")


def test_gang_by_claim_templates_runs_where_devices_are(server: ApiServer, engine: str, nodes: Nodes) -> None:
    """The node of the device plugin has enough VFs, and none for claims. Such a gang waits behind gates with both engines."""
    name = f"dra-claims-{engine}"
    nodes_by_dra(server, nodes, "claimed", 4, 4)
    nodes.create([node("claimed-plugin", {LEAF: "claimed"}, rdma_ib_vf="8")])
    create_template(server, name, 2)
    with GangJob(server, name, 4, required(), pod_spec=of_template(2)) as job:
        wait_until(lambda: runs(job), SECONDS, "four pods to run")
        assert nodes_of(job) == {"claimed-0": 2, "claimed-1": 2}


def test_gang_by_claims_that_the_devices_never_suffice_for_is_refused(
    server: ApiServer, engine: str, nodes: Nodes
) -> None:
    name = f"dra-large-{engine}"
    nodes_by_dra(server, nodes, "little", 3)
    create_template(server, name, 2)
    with GangJob(server, name, 2, required(), pod_spec=of_template(2)) as job:
        text = until_found(lambda: messages(server, job, "GangRefused"), SECONDS, "the refusal")
        assert VF in text
        assert nodes_of(job) == {"": 2}
