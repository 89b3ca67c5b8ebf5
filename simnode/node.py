"""One simulated node: HCA, fabric, kubelet, container runtime, flannel's files, and Railnet's daemon as a separate process.

This module starts the parts, and runs and removes pods in the order that kubelet has; each part has its own module.
"""

import contextlib
import os
import signal
import socket
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyroute2 import IPRoute

from railnet.kernel.waiting import block_until
from railnet.vf.pci_address import PciAddress
from simnode import preinstalled_files
from simnode.daemon_process import Daemon
from simnode.hardware.fabric import Fabric, Uplink
from simnode.hardware.hca import Hca
from simnode.hardware.pf_properties import SimulatedPf
from simnode.judge import node_state
from simnode.judge.invariants import LiveSandbox
from simnode.judge.node_state import NodeState
from simnode.kubernetes.cri import SOCKET, CriEndpoint
from simnode.kubernetes.kubelet import Kubelet, PodIdentity
from simnode.kubernetes.runtime import Added, Runtime, Sandbox
from simnode.linux import namespaces
from simnode.ping import ANSWER_SECONDS, ping
from simnode.preinstalled_files import FlannelLease

RESOURCE = "rdma/ib_vf"
_ANNOTATIONS = {"kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z", "kubernetes.io/config.source": "api"}
_START_SECONDS = 90.0
# The simulated HCA takes 10 ms of a processor to make a VF; a VF that comes late is seen by the daemon's resync, ten seconds after.
_START_SECONDS_OF_A_VF = 0.05
_DETACH_SECONDS = 60.0
_CLOSE_SECONDS = 10.0
_VXLAN_LEASE = FlannelLease()


@dataclass(frozen=True, slots=True)
class Pod:
    """A running pod: its sandbox, the result of ADD, and the devices and variables that its container would get."""

    identity: PodIdentity
    sandbox: Sandbox
    added: Added
    device_ids: tuple[str, ...]
    env: Mapping[str, str]
    device_nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.identity.name

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.identity.uid

    @property
    def container_id(self) -> str:
        """The id of the sandbox, CNI_CONTAINERID."""
        return self.sandbox.container_id

    @property
    def netns(self) -> Path:
        """The path of the pod's network namespace."""
        return self.sandbox.netns

    @property
    def live_sandbox(self) -> LiveSandbox:
        """The sandbox as `judge.invariants` knows it."""
        return LiveSandbox(self.container_id, self.netns, frozenset(map(PciAddress.parse, self.device_ids)))

    @property
    def result(self) -> bytes:
        """The result that ADD printed, byte for byte."""
        return self.added.result

    @property
    def add_ms(self) -> float:
        """The time that ADD took, in milliseconds."""
        return self.added.milliseconds


