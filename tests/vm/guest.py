"""The guest of scripts/in-vm as a node: two PFs of real drivers, simulated kubelet and runtime, the real daemon and plugins."""

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from railnet.kernel.waiting import block_until
from simnode import preinstalled_files
from simnode.daemon_process import Daemon
from simnode.judge import node_state
from simnode.kubernetes.kubelet import Kubelet, PodIdentity
from simnode.kubernetes.runtime import Runtime, Sandbox
from simnode.linux.namespaces import MARK

RESOURCE = "vm/vf"
PFS = tuple(f"0000:{bus + 1:02x}:00.0" for bus in range(int(os.environ.get("RAILNET_VM_CARDS", "2"))))
VFS = int(os.environ.get("RAILNET_VM_VFS", "3"))  # of each PF; a card has seven at most
DEVICES = Path("/sys/bus/pci/devices")
JOURNAL = Path("/run/railnet/journal")
_CONFIGURATION = {
    "apiVersion": "railnet.io/v1alpha1",
    "kind": "NodeConfiguration",
    "pools": [{"resource": RESOURCE, "select": {"linkType": ["ether"]}, "rdma": False}],
    "provision": [{"pf": pf, "vfs": VFS} for pf in PFS],
    "networks": {
        "staying": {"ipam": {"type": "sticky", "range": "10.58.0.0/24"}},
        "subnet": {"ipam": {"type": "static"}},
        "mixed": {"routing": "none", "ipam": {"type": "slice", "range": "10.62.0.0/16"}},
    },
    "limits": {"*": {"networks": ["default", "staying", "subnet", "mixed"], "static": True}},
}
_START_SECONDS = 180.0  # an emulated processor is slow
_DETACH_SECONDS = 60.0
_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as kubelet and runtime know it."""

    identity: PodIdentity
    sandbox: Sandbox

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((JOURNAL / f"{self.sandbox.container_id}@eth0.json").read_text())
        return found

    @property
    def rails(self) -> list[dict[str, Any]]:
        """Return the attachments in the pod's record."""
        found: list[dict[str, Any]] = self.record["attachments"]
        return found

    @property
    def address(self) -> str:
        """Return the address of the pod's first rail, without prefix length."""
        return str(self.rails[0]["addresses"][0]).split("/")[0]

    def links(self) -> dict[str, dict[str, Any]]:
        """Return the links in the pod by name, as `ip address` shows them."""
        shown = self.output("ip", "-json", "-details", "address")
        return {link["ifname"]: link for link in json.loads(shown)}

    def output(self, *command: str) -> str:
        """Run a command in the pod's network namespace, and return its output."""
        run = ["nsenter", f"--net={self.sandbox.netns}", *command]
        return subprocess.run(run, capture_output=True, check=True, text=True).stdout


class Guest:
    """The whole node. It is a context manager, because the simulated kubelet has threads."""

    def __init__(self) -> None:
        self.kubelet = Kubelet()
        self.runtime = Runtime()
        self.daemon: Daemon = Daemon()
        self.uevents: list[tuple[str, str]] = []  # of the daemon's first start: action and path below /sys
        self.first_netdevs: dict[str, str] = {}  # names by VF after that start
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        if "railnet.run=" not in Path("/proc/cmdline").read_text():
            raise RuntimeError(
                "these tests write to /etc, /run, /opt and to network cards, so they run only in the guest: use scripts/test vm"
            )
        MARK.mkdir(exist_ok=True)
        preinstalled_files.write(Path(os.environ["RAILNET_CNI_PLUGINS"]), (), 0, preinstalled_files.FlannelLease())
        preinstalled_files.CONFIGURATION.write_text(json.dumps(_CONFIGURATION))
        self.kubelet.start()
        self._cleanup.callback(self.kubelet.stop)
        self.daemon.install()
        self._cleanup.callback(self.stop_daemon)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def start_daemon(self) -> None:
        """Start the daemon and wait until kubelet has seen every VF healthy."""
        self.kubelet.wait_for_devices(RESOURCE, 0, _START_SECONDS)  # kubelet has noticed the end of the last daemon
        self.daemon.start()
        self.wait_until_healthy()

    def await_death(self) -> None:
        """Wait until the daemon has been killed."""
        assert self.daemon.process is not None
        assert self.daemon.process.wait(_START_SECONDS) == -signal.SIGKILL

    def stop_daemon(self) -> None:
        self.daemon.end(signal.SIGTERM)

    def wait_until_healthy(self, vfs: int = VFS * len(PFS), seconds: float = _START_SECONDS) -> None:
        try:
            self.kubelet.wait_for_devices(RESOURCE, vfs, seconds)
        except TimeoutError as error:
            raise self.daemon.failure(error) from None

    def admit(self, name: str, vfs: int, annotations: Mapping[str, str] | None = None) -> Pod:
        """Do the steps before ADD: kubelet chooses VFs, the runtime creates the network namespace."""
        identity = PodIdentity(name, "default", str(uuid.uuid4()))
        if vfs:
            self.kubelet.allocate(identity, RESOURCE, vfs)
        arguments = {"io.kubernetes.cri.pod-annotations": dict(annotations or {})}
        return Pod(identity, self.runtime.create_sandbox("default", name, identity.uid, arguments))

    def run(self, name: str, vfs: int = 1, annotations: Mapping[str, str] | None = None) -> Pod:
        """Run a pod."""
        pod = self.admit(name, vfs, annotations)
        self.runtime.add(pod.sandbox)
        self.kubelet.pre_start(pod.identity)
        return pod

    def remove(self, pod: Pod) -> None:
        """End a pod: kubelet frees its VFs, the runtime runs DEL and removes the network namespace."""
        self.kubelet.remove(pod.identity)
        self.runtime.tear_down(pod.sandbox)
        self.wait_for_answered_deletes()

    def wait_for_answered_deletes(self, ends: Callable[[], bool] = lambda: False) -> None:
        """Wait until the daemon has taken back the rails of DELs that it has answered, or is dead, or `ends` returns true."""

        def is_over() -> bool:
            process = self.daemon.process
            return ends() or process is None or process.poll() is not None or not node_state.is_detaching()

        block_until(is_over, _DETACH_SECONDS, _PAUSE_SECONDS)


