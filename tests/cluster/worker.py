"""One node of the cluster, in the namespaces of the process that makes it: cards, container runtime, kube-proxy, kubelet."""

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from railnet.vf import rail_memory
from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.fabric import Fabric, Uplink
from simnode.hardware.hca import Hca
from simnode.hardware.pf_properties import Model, SimulatedPf
from simnode.linux import empty_folders
from tests.cluster import busybox, ground, images
from tests.cluster.control_plane import ADMIN
from tests.cluster.kube_proxy import KubeProxy
from tests.cluster.kubectl import Kubectl
from tests.cluster.kubelet import Kubelet
from tests.cluster.railnet_on_node import STATE
from tests.cluster.runtime import Containerd

SYSFS = Path("/run/simnode/sys")  # /sys is the kernel's own: kubelet and runtime need it
VFS = 4
"""The VFs of each PF, unless a cluster is made otherwise."""
_BUSES_PER_ROOT = 0x20  # so each card is below a PCIe root of its own (simnode/hardware/pf_properties.py)
_MOST_VFS = 32  # that a PF can have: scripts/bench pods takes 30

# As an administrator installs them; `flannel` comes with its DaemonSet.
_PLUGINS = ("bandwidth", "bridge", "firewall", "host-local", "loopback", "portmap", "ptp", "static", "tuning")
_FOLDER = Path("/opt/cni/bin")
_MEMORY = Path(rail_memory.FILE).parent


def pfs_of(node: str, cards: int = 2) -> tuple[SimulatedPf, ...]:
    """Return the PFs of a node's cards, one on each rail; no two PFs of a cluster have the same GUID."""
    first = 0xB8599F0300F98F86 + (ground.NODES.index(node) << 16)
    return tuple(
        SimulatedPf(
            PciAddress(0, 0x03 + _BUSES_PER_ROOT * card, 0, 0),
            Guid(first + 0x1C * card),
            f"ibs{5 + card}",
            totalvfs=_MOST_VFS,
        )
        for card in range(cards)
    )


def storage_of(node: str) -> SimulatedPf:
    """Return the PF of a card of another model, as a node's storage may have; no node has it unless a test plugs it in."""
    guid = Guid(0xB8599F0300FA0000 + (ground.NODES.index(node) << 16))
    return SimulatedPf(PciAddress(0, 0xC3, 0, 0), guid, "ibs9", totalvfs=_MOST_VFS, model=Model(0x101B, "MT4123"))


class Worker:
    """The programs of a node; `start_runtime` comes before `join`, `close` ends all of it.

    Attributes:
        fabrics: by rail.
    """

    def __init__(self, node: str, link: str, cards: int, uplinks: Iterable[Uplink] = ()) -> None:
        """Describe a node whose own link to the others is `link`, and whose fabrics have these uplinks, by rail."""
        self.node, self._link, self._uplinks = node, link, tuple(uplinks)
        self.pfs = pfs_of(node, cards)
        self.fabrics: tuple[Fabric, ...] = ()
        self.containerd = Containerd()
        self.kube_proxy = KubeProxy(node)
        self.kubelet = Kubelet(node, Kubectl(ADMIN))
        self._made = contextlib.ExitStack()

    def prepare(self) -> None:
        """Make what the programs need of the machine, and the cards; each card's rail has a fabric of its own."""
        ground.prepare(self.node, self._link)
        for name in _PLUGINS:
            shutil.copy2(images.program(name), _FOLDER / name)
        self.fabrics = tuple(self._made.enter_context(Fabric()) for _ in self.pfs)
        for fabric, uplink in zip(self.fabrics, self._uplinks, strict=False):  # the first node has none of its own
            fabric.join(uplink)
        self.hca = hca = Hca(dict(zip(self.pfs, self.fabrics, strict=True)), SYSFS, Path("/dev"))
        self._made.callback(hca.close)

    def start_runtime(self, archives: Iterable[Path]) -> None:
        """Start containerd with these images, and the one of pods' sandboxes."""
        self._made.callback(self.containerd.end)
        self.containerd.start()
        archive = ground.RUN / "busybox.tar"
        busybox.write(archive)
        for image in (archive, *archives):
            self.containerd.load(image)

    def join(self) -> None:
        """Start what makes this a node of the cluster; returns at once. The API server must answer."""
        self._made.callback(self.kube_proxy.stop)
        self.kube_proxy.start()
        self._made.callback(self.kubelet.stop)
        self.kubelet.start()

    def wait(self) -> None:
        """Wait until the node is ready."""
        self.kubelet.wait()
        self.kube_proxy.wait()

    def load(self, archive: Path) -> None:
        """Import an image for kubelet's use."""
        self.containerd.load(archive)

    def forget(self, image: str) -> None:
        """Delete an image that no container uses."""
        self.containerd.forget(image)

    def kill_container(self, pod: str) -> None:
        """Kill the one container of a pod of this node."""
        self.containerd.kill_container(pod)

    def left_over(self, vfs: int) -> list[str]:
        """Say what pods with VFs left on this node, which has so many VFs on each card."""
        missing = [f"VF netdev {name} is missing" for name in self.missing_vf_netdevs(vfs)]
        return missing + [f"record {path.name}" for path in (STATE / "journal").glob("*")]

    def close(self) -> None:
        """End all of it, the last first."""
        self._made.close()

    def missing_vf_netdevs(self, vfs: int) -> Sequence[str]:
        """Return the names of VF netdevs that a node with so many VFs of each PF should have and has not."""
        links = {path.name for path in Path("/sys/class/net").iterdir()}
        return sorted({f"{pf.netdev}v{index}" for pf in self.pfs for index in range(vfs)} - links)

    def keep_its_memory_apart(self) -> None:
        """Have a folder of rails' numbers of its own again.

        An uninstall on another node removes that folder below the nodes' mounts, and the kernel then unmounts it on all nodes (fs/namespace.c,
        __detach_mounts).
        """
        if not _MEMORY.is_mount():
            empty_folders.mount_empty(_MEMORY)

    def plug_in_storage(self) -> None:
        """Add a card of another model, on a fabric of its own."""
        self.hca.plug_in(storage_of(self.node), self._made.enter_context(Fabric()))

    def pull_out_storage(self) -> None:
        """Remove that card, and have the node forget its rails; no daemon may run."""
        self.hca.pull_out(storage_of(self.node).address)
        Path(rail_memory.FILE).unlink(missing_ok=True)

    def runtime_log(self) -> str:
        """Return what containerd has said so far."""
        return self.containerd.program.log()

    def tasks(self, namespace: str) -> set[str]:
        """Return the ids of a namespace's sandboxes and containers that have a task."""
        return self.containerd.tasks(namespace)
