"""A function with its driver bound: its RDMA device and its netdev, and their part of sysfs.

Which function is bound when, and with which GUIDs, is decided in `hca`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simnode.hardware import character_devices, sysfs_content
from simnode.hardware.fabric import Fabric
from simnode.hardware.sysfs_content import NetdevFacts, RdmaFacts
from simnode.hardware.sysfs_tree import SysfsTree
from simnode.hardware.tun import InfinibandTun, Place, read_netdev

_IPOIB_MTU = 4092  # 4096 less the IPoIB header (RFC 4391 §4)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a bound function needs of the node: sysfs, /dev/infiniband, the fabric its port is cabled to, whom to wake."""

    tree: SysfsTree
    dev: Path
    fabric: Fabric
    wake: Callable[[], None]
    netns: int


class BoundFunction:
    """Owns a TUN netdev and a number of character devices from bind to `unbind`.

    Made and used in one thread, which is in the node's network namespace.
    """

    def __init__(self, node: Surroundings, directory: str, netdev_name: str, rdma: RdmaFacts) -> None:
        self._node = node
        self._directory = directory
        self.rdma = rdma
        self._shown: NetdevFacts | None = None
        self._name, self._mtu = netdev_name, _IPOIB_MTU
        self._tun = self._plug()  # first: what may be refused is refused before anything is shown
        self._show_rdma()
        self.settle()

    @property
    def netdev(self) -> NetdevFacts | None:
        """The netdev as sysfs shows it; None while it is in another network namespace."""
        return self._shown

    def place(self) -> Place | None:
        """Tell where the netdev is; None if it died with its network namespace."""
        return self._tun.place()

    def settle(self, changed: frozenset[int] | None = None) -> None:
        """Make sysfs tell where the netdev is and what it is like now; one that died is made again, as a VF's returns.

        Args:
            changed: the only ifindexes that may be new in the node's namespace, different or gone; None: any. A netdev
                that is not in the node's namespace is always looked at.
        """
        if changed is not None and self._shown is not None and self._shown.ifindex not in changed:
            return
        place, facts = self._look()
        if place is None:
            self._unplug()
            self._tun = self._plug()
            place, facts = self._look()
        if place is None:
            return
        self._name = place.name
        if facts != self._shown:
            self._show_netdev(facts)

    def _look(self) -> tuple[Place | None, NetdevFacts | None]:
        """Tell where the netdev is, and what it is like if it is in the node's namespace: all of it from one moment."""
        while True:
            place = self._tun.place()
            facts = read_netdev(place.name) if place is not None and place.netns == self._node.netns else None
            if self._tun.place() == place:
                return place, facts

    def set_active(self, rdma: RdmaFacts) -> None:
        """Change what the port does."""
        self.rdma = rdma
        for name, entry in sysfs_content.port_state(rdma).items():
            self._node.tree.replace(f"{self._directory}/infiniband/{rdma.name}/ports/1/{name}", str(entry))
        self._show_state()

    def set_carrier(self, carrier: bool) -> None:
        """Give the netdev a carrier, or take it away."""
        self._tun.set_carrier(carrier)

    def unbind(self) -> None:
        """Take netdev and RDMA device away, as the driver's remove does, also from a pod."""
        self._unplug()
        self._show_netdev(None)
        self._node.tree.remove(f"{self._directory}/net")
        for device in character_devices.of_rdma_device(self.rdma.number):
            (self._node.dev / device.name).unlink(missing_ok=True)
            self._node.tree.remove(f"/class/{device.subsystem}/{device.name}")
        self._node.tree.remove(f"/class/infiniband/{self.rdma.name}")
        for subsystem in ("infiniband", "infiniband_verbs", "infiniband_mad"):
            self._node.tree.remove(f"{self._directory}/{subsystem}")

    def _plug(self) -> InfinibandTun:
        tun = InfinibandTun(self._name, self._mtu)
        self._node.fabric.join(tun, self._node.wake)
        return tun

    def _unplug(self) -> None:
        self._node.fabric.leave(self._tun)
        self._tun.close()

    def _show_rdma(self) -> None:
        for device in character_devices.of_rdma_device(self.rdma.number):
            character_devices.make_node(self._node.dev, device)
            entries = character_devices.entries(device, self.rdma.name, self._directory)
            self._show(device.subsystem, device.name, entries)
        self._show("infiniband", self.rdma.name, sysfs_content.rdma_device(self.rdma, self._directory))

    def _show(self, subsystem: str, name: str, entries: sysfs_content.Tree) -> None:
        shown_at = f"{self._directory}/{subsystem}/{name}"
        self._node.tree.add(shown_at, entries)
        self._node.tree.link(f"/class/{subsystem}/{name}", shown_at)

    def _show_netdev(self, facts: NetdevFacts | None) -> None:
        before, self._shown = self._shown, facts
        if facts is not None and before is not None and before[:2] == facts[:2]:  # the same netdev under the same name
            self._mtu = facts.mtu
            self._show_state()
            return
        if before is not None:
            if self._node.tree.leads_to(f"/class/net/{before.name}", self._directory):  # else another's by now
                self._node.tree.remove(f"/class/net/{before.name}")
            self._node.tree.remove(f"{self._directory}/net/{before.name}")
        if facts is not None:
            self._mtu = facts.mtu
            self._node.tree.remove(f"/class/net/{facts.name}")  # of another, which has lost it and is looked at later
            entries = sysfs_content.netdev(facts, self.rdma.port_guid, self._directory, active=self.rdma.active)
            self._show("net", facts.name, entries)

    def _show_state(self) -> None:
        if self._shown is None:
            return
        directory = f"{self._directory}/net/{self._shown.name}"
        for name, entry in sysfs_content.netdev_state(self._shown, active=self.rdma.active).items():
            self._node.tree.replace(f"{directory}/{name}", str(entry))
