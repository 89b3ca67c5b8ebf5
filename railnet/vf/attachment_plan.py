"""Decide what a sandbox gets, and which steps attach it and take it back. Pure; `railnet.kernel.perform` does the steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from railnet.errors import Misconfigured, NotOurs, Unusable
from railnet.vf.inventory import Inventory, Netdev, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Attachment, Record
from railnet.vf.restored_link_settings import Settings, to_record
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

# dev_alloc_name(), net/core/dev.c, puts a free number in place of %d: a netdev's name on the node until it is renamed.
FREE_IFNAME = "railnet%d"


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
    vfs_on_rails = []
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
        vfs_on_rails.append((rail, address, vf))
    return tuple(
        Assigned(f"net{number}", rail, vf) for number, (rail, _, vf) in enumerate(sorted(vfs_on_rails), start=1)
    )


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
        _attachment(
            assignment, netdevs[assignment.vf.address], mtus[assignment.vf.address], given[assignment.vf.address]
        )
        for assignment in assigned
    )


def attach(planned: Iterable[Attachment], netdevs: Mapping[PciAddress, Netdev]) -> tuple[AttachStep, ...]:
    """Return the steps that attach: all moves, then the configuration inside the sandbox."""
    wanted = tuple(planned)
    return (
        *(_move_in(attachment, netdevs[attachment.vf]) for attachment in wanted),
        *(
            ConfigureLink(attachment.ifname, attachment.addresses, attachment.routes)
            for attachment in wanted
            if attachment.addresses
        ),
        *(
            RouteBySource(attachment.ifname, attachment.routing)
            for attachment in wanted
            if attachment.routing is not None and attachment.routing.sources
        ),
    )


def _move_in(attachment: Attachment, netdev: Netdev) -> MoveLinkIn:
    ipv4 = None if attachment.routing is None else attachment.routing.ipv4
    return MoveLinkIn(attachment.vf, netdev.ifindex, attachment.host_ifname, attachment.ifname, attachment.mtu, ipv4)


def move_out(recorded: Iterable[Attachment]) -> tuple[MoveLinkOut, ...]:
    """Return the steps that move attachments' netdevs out of a sandbox; a step whose netdev is not there does nothing."""
    return tuple(MoveLinkOut(attachment.vf, attachment.host_ifname, attachment.before) for attachment in recorded)


def take_out(recorded: Sequence[Attachment]) -> tuple[DetachStep, ...]:
    """Return the steps that take attachments out of a sandbox: their netdevs, then their rules, which stay behind otherwise."""
    rules = tuple(
        rule for attachment in recorded if attachment.routing is not None for rule in attachment.routing.rules
    )
    return (*move_out(recorded), *((RemoveRules(rules),) if rules else ()))


def rename(recorded: Iterable[Attachment], on_node: Mapping[PciAddress, Netdev]) -> tuple[RenameLink, ...]:
    """Return the steps that rename netdevs which are back on the node: an ended namespace returns them with the pod's name.

    A rebuilt record has the pod's name for both if the name on the node is not known: then the netdev keeps its name. Netdevs that
    have each other's names are given other ones first.
    """
    renames = tuple(
        RenameLink(on_node[attachment.vf].ifindex, attachment.host_ifname)
        for attachment in recorded
        if attachment.vf in on_node and attachment.host_ifname not in (attachment.ifname, on_node[attachment.vf].name)
    )
    present, wanted = {netdev.name for netdev in on_node.values()}, {step.ifname for step in renames}
    aside = renames if present & wanted else ()
    return (*(RenameLink(step.ifindex, FREE_IFNAME) for step in aside), *renames)


def reset(recorded: Iterable[Attachment], on_node: Mapping[PciAddress, Netdev]) -> tuple[ResetLink, ...]:
    """Return the steps that give netdevs which are back on the node the settings that they had before the attach."""
    return tuple(
        ResetLink(attachment.vf, on_node[attachment.vf].ifindex, attachment.before)
        for attachment in recorded
        if attachment.vf in on_node and attachment.before is not None
    )


def with_settings(record: Record, before: Mapping[PciAddress, Settings]) -> tuple[Attachment, ...]:
    """Return a record's attachments with the settings that their netdevs had before the attach.

    Settings that are not known become the normal ones, but not if the ADD was not done: then no container has run.
    """
    unknown: Settings | None = None if record.stage == "planned" else {}
    return tuple(
        replace(
            attachment,
            before=to_record(before[attachment.vf]) if attachment.vf in before else attachment.before or unknown,
        )
        for attachment in record.attachments
    )


def _attachment(assignment: Assigned, netdev: Netdev, mtu: int, given: Given) -> Attachment:
    rdma = assignment.vf.rdma
    if rdma is not None and not rdma.node_guid.usable:
        raise Unusable(
            f"VF {assignment.vf.address} has no GUID; let Railnet provision {assignment.vf.pf or 'its PF'}, or set one and rebind the VF"
        )
    return Attachment(
        ifname=assignment.ifname,
        vf=assignment.vf.address,
        rail=assignment.rail,
        link_layer=assignment.vf.link_layer,
        guid=None if rdma is None else rdma.node_guid,
        mtu=mtu,
        addresses=given.addresses,
        host_ifname=netdev.name,
        rdma=None if rdma is None else rdma.name,
        uverbs=None if rdma is None else rdma.uverbs,
        routes=given.routes,
    )
