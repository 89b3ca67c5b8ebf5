"""A real Kubernetes cluster whose nodes have two simulated InfiniBand cards each: what the tests of this folder run on.

The first node is also the control plane's, and most tests are about it alone: a taint keeps pods away from the others, but CoreDNS. A test of
several nodes takes the taint away for as long as it needs them (`all_nodes`).
"""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from ipaddress import ip_interface
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from simnode.hardware.fabric import Fabric, Uplink, cable
from simnode.remote_node import RemoteNode
from simnode.waiting import until_empty
from tests.cluster import addons, ground, kube_proxy, remote_worker
from tests.cluster.api_requests import ApiRequests
from tests.cluster.cluster_dns import ClusterDns
from tests.cluster.control_plane import ADMIN, CERTIFICATE, KUBE_PROXY, ControlPlane, kubelet_kubeconfig
from tests.cluster.ground import NODE, NODES
from tests.cluster.kubelet import APART
from tests.cluster.manifests import LABEL
from tests.cluster.pods import RESOURCE, pod
from tests.cluster.process import until_found, wait_until
from tests.cluster.railnet_on_node import STATE, Railnet, is_ready
from tests.cluster.remote_worker import WorkerPlan
from tests.cluster.runtime import SOCKET
from tests.cluster.worker import SYSFS, VFS, Worker, pfs_of

PFS = pfs_of(NODE)
JOURNAL = STATE / "journal"
_LOCKS = STATE / "lock"
STAYING = {"type": "sticky", "range": "10.58.0.0/16", "rails": 1}
"""The address management of the network that sticky addresses are in."""

_SERVICES = {"default/kubernetes"}  # of the namespace `default`, before any test


def configuration(cards: int = len(PFS), vfs: int = VFS) -> dict[str, Any]:
    """Return the node configuration, without its kind, of nodes with so many cards, and so many VFs on each."""
    return {
        "host": {"sysfs": str(SYSFS), "cri": str(SOCKET)},
        "provision": [{"pf": str(pf.address), "vfs": vfs} for pf in pfs_of(NODE, cards)],
        "networks": {"staying": {"ipam": STAYING}},
        "limits": {"ml": {"networks": ["default", "staying"]}},  # the namespace of `train_jobs`
    }


# The scheduler may look only once a minute at a pod that it held back, and a busy kubelet may report the end of the pod before it late.
_RUNNING_SECONDS = 240.0
_LOOK_SECONDS = 0.1
_SENT = " devices, "  # deviceplugin/service.py, at the begin of each stream to kubelet
_QUIET_SECONDS = 240.0  # every minute kubelet looks for sandboxes it has forgotten; a busy one takes longer
_P = ParamSpec("_P")
_T = TypeVar("_T")


