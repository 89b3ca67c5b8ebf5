"""Facts about PFs and VFs, as read at one moment. Frozen: newer facts are a new reading."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from vf.address import PciAddress
from vf.guid import Guid

_INFINIBAND_CONTROLLER = 0x020700  # PCI_CLASS_NETWORK_INFINIBAND with programming interface 0, PCI Code and ID 1.2

LinkLayer = Literal["InfiniBand", "Ethernet"]
LINK_LAYERS: frozenset[LinkLayer] = frozenset(get_args(LinkLayer))


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
    """One VF. It exists because PCI says so; `netdev` and `rdma` are None while a pod has them.

    `pf` is None where its PF is not on this node: a virtual machine was given the VF alone. `index` is then 0.
    `numa_node` and `class_code` are as a PF's.
    """

    address: PciAddress
    index: int
    pf: PciAddress | None
    vendor: str
    device: str
    class_code: int
    driver: str | None
    numa_node: int
    netdev: Netdev | None
    rdma: RdmaDevice | None

    @property
    def link_layer(self) -> LinkLayer:
        """What its port speaks: the RDMA device knows, else the PCI class does."""
        return _link_layer(self.rdma, self.class_code)


@dataclass(frozen=True, slots=True)
class PhysicalFunction:
    """One SR-IOV capable PF with its VFs in index order.

    `numa_node` is -1 where firmware names none. `class_code` is PCI's 24 bits, 0x020700 for InfiniBand. `carrier` is that of
    an Ethernet PF's netdev; None where it is not known: the PF has no netdev here, or the netdev is administratively down.
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
    carrier: bool | None = None

    @property
    def link_layer(self) -> LinkLayer:
        """What the port speaks: the RDMA device knows, else the PCI class does."""
        return _link_layer(self.rdma, self.class_code)


class Rail(NamedTuple):
    """One rail: a PF with its VFs, or a VF that has no PF on this node.

    `address` names it: the PF's, or the VF's own. A rail that the configuration names and the node has not is empty.
    """

    address: PciAddress
    pf: PhysicalFunction | None
    vfs: tuple[VirtualFunction, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every PF and VF of a node; `pfs` and `lone_vfs`, the VFs that have no PF here, are in PCI order.

    `named_rails` is the order of the rails where the configuration gives one: addresses of PFs or lone VFs. Else rails are what
    has one of the `rail_link_layers`: a server's Ethernet cards must not move those of the fabric, on one node and not on another.
    """

    pfs: tuple[PhysicalFunction, ...] = ()
    lone_vfs: tuple[VirtualFunction, ...] = ()
    named_rails: tuple[PciAddress, ...] | None = None
    rail_link_layers: frozenset[LinkLayer] = LINK_LAYERS

    @property
    def rails(self) -> tuple[Rail, ...]:
        """The node's rails: those named, whether the node has them or not; else all of the right kind in PCI order."""
        found = {pf.address: Rail(pf.address, pf, pf.vfs) for pf in self.pfs}
        found |= {vf.address: Rail(vf.address, None, (vf,)) for vf in self.lone_vfs}
        if self.named_rails is not None:
            return tuple(found.get(address, Rail(address, None, ())) for address in self.named_rails)
        functions: tuple[PhysicalFunction | VirtualFunction, ...] = (*self.pfs, *self.lone_vfs)
        alike = sorted(one.address for one in functions if one.link_layer in self.rail_link_layers)
        return tuple(found[address] for address in alike)

    def vfs(self) -> Iterator[VirtualFunction]:
        """Yield every VF, on a rail or not."""
        for pf in self.pfs:
            yield from pf.vfs
        yield from self.lone_vfs

    def pf(self, address: PciAddress | None) -> PhysicalFunction | None:
        """Find a PF by its address; a lone VF's None finds none."""
        return next((pf for pf in self.pfs if pf.address == address), None)

    def vf(self, address: PciAddress) -> VirtualFunction | None:
        """Find a VF by its address."""
        return next((vf for vf in self.vfs() if vf.address == address), None)

    def with_vfs(self, newer: Mapping[PciAddress, VirtualFunction]) -> "Inventory":
        """Return the same inventory with newer facts about some VFs."""
        pfs = tuple(replace(pf, vfs=_newer(pf.vfs, newer)) for pf in self.pfs)
        return replace(self, pfs=pfs, lone_vfs=_newer(self.lone_vfs, newer))

    def with_pfs(self, newer: Mapping[PciAddress, PhysicalFunction]) -> "Inventory":
        """Return the same inventory with newer facts about some PFs; their VFs stay as they are here."""
        return replace(self, pfs=tuple(replace(newer.get(pf.address, pf), vfs=pf.vfs) for pf in self.pfs))

    def rail(self, function: PciAddress) -> int | None:
        """Return the rail of a PF or VF, counted from 0; None for one that is on none."""
        for number, rail in enumerate(self.rails):
            if rail.address == function or any(vf.address == function for vf in rail.vfs):
                return number
        return None


def _newer(
    vfs: tuple[VirtualFunction, ...], newer: Mapping[PciAddress, VirtualFunction]
) -> tuple[VirtualFunction, ...]:
    return tuple(newer.get(vf.address, vf) for vf in vfs)


def _link_layer(rdma: RdmaDevice | None, class_code: int) -> LinkLayer:
    if rdma is not None and rdma.port is not None:
        return rdma.port.link_layer
    return "InfiniBand" if class_code == _INFINIBAND_CONTROLLER else "Ethernet"
