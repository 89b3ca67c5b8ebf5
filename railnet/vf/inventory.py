"""Facts about a node's PFs, VFs and rails at one moment. The values are frozen; newer facts are new values."""

from collections.abc import Container, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypedDict, TypeVar, get_args

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import PfSelector, described
from railnet.vf.rail_memory import Card, RailNumbers, place

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
    """A network interface in the daemon's network namespace; `mtu` is in bytes."""

    name: str
    ifindex: int
    mtu: int


MLX4_PORTS = 2


@dataclass(frozen=True, slots=True)
class Port:
    """A port of an RDMA device, in the words of `/sys/class/infiniband/<dev>/ports/<number>`."""

    state: str
    phys_state: str
    link_layer: LinkLayer
    number: int = 1

    @property
    def is_active(self) -> bool:
        """Return whether it carries data."""
        return self.state.endswith("ACTIVE")


def data_ports(ports: Sequence[Port]) -> tuple[Port, ...]:
    """Return the ports of one RDMA device that carry data, of those that it has, in the order of their numbers.

    Most devices have port 1 alone. An mlx4 card may have two (MLX4_MAX_PORTS, include/linux/mlx4/device.h), of which the second is another
    network with a netdev of its own, so port 1 stands for the device. A card with several planes may have its data on other ports, and its
    port 1 is then never ACTIVE: these are the ACTIVE ones. While no port is ACTIVE, the first one stands for the device.
    """
    first = tuple(ports[:1])
    if first and first[0].number == 1 and (first[0].is_active or len(ports) <= MLX4_PORTS):
        return first
    return tuple(port for port in ports if port.is_active) or first


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    """An RDMA device. A character device is None if the kernel has none for it; not every VF has `umad` and `issm`.

    `port` is the first of its `data_ports`; `port_numbers` are those of all its ports.
    """

    name: str
    node_guid: Guid
    port: Port | None
    uverbs: DeviceNode | None
    umad: DeviceNode | None
    issm: DeviceNode | None
    data_ports: tuple[int, ...] = (1,)
    port_numbers: tuple[int, ...] = (1,)

    @property
    def has_planes(self) -> bool:
        """Return whether any of its ports may carry data: its first one may have no cable for good."""
        return len(self.port_numbers) > MLX4_PORTS


@dataclass(frozen=True, slots=True)
class VirtualFunction:
    """One VF, found as a PCI device. `netdev` and `rdma` are None while they are in a pod's namespace.

    `pf` is None if the PF is not on this node: a virtual machine may have the VF alone. `index` is then 0. `numa_node` and
    `class_code` are as for a PF. `fault` says which fact of the VF cannot be read or understood, and what to do; the facts
    are then incomplete. It is None if all could be read.
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
    fault: str | None = None

    @property
    def link_layer(self) -> LinkLayer:
        """Return the link layer of its port: by the RDMA device, else by the PCI class."""
        return _link_layer(self.rdma, self.class_code)


@dataclass(frozen=True, slots=True)
class PhysicalFunction:
    """One SR-IOV capable PF with its VFs in index order.

    `numa_node` is -1 if the firmware reports none. `class_code` has PCI's 24 bits, 0x020700 for InfiniBand.
    `carrier` is the carrier of an Ethernet PF's netdev. It is None if it is unknown: the PF has no netdev in the daemon's
    namespace, or the netdev is administratively down. `fault` is as for a VF; it costs the PF's VFs.
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
    fault: str | None = None
    # Filled when it is first asked for; no part of the value.
    _by_address: dict[PciAddress, VirtualFunction] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def link_layer(self) -> LinkLayer:
        """Return the link layer of its port: by the RDMA device, else by the PCI class."""
        return _link_layer(self.rdma, self.class_code)

    def vf(self, address: PciAddress) -> VirtualFunction | None:
        """Find one of its VFs by its address."""
        return self._vfs_by_address().get(address)

    @property
    def addresses(self) -> KeysView[PciAddress]:
        """Return the addresses of its VFs, as a set that is searched at once."""
        return self._vfs_by_address().keys()

    def _vfs_by_address(self) -> dict[PciAddress, VirtualFunction]:
        if not self._by_address:
            self._by_address.update((vf.address, vf) for vf in self.vfs)
        return self._by_address


class Rail(NamedTuple):
    """One rail: a PF with its VFs, or a VF that has no PF on this node.

    `address` identifies the rail: the address of the PF, or of the lone VF. A rail is empty if the configuration names it, or the
    memory has it, and the node does not show it. `reason` says why a pod must not have the rail, with the remedy; None if it may.
    """

    address: PciAddress
    pf: PhysicalFunction | None
    vfs: tuple[VirtualFunction, ...]
    reason: str | None = None

    def vf(self, address: PciAddress) -> VirtualFunction | None:
        """Find one of its VFs by its address."""
        if self.pf is not None:
            return self.pf.vf(address)
        return next((vf for vf in self.vfs if vf.address == address), None)