class ClusterNode:
    """The whole cluster, a context manager; Railnet is not on it yet. What it leaves ends with scripts/with-cluster's namespaces.

    Attributes:
        fabrics: of the first node, by rail.
        leaves: by rail, the fabric that joins the nodes' fabrics.
        others: the nodes beside the first, by name.
    """

    def __init__(
        self, nodes: int = 2, cards: int = len(PFS), vfs: int = VFS, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Describe a cluster of so many nodes, with so many cards each, and so many VFs on each card; `tell` gets what is done next.

        Raises:
            ValueError: there are not so many names of nodes.
        """
        if not 1 <= nodes <= len(NODES):
            raise ValueError(f"a cluster has 1 to {len(NODES)} nodes, not {nodes}")
        self._cards, self._vfs, self._tell = cards, vfs, tell
        self.control_plane = ControlPlane()
        self.kubectl = self.control_plane.kubectl
        self._worker = Worker(NODE, ground.UPLINK, cards)
        self.containerd, self.kube_proxy, self.kubelet = (
            self._worker.containerd,
            self._worker.kube_proxy,
            self._worker.kubelet,
        )
        self.dns = ClusterDns()
        self.railnet = Railnet(self.kubectl, self.containerd, SYSFS, configuration(cards, vfs))
        self.leaves: tuple[Fabric, ...] = ()
        self.others: dict[str, RemoteNode[Worker]] = {}
        self._other_names = NODES[1:nodes]
        self._joined: list[str] = []
        self._serial = itertools.count(1)
        self._made = contextlib.ExitStack()

    @property
    def fabrics(self) -> tuple[Fabric, ...]:
        return self._worker.fabrics

    def __enter__(self) -> Self:
        self._tell("starting etcd, API server, controller manager, scheduler")
        ground.make_uplink()
        with contextlib.ExitStack() as made:
            made.callback(self._worker.close)
            self._worker.prepare()
            self.leaves = tuple(made.enter_context(Fabric()) for _ in self.fabrics)
            for fabric, leaf in zip(self.fabrics, self.leaves, strict=True):
                _connect(fabric, leaf, made)
            made.callback(self.control_plane.stop)
            self.control_plane.start()
            made.callback(self.dns.stop)
            self.dns.start()
            # A folder that all nodes see: each of them has a /run of its own.
            with tempfile.TemporaryDirectory(prefix="railnet-images-") as folder:
                images = [*addons.write_images(Path(folder)), Path(os.environ["RAILNET_IMAGE"])]
                self._worker.start_runtime(images)
                self.control_plane.wait()
                self._tell("starting nodes: containerd, kubelet, kube-proxy, flanneld")
                for name in self._other_names:
                    self.others[name] = self._start_other(name, made)
                for other in self.others.values():
                    other.begin(Worker.start_runtime, images)
                self._worker.join()
                addons.apply_flannel(self.kubectl)
                addons.apply_coredns(self.kubectl, [NODE, *self.others][-1])
                for other in self.others.values():
                    other.wait()
            for other in self.others.values():
                other.call(Worker.join)
            self._worker.wait()
            for other in self.others.values():
                other.call(Worker.wait)
            self._tell("waiting for CoreDNS")
            self.dns.wait()
            self._made = made.pop_all()
        return self

    def _start_other(self, name: str, made: contextlib.ExitStack) -> RemoteNode[Worker]:
        paths = (ADMIN, KUBE_PROXY, kubelet_kubeconfig(name), CERTIFICATE)
        with contextlib.ExitStack() as node_ends:  # the node has copies of its own
            ends = []
            for leaf in self.leaves:
                leaf_end, node_end = cable()
                ends.append(node_ends.enter_context(node_end))
                _plug(leaf, leaf_end, made)
            other = remote_worker.start(
                WorkerPlan(name, self._cards, {path: path.read_bytes() for path in paths}), ends
            )
        made.callback(other.close)
        other.call(Worker.prepare)
        return other

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    def set_port(self, rail: int, *, active: bool) -> None:
        """Have the port of a rail of the first node go down, or be ACTIVE again."""
        self._worker.hca.set_port(pfs_of(NODE, self._cards)[rail].address, active=active)

    @contextlib.contextmanager
    def joined_rails(self) -> Iterator[None]:
        """Cable the rails' fabrics to each other, as leaves of one fabric are: pods of different rails reach each other."""
        with contextlib.ExitStack() as made:
            _connect(*self.fabrics, made)
            yield

    @contextlib.contextmanager
    def all_nodes(self) -> Iterator[None]:
        """Have Railnet on all nodes, and pods where the scheduler likes; the daemons of the others end with the block."""
        names = self._joined = list(self.others)
        for name in names:
            self.on(name, Worker.keep_its_memory_apart)
        self.kubectl.run("label", "node", *names, f"{LABEL}=true")
        self.kubectl.run("taint", "node", *names, f"{APART}-")
        try:
            self.railnet.roll_out()
            for name in names:
                self.wait_for_vfs(self._vfs * self._cards, name)
            yield
            for name in names:
                assert self._left_on(name) == []
        finally:
            self._joined = []
            self.kubectl.run("taint", "node", *names, f"{APART}=:NoSchedule")
            self.kubectl.run("label", "node", *names, f"{LABEL}-")
            # A daemon that still ends would give VFs to the first pods of the next block, and not to those after them.
            for name in names:
                wait_until(lambda n=name: not self.railnet.pods(n), _RUNNING_SECONDS, f"the daemon of {name} to end")
                self.wait_for_vfs(0, name)

    def nodes(self) -> list[str]:
        """Name the nodes that have Railnet: the first one, and within `all_nodes` the others."""
        return [NODE, *self._joined]

    def _left_on(self, name: str) -> list[str]:
        """Say what pods with VFs left on one of the other nodes, when it has had time to go."""
        return until_empty(lambda: self.on(name, Worker.left_over, self._vfs), _QUIET_SECONDS, _LOOK_SECONDS)

    def on(self, name: str, function: Callable[Concatenate[Worker, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function with the programs of a node; arguments and result must be picklable."""
        other = self.others.get(name)
        return function(self._worker, *args, **kwargs) if other is None else other.call(function, *args, **kwargs)

    def allocatable(self, node: str = NODE) -> int:
        """Return how many VFs a node says it can give to pods."""
        return int(_status(f"nodes/{node}")["allocatable"].get(RESOURCE, 0))

    def is_ready(self) -> bool:
        """Tell whether the node is, as the API server knows."""
        conditions = _status(f"nodes/{NODE}")["conditions"]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def wait_for_vfs(self, count: int, node: str = NODE) -> float:
        """Wait until the API server knows of so many VFs of a node; gives the seconds."""
        what = f"{count} allocatable {RESOURCE} on {node}"
        return wait_until(lambda: self.allocatable(node) == count, _RUNNING_SECONDS, what)

    def restart_kubelet(self) -> None:
        """Start the first node's kubelet anew, and wait until it watches the daemon again."""
        self._wait_for_kubelet(self.kubelet.restart)

    def configure_kubelet(self, **changes: Any) -> None:
        """Start the first node's kubelet anew with these settings beside the usual ones, and wait until it watches the daemon again."""
        self._wait_for_kubelet(lambda: self.kubelet.configure(**changes))

    def forget_devices(self) -> None:
        """Start the first node's kubelet anew, with no note of VFs that pods have had; no pod may have one."""
        self._wait_for_kubelet(self.kubelet.forget_devices)

    def _wait_for_kubelet(self, restart: Callable[[], None]) -> None:
        """Restart kubelet, and wait for more than a node that is ready: it was ready all the time.

        A pod that is bound before the device plugin is known again is failed by kubelet. The daemon may be ready for a moment more: it has yet
        to hear that the last kubelet's stream has ended.
        """
        began = time.time()
        restart()
        wait_until(
            lambda: self.railnet.said_at(_SENT) > began and is_ready(),
            _RUNNING_SECONDS,
            "kubelet to watch the daemon again",
        )

    def create(self, *pods: dict[str, Any]) -> None:
        """Create pods, and return at once."""
        self.kubectl.apply(*pods)

    def bring(self, role: str, vfs: int = 0) -> str:
        """Create a pod, and return at once; gives its name, which no pod had before."""
        wanted = pod(f"{role}-{next(self._serial)}", vfs)
        self.create(wanted)
        return str(wanted["metadata"]["name"])

    def run(self, role: str, vfs: int = 0) -> str:
        """Create a pod and wait until it runs; gives its name, which no pod had before."""
        name = self.bring(role, vfs)
        self.wait_until_ready(name)
        return name

    def warnings(self, pods: Collection[str]) -> list[str]:
        """Give what the Warning events of these pods say; those of an earlier test's pods may come late."""
        events = self.kubectl.get("events", "--field-selector=type=Warning,involvedObject.kind=Pod")
        said = [(event["involvedObject"]["name"], event["message"]) for event in events]
        return [f"{name}: {message}" for name, message in said if name in pods]

    def forget_events(self) -> None:
        """Delete the events of the default namespace, at once: one by one, kubectl takes a fifth of a second for each."""
        self.kubectl.run("delete", "--raw=/api/v1/namespaces/default/events")

    def wait_for_event(self, name: str, words: str) -> str:
        """Wait until an event of a pod has these words; gives all of it."""
        what = f"an event of {name} that says {words!r}"
        return until_found(lambda: self._said(name, words), _RUNNING_SECONDS, what)[0]

    def _said(self, name: str, words: str) -> list[str]:
        return [event["message"] for event in self.kubectl.events(name) if words in event["message"]]

    def forget_pods(self) -> list[str]:
        """Have the API server forget every pod of the default namespace when the node has; gives what is left over there.

        So their VFs can be given away, however late kubelet reports their ends.
        """
        self.delete_all()
        left = self.left_over()
        self.kubectl.run("delete", "pods", "--all", "--force", "--grace-period=0")
        return left

    def wait_until_ready(self, *names: str, seconds: float = _RUNNING_SECONDS) -> None:
        try:
            self.kubectl.run("wait", "--for=condition=Ready", f"--timeout={seconds:g}s", *(f"pod/{n}" for n in names))
        except subprocess.CalledProcessError as error:
            for name in names:
                status = self.status(name)
                error.add_note(f"{name}: {status['phase']} {status.get('reason', '')} {status.get('message', '')}")
                error.add_note("\n".join(event["message"] for event in self.kubectl.events(name)))
            for name in self.nodes():
                error.add_note(f"the daemon of {name}:\n{self.railnet.last_lines(name)}")
            raise

    def wait_until_restarted(self, name: str) -> None:
        """Wait until a pod runs in a new sandbox after its sandbox was killed; its status stays Ready for a while."""
        wait_until(lambda: self._restarts(name) > 0, _RUNNING_SECONDS, f"{name} to run again")

    def _restarts(self, name: str) -> int:
        (container,) = self.status(name)["containerStatuses"]
        return int(container["restartCount"]) if container["ready"] else 0

    def delete(self, *names: str) -> None:
        """Delete pods, and return at once; they end a little later."""
        self.kubectl.run("delete", "pod", "--wait=false", *names)

    def delete_all(self) -> None:
        """Delete every Job and every pod of the default namespace, as `delete` does."""
        self.kubectl.run("delete", "jobs,pods", "--all", "--wait=false")

    def status(self, name: str) -> dict[str, Any]:
        return _status(f"namespaces/default/pods/{name}")

    def execute(self, pod_name: str, *command: str) -> str:
        """Run a command in a pod's container."""
        return self.kubectl.run("exec", pod_name, "--", *command)

    def addresses(self, pod_name: str) -> dict[str, str]:
        """Give the IPv4 address with its prefix length of each interface of a pod, as its container sees it."""
        lines = [line.split() for line in self.execute(pod_name, "ip", "-4", "-o", "address").splitlines()]
        return {fields[1]: fields[3] for fields in lines if fields[1] != "lo"}

    def pings(self, pod_name: str, ifname: str, address: str, size: int = 56) -> bool:
        """Tell whether an address answers a ping of so many bytes out of a pod's interface; on a busy machine it may answer late."""
        ping = ("ping", "-c1", "-W20", f"-s{size}", "-I", ifname, str(ip_interface(address).ip))
        return self.kubectl.answers("exec", pod_name, "--", *ping)

    def records(self, pod_name: str) -> list[dict[str, Any]]:
        """Give what Railnet has written down of a pod's sandboxes."""
        found = []
        for path in JOURNAL.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # another pod has ended meanwhile
                found.append(json.loads(path.read_text()))
        return [record for record in found if record["pod"]["name"] == pod_name]

    def left_over(self) -> list[str]:
        """Say what pods left on the node, from kernel and disk, when it has had time to go.

        The first look that finds nothing counts: kubelet has a sandbox's DEL run again later, and each DEL holds a lock.
        """
        return until_empty(self._left_over, _QUIET_SECONDS, _LOOK_SECONDS)

    def _left_over(self) -> list[str]:
        links = {path.name for path in Path("/sys/class/net").iterdir()}
        found = self._worker.left_over(self._vfs)
        found += [f"link {name}" for name in sorted(links) if name.startswith("veth")]
        found += [f"lock {path.name}" for path in _LOCKS.glob("*") if path.name != "recovery"]
        found += [f"address {path.name}" for path in Path("/var/lib/cni").glob("networks/*/*.*.*.*")]
        found += [f"flannel state {path.name}" for path in Path("/var/lib/cni").glob("flannel/*")]
        found += [
            f"rules of Service {name}"
            for name in sorted(kube_proxy.services() - _SERVICES)
            if name.startswith("default/")
        ]
        return found + [f"network namespace {path.name}" for path in Path("/run/netns").glob("*")]


def _connect(one: Fabric, other: Fabric, made: contextlib.ExitStack) -> None:
    """Join two fabrics by a cable, until the end of the stack."""
    for fabric, end in zip((one, other), cable(), strict=True):
        _plug(fabric, end, made)


def _plug(fabric: Fabric, end: socket.socket, made: contextlib.ExitStack) -> None:
    port = Uplink(end)
    made.callback(port.close)
    fabric.join(port)
    made.callback(fabric.leave, port)


def _status(path: str) -> dict[str, Any]:
    """Return the status of an object of the core API. Waits ask for it often, and kubectl takes a fifth of a second of a processor."""
    with ApiRequests() as api:
        status: dict[str, Any] = api.get(f"/api/v1/{path}")["status"]
    return status
