"""The conditions by which one file names PFs of unlike nodes, in place of PCI addresses; and how one condition is compared. Pure.

Not here: the conditions for VFs of a pool (`deviceplugin.pool_selection`), and what becomes of the PFs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from railnet.vf.pci_address import PciAddress

LinkType = Literal["infiniband", "ether"]

# The names of link types in `ip link`; users know them from `linkTypes` of sriov-network-device-plugin.
_LINK_TYPES: dict[str, LinkType] = {"InfiniBand": "infiniband", "Ethernet": "ether"}


class _Function(Protocol):
    """What is compared of a PF or VF, which `railnet.vf.inventory` describes."""

    @property
    def address(self) -> PciAddress: ...
    @property
    def vendor(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def numa_node(self) -> int: ...
    @property
    def link_layer(self) -> Literal["InfiniBand", "Ethernet"]: ...


@dataclass(frozen=True, slots=True)
class PfSelector:
    """The conditions for a PF: it must have one value of each list; an empty list is no condition.

    `vendor` and `pf_device` are the PF's PCI ids, in hexadecimal with or without `0x`. `function` is the function number of its PCI
    address: a card with two ports has function 0 for the first one and function 1 for the second one. `numa_node` is -1 where the
    firmware reports none. `pf` is the PF's address. A VF without a PF on this node meets no `pf_device`, no `function` and no `pf`.
    """

    link_type: tuple[LinkType, ...] = ()
    vendor: tuple[str, ...] = ()
    pf_device: tuple[str, ...] = ()
    function: tuple[int, ...] = ()
    numa_node: tuple[int, ...] = ()
    pf: tuple[PciAddress, ...] = ()

    def matches(self, pf: _Function) -> bool:
        """Return whether a PF meets the conditions."""
        return (
            self._has(pf)
            and among(digits(pf.device), map(digits, self.pf_device))
            and among(pf.address.function, self.function)
            and among(pf.address, self.pf)
        )

    def matches_lone(self, vf: _Function) -> bool:
        """Return whether a VF without a PF on this node meets the conditions."""
        return self._has(vf) and not (self.pf_device or self.function or self.pf)

    def _has(self, function: _Function) -> bool:
        return (
            among(link_type(function.link_layer), self.link_type)
            and among(digits(function.vendor), map(digits, self.vendor))
            and among(function.numa_node, self.numa_node)
        )


def link_type(link_layer: Literal["InfiniBand", "Ethernet"]) -> LinkType:
    """Return the link type that a link layer is."""
    return _LINK_TYPES[link_layer]


def among(value: object, allowed: Iterable[object]) -> bool:
    """Return whether a value meets a condition: it is one of those that are allowed, or there is no condition."""
    listed = tuple(allowed)
    return not listed or value in listed


def digits(pci_id: str) -> str:
    """Return the digits of a PCI id, lower case, without `0x`."""
    return pci_id.lower().removeprefix("0x")


def described(pf: _Function) -> str:
    """Return what selectors compare of a PF, in words: `0000:03:00.0 (15b3:1021, infiniband, NUMA node 0)`."""
    ids = f"{digits(pf.vendor)}:{digits(pf.device)}"
    return f"{pf.address} ({ids}, {link_type(pf.link_layer)}, NUMA node {pf.numa_node})"
