"""The pools: the resources of this node for kubelet, and the VFs that belong to each.

Pure. Here: pools, their selectors, and the choice of a pool for a VF that several pools match. Not here: whether a VF is healthy
(`deviceplugin.health`), the conditions for PFs (`railnet.vf.pf_selector`), and reading the configuration file (`railnet.configuration`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from railnet.vf.inventory import LINK_LAYERS, Inventory, LinkLayer, PhysicalFunction, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import LinkType, among, digits
from railnet.vf.pf_selector import link_type as link_type_of


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
            among(link_type_of((pf or vf).link_layer), self.link_type)
            and among(digits(vf.vendor), map(digits, self.vendor))
            and among(digits(vf.device), map(digits, self.device))
            and among(pf and digits(pf.device), map(digits, self.pf_device))
            and among(vf.driver, self.driver)
            and among(pf and pf.address, self.pf)
            and among(vf.address, self.pci_address)
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
    return frozenset(layer for layer in LINK_LAYERS if any(among(link_type_of(layer), only) for only in kinds))


def _in_rail_order(inventory: Inventory) -> Iterator[tuple[PhysicalFunction | None, VirtualFunction]]:
    for _, rail in inventory.all_rails():
        for vf in sorted(rail.vfs, key=lambda vf: vf.address):
            yield rail.pf, vf
