"""The nodes of a test, which kwok reports as kubelets do."""

import http.client
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from railnet.fabric.rails_condition import TYPE
from tests.cluster.process import wait_until
from tests.control_plane.api import Api, JsonObject
from tests.control_plane.kwok import ANNOTATION

_SECONDS = 180.0
_KUBERNETES = "node.kubernetes.io/"
_ALLOCATABLE = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}


def node(name: str, labels: Mapping[str, str] = {}, **allocatable: str) -> JsonObject:
    """Return a Node as its kubelet creates it, with the labels of its name and system. `rdma_ib_vf` stands for `rdma/ib_vf`."""
    named = {"rdma/ib_vf" if key == "rdma_ib_vf" else key: amount for key, amount in allocatable.items()}
    amounts = {**_ALLOCATABLE, **named}
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    return {
        "metadata": {"name": name, "labels": {**own, **labels}, "annotations": ANNOTATION},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def without_kubelets(nodes: Iterable[JsonObject]) -> list[JsonObject]:
    """Return nodes that kwok leaves alone. They say that they are ready, until Kubernetes misses their kubelets."""
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return [
        {
            **one,
            "metadata": {**one["metadata"], "annotations": {}},
            "status": {**one["status"], "conditions": ready},
        }
        for one in nodes
    ]


def own_part(node: JsonObject) -> JsonObject:
    """Return the part of a node that Kubernetes' node controller does not write; it may write at any moment."""
    metadata, spec, status = node["metadata"], node["spec"], node["status"]
    kept = ("labels", "annotations", "finalizers", "ownerReferences")
    return {
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {**spec, "taints": [one for one in spec.get("taints", ()) if not one["key"].startswith(_KUBERNETES)]},
        "allocatable": status.get("allocatable"),
        "conditions": [one for one in status.get("conditions", ()) if one["type"] == TYPE],
    }


class Nodes:
    """The nodes of the cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, nodes: Iterable[JsonObject]) -> None:
        """Create nodes, and wait until pods can be bound to them."""
        names = set()
        for one in nodes:
            made = self._api.create("/api/v1/nodes", one)
            assert made.status == http.client.CREATED, made.message
            names.add(one["metadata"]["name"])
        wait_until(lambda: names <= set(self._ready()), _SECONDS, "the nodes to be ready")

    def remove_all(self) -> None:
        self._api.delete("/api/v1/nodes")

    def _ready(self) -> Iterator[str]:
        """Yield the names of nodes that are ready, and have lost the taint that the API server gives to new ones."""
        for one in self._api.items("/api/v1/nodes"):
            conditions = {condition["type"]: condition["status"] for condition in one["status"].get("conditions", ())}
            if conditions.get("Ready") == "True" and not one["spec"].get("taints"):
                yield one["metadata"]["name"]


@contextmanager
def some_nodes(api: Api, nodes: Iterable[JsonObject]) -> Iterator[None]:
    """Have some nodes in the block, and no others."""
    found = Nodes(api)
    found.create(nodes)
    try:
        yield
    finally:
        found.remove_all()
