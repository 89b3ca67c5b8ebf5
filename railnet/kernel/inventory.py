"""The node's PFs and VFs from sysfs, with the carriers of Ethernet PFs from netlink, and the kinds of PFs' netdevs (`vf_netdev_recognition`).

The carrier of an InfiniBand PF is not read: it belongs to the IPoIB interface, and the RDMA port's state is more exact.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from railnet.kernel.netlink import pf_link_query
from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.netlink.rtnetlink import links
from railnet.kernel.sysfs.functions import CardFunctions, CardReading, PciIds, Sysfs
from railnet.kernel.threads.bounded_reads import DoesNotAnswer, card_by_card
from railnet.kernel.vf_netdev_recognition import learn_kinds, unknown_pfs
from railnet.vf.changed_functions import ChangedFunctions
from railnet.vf.inventory import Inventory, PhysicalFunction, VirtualFunction
from railnet.vf.pci_address import PciAddress

# What is read for no card in particular, each with threads of its own: all PCI functions, names of files, links.
_BUS, _NAMES, _LINKS = "the PCI bus", "names of files", "links of PFs"
_NO_FUNCTIONS = {name: PciAddress(-number, 0, 0, 0) for number, name in enumerate((_BUS, _NAMES, _LINKS), start=1)}


async def inventory(sysfs: Sysfs, before: Inventory) -> Inventory:
    """Read all PFs, VFs and carriers, each card in threads of its own.

    A function that does not answer has a fault, and its other facts are those of the inventory `before`.

    Raises:
        OSError: the root is not a sysfs.
    """
    addresses = await sysfs.reads.read(_BUS, _NO_FUNCTIONS[_BUS], sysfs.addresses)
    return await _inventory_of(sysfs, before, addresses)


class Reread(NamedTuple):
    """These were read again: the functions that were looked at, with the `cards` among them, and VFs that were read alone."""

    looked_at: frozenset[PciAddress]
    cards: Inventory
    vfs: Mapping[PciAddress, VirtualFunction]

    def merged_into(self, inventory: Inventory) -> Inventory:
        """Return an inventory with what was read again."""
        merged = inventory.with_cards(self.looked_at, self.cards) if self.looked_at else inventory
        return merged.with_vfs(self.vfs) if self.vfs else merged


async def reread(sysfs: Sysfs, before: Inventory, changed: ChangedFunctions) -> Reread:
    """Read the functions that have changed, and no other: a VF alone, unless it may have come or gone; a PF with its VFs.

    Raises:
        OSError: the daemon lacks descriptors or memory.
    """
    alone = {vf.address: vf for pf in before.pfs for vf in pf.vfs if vf.address in changed.functions}
    looked_at = (changed.functions | changed.cards) - alone.keys()
    looked_at |= {pf.address for pf in before.pfs for vf in pf.vfs if vf.address in looked_at}
    if looked_at:
        looked_at |= await _pfs_of(sysfs, {function for function in looked_at if before.pf(function) is None})
    cards = await _inventory_of(sysfs, before, looked_at) if looked_at else Inventory()
    read = {vf.address for pf in cards.pfs for vf in pf.vfs}
    vfs = await reread_vfs(sysfs, (vf for vf in alone.values() if vf.pf not in looked_at and vf.address not in read))
    return Reread(looked_at, cards, vfs)


async def _pfs_of(sysfs: Sysfs, functions: Iterable[PciAddress]) -> frozenset[PciAddress]:
    """Return the PFs of those functions that are VFs. One that does not answer shows none here."""
    outcomes = await sysfs.reads.read_each(_BUS, sorted(functions), sysfs.pf_of)
    for outcome in outcomes.values():
        if isinstance(outcome, OSError) and not isinstance(outcome, DoesNotAnswer):
            raise outcome
    return frozenset(outcome for outcome in outcomes.values() if isinstance(outcome, PciAddress))


async def _inventory_of(sysfs: Sysfs, before: Inventory, addresses: Iterable[PciAddress]) -> Inventory:
    """Read those of some functions that are PFs or lone VFs, with the PFs' VFs and carriers."""
    cards = [CardReading(sysfs, card) for card in await _cards(sysfs, before, addresses)]
    await card_by_card(_read_card(card, before) for card in cards)
    newer = sysfs.assembled(cards)
    return newer.with_pfs(await _with_carriers(sysfs, newer.pfs))