class Node:
    """One node inside `simnode exec`; a context manager that leaves nothing behind.

    Args:
        plugins: the folder of the real CNI plugins.
        pfs: the HCA's physical functions; each is cabled to a separate fabric, as rails are.
        vfs: the number of VFs that the node configuration asks of each PF.
        lease: the subnet that flannel leased to the node.
        sysfs: the root of the simulated tree. A real container runtime needs the kernel's /sys, and then the tree is elsewhere.
        cri: the socket of a real container runtime; by default the simulated runtime serves its own.

    Attributes:
        pfs: the HCA's physical functions, in the order of their PCI addresses.
        fabrics: by rail, which is the order of the PFs' PCI addresses.
    """

    def __init__(
        self,
        plugins: Path,
        pfs: Iterable[SimulatedPf] = (SimulatedPf(),),
        vfs: int = 8,
        lease: FlannelLease = _VXLAN_LEASE,
        sysfs: Path = Path("/sys"),
        cri: Path | None = None,
    ) -> None:
        self._plugins, self.vfs, self._lease, self._sysfs, self._cri = plugins, vfs, lease, sysfs, cri
        real_sysfs = {Path("/sys")} - {sysfs}
        self._folders = [folder for folder in namespaces.PRIVATE_FOLDERS if folder not in real_sysfs]
        self.pfs = tuple(sorted(pfs, key=lambda pf: pf.address))
        self.fabrics: tuple[Fabric, ...] = ()
        self.hca: Hca
        self.kubelet = Kubelet()
        self.runtime = Runtime()
        self.daemon = Daemon()
        self._made = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if not namespaces.inside():
            raise RuntimeError(
                "this process is not in the namespaces of a simulated node, and a node writes to /sys, /run and /etc: "
                "start it by `python -m simnode exec -- COMMAND`"
            )
        with contextlib.ExitStack() as made:
            made.callback(_delete_files, self._folders, frozenset(_files(self._folders)))
            made.callback(_delete_links, _link_names())
            preinstalled_files.write(self._plugins, self.pfs, self.vfs, self._lease, self._sysfs, self._cri or SOCKET)
            if self._cri is None:
                made.enter_context(CriEndpoint(self.runtime.listed))
            self.fabrics = tuple(made.enter_context(Fabric()) for _ in self.pfs)
            self.hca = Hca(dict(zip(self.pfs, self.fabrics, strict=True)), self._sysfs, Path("/dev"))
            made.callback(self.hca.close)
            self.kubelet.start()
            made.callback(self.kubelet.stop)
            made.callback(self.runtime.remove_sandboxes)
            made.callback(self.stop_daemon)
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    def install(self) -> None:
        """Install Railnet's executable and its configuration list as the DaemonSet does."""
        self.daemon.install()

    def start_daemon(self, *, wait: bool = True) -> None:
        """Start the daemon; by default wait until all VFs are registered and healthy.

        Raises:
            DaemonFailed: the daemon ended, or its VFs were not healthy in time.
        """
        try:
            self.kubelet.wait_for_devices(RESOURCE, 0, _START_SECONDS)  # kubelet has noticed the last daemon's end
            self.daemon.start()
            if wait:
                self.kubelet.wait_for_devices(RESOURCE, self.vfs * len(self.pfs), self._start_seconds)
        except TimeoutError as error:
            raise self.daemon.failure(error) from None

    def start_daemon_beside_faults(self, unhealthy: Callable[[], int]) -> None:
        """Start the daemon, and wait until all VFs are registered and healthy but those that a fault may make unhealthy.

        Args:
            unhealthy: returns the largest number of VFs that may be unhealthy at this moment.

        Raises:
            DaemonFailed: the daemon ended, or too few VFs were healthy in time.
        """
        self.start_daemon(wait=False)
        total = self.vfs * len(self.pfs)
        if not block_until(
            lambda: len(self.kubelet.healthy(RESOURCE)) >= total - unhealthy(), self._start_seconds, 0.05
        ):
            raise self.daemon.failure(f"{len(self.kubelet.healthy(RESOURCE))} of {total} VFs are healthy")

    @property
    def _start_seconds(self) -> float:
        return _START_SECONDS + _START_SECONDS_OF_A_VF * self.vfs * len(self.pfs)

    def stop_daemon(self) -> int | None:
        """End the daemon by SIGTERM, and by SIGKILL if it goes on; return its exit status, or None if there is no daemon."""
        return self.daemon.end(signal.SIGTERM)

    def kill_daemon(self) -> int | None:
        """End the daemon by SIGKILL; return its exit status, or None if there is no daemon."""
        return self.daemon.end(signal.SIGKILL)

    def uplink(self, rail: int, end: socket.socket) -> None:
        """Cable the fabric of a rail to another fabric; the node owns this end of the cable from now on."""
        port = Uplink(end)
        self._made.callback(port.close)
        self.fabrics[rail].join(port)
        self._made.callback(self.fabrics[rail].leave, port)

    def run_pod(
        self, name: str, vfs: int = 0, namespace: str = "default", capability_args: Mapping[str, Any] | None = None
    ) -> Pod:
        """Run a pod: allocate its devices, make its sandbox, run ADD, call PreStartContainer.

        Raises:
            UnexpectedAdmissionError: there are not enough devices.
            CniFailed: ADD failed and DEL was run. The pod keeps its devices, as it does for kubelet's next attempt.
            grpc.RpcError: the daemon refused Allocate or PreStartContainer.
        """
        identity = PodIdentity(name, namespace, str(uuid.uuid4()))
        if vfs:
            self.kubelet.allocate(identity, RESOURCE, vfs)
        return self.run_sandbox(identity, capability_args)

    def run_sandbox(self, identity: PodIdentity, capability_args: Mapping[str, Any] | None = None) -> Pod:
        """Run the steps that follow a pod's admission; call it again for a pod whose first attempt failed."""
        arguments = {"io.kubernetes.cri.pod-annotations": _ANNOTATIONS, **(capability_args or {})}
        sandbox = self.runtime.create_sandbox(identity.namespace, identity.name, identity.uid, arguments)
        added = self.runtime.set_up(sandbox)
        allocations = self.kubelet.allocations(identity)
        responses = [allocation.response for allocation in allocations]
        self.kubelet.pre_start(identity)
        return Pod(
            identity,
            sandbox,
            added,
            tuple(device for allocation in allocations for device in allocation.device_ids),
            {key: value for response in responses for key, value in response.envs.items()},
            tuple(device.host_path for response in responses for device in response.devices),
        )

    def ping(self, pod: Pod, address: str, ifname: str, seconds: int = ANSWER_SECONDS) -> bool:
        """Return whether an address answers one ping through a pod's interface in time."""
        return ping(pod.netns, address, ifname=ifname, seconds=seconds)

    def look(self) -> NodeState:
        """Return the state of the whole node as kernel and disk show it, for `judge.invariants`."""
        daemon = self.daemon.process
        self.wait_for_answered_deletes()
        if daemon is not None:  # the descriptor of a namespace is closed just after the record is removed
            block_until(lambda: not node_state.has_network_namespace(daemon.pid), _CLOSE_SECONDS, 0.005)
        self.hca.settle()
        with self.kubelet.still():
            return node_state.of_node(None if daemon is None else daemon.pid, self.hca.places(), self._sysfs)

    def look_at(self, netns_paths: Collection[Path]) -> NodeState:
        """Return the state of these sandboxes only; other sandboxes may come and go meanwhile."""
        return node_state.of_sandboxes(netns_paths, self.hca.places(), self._sysfs)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod: kubelet frees its devices, DEL runs, the network namespace is removed."""
        self.kubelet.remove(pod.identity)
        self.runtime.tear_down(pod.sandbox)
        self.wait_for_answered_deletes()

    def wait_for_answered_deletes(self, ends: Callable[[], bool] = lambda: False) -> None:
        """Wait until the daemon has taken back the rails of DELs that it has answered, or `ends` returns true.

        Not for a daemon that is dead or stopped, and for a minute at most: what is not back then is the judge's to report.
        """

        def is_over() -> bool:
            process = self.daemon.process
            return ends() or process is None or not _runs(process.pid) or not node_state.is_detaching()

        block_until(is_over, _DETACH_SECONDS, 0.005)

    def destroy_netns(self, pod: Pod) -> None:
        """Remove a pod's network namespace without DEL; the pod keeps its devices until `remove_pod`."""
        self.runtime.remove_sandbox(pod.sandbox)


def _runs(pid: int) -> bool:
    """Return whether a process is neither dead nor stopped (proc(5), /proc/pid/stat)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "TtZX"


def _link_names() -> frozenset[str]:
    with IPRoute() as route:
        return frozenset(link.get_attr("IFLA_IFNAME") for link in route.get_links())


def _delete_links(kept: frozenset[str]) -> None:
    """Delete the links that plugins leave on a node for good, such as the bridge cni0."""
    with IPRoute() as route:
        for link in route.get_links():
            if link.get_attr("IFLA_IFNAME") not in kept:
                with contextlib.suppress(Exception):  # the link was a veth, and its other end was deleted before
                    route.link("del", index=link["index"])


def _files(roots: Iterable[Path]) -> Iterator[str]:
    """Yield each path below the node's private folders, children before their parents."""
    for root in roots:
        for folder, folders, files in os.walk(root, topdown=False):
            for name in (*files, *folders):
                yield os.path.join(folder, name)


def _delete_files(roots: Iterable[Path], kept: frozenset[str]) -> None:
    for path in _files(roots):
        if path in kept:
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
