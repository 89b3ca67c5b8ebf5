"""Facts about PFs and VFs, as read at one moment. Frozen: who wants newer facts reads again."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from vf.address import PciAddress
from vf.guid import Guid

_INFINIBAND_CONTROLLER = 0x020700  # PCI_CLASS_NETWORK_INFINIBAND with programming interface 0, PCI Code and ID 1.2

LinkLayer = Literal["InfiniBand", "Ethernet"]


class DeviceNode(NamedTuple):
    """A character device: its name below /dev/infiniband and its numbers."""

    name: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Netdev:
    """A network interface seen in the daemon's network namespace; `mtu` in bytes."""

    name: str
    ifindex: int
    mtu: int


@dataclass(frozen=True, slots=True)
class Port:
    """Port 1 of an RDMA device, in the words of `/sys/class/infiniband/<dev>/ports/1`."""

    state: str
    phys_state: str
    link_layer: LinkLayer


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """An RDMA device; `umad` and `issm` are missing on kernels and VFs that have none."""

    name: str
    node_guid: Guid
    port: Port | None
    uverbs: DeviceNode | None
    umad: DeviceNode | None
    issm: DeviceNode | None


@dataclass(frozen=True, slots=True)
class VirtualFunction:
    """One VF. It exists because PCI says so; `netdev` and `rdma` are None while a pod has them."""

    address: PciAddress
    index: int
    pf: PciAddress
    vendor: str
    device: str
    driver: str | None
    numa_node: int
    netdev: Netdev | None
    rdma: RdmaDevice | None


@dataclass(frozen=True, slots=True)
class PhysicalFunction:
    """One SR-IOV capable PF with its VFs in index order.

    `numa_node` is -1 where firmware names none. `class_code` is PCI's 24 bits, 0x020700 for InfiniBand.
    """

    address: PciAddress
    vendor: str
    device: str
    class_code: int
    driver: str | None
    numa_node: int
    totalvfs: int
    numvfs: int
    netdev: Netdev | None
    rdma: RdmaDevice | None
    ofed_guid_files: bool
    vfs: tuple[VirtualFunction, ...]

    @property
    def link_layer(self) -> LinkLayer:
        """What the port speaks: the RDMA device knows, else the PCI class does."""
        if self.rdma is not None and self.rdma.port is not None:
            return self.rdma.port.link_layer
        return "InfiniBand" if self.class_code == _INFINIBAND_CONTROLLER else "Ethernet"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every PF of a node in PCI order, which is also the order of its rails."""

    pfs: tuple[PhysicalFunction, ...] = ()

    def pf(self, address: PciAddress) -> PhysicalFunction | None:
        """Find a PF by its address."""
        return next((pf for pf in self.pfs if pf.address == address), None)

    def vf(self, address: PciAddress) -> VirtualFunction | None:
        """Find a VF by its address."""
        return next((vf for pf in self.pfs for vf in pf.vfs if vf.address == address), None)

    def with_vfs(self, newer: Mapping[PciAddress, VirtualFunction]) -> "Inventory":
        """Give the same inventory with newer facts about some VFs."""
        return Inventory(tuple(replace(pf, vfs=tuple(newer.get(vf.address, vf) for vf in pf.vfs)) for pf in self.pfs))

    def rail(self, pf: PciAddress) -> int | None:
        """Give the rail of a PF, counted from 0."""
        return next((rail for rail, known in enumerate(self.pfs) if known.address == pf), None)
