"""The example of docs/dra that needs a leaf switch: the real scheduler takes a VF below the leaf that the example names."""

import http.client
from collections.abc import Mapping

from railnet.dra.resource_slices import NodeIdentity, deletions, existing_slice, own_slices, writes
from tests.cluster.dra_examples import documents
from tests.cluster.process import until_found
from tests.control_plane.manifests import applied, as_list
from tests.control_plane.nodes import Nodes, node
from tests.control_plane.server import ApiServer
from tests.railnet.dra.slice_store import a_device

_SECONDS = 120.0
_LEAVES: Mapping[str, str | None] = {"elsewhere": "b8599f0300f98fff", "below": "b8599f0300f98f86", "unknown": None}


def publish(server: ApiServer, name: str, leaf: str | None) -> None:
    uid = server.api.get(f"/api/v1/nodes/{name}").object["metadata"]["uid"]
    known = {} if leaf is None else {"leaf": leaf}
    for request in writes([], [a_device(0, **known), a_device(1, **known)], NodeIdentity(name, uid)):
        assert isinstance(request.body, dict)
        assert server.api.create(request.path, request.body).status == http.client.CREATED


def remove_slices(server: ApiServer) -> None:
    for name in _LEAVES:
        slices = own_slices(name)
        found = [existing_slice(one, name) for one in server.api.items(f"{slices.path}?{slices.query()}")]
        for request in deletions(found):
            server.api.delete(request.path)


def test_vf_of_one_leaf_is_below_it(server: ApiServer, nodes: Nodes) -> None:
    nodes.create(node(name) for name in _LEAVES)
    server.namespace("leaf")
    with applied(server, {"offer": "dra"}):
        for name, leaf in _LEAVES.items():
            publish(server, name, leaf)
        try:
            done = server.kubectl("apply", "--namespace=leaf", "--filename=-", stdin=as_list(documents("one-leaf")))
            assert done.returncode == 0, done.stderr
            path = "/api/v1/namespaces/leaf/pods/one-leaf"
            taken = until_found(
                lambda: server.api.get(path).object["spec"].get("nodeName"), _SECONDS, "the pod to have a node"
            )
            assert taken == "below"
        finally:
            server.remove_namespaces()
            remove_slices(server)
