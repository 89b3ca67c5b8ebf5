"""The pools: the resources of this node for kubelet, and the VFs that belong to each.

Pure. Here: pools, their selectors, and the choice of a pool for a VF that several pools match. Not here: whether a VF is healthy
(`deviceplugin.health`), and reading the configuration file (`railnet.configuration`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from railnet.vf.inventory import Inventory, LinkLayer, PhysicalFunction, VirtualFunction
from railnet.vf.pci_address import PciAddress

LinkType = Literal["infiniband", "ether"]

# The names of link types in `ip link`; users know them from `linkTypes` of sriov-network-device-plugin.
_LINK_TYPES: dict[LinkLayer, LinkType] = {"InfiniBand": "infiniband", "Ethernet": "ether"}


@dataclass(frozen=True, slots=True)
class Selector:
    """The conditions for a VF: it must have one value of each list; an empty list is no condition.

    `vendor` and `device` are the VF's PCI ids and `pf_device` is its PF's, in hexadecimal with or without `0x`. `driver` is the VF's
    driver, `pf` its PF's address. A VF whose PF is not on this node matches no `pf` and no `pf_device`.
    """

    link_type: tuple[LinkType, ...] = ()
    vendor: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    pf_device: tuple[str, ...] = ()
    driver: tuple[str, ...] = ()
    pf: tuple[PciAddress, ...] = ()
    pci_address: tuple[PciAddress, ...] = ()

    def matches(self, pf: PhysicalFunction | None, vf: VirtualFunction) -> bool:
        """Return whether a VF meets the conditions. The link type is that of its PF, since a pod may have the VF's RDMA device."""
        return (
            _among(_LINK_TYPES[(pf or vf).link_layer], self.link_type)
            and _among(_digits(vf.vendor), map(_digits, self.vendor))
            and _among(_digits(vf.device), map(_digits, self.device))
            and _among(pf and _digits(pf.device), map(_digits, self.pf_device))
            and _among(vf.driver, self.driver)
            and _among(pf and pf.address, self.pf)
            and _among(vf.address, self.pci_address)
        )


@dataclass(frozen=True, slots=True)
class Pool:
    """An extended resource, and the VFs that kubelet allocates under it.

    Attributes:
        resource: the resource's name, such as `rdma/ib_vf`.
        selector: the conditions for its VFs; a VF that an earlier pool matches belongs to that pool.
        rdma: whether a VF needs an RDMA device to be healthy; false only for plain SR-IOV network cards.
        management: whether a container also gets `umadN` and `issmN`, with which it can send management datagrams to
            the fabric.
        nccl_rails: whether a container is told the rail of each of its RDMA devices.
    """

    resource: str
    selector: Selector = field(default_factory=Selector)
    rdma: bool = True
    management: bool = False
    nccl_rails: bool = False


DEFAULT = (Pool("rdma/ib_vf", Selector(link_type=("infiniband",))),)


def assign(pools: Sequence[Pool], inventory: Inventory) -> dict[str, tuple[VirtualFunction, ...]]:
    """Assign each VF of a rail to the first pool that matches it; each pool's VFs are in (rail, PCI address) order.

    The VFs of cards that have no number of a rail are the last.
    """
    assigned: dict[str, list[VirtualFunction]] = {pool.resource: [] for pool in pools}
    for pf, vf in _in_rail_order(inventory):
        first = first_match(pools, pf, vf)
        if first is not None:
            assigned[first.resource].append(vf)
    return {resource: tuple(vfs) for resource, vfs in assigned.items()}


def first_match(pools: Sequence[Pool], pf: PhysicalFunction | None, vf: VirtualFunction) -> Pool | None:
    """Return the pool that a VF belongs to; None if no pool matches it. `pf` is the PF of its rail."""
    return next((pool for pool in pools if pool.selector.matches(pf, vf)), None)


def link_layers(pools: Sequence[Pool]) -> frozenset[LinkLayer]:
    """Return the link layers that at least one pool permits; a card with another link layer is no rail."""
    kinds = [pool.selector.link_type for pool in pools]
    return frozenset(layer for layer, kind in _LINK_TYPES.items() if any(not only or kind in only for only in kinds))


def _in_rail_order(inventory: Inventory) -> Iterator[tuple[PhysicalFunction | None, VirtualFunction]]:
    for _, rail in inventory.all_rails():
        for vf in sorted(rail.vfs, key=lambda vf: vf.address):
            yield rail.pf, vf


def _among(value: object, allowed: Iterable[object]) -> bool:
    listed = tuple(allowed)
    return not listed or value in listed


def _digits(pci_id: str) -> str:
    return pci_id.lower().removeprefix("0x")
