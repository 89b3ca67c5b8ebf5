"""A PCI function whose driver is bound: its RDMA device, its netdev, and their files in sysfs.

`pf` decides when a driver is bound, and with which GUIDs.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from simnode.hardware import character_devices, sysfs_content
from simnode.hardware.fabric import Fabric
from simnode.hardware.infiniband_tun import InfinibandTun, NetdevPlace, read_netdev
from simnode.hardware.sysfs_content import NetdevAttributes, RdmaAttributes
from simnode.hardware.sysfs_tree import SysfsTree

_IPOIB_MTU = 4092  # 4096 less the IPoIB header (RFC 4391 §4)


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """The node's parts that a bound function uses.

    Attributes:
        tree: the simulated sysfs.
        dev: the folder of the device nodes, /dev/infiniband.
        fabric: the fabric to which the function's port is cabled.
        wake: called when the netdev has died.
        netns: the inode of the node's network namespace.
    """

    tree: SysfsTree
    dev: Path
    fabric: Fabric
    wake: Callable[[], None]
    netns: int


class BoundFunction:
    """The netdev and the character devices of a function, from bind to `unbind`.

    One thread makes and uses this object; the thread is in the node's network namespace.
    """

    def __init__(self, node: FunctionContext, directory: str, netdev_name: str, rdma: RdmaAttributes) -> None:
        self._node = node
        self._directory = directory
        self.rdma = rdma
        self._shown: NetdevAttributes | None = None
        self._name, self._mtu = netdev_name, _IPOIB_MTU
        self._tun = self._plug()  # first: if the kernel refuses it, sysfs must show nothing of this function
        self._show_rdma()
        self.settle()

    @property
    def netdev(self) -> NetdevAttributes | None:
        """The netdev as sysfs shows it; None while the netdev is in another network namespace."""
        return self._shown

    def place(self) -> NetdevPlace | None:
        """Return the place of the netdev; None if it died with its network namespace."""
        return self._tun.place()

    def check(self) -> None:
        """Have sysfs show the netdev as it is, and no other, also if no event came of it."""
        self.settle()
        for path in self._node.tree.path(f"{self._directory}/net").glob("*"):
            if self._shown is None or path.name != self._shown.name:
                self._node.tree.remove(f"{self._directory}/net/{path.name}")
        if self._shown is not None:
            ifindex = f"{self._directory}/net/{self._shown.name}/ifindex"
            with suppress(OSError):
                if self._node.tree.read(ifindex).isdecimal():  # another text is a test's
                    self._node.tree.replace(ifindex, f"{self._shown.ifindex}\n")

    def settle(self, changed: frozenset[int] | None = None) -> None:
        """Update sysfs to the netdev's place and state; make a dead netdev again, as the kernel returns a real VF's netdev.

        Args:
            changed: the ifindexes of links that may have come, changed or gone in the node's namespace; None for all
                links. A netdev outside the node's namespace is always read.
        """
        if changed is not None and self._shown is not None and self._shown.ifindex not in changed:
            return
        place, attributes = self._look()
        if place is None:
            self._unplug()
            self._tun = self._plug()
            place, attributes = self._look()
        if place is None:
            return
        self._name = place.name
        if attributes != self._shown:
            self._show_netdev(attributes)

    def _look(self) -> tuple[NetdevPlace | None, NetdevAttributes | None]:
        """Return the netdev's place, and its state if it is in the node's namespace; both are of the same moment."""
        while True:
            place = self._tun.place()
            attributes = read_netdev(place.name) if place is not None and place.netns == self._node.netns else None
            if self._tun.place() == place:
                return place, attributes

    def set_active(self, rdma: RdmaAttributes) -> None:
        """Change the state of the ports."""
        self.rdma = rdma
        for number in rdma.ports:
            for name, entry in sysfs_content.port_state(rdma, number).items():
                self._node.tree.replace(f"{self._directory}/infiniband/{rdma.name}/ports/{number}/{name}", str(entry))
        self._show_state()

    def set_carrier(self, carrier: bool) -> None:
        """Give the netdev a carrier, or take it away."""
        self._tun.set_carrier(carrier)

    def unbind(self) -> None:
        """Remove the netdev and the RDMA device as the driver does it, even if the netdev is in a pod."""
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

    def _show_netdev(self, attributes: NetdevAttributes | None) -> None:
        before, self._shown = self._shown, attributes
        if (
            attributes is not None and before is not None and before[:2] == attributes[:2]
        ):  # the same netdev under the same name
            self._mtu = attributes.mtu
            self._show_state()
            return
        if before is not None:
            if self._node.tree.leads_to(f"/class/net/{before.name}", self._directory):  # not yet another netdev's name
                self._node.tree.remove(f"/class/net/{before.name}")
            self._node.tree.remove(f"{self._directory}/net/{before.name}")
        if attributes is not None:
            self._mtu = attributes.mtu
            # A netdev that had this name before is updated later.
            self._node.tree.remove(f"/class/net/{attributes.name}")
            entries = sysfs_content.netdev(attributes, self.rdma.port_guid, self._directory, active=self.rdma.active)
            self._show("net", attributes.name, entries)

    def _show_state(self) -> None:
        if self._shown is None:
            return
        directory = f"{self._directory}/net/{self._shown.name}"
        for name, entry in sysfs_content.netdev_state(self._shown, active=self.rdma.active).items():
            self._node.tree.replace(f"{directory}/{name}", str(entry))
