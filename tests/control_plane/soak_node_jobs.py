"""The well-behaved tenants of the real node of a soak: what a job has is what the kernel shows in its pods."""

from typing import Any

from simnode.chaos.job_pauses import Span, pauses
from tests.cluster.kubelet import APART
from tests.cluster.manifests import LABEL
from tests.cluster.pods import spec
from tests.control_plane.api import JsonObject
from tests.control_plane.gang_cluster import required
from tests.control_plane.gang_jobs import GangJob
from tests.control_plane.host_ports import a_pod
from tests.control_plane.server import ApiServer
from tests.control_plane.soak_jobs import GangTenant, Held, NamesTenant, PortsTenant, StickyTenant, Tenant, runs
from tests.control_plane.soak_node import net1_addresses
from tests.control_plane.soak_node_pauses import seen

NAMESPACES = ("good-node-gang", "good-node-names", "good-node-sticky", "good-node-ports")
ON_NODE: JsonObject = {
    "nodeSelector": {LABEL: "true"},
    "tolerations": [{"key": APART, "operator": "Exists"}],
    "terminationGracePeriodSeconds": 1,
    "automountServiceAccountToken": False,
}
"""What puts a pod on the real node."""

_MEMBERS = 2
_LIFE_SECONDS = 8.0  # in which a fault of the node may hit the job


def on_node(pod_spec: JsonObject, vfs: int) -> JsonObject:
    """Return the specification of a pod for the real node: its containers are of an image that is there, and have VFs."""
    (real,) = spec(vfs)["containers"]
    container = {key: real[key] for key in ("image", "command", "resources")}
    return {**pod_spec, **ON_NODE, "containers": [{**one, **container} for one in pod_spec["containers"]]}


def _templated(job: JsonObject) -> JsonObject:
    """Return a Job or a StatefulSet whose pods are for the real node, with one VF each."""
    template = job["spec"]["template"]
    return {**job, "spec": {**job["spec"], "template": {**template, "spec": on_node(template["spec"], 1)}}}


class _NodeTenant(Tenant):
    """Has jobs whose pods a fault of the real node may fail."""

    def pauses(self, name: str) -> tuple[Span, ...]:
        """Return when Kubernetes did nothing for a job so far, since the node had failed a pod of it."""
        return pauses(seen(self.pods(name), self._api.items(f"/api/v1/namespaces/{self.namespace}/events")))


class NodeGangTenant(_NodeTenant, GangTenant):
    """Has gangs on the real node; what a pod of a gang has is its address."""

    kind, members, life_seconds = "node-gang", _MEMBERS, _LIFE_SECONDS

    def body(self, name: str) -> JsonObject:
        """Return a Job that is one gang."""
        job = GangJob(self._server, name, self.members, required(), namespace=self.namespace)
        return _templated(job.body())

    def held(self, name: str) -> Held:
        """Return the address of each pod, when all run."""
        return _whole(net1_addresses(self.namespace, super().held(name)), self.members)


class NodeNamesTenant(_NodeTenant, NamesTenant):
    """Has Jobs on the real node whose pods have names; each leads to the address that the kernel shows."""

    kind, members, life_seconds = "node-names", _MEMBERS, _LIFE_SECONDS

    def body(self, name: str) -> JsonObject:
        """Return an Indexed Job."""
        return _templated(super().body(name))

    def held(self, name: str) -> Held:
        """Return the address of each pod, when the name of each leads there."""
        addresses = net1_addresses(self.namespace, [pod["metadata"]["name"] for pod in self.pods(name) if runs(pod)])
        names = self.names()
        return _whole({pod: address for pod, address in addresses.items() if names.get(pod) == address}, self.members)


class NodeStickyTenant(_NodeTenant, StickyTenant):
    """Has StatefulSets on the real node; one of the pods is deleted, and its next one has the same address."""

    kind, members, life_seconds = "node-sticky", _MEMBERS, _LIFE_SECONDS

    def body(self, name: str) -> JsonObject:
        """Return a StatefulSet."""
        return _templated(super().body(name))

    def held(self, name: str) -> Held:
        """Return the sticky address of each pod, when the kernel shows it there."""
        given = super().held(name)
        running = [pod["metadata"]["name"] for pod in self.pods(name) if runs(pod)]
        addresses = net1_addresses(self.namespace, running)
        return given if {pod: text.partition("/")[0] for pod, text in given.items()} == addresses else {}

    def disturb(self, name: str) -> None:
        """Delete a pod, which ends as usual."""
        self._api.delete(f"{self._pods}/{name}-1")


class NodePortsTenant(_NodeTenant, PortsTenant):
    """Has pods in host-network mode on the real node."""

    kind, members, life_seconds = "node-ports", _MEMBERS, _LIFE_SECONDS

    def pod(self, name: str, labels: JsonObject) -> JsonObject:
        """Return a pod without TensorBoard, whose port is the same for all: two pods of one node cannot have it."""
        pod = a_pod(name, labels=labels)
        (container,) = pod["spec"]["containers"]
        ports = [port for port in container["ports"] if port["name"] != "tensorboard"]
        return {**pod, "spec": on_node({"containers": [{**container, "ports": ports}]}, 0)}


def _whole(held: Held, members: int) -> Held:
    return held if len(held) == members else {}


def tenants(server: ApiServer) -> list[Tenant]:
    """Return one tenant of each kind."""
    kinds = (NodeGangTenant, NodeNamesTenant, NodeStickyTenant, NodePortsTenant)
    return [kind(server, namespace) for kind, namespace in zip(kinds, NAMESPACES, strict=True)]


def renaming_pod() -> dict[str, Any]:
    """Return what a hostile pod of the real node has: with NET_ADMIN it gives its VF another name, sets it down, and ends."""
    (container,) = on_node({"containers": [{"name": "main"}]}, 1)["containers"]
    rename = "ip link set net1 down; ip link set net1 name evil; sleep 1"
    privilege = {"capabilities": {"add": ["NET_ADMIN"]}}
    return {
        **ON_NODE,
        "restartPolicy": "Never",
        "containers": [{**container, "command": ["sh", "-c", rename], "securityContext": privilege}],
    }
