"""Decide what a sandbox gets and which changes that takes, and which changes take it back. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vf.address import PciAddress
from vf.errors import NotOurs, Unusable
from vf.inventory import Inventory, Netdev, VirtualFunction
from vf.record import Attachment
from vf.steps import AttachStep, ConfigureLink, Given, MoveLinkIn, MoveLinkOut, RenameLink


@dataclass(frozen=True, slots=True)
class Assigned:
    """A VF that kubelet gave to a pod, with its rail and the name it gets there."""

    ifname: str
    rail: int
    vf: VirtualFunction


def assign(inventory: Inventory, vfs: Iterable[PciAddress]) -> tuple[Assigned, ...]:
    """Name a pod's VFs net1, net2, … in (rail, PCI address) order.

    Raises:
        NotOurs: one is no VF of this node.
    """
    found = []
    for address in vfs:
        vf = inventory.vf(address)
        rail = None if vf is None else inventory.rail(address)
        if vf is None:
            raise NotOurs(f"kubelet gave this pod {address}, which is not a VF of this node")
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
    """Say what the sandbox will have, as the record keeps it.

    Raises:
        Unusable: a VF's GUID is zero; the fabric would never make its port active.
    """
    return tuple(
        _attachment(one, netdevs[one.vf.address], mtus[one.vf.address], given[one.vf.address]) for one in assigned
    )


def attach(planned: Iterable[Attachment], netdevs: Mapping[PciAddress, Netdev]) -> tuple[AttachStep, ...]:
    """Return the changes that make planned attachments true: all moves, then what else is done inside the sandbox."""
    wanted = tuple(planned)
    moves = tuple(MoveLinkIn(one.vf, netdevs[one.vf].ifindex, one.host_ifname, one.ifname, one.mtu) for one in wanted)
    addressed = (one for one in wanted if one.addresses)
    return moves + tuple(ConfigureLink(one.ifname, one.addresses, one.routes) for one in addressed)


def move_out(recorded: Iterable[Attachment]) -> tuple[MoveLinkOut, ...]:
    """Return the changes that take attachments out of a living sandbox; one that is not there any more changes nothing."""
    return tuple(MoveLinkOut(one.vf, one.host_ifname) for one in recorded)


def rename(recorded: Iterable[Attachment], on_node: Mapping[PciAddress, Netdev]) -> tuple[RenameLink, ...]:
    """Give netdevs that are back on the node their names: a dying namespace returns them under the pod's.

    A record that was made again from the kernel has the pod's name for both where nothing says the node's: whatever such a netdev
    is called now, nobody knows better.
    """
    return tuple(
        RenameLink(on_node[one.vf].ifindex, one.host_ifname)
        for one in recorded
        if one.vf in on_node and one.host_ifname not in (one.ifname, on_node[one.vf].name)
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
