"""Decide what a sandbox gets, and which steps attach it and take it back. Pure; `railnet.kernel.perform` does the steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from railnet.vf.errors import Misconfigured, NotOurs, Unusable
from railnet.vf.inventory import Inventory, Netdev, VirtualFunction
from railnet.vf.link_settings import Settings, to_record
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Attachment, Record
from railnet.vf.steps import (
    AttachStep,
    ConfigureLink,
    DetachStep,
    Given,
    MoveLinkIn,
    MoveLinkOut,
    RemoveRules,
    RenameLink,
    ResetLink,
    RouteBySource,
)


@dataclass(frozen=True, slots=True)
class Assigned:
    """A VF that kubelet gave to a pod, with its rail and its interface name in the pod."""

    ifname: str
    rail: int
    vf: VirtualFunction


def assign(inventory: Inventory, vfs: Iterable[PciAddress]) -> tuple[Assigned, ...]:
    """Name a pod's VFs net1, net2, … in (rail, PCI address) order.

    Raises:
        NotOurs: one is no VF of this node. Misconfigured: the rail of one is not certain.
    """
    found = []
    # By the rail's own address, which is its PF's or its lone VF's: a node may have a thousand VFs.
    places = {rail.address: (number, rail.reason) for number, rail in inventory.all_rails() if rail.vfs}
    for address in vfs:
        vf = inventory.vf(address)
        if vf is None:
            raise NotOurs(f"kubelet gave this pod {address}, which is not a VF of this node")
        rail, reason = places.get(address) or places.get(vf.pf or address, (None, None))
        if reason is not None:
            raise Misconfigured(reason)
        if rail is None:
            raise NotOurs(
                f"kubelet gave this pod VF {address}, which is on none of this node's rails (`rails`, `pools`)"
            )
        found.append((rail, address, vf))
    return tuple(Assigned(f"net{number}", rail, vf) for number, (rail, _, vf) in enumerate(sorted(found), start=1))


def attachments(
    assigned: Sequence[Assigned],
    netdevs: Mapping[PciAddress, Netdev],
    mtus: Mapping[PciAddress, int],
    given: Mapping[PciAddress, Given],
) -> tuple[Attachment, ...]:
    """Return what the sandbox will have, as the record keeps it.

    Raises:
        Unusable: a VF's GUID is zero, so the fabric would never make its port active.
    """
    return tuple(
        _attachment(one, netdevs[one.vf.address], mtus[one.vf.address], given[one.vf.address]) for one in assigned
    )


def attach(planned: Iterable[Attachment], netdevs: Mapping[PciAddress, Netdev]) -> tuple[AttachStep, ...]:
    """Return the steps that attach: all moves, then the configuration inside the sandbox."""
    wanted = tuple(planned)
    return (
        *(_move_in(one, netdevs[one.vf]) for one in wanted),
        *(ConfigureLink(one.ifname, one.addresses, one.routes) for one in wanted if one.addresses),
        *(RouteBySource(one.ifname, one.routing) for one in wanted if one.routing is not None and one.routing.sources),
    )


def _move_in(one: Attachment, netdev: Netdev) -> MoveLinkIn:
    ipv4 = None if one.routing is None else one.routing.ipv4
    return MoveLinkIn(one.vf, netdev.ifindex, one.host_ifname, one.ifname, one.mtu, ipv4)


def move_out(recorded: Iterable[Attachment]) -> tuple[MoveLinkOut, ...]:
    """Return the steps that move attachments' netdevs out of a sandbox; a step whose netdev is not there does nothing."""
    return tuple(MoveLinkOut(one.vf, one.host_ifname, one.before) for one in recorded)


def take_out(recorded: Sequence[Attachment]) -> tuple[DetachStep, ...]:
    """Return the steps that take attachments out of a sandbox: their netdevs, then their rules, which stay behind otherwise."""
    rules = tuple(rule for one in recorded if one.routing is not None for rule in one.routing.rules)
    return (*move_out(recorded), *((RemoveRules(rules),) if rules else ()))


def rename(recorded: Iterable[Attachment], on_node: Mapping[PciAddress, Netdev]) -> tuple[RenameLink, ...]:
    """Return the steps that rename netdevs which are back on the node: an ended namespace returns them with the pod's name.

    A rebuilt record has the pod's name for both if the name on the node is not known: then the netdev keeps its name.
    """
    return tuple(
        RenameLink(on_node[one.vf].ifindex, one.host_ifname)
        for one in recorded
        if one.vf in on_node and one.host_ifname not in (one.ifname, on_node[one.vf].name)
    )


def reset(recorded: Iterable[Attachment], on_node: Mapping[PciAddress, Netdev]) -> tuple[ResetLink, ...]:
    """Return the steps that give netdevs which are back on the node the settings that they had before the attach."""
    return tuple(
        ResetLink(one.vf, on_node[one.vf].ifindex, one.before)
        for one in recorded
        if one.vf in on_node and one.before is not None
    )


def with_settings(record: Record, before: Mapping[PciAddress, Settings]) -> tuple[Attachment, ...]:
    """Return a record's attachments with the settings that their netdevs had before the attach.

    Settings that are not known become the normal ones, but not if the ADD was not done: then no container has run.
    """
    unknown: Settings | None = None if record.stage == "planned" else {}
    return tuple(
        replace(one, before=to_record(before[one.vf]) if one.vf in before else one.before or unknown)
        for one in record.attachments
    )


def _attachment(one: Assigned, netdev: Netdev, mtu: int, given: Given) -> Attachment:
    rdma = one.vf.rdma
    if rdma is not None and not rdma.node_guid.usable:
        raise Unusable(
            f"VF {one.vf.address} has no GUID; let Railnet provision {one.vf.pf or 'its PF'}, or set one and rebind the VF"
        )
    return Attachment(
        ifname=one.ifname,
        vf=one.vf.address,
        rail=one.rail,
        link_layer=one.vf.link_layer,
        guid=None if rdma is None else rdma.node_guid,
        mtu=mtu,
        addresses=given.addresses,
        host_ifname=netdev.name,
        rdma=None if rdma is None else rdma.name,
        uverbs=None if rdma is None else rdma.uverbs,
        routes=given.routes,
    )