async def reread_pfs(
    sysfs: Sysfs, pfs: Iterable[PhysicalFunction], known: Mapping[int, PfLink | None]
) -> dict[PciAddress, PhysicalFunction]:
    """Read the driver, the netdev, the RDMA port and the carrier of some PFs again, without their VFs.

    Args:
        sysfs: the tree with the PFs.
        pfs: the PFs to read.
        known: links by ifindex. A link that is not None was just reported by the kernel, and is not read again.

    Raises:
        OSError: the daemon lacks descriptors or memory.
    """
    return await _with_carriers(sysfs, await asyncio.gather(*(_reread_pf(sysfs, pf) for pf in pfs)), known)


async def _reread_pf(sysfs: Sysfs, pf: PhysicalFunction) -> PhysicalFunction:
    try:
        return await sysfs.reads.read(pf.address, pf.address, partial(sysfs.reread_pf, pf))
    except DoesNotAnswer as error:
        return replace(pf, carrier=None, fault=fault_of(sysfs, pf.address, error))


async def reread_vfs(sysfs: Sysfs, vfs: Iterable[VirtualFunction]) -> dict[PciAddress, VirtualFunction]:
    """Read some VFs again. One that does not answer keeps its facts, and has a fault."""
    known = {vf.address: vf for vf in vfs}
    facts: dict[PciAddress, VirtualFunction] = {}
    for card, functions in _by_card(known.values()).items():
        outcomes = await sysfs.reads.read_each(card, functions, lambda address: sysfs.reread(known[address]))
        for address, outcome in outcomes.items():
            if isinstance(outcome, DoesNotAnswer):
                facts[address] = replace(known[address], fault=fault_of(sysfs, address, outcome))
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                facts[address] = outcome
    return facts


def card_of(node_inventory: Inventory, function: PciAddress) -> PciAddress:
    """Return the card of a function, for `BoundedReads`: a VF's PF, or the function itself."""
    vf = node_inventory.vf(function)
    return function if vf is None or vf.pf is None else vf.pf


def fault_of(sysfs: Sysfs, function: PciAddress, error: OSError) -> str:
    """Say in words why a function was not read."""
    return f"{sysfs.path(function)}: {error.strerror}"


def _by_card(vfs: Iterable[VirtualFunction]) -> dict[PciAddress, list[PciAddress]]:
    cards: dict[PciAddress, list[PciAddress]] = {}
    for vf in vfs:
        cards.setdefault(vf.pf or vf.address, []).append(vf.address)
    return cards


async def _cards(sysfs: Sysfs, before: Inventory, addresses: Iterable[PciAddress]) -> list[CardFunctions]:
    skipped = set[PciAddress]()

    def look(address: PciAddress) -> CardFunctions | None:
        card = None if address in skipped else sysfs.card(address)
        skipped.update(() if card is None else card.functions)
        return card

    cards = []
    for address, outcome in sorted((await sysfs.reads.read_each(_BUS, sorted(addresses), look)).items()):
        if isinstance(outcome, DoesNotAnswer):
            card = await _card_without_reading(address, outcome, sysfs, before)
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            card = outcome
        cards += [] if card is None else [card]
    vfs = {vf for card in cards for vf in card.functions[1:]}
    return [card for card in cards if card.address not in vfs]


