"""ResourceSlices in an API server: a daemon's token writes those of its node and no others, and what was written is kept as it is."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from railnet.dra.resource_slices import NodeIdentity, existing_slice, writes
from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer
from tests.control_plane.daemon_tokens import OF_NODE_A, daemons
from tests.control_plane.server import ApiServer
from tests.railnet.dra.slice_store import a_device

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DEVICES = (a_device(0, "no driver is bound", mtu=4092, rdma=True, linkType="infiniband"), a_device(1, mtu=4092))


@pytest.fixture(scope="module")
def tokens(server: ApiServer) -> Iterator[Mapping[str, str]]:
    with daemons(server, {"offer": "dra"}) as tokens:
        wait_until(
            lambda: write(server, tokens, "node-b", "?dryRun=All").status == 422, 120.0, "the policy to be in force"
        )
        yield tokens


def write(server: ApiServer, tokens: Mapping[str, str], node: str, query: str = "") -> ApiAnswer:
    """Create the first slice of a node with the token of node-a."""
    uid = server.api.get(f"/api/v1/nodes/{node}").object["metadata"]["uid"]
    (request,) = writes([], DEVICES, NodeIdentity(node, uid))
    path = request.path + query
    return server.api.send(request.method, path, request.body, tokens[OF_NODE_A], request.content_type)


def test_daemon_writes_its_slices_and_they_are_kept_with_their_taints(
    server: ApiServer, tokens: Mapping[str, str]
) -> None:
    made = write(server, tokens, "node-a")
    assert made.status == 201, made.message

    documents: list[Any] = server.api.items(f"{SLICES}?fieldSelector=spec.nodeName=node-a,spec.driver=rdma.railnet.io")
    existing = [existing_slice(document, "node-a") for document in documents]
    uid = documents[0]["metadata"]["ownerReferences"][0]["uid"]
    assert writes(existing, DEVICES, NodeIdentity("node-a", uid)) == []
    assert documents[0]["spec"]["devices"][0]["taints"][0]["value"] == "no-driver-is-bound"


def test_daemon_writes_no_slice_of_another_node(server: ApiServer, tokens: Mapping[str, str]) -> None:
    refused = write(server, tokens, "node-b")

    assert refused.status == 422
    assert "of the node of this token" in refused.message


def test_device_class_serves_the_resource_of_the_pool(server: ApiServer, tokens: Mapping[str, str]) -> None:
    assert tokens
    found = server.api.get("/apis/resource.k8s.io/v1/deviceclasses/rdma-ib-vf").object

    assert found["spec"]["extendedResourceName"] == "rdma/ib_vf"