_AllRails = tuple[tuple[Rail, ...], tuple[Rail, ...]]


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every PF and VF of a node. `lone_vfs` are the VFs that have no PF on this node. `pfs` and `lone_vfs` are in PCI order.

    `named_rails` are the rails in order, if the configuration names them: addresses of PFs or lone VFs. Else `numbers` has the rails
    that the node remembers. A card that it does not remember can become a rail if it has one of the `rail_link_layers`: an Ethernet
    card that only some nodes have must not shift the numbers of the fabric's rails. With `rail_select` the card must meet these
    conditions, too. Without `numbers` all such cards are the rails, in PCI order.
    """

    pfs: tuple[PhysicalFunction, ...] = ()
    lone_vfs: tuple[VirtualFunction, ...] = ()
    named_rails: tuple[PciAddress, ...] | None = None
    rail_link_layers: frozenset[LinkLayer] = LINK_LAYERS
    numbers: RailNumbers | None = None
    rail_select: PfSelector | None = None
    # Computed once for each inventory, since each ADD asks for it; no part of the value.
    _rails: list[_AllRails] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def rails(self) -> tuple[Rail, ...]:
        """Return the node's rails by number: those that are named or remembered, even if the node lacks a card."""
        return self._placed()[0]

    def all_rails(self) -> tuple[tuple[int | None, Rail], ...]:
        """Return the rails with their numbers, then the cards that could be rails and have no number, each with the reason."""
        rails, unnumbered = self._placed()
        return (*enumerate(rails), *((None, rail) for rail in unnumbered))

    @property
    def unsettled(self) -> str | None:
        """Return why the rails' numbers are not known; None if they are."""
        return None if self.numbers is None or self.named_rails is not None else self.numbers.unsettled

    @property
    def selects_no_rail(self) -> str | None:
        """Return that `rail_select` leaves this node without a rail, though it has cards, and what it has; None otherwise."""
        pfs = [pf for pf in self.pfs if pf.link_layer in self.rail_link_layers]
        if self.rail_select is None or not pfs or self.rails:
            return None
        return (
            f"`rails.select` in node.yaml matches no PF of this node, so it has no rail: it has {', '.join(map(described, pfs))}; "
            "correct the conditions, or leave these PFs without a rail"
        )

    @property
    def cards(self) -> tuple[Card, ...]:
        """Return the PFs and lone VFs as the memory of rails knows them."""
        functions: tuple[PhysicalFunction | VirtualFunction, ...] = (*self.pfs, *self.lone_vfs)
        return tuple(
            Card(
                function.address,
                function.rdma.node_guid if function.rdma is not None and function.rdma.node_guid.usable else None,
                f"{function.vendor.removeprefix('0x')}:{function.device.removeprefix('0x')}",
                self._may_be_rail(function),
            )
            for function in functions
        )

    def _may_be_rail(self, function: PhysicalFunction | VirtualFunction) -> bool:
        if function.link_layer not in self.rail_link_layers:
            return False
        if self.rail_select is None:
            return True
        if isinstance(function, PhysicalFunction):
            return self.rail_select.matches(function)
        return self.rail_select.matches_lone(function)

    def _placed(self) -> _AllRails:
        """Return the rails by number, and the cards without a number."""
        if not self._rails:
            self._rails.append(self._place())
        return self._rails[0]

    def _place(self) -> _AllRails:
        rail_by_address = {pf.address: Rail(pf.address, pf, pf.vfs) for pf in self.pfs}
        rail_by_address |= {vf.address: Rail(vf.address, None, (vf,)) for vf in self.lone_vfs}
        if self.named_rails is not None:
            return tuple(rail_by_address.get(address) or _absent(address) for address in self.named_rails), ()
        cards = self.cards
        if self.numbers is None or self.numbers.unsettled is not None:
            return tuple(
                rail_by_address[address] for address in sorted(card.address for card in cards if card.eligible)
            ), ()
        rails, unnumbered = (
            tuple(
                (rail_by_address[slot.address] if slot.occupied else Rail(slot.address, None, ()))._replace(
                    reason=slot.reason
                )
                for slot in places
            )
            for places in place(self.numbers, cards)
        )
        return rails, unnumbered

    def vfs(self) -> Iterator[VirtualFunction]:
        """Yield every VF, whether it is on a rail or not."""
        for pf in self.pfs:
            yield from pf.vfs
        yield from self.lone_vfs

    def pf(self, address: PciAddress | None) -> PhysicalFunction | None:
        """Find a PF by its address. Return None for None, the `pf` of a lone VF."""
        return next((pf for pf in self.pfs if pf.address == address), None)

    def vf(self, address: PciAddress) -> VirtualFunction | None:
        """Find a VF by its address."""
        of_pfs = (vf for pf in self.pfs if (vf := pf.vf(address)) is not None)
        return next(of_pfs, None) or next((vf for vf in self.lone_vfs if vf.address == address), None)

    def with_vfs(self, newer: Mapping[PciAddress, VirtualFunction]) -> "Inventory":
        """Return this inventory with newer facts about some VFs. A PF without any of them stays the same object, which compares at once."""
        pfs = tuple(
            replace(pf, vfs=_newer(pf.vfs, newer)) if any(pf.vf(address) for address in newer) else pf
            for pf in self.pfs
        )
        return replace(self, pfs=pfs, lone_vfs=_newer(self.lone_vfs, newer))

    def with_pfs(self, newer: Mapping[PciAddress, PhysicalFunction]) -> "Inventory":
        """Return the same inventory with newer facts about some PFs; their VFs stay as they are here."""
        return replace(
            self, pfs=tuple(replace(newer[pf.address], vfs=pf.vfs) if pf.address in newer else pf for pf in self.pfs)
        )

    def with_cards(self, looked_at: Container[PciAddress], newer: "Inventory") -> "Inventory":
        """Return this inventory with the PFs and lone VFs that were looked at as `newer` has them; one that `newer` lacks is gone."""
        owned = {vf.address for pf in newer.pfs for vf in pf.vfs}  # a PF has come that has this VF
        pfs = [pf for pf in self.pfs if pf.address not in looked_at]
        lone_vfs = [vf for vf in self.lone_vfs if vf.address not in looked_at and vf.address not in owned]
        return replace(
            self,
            pfs=tuple(sorted((*pfs, *newer.pfs), key=_address)),
            lone_vfs=tuple(sorted((*lone_vfs, *newer.lone_vfs), key=_address)),
        )

    def recalling(self, before: "Inventory") -> "Inventory":
        """Return this inventory; a function with a fault has what does not change while it exists from an earlier inventory.

        So a value that cannot be read takes a VF out of no pool, and changes no rail's number. A PF that is the same object in both
        has what it recalled then.
        """
        changed = [pf for pf in self.pfs if before.pf(pf.address) is not pf]
        vfs = {
            vf.address: replace(vf, **_lasting_facts(vf, known))
            for each in (self.lone_vfs, *(pf.vfs for pf in changed))
            for vf in each
            if vf.fault and (known := before.vf(vf.address))
        }
        pfs = {
            pf.address: replace(pf, **_lasting_facts(pf, old), totalvfs=old.totalvfs)
            for pf in changed
            if pf.fault and (old := before.pf(pf.address))
        }
        return self.with_vfs(vfs).with_pfs(pfs) if vfs or pfs else self

    def rail(self, function: PciAddress) -> int | None:
        """Return the number of the rail of a PF or VF, counted from 0; None if it is on no rail."""
        for number, rail in enumerate(self.rails):
            if rail.address == function or rail.vf(function) is not None:
                return number
        return None