class Cables:
    """The cables of the cards, which QEMU's monitor can pull and plug. The context manager leaves all cables plugged."""

    def __enter__(self) -> Self:
        self._monitor = os.open(_port("monitor"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        for pf in PFS:
            self.plug(pf)
        os.close(self._monitor)

    def pull(self, pf: str) -> None:
        self._command(f"set_link {_cable(pf)} off")

    def plug(self, pf: str) -> None:
        self._command(f"set_link {_cable(pf)} on")

    def _command(self, line: str) -> None:
        with suppress(BlockingIOError):
            while os.read(self._monitor, 4096):
                pass  # discard the echo of earlier commands, since the port's buffer is small
        os.write(self._monitor, f"{line}\n".encode())


def _cable(pf: str) -> str:
    return f"cable{PFS.index(pf) + 1}"


def _port(name: str) -> str:
    """Find the device of a virtio serial port."""
    for port in Path("/sys/class/virtio-ports").iterdir():
        if (port / "name").read_text().strip() == name:
            return f"/dev/{port.name}"
    raise LookupError(f"the guest has no serial port {name}")


def carrier(pf: str) -> bool:
    """Return whether a PF has a carrier. The PF must be up."""
    (netdev,) = (DEVICES / pf / "net").iterdir()
    return (netdev / "carrier").read_text() == "1\n"


def answers(ping: Callable[[], bool]) -> bool:
    """Return whether a ping is answered within a minute: a VF gets its carrier a little after it is up."""
    return block_until(ping, _START_SECONDS, _PAUSE_SECONDS)


def netdevs() -> dict[str, str]:
    """Return the netdevs of VFs in the node's network namespace: names by the VFs' PCI addresses."""
    return {address: name for address in vfs() for name in _names(DEVICES / address / "net")}


def vfs() -> list[str]:
    """Return the PCI addresses of all VFs."""
    return [link.resolve().name for pf in PFS for link in sorted((DEVICES / pf).glob("virtfn*"))]


def mac_of(name: str) -> str:
    return Path(f"/sys/class/net/{name}/address").read_text().strip()


def driver_of(vf: str) -> str | None:
    link = DEVICES / vf / "driver"
    return link.resolve().name if link.exists() else None


def left_over() -> list[str]:
    """Return what pods left on the node: files and links."""
    found = [f"record {path.name}" for path in JOURNAL.iterdir()]
    found += [f"lock {path.name}" for path in Path("/run/railnet/lock").iterdir() if path.name != "recovery"]
    found += [f"address {path.name}" for path in Path("/var/lib/cni").glob("networks/*/*.*.*.*")]
    found += [f"flannel state {path.name}" for path in Path("/var/lib/cni").glob("flannel/*")]
    return found + [f"link {path.name}" for path in Path("/sys/class/net").glob("veth*")]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
