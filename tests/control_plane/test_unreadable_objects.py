"""Objects that the API server stores, and that are hard to read: none of them keeps the controllers from the objects of other tenants."""

import http.client
import json
from collections.abc import Iterator

import pytest

from railnet.kubelet.dra_driver_name import DRIVER
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import NODES, Controllers, Job
from tests.control_plane.gang_cluster import gating
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.server import ApiServer

_NAMESPACE = "hostile"
_PATHS = {
    "pods": f"/api/v1/namespaces/{_NAMESPACE}/pods",
    "services": f"/api/v1/namespaces/{_NAMESPACE}/services",
    "slices": "/apis/resource.k8s.io/v1/resourceslices",
    "claims": f"/apis/resource.k8s.io/v1/namespaces/{_NAMESPACE}/resourceclaims",
}
_CONTAINER = {"name": "main", "image": "train:1"}
_ESCAPED = "<" * 1_420_000  # of which JSON has six bytes each
_GATED = {"schedulingGates": [{"name": "example.com/never"}]}
_SLICE = {
    "metadata": {"name": "of-a-node"},
    "spec": {
        "driver": DRIVER,
        "nodeName": NODES[0],
        "pool": {"name": NODES[0], "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "vf-0"}],
    },
}


@pytest.fixture
def controllers(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    files = tmp_path_factory.mktemp("controllers")
    replica = Controllers(server, files, options=["--gangs"])
    with gating(server, files), some_nodes(server.api, [node(name, pods="1000") for name in NODES]):
        yield replica
        replica.stop()


def _pod(name: str, **spec: object) -> JsonObject:
    return {"metadata": {"name": name}, "spec": {"containers": [_CONTAINER], **_GATED, **spec}}


def _claim() -> bytes:
    """Return a claim with parameters of 2,000 levels, as text: Python writes no deeper ones than it reads."""
    deep = '{"a":' + "[" * 2000 + "]" * 2000 + "}"
    config = f'{{"opaque":{{"driver":"example.com","parameters":{deep}}}}}'
    return f'{{"metadata":{{"name":"deep"}},"spec":{{"devices":{{"config":[{config}]}}}}}}'.encode()


def _managed(depth: int) -> bytes:
    """Return a pod that says of deep fields that a program of its author manages them."""
    deep = '{"f:a":' * depth + "{}" + "}" * depth
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": "deep"}
    pod = _pod("managed")
    pod["metadata"]["managedFields"] = [entry]
    return json.dumps(pod).replace('"deep"', deep).encode()


def _service(number: int) -> JsonObject:
    owner = {"apiVersion": "v1", "kind": "Job", "name": "x" * 1_200_000, "uid": "u"}
    labels, annotations = {"railnet.io/names": "job"}, {"railnet.io/job": "x" * 200_000}
    metadata = {"name": f"large-{number}", "labels": labels, "annotations": annotations, "ownerReferences": [owner]}
    return {"metadata": metadata | {"finalizers": ["example.com/never"]}, "spec": {"clusterIP": "None"}}


def test_objects_that_are_hard_to_read_keep_the_controllers_from_no_other(
    server: ApiServer, controllers: Controllers
) -> None:
    server.namespace(_NAMESPACE)
    job = Job(server, "beside")
    job.add(0)
    job.attach(0, "10.56.0.1")
    controllers.start()
    try:
        _create(server, "pods", _pod("escaped", containers=[{**_CONTAINER, "args": [_ESCAPED]}]))
        claims = [{"name": f"c{of}", "resourceClaimName": f"c-{of}"} for of in range(20_000)]
        _create(server, "pods", _pod("claims", resourceClaims=claims))
        _create(server, "slices", _SLICE)  # claims are watched where a node offers devices
        _create(server, "claims", _claim())
        _create(server, "pods", _managed(2000))
        for number in range(3):
            _create(server, "services", _service(number))
        controllers.wait()
        job.wait({"beside-0": "10.56.0.1"}, "a name beside what is hard to read")
        controllers.stop()
        controllers.start()
        controllers.wait()
        job.add(1)
        job.attach(1, "10.56.0.2")
        job.wait({"beside-0": "10.56.0.1", "beside-1": "10.56.0.2"}, "a name of a leader that lists them")
    finally:
        for number in range(3):
            server.api.merge(f"{_PATHS['services']}/large-{number}", {"metadata": {"finalizers": None}})
        server.api.delete(f"{_PATHS['slices']}/of-a-node")
        server.api.delete(f"/api/v1/namespaces/{_NAMESPACE}")


def _create(server: ApiServer, kind: str, body: JsonObject | bytes) -> None:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    with server.api.request("POST", _PATHS[kind], text, {"Content-Type": "application/json"}) as answer:
        status, said = answer.status, answer.read()
    assert status == http.client.CREATED, (kind, status, said[:400])
