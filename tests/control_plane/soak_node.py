"""The one real node of a soak: kubelet, containerd, kube-proxy, flanneld, and Railnet's daemon on a simulated card.

Its taint keeps all pods away that do not tolerate it, so images that do not exist are never started there. `scripts/with-control-plane
--real-node` has its programs in PATH.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from simnode.chaos.soak_schedule import NODE_FAULTS, NodeFault
from simnode.waiting import until_empty
from tests.cluster import addons, ground, railnet_on_node
from tests.cluster.chart import render
from tests.cluster.control_plane import ADMIN
from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests import LABEL, NAMESPACE, on_simulated_cards
from tests.cluster.pods import RESOURCE
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import STATE
from tests.cluster.runtime import SOCKET
from tests.cluster.worker import SYSFS, Worker, pfs_of
from tests.control_plane.api import JsonObject
from tests.control_plane.gang_cluster import LEAF
from tests.control_plane.server import ApiServer

NAME = ground.NODES[1]  # the first one's address is the control plane's
DAEMON = "node's daemon"
LIMIT_MIB = 192
"""Of the chart, for the daemon."""

_VFS = 24
_POD_CIDR = "10.244.200.0/24"  # the controller manager of these tests gives nodes none
_LINK = "uplink"
_SECONDS = 300.0
_PAUSE_SECONDS = 0.5
# A container that was killed often waits for five minutes otherwise (KEP-4603).
_RESTARTS = {"crashLoopBackOff": {"maxContainerRestartPeriod": "5s"}}
_SUBNET = Path("/run/flannel/subnet.env")
_FLANNELD = b"/opt/bin/flanneld\0"

CONFIGURATION: JsonObject = {
    "host": {"sysfs": str(SYSFS), "cri": str(SOCKET)},
    "provision": [{"pf": str(pf.address), "vfs": _VFS} for pf in pfs_of(NAME, cards=1)],
}
"""The daemon's configuration, as a value of the chart: the feature of sticky addresses adds its network."""


class RealNode:
    """The node's programs, until the `with` block ends; `join` makes them a node of the cluster."""

    def __init__(self, server: ApiServer) -> None:
        """Describe the node of a cluster."""
        self._api, self._kubectl = server.api, Kubectl(ADMIN)
        self._worker = Worker(NAME, _LINK, cards=1)
        self._made = contextlib.ExitStack()

    def __enter__(self) -> Self:
        subprocess.run(["ip", "link", "add", _LINK, "type", "bridge"], check=True)
        with contextlib.ExitStack() as made:
            made.callback(self._worker.close)
            self._worker.prepare()
            with tempfile.TemporaryDirectory(prefix="railnet-images-") as folder:
                images = addons.write_flannel_images(Path(folder))
                self._worker.start_runtime([*images, Path(os.environ["RAILNET_IMAGE"])])
            self._made = made.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._made.close()

    def join(self, values: Mapping[str, Any]) -> None:
        """Have the node in the cluster, with flannel, and with the daemon that the chart renders with these values."""
        self._worker.join()
        wait_until(lambda: self._api.get(self._node).status == 200, _SECONDS, "kubelet to make its Node")
        labels = {LABEL: "true", LEAF: "leaf-real"}
        subnet = {"podCIDR": _POD_CIDR, "podCIDRs": [_POD_CIDR]}
        self._api.merge(self._node, {"metadata": {"labels": labels}, "spec": subnet})
        addons.apply_flannel(self._kubectl)
        self._worker.wait()
        self._worker.kubelet.configure(**_RESTARTS)
        objects = on_simulated_cards(render(values), SYSFS)
        self._kubectl.apply(*(one for one in objects if one["kind"] == "DaemonSet"))
        wait_until(_SUBNET.exists, _SECONDS, "flanneld to have its subnet")
        wait_until(railnet_on_node.is_ready, _SECONDS, "the node's daemon to be ready")
        wait_until(lambda: self._vfs() == _VFS, _SECONDS, f"{_VFS} VFs that pods can have")

    def have(self, kind: NodeFault) -> None:
        """Do what a fault does, and return when it is done; what it ended may still start."""
        _HAVE[kind](self)

    def processes(self) -> Iterator[tuple[str, int]]:
        """Yield the name and the process of each program that runs."""
        for program in (self._worker.containerd.program, self._worker.kubelet.program, self._worker.kube_proxy.program):
            if program.process is not None:
                yield f"node's {program.name}", program.process.pid
        with contextlib.suppress(ValueError):  # there is none, or another one starts while it ends
            yield DAEMON, railnet_on_node.daemon()
        yield from (("node's flanneld", process) for process in _processes_of(_FLANNELD))

    def left_over(self) -> list[str]:
        """Say what pods left on the node when all of them are gone."""
        return until_empty(lambda: self._worker.left_over(_VFS), _SECONDS, _PAUSE_SECONDS)

    def kill_daemon(self) -> None:
        """End the daemon by SIGKILL; its supervisor starts another one."""
        with contextlib.suppress(ValueError, ProcessLookupError):  # one that starts or ends is hit already
            os.kill(railnet_on_node.daemon(), signal.SIGKILL)

    def replace_daemon(self) -> None:
        """Delete the daemon's pod, as an upgrade does; the DaemonSet makes another one."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        for pod in self._api.items(f"{path}?fieldSelector=spec.nodeName%3D{NAME}"):
            self._api.delete(f"{path}/{pod['metadata']['name']}")

    def restart_containerd(self) -> None:
        """Start containerd anew, while kubelet uses it."""
        self._worker.containerd.restart()

    def restart_kubelet(self) -> None:
        """Start kubelet anew; it learns of the device plugin when the daemon registers again."""
        self._worker.kubelet.restart()

    @property
    def _node(self) -> str:
        return f"/api/v1/nodes/{NAME}"

    def _vfs(self) -> int:
        return int(self._api.get(self._node).object["status"].get("allocatable", {}).get(RESOURCE, 0))


_HAVE: Mapping[NodeFault, Callable[[RealNode], None]] = {
    "daemon killed": RealNode.kill_daemon,
    "daemon replaced": RealNode.replace_daemon,
    "containerd restarted": RealNode.restart_containerd,
    "kubelet restarted": RealNode.restart_kubelet,
}
assert _HAVE.keys() == NODE_FAULTS.keys()


def net1_addresses(namespace: str, pods: Iterable[str]) -> dict[str, str]:
    """Return the address of net1 in each of these pods of the node, as the kernel has it in the pod's network namespace."""
    wanted = set(pods)
    found = {}
    for path in (STATE / "journal").glob("*.json"):
        with contextlib.suppress(FileNotFoundError, KeyError, json.JSONDecodeError):  # the pod has just ended
            record = json.loads(path.read_text())
            pod = record["pod"]
            if pod["namespace"] == namespace and pod["name"] in wanted and (address := _address(record)):
                found[pod["name"]] = address
    return found


def _address(record: JsonObject) -> str | None:
    """Return what net1 has in a sandbox; None if there is no such interface, or no such sandbox."""
    command = ["nsenter", f"--net={record['netns']['path']}", "ip", "-json", "-4", "address", "show", "dev", "net1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return None
    return next((str(one["local"]) for link in json.loads(done.stdout) for one in link.get("addr_info", ())), None)


def _processes_of(command: bytes) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().startswith(command):
                yield int(path.parent.name)
