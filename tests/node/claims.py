"""What tests of claims share: a node that offers its VFs by DRA, claims in its API server, and kubelet's steps with them."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simnode.daemon_process import CONFIGURATION
from simnode.kubernetes.api_server import ApiServer
from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import RESOURCE, Node, Pod
from tests.node.primaries import RUN, node_links

FIRST, SECOND = "pci-0000-03-00-1", "pci-0000-03-00-2"
CDI = Path("/run/cdi")
METADATA = RUN / "device-metadata"
_SECONDS = 60.0


@contextmanager
def node_of_dra(cluster: ApiServer) -> Iterator[Node]:
    """A node with two VFs, which it offers by DRA."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:
        node.daemon.environment = {**cluster.environment, "NODE_NAME": "node-a"}
        node.install()
        offer(node, "dra")
        yield node


def settle(node: Node, cluster: ApiServer) -> list[str]:
    """End what a test changed for its time, and return what is left over."""
    cluster.interfere = lambda _: None
    cluster.claims.clear()
    node.kubelet.dra.are_listed = True
    if node.daemon.process is None:
        offer(node, "dra")
    return left_over(node)


def left_over(node: Node) -> list[str]:
    node.wait_for_answered_deletes()
    node.hca.settle()
    missing = [name for name in ("ibs5v0", "ibs5v1") if name not in node_links()]
    files = [*(RUN / "journal").iterdir(), *(RUN / "claims").glob("*"), *CDI.glob("*")]
    files += METADATA.glob("*")
    return [*missing, *map(str, files)]


def offer(node: Node, way: str, listed: int = 0) -> None:
    """Start the daemon of a node that offers its VFs in this way, and wait until kubelet knows this many healthy devices, and the driver."""
    document = json.loads(CONFIGURATION.read_text())
    CONFIGURATION.write_text(json.dumps({**document, "offer": way}))
    node.stop_daemon()
    start(node, listed)


def start(node: Node, listed: int = 0) -> None:
    before = node.kubelet.dra.registrations
    node.start_daemon(wait=False)
    node.kubelet.dra.wait_for_registration(before, _SECONDS)
    node.kubelet.wait_for_devices(RESOURCE, listed, _SECONDS)


def restart(node: Node) -> None:
    node.kill_daemon()
    start(node)


def a_pod(name: str = "train") -> PodIdentity:
    return PodIdentity(name, "default", str(uuid.uuid4()))


def a_result(device: str = FIRST, **changes: Any) -> dict[str, Any]:
    """Return what the scheduler has chosen for one request."""
    return {"request": "rail", "driver": "rdma.railnet.io", "pool": "node-a", "device": device, **changes}


def a_claim(
    cluster: ApiServer, *pods: PodIdentity, devices: tuple[str, ...] = (FIRST,), name: str = "vf"
) -> dict[str, Any]:
    """Make a claim in the API server, allocated by the scheduler and reserved for pods."""
    results = [a_result(device) for device in devices]
    claim = {
        "metadata": {"namespace": "default", "name": name, "uid": str(uuid.uuid4())},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid} for pod in pods],
        },
    }
    cluster.claims["default", name] = claim
    return claim


def run(node: Node, pod: PodIdentity, claim: dict[str, Any]) -> Pod:
    node.kubelet.dra.prepare(pod.uid, claim)
    return node.run_sandbox(pod)


def remove(node: Node, pod: Pod) -> None:
    node.remove_pod(pod)
    node.kubelet.dra.unprepare(pod.uid)