async def _card_without_reading(
    address: PciAddress, error: DoesNotAnswer, sysfs: Sysfs, before: Inventory
) -> CardFunctions | None:
    """Return the card of a function that does not answer even when its ids are read; None if it is not known to be one."""
    fault = fault_of(sysfs, address, error)
    pf, lone = before.pf(address), next((vf for vf in before.lone_vfs if vf.address == address), None)
    if lone is not None:
        return CardFunctions(address, _ids(lone), fault=fault)
    card: CardFunctions | None = None
    with suppress(OSError):  # its files are known to hang; the names of its files may come all the same
        names_of_address = address._replace(domain=-1 - address.domain)
        card = await sysfs.reads.read(_NAMES, names_of_address, partial(sysfs.card_by_names, address))
    if pf is None:
        return None if card is None else card._replace(fault=fault)
    vfs = tuple((vf.index, vf.address) for vf in pf.vfs) if card is None else card.vfs
    return CardFunctions(address, _ids(pf), pf.ofed_guid_files, vfs, fault)


def _ids(function: PhysicalFunction | VirtualFunction) -> PciIds:
    return PciIds(vendor=function.vendor, device=function.device, class_code=function.class_code)


async def _read_card(reading: CardReading, before: Inventory) -> None:
    card = reading.card
    for address, outcome in (await reading.sysfs.reads.read_each(card.address, card.functions, reading.read)).items():
        if isinstance(outcome, DoesNotAnswer):
            reading.put_fault(address, fault_of(reading.sysfs, address, outcome), before)
        elif isinstance(outcome, Exception):
            raise outcome


async def _with_carriers(
    sysfs: Sysfs, pfs: Sequence[PhysicalFunction], known: Mapping[int, PfLink | None] = MappingProxyType({})
) -> dict[PciAddress, PhysicalFunction]:
    await _learn_kinds(sysfs, pfs)
    by_ifindex: dict[int, PfLink | OSError] = {ifindex: link for ifindex, link in known.items() if link is not None}
    if wanted := {_ethernet_ifindex(pf) for pf in pfs} - by_ifindex.keys() - {0}:
        by_ifindex |= await _links_in_time(sysfs, wanted)
    return {pf.address: _with_carrier(pf, by_ifindex.get(_ethernet_ifindex(pf))) for pf in pfs}


async def _learn_kinds(sysfs: Sysfs, pfs: Sequence[PhysicalFunction]) -> None:
    """Look at the PFs' netdevs that are new, before a pod can have one of their VFs.

    If the kernel does not answer in time, the netdevs are looked at the next time.

    Raises:
        OSError: the daemon lacks descriptors or memory.
    """
    if unknown_pfs(pfs):
        with suppress(DoesNotAnswer):
            await sysfs.reads.read(_LINKS, _NO_FUNCTIONS[_LINKS], lambda: _look_at_netdevs(sysfs, pfs))


def _look_at_netdevs(sysfs: Sysfs, pfs: Sequence[PhysicalFunction]) -> None:
    with links() as node:
        learn_kinds(pfs, node, sysfs.netdev)


async def _links_in_time(sysfs: Sysfs, ifindexes: set[int]) -> Mapping[int, PfLink | OSError]:
    try:
        return await sysfs.reads.read(_LINKS, _NO_FUNCTIONS[_LINKS], lambda: _links(ifindexes))
    except DoesNotAnswer as error:
        return dict.fromkeys(ifindexes, error)


def _links(ifindexes: Iterable[int]) -> Mapping[int, PfLink | OSError]:
    """Read links by ifindex; a link that the kernel refuses costs no other link."""
    wanted = tuple(ifindexes)
    try:
        return pf_link_query.read(wanted)
    except OSError as error:
        if len(wanted) == 1:
            return {wanted[0]: error}
        return {ifindex: link for wanted_ifindex in wanted for ifindex, link in _links((wanted_ifindex,)).items()}


def _ethernet_ifindex(pf: PhysicalFunction) -> int:
    """Return the ifindex of an Ethernet PF's netdev. Return 0, which no link has, for any other PF."""
    return pf.netdev.ifindex if pf.netdev is not None and pf.link_layer == "Ethernet" else 0


def _with_carrier(pf: PhysicalFunction, link: PfLink | OSError | None) -> PhysicalFunction:
    if isinstance(link, OSError):
        return replace(pf, carrier=None, fault=pf.fault or f"the state of its link is not known: {link}; look in dmesg")
    return replace(pf, carrier=None if link is None else link.known_carrier)
