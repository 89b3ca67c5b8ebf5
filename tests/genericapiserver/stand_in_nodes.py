"""Nodes, and a stand-in for their kubelets: a pod that is bound runs at once, and one whose time is over is gone."""

from collections.abc import Iterable, Mapping

from tests.genericapiserver.api import Api, JsonObject
from tests.genericapiserver.server import ApiServer
from tests.genericapiserver.stand_in import StandIn

ALLOCATABLE = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}


def node(name: str, labels: Mapping[str, str] = {}, **allocatable: str) -> JsonObject:
    """Return a Node as its kubelet creates it: ready, and with the label of its name. `rdma_ib_vf` stands for `rdma/ib_vf`."""
    named = {"rdma/ib_vf" if key == "rdma_ib_vf" else key: amount for key, amount in allocatable.items()}
    amounts = {**ALLOCATABLE, **named}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


class Nodes:
    """The nodes of the cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, nodes: Iterable[JsonObject]) -> None:
        for one in nodes:
            made = self._api.create("/api/v1/nodes", one)
            assert made.status == 201, made.message

    def lose(self, name: str) -> None:
        """Mark a node as kubelet's silence has it marked: not ready, and tainted."""
        unknown = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
        self._api.merge(f"/api/v1/nodes/{name}/status", {"status": unknown})
        taint = {"key": "node.kubernetes.io/unreachable"}
        taints = [{**taint, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        assert self._api.merge(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}}).status == 200

    def remove_all(self) -> None:
        self._api.send("DELETE", "/api/v1/nodes")


class Kubelets(StandIn):
    """The kubelets of all nodes."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server, ["/api/v1/pods"])

    def look(self, *lists: list[JsonObject]) -> bool:
        for pod in lists[0]:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            if pod["spec"].get("nodeName") and metadata.get("deletionTimestamp"):
                self.api.send("DELETE", f"{path}?gracePeriodSeconds=0")
            elif pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") == "Pending":
                others = [one for one in pod["status"].get("conditions", ()) if one["type"] != "Ready"]
                status = {"phase": "Running", "conditions": [*others, {"type": "Ready", "status": "True"}]}
                self.api.merge(f"{path}/status", {"status": status})
        return False
