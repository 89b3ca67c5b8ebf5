"""One real Kubernetes node with two simulated InfiniBand cards: what the tests of this folder run on."""

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Collection, Iterator
from ipaddress import ip_interface
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from simnode import preinstalled_files
from simnode.hardware.fabric import Fabric, Uplink, cable
from simnode.hardware.hca import Hca
from simnode.hardware.pf_properties import SimulatedPf
from simnode.waiting import until_empty
from tests.cluster import busybox, ground, kube_proxy
from tests.cluster.cluster_dns import ClusterDns
from tests.cluster.control_plane import NODE, ControlPlane
from tests.cluster.kube_proxy import KubeProxy
from tests.cluster.kubelet import Kubelet
from tests.cluster.pods import RESOURCE, pod
from tests.cluster.process import until_found, wait_until
from tests.cluster.railnet_on_node import STATE, Railnet
from tests.cluster.runtime import SOCKET, Containerd
from vf.guid import Guid
from vf.pci_address import PciAddress

PFS = (SimulatedPf(), SimulatedPf(PciAddress(0, 0x0C, 0, 0), Guid(0xB8599F0300F98FA2), netdev="ibs6"))
VFS = 4  # of each PF
SYSFS = Path("/run/simnode/sys")  # /sys is the kernel's own: kubelet and runtime need it
JOURNAL = STATE / "journal"
_LOCKS = STATE / "lock"
_SERVICES = {"default/kubernetes"}  # of the namespace `default`, before any test
CONFIGURATION: dict[str, Any] = {
    "apiVersion": "railnet.io/v1alpha1",
    "kind": "NodeConfiguration",
    "host": {"sysfs": str(SYSFS), "cri": str(SOCKET)},
    "provision": [{"pf": str(pf.address), "vfs": VFS} for pf in PFS],
    "networks": {"staying": {"ipam": {"type": "sticky", "range": "10.58.0.0/16"}}},
    "limits": {"ml": {"networks": ["default", "staying"]}},  # the namespace of `train_jobs`
}
# The scheduler may look only once a minute at a pod that it held back, and a busy kubelet 1.20 may report the end of the pod before it a minute
# and a half late.
_RUNNING_SECONDS = 240.0
_LOOK_SECONDS = 0.1
_QUIET_SECONDS = 240.0  # every minute kubelet looks for sandboxes it has forgotten; a busy one takes longer