class _LastingFacts(TypedDict):
    """These facts do not change while a function exists."""

    vendor: str
    device: str
    class_code: int
    numa_node: int
    rdma: RdmaDevice | None


_Function = TypeVar("_Function", VirtualFunction, PhysicalFunction)


def _lasting_facts(function: _Function, before: _Function) -> _LastingFacts:
    return _LastingFacts(
        vendor=before.vendor,
        device=before.device,
        class_code=before.class_code,
        numa_node=before.numa_node,
        rdma=_recalled_rdma(function.rdma, before.rdma),
    )


def _recalled_rdma(rdma: RdmaDevice | None, before: RdmaDevice | None) -> RdmaDevice | None:
    if rdma is None or before is None:
        return rdma or before
    return replace(
        rdma, port=rdma.port or before.port, node_guid=rdma.node_guid if rdma.node_guid.usable else before.node_guid
    )


def _address(function: PhysicalFunction | VirtualFunction) -> PciAddress:
    return function.address


def _absent(address: PciAddress) -> Rail:
    return Rail(address, None, (), f"`rails` in node.yaml names {address}, but this node has no such PF")


def _newer(
    vfs: tuple[VirtualFunction, ...], newer: Mapping[PciAddress, VirtualFunction]
) -> tuple[VirtualFunction, ...]:
    return tuple(newer.get(vf.address, vf) for vf in vfs)


def _link_layer(rdma: RdmaDevice | None, class_code: int) -> LinkLayer:
    if rdma is not None and rdma.port is not None:
        return rdma.port.link_layer
    return "InfiniBand" if class_code == _INFINIBAND_CONTROLLER else "Ethernet"