class ClusterNode:
    """The whole cluster, a context manager; Railnet is not on it yet. What it leaves ends with scripts/cluster's namespaces.

    Attributes:
        fabrics: by rail.
    """

    def __init__(self) -> None:
        self.control_plane = ControlPlane()
        self.kubectl = self.control_plane.kubectl
        self.containerd = Containerd()
        self.kube_proxy = KubeProxy()
        self.dns = ClusterDns(self.kubectl)
        self.kubelet = Kubelet(self.kubectl)
        self.railnet = Railnet(self.kubectl, self.containerd, SYSFS, CONFIGURATION)
        self.fabrics: tuple[Fabric, ...] = ()
        self.hca: Hca
        self._serial = itertools.count(1)
        self._made = contextlib.ExitStack()

    def __enter__(self) -> Self:
        ground.prepare()
        with contextlib.ExitStack() as made:
            preinstalled_files.write(Path(os.environ["RAILNET_CNI_PLUGINS"]), (), 0, preinstalled_files.FlannelLease())
            preinstalled_files.CONFIGURATION.unlink()  # it comes with the manifests
            self.fabrics = tuple(made.enter_context(Fabric()) for _ in PFS)
            self.hca = Hca(dict(zip(PFS, self.fabrics, strict=True)), SYSFS, Path("/dev"))
            made.callback(self.hca.close)
            made.callback(self.control_plane.stop)
            self.control_plane.start()
            made.callback(self.containerd.end)
            self.containerd.start()
            busybox.write(ground.RUN / "busybox.tar")
            self.containerd.load(ground.RUN / "busybox.tar")
            self.railnet.load()
            self.control_plane.wait()
            made.callback(self.kube_proxy.stop)
            self.kube_proxy.start()
            made.callback(self.dns.stop)
            self.dns.start()
            made.callback(self.kubelet.stop)
            self.kubelet.start()
            self.kube_proxy.wait()
            self.dns.wait()
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    @contextlib.contextmanager
    def joined_rails(self) -> Iterator[None]:
        """Cable the rails' fabrics to each other, as leaves of one fabric are: pods of different rails reach each other."""
        with contextlib.ExitStack() as made:
            for fabric, end in zip(self.fabrics, cable(), strict=True):
                port = Uplink(end)
                made.callback(port.close)
                fabric.join(port)
                made.callback(fabric.leave, port)
            yield

    def allocatable(self) -> int:
        """Give how many VFs the node says it can give to pods."""
        return int(self.kubectl.get("node", NODE)["status"]["allocatable"].get(RESOURCE, 0))

    def is_ready(self) -> bool:
        """Tell whether the node is, as the API server knows."""
        conditions = self.kubectl.get("node", NODE)["status"]["conditions"]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def wait_for_vfs(self, count: int) -> float:
        """Wait until the API server knows of so many VFs; gives the seconds."""
        return wait_until(lambda: self.allocatable() == count, _RUNNING_SECONDS, f"{count} allocatable {RESOURCE}")

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

        So their VFs can be given away; kubelet 1.20 would tell it up to ten seconds later.
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
                error.add_note("\n".join(event["message"] for event in self.kubectl.events(name)))
            raise

    def wait_until_restarted(self, name: str) -> None:
        """Wait until a pod runs in a new sandbox after its sandbox was killed; its status stays Ready for a while."""
        wait_until(lambda: self._restarts(name) > 0, _RUNNING_SECONDS, f"{name} to run again")

    def _restarts(self, name: str) -> int:
        (container,) = self.status(name)["containerStatuses"]
        return int(container["restartCount"]) if container["ready"] else 0

    def delete(self, *names: str) -> None:
        """Delete pods; they end a little later, and the API server forgets them ten seconds later, as kubelet 1.20 looks."""
        self.kubectl.run("delete", "pod", "--wait=false", *names)

    def delete_all(self) -> None:
        """Delete every Job and every pod of the default namespace, as `delete` does."""
        self.kubectl.run("delete", "jobs,pods", "--all", "--wait=false")

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.get("pod", name)["status"]
        return found

    def execute(self, pod_name: str, *command: str) -> str:
        """Run a command in a pod's container."""
        return self.kubectl.run("exec", pod_name, "--", *command)

    def addresses(self, pod_name: str) -> dict[str, str]:
        """Give the IPv4 address with its prefix length of each interface of a pod, as its container sees it."""
        lines = [line.split() for line in self.execute(pod_name, "ip", "-4", "-o", "address").splitlines()]
        return {fields[1]: fields[3] for fields in lines if fields[1] != "lo"}

    def pings(self, pod_name: str, ifname: str, address: str) -> bool:
        """Tell whether an address answers one ping out of a pod's interface."""
        return self.kubectl.answers(
            "exec", pod_name, "--", "ping", "-c1", "-W5", "-I", ifname, str(ip_interface(address).ip)
        )

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
        vfs = {f"{pf.netdev}v{index}" for pf in PFS for index in range(VFS)}
        found = [f"VF netdev {name} is missing" for name in sorted(vfs - links)]
        found += [f"link {name}" for name in sorted(links) if name.startswith("veth")]
        found += [f"record {path.name}" for path in JOURNAL.glob("*")]
        found += [f"lock {path.name}" for path in _LOCKS.glob("*") if path.name != "recovery"]
        found += [f"address {path.name}" for path in Path("/var/lib/cni").glob("networks/*/*.*.*.*")]
        found += [f"flannel state {path.name}" for path in Path("/var/lib/cni").glob("flannel/*")]
        found += [
            f"rules of Service {name}"
            for name in sorted(kube_proxy.services() - _SERVICES)
            if name.startswith("default/")
        ]
        return found + [f"network namespace {path.name}" for path in Path("/run/netns").glob("*")]
