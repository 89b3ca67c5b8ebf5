"""Free VFs whose netdev is not on the node: which are in a sandbox without a record, and which are to be probed again. Pure.

A record can be lost: somebody deleted it, or it cannot be read any more. What its sandbox has is known from the kernel.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from vf.address import PciAddress
from vf.inventory import Inventory, VirtualFunction
from vf.provision import driver_of_vfs
from vf.record import UNKNOWN, Attachment, Netns, Pod, Record, Trace
from vf.sandbox_difference import LinkState
from vf.steps import ProbeAgain, RenameLink

_IFNAME = "eth0"  # CNI_IFNAME of every Kubernetes runtime
_PATIENCE_SECONDS = 8.0  # a namespace that dies gives its netdevs back by and by
_TRIES = 2
_OF_A_POD = re.compile(r"(net|dev)[0-9]+")  # what we call it there; what the kernel does where that is taken here


@dataclass(frozen=True, slots=True)
class OrphanNetdev:
    """A VF's netdev in a network namespace that is not the node's; `host_ifname` is what it was called there, if it is known."""

    netns: Netns
    link: LinkState
    host_ifname: str | None


class Absence(NamedTuple):
    """Since when a VF's netdev is nowhere (monotonic seconds), and how often its driver was bound again since."""

    since: float
    tries: int


@dataclass(frozen=True, slots=True)
class Books:
    """What is written down anywhere about sandboxes.

    The journal's `records`, by key; `traces` of unreadable ones; `pods`, the UIDs of the pods that kubelet gave VFs to; the
    present `boot`.
    """

    records: Mapping[str, Record]
    traces: Sequence[Trace]
    pods: Mapping[PciAddress, str]
    boot: str


def missing(inventory: Inventory, owned: Container[PciAddress]) -> tuple[VirtualFunction, ...]:
    """Return the free VFs that should have a netdev on the node and have none.

    One whose driver makes none, such as vfio-pci's, belongs to somebody else; so does one that is on no rail, as of a card that no
    pool asks for: another CNI plugin may have moved its netdev.
    """
    return tuple(vf for vf in _free(inventory, owned) if vf.netdev is None and _makes_netdevs(inventory, vf))


def adopt(
    inventory: Inventory,
    strays: Mapping[PciAddress, OrphanNetdev],
    books: Books,
) -> tuple[Record, ...]:
    """Make the records of namespaces that have VFs and no record. Addresses that the kernel gave itself are left out."""
    by_netns: dict[Netns, dict[PciAddress, OrphanNetdev]] = {}
    for vf, stray in sorted(strays.items()):
        by_netns.setdefault(stray.netns, {})[vf] = stray
    made = (_record(inventory, netns, found, books) for netns, found in by_netns.items())
    return tuple(record for record in made if record is not None)


def probe(
    inventory: Inventory,
    absent: Mapping[PciAddress, Absence],
    in_use: Container[PciAddress],
    now: float,
) -> tuple[ProbeAgain, ...]:
    """Return the changes that bring VFs back whose netdev is nowhere.

    Some die with their namespace: those whose driver has `rtnl_link_ops` without `netns_refund` (default_device_exit_net(),
    net/core/dev.c). A VF that is `in_use` keeps its RDMA device, whatever became of its netdev. `now` is as `Absence.since`.
    """
    return tuple(
        step
        for step, absence in _to_be_tried(inventory, absent, in_use)
        if now - absence.since >= _PATIENCE_SECONDS * (absence.tries + 1)
    )


def is_pending(inventory: Inventory, absent: Mapping[PciAddress, Absence], in_use: Container[PciAddress]) -> bool:
    """Return whether something is still to be tried."""
    return any(True for _ in _to_be_tried(inventory, absent, in_use))


def _to_be_tried(
    inventory: Inventory, absent: Mapping[PciAddress, Absence], in_use: Container[PciAddress]
) -> Iterator[tuple[ProbeAgain, Absence]]:
    for address, absence in sorted(absent.items()):
        vf = inventory.vf(address)
        if vf is None or vf.driver is None or address in in_use or absence.tries >= _TRIES:
            continue
        if _pf_has_netdev(inventory, vf):  # else no driver makes any, such as while ib_ipoib is not loaded
            yield ProbeAgain(address, vf.driver), absence


def misnamed(inventory: Inventory, owned: Container[PciAddress]) -> tuple[VirtualFunction, ...]:
    """Return the free VFs whose netdev on the node has such a name as one has that came back from a namespace that died."""
    return tuple(vf for vf in _free(inventory, owned) if vf.netdev is not None and _OF_A_POD.fullmatch(vf.netdev.name))


def rename_home(
    inventory: Inventory, vfs: Iterable[VirtualFunction], written: Mapping[PciAddress, str]
) -> tuple[RenameLink, ...]:
    """Return the changes that give netdevs their names back: what is `written` on them, else what their like are called.

    A pod's name that is written on one says only that it was given out before it had its own back.
    """
    wanted = ((vf.netdev, _own(written.get(vf.address)) or _home_ifname(inventory, vf.address)) for vf in vfs)
    return tuple(
        RenameLink(netdev.ifindex, name)
        for netdev, name in wanted
        if netdev is not None and name not in (None, netdev.name)
    )


def _free(inventory: Inventory, owned: Container[PciAddress]) -> Iterator[VirtualFunction]:
    return (vf for rail in inventory.rails for vf in rail.vfs if vf.address not in owned)


def _own(written: str | None) -> str | None:
    return None if written is None or _OF_A_POD.fullmatch(written) else written


def reason(inventory: Inventory, vf: VirtualFunction, absence: Absence, *, in_use: bool) -> str:
    """Return why a VF whose netdev is nowhere is not given out, and what to do."""
    what = f"VF {vf.address} has no network interface in any network namespace"
    if not _pf_has_netdev(inventory, vf):
        return f"{what}, and neither has its PF: modprobe ib_ipoib"
    if in_use:
        return f"{what}, and kubelet has given it to a pod: when that pod has ended its driver is bound again"
    if absence.tries < _TRIES:
        return f"{what}: its driver is bound again in a few seconds"
    return f"{what}, even after its driver {vf.driver} was bound again {absence.tries} times: dmesg says why; then bind it by hand"


def stranded(record: Record, vf: PciAddress) -> str:
    """Return why a VF in a namespace that nobody answers for is not given out, and what to do."""
    ifname = next((one.ifname for one in record.attachments if one.vf == vf), "its netdev")
    return (
        f"VF {vf} is in network namespace {record.netns.path} ({record.netns.inode}) as {ifname}, and neither a record nor "
        "kubelet knows for whom: it is free when that namespace ends, or when its netdev is moved back to the host"
    )


def _record(
    inventory: Inventory, netns: Netns, found: Mapping[PciAddress, OrphanNetdev], books: Books
) -> Record | None:
    """Make one namespace's record; None where its name is still another's, which is being taken back."""
    attachments = tuple(
        _attachment(inventory, vf, stray) for vf, stray in sorted(found.items(), key=lambda item: item[1].link.ifname)
    )
    for record in books.records.values():
        if record.adopted and _same(record.netns, netns):
            return replace(record, attachments=record.attachments + attachments)
    uid = next((books.pods[vf] for vf in found if vf in books.pods), "")
    whose = [trace for trace in books.traces if trace.netns is not None and _same(trace.netns, netns)]
    # The inode of a namespace is another's as soon as it has died, so a name made of it may still be in the books.
    for trace in (*whose, Trace(f"{UNKNOWN}{netns.inode}", _IFNAME, netns, Pod("", "", uid))):
        pod = trace.pod if trace.pod.uid else trace.pod._replace(uid=uid)
        record = Record(trace.container_id, trace.ifname, netns, pod, "attached", attachments, boot=books.boot)
        if record.key not in books.records:
            return record
    return None


def _same(one: Netns, other: Netns) -> bool:
    """Compare two namespaces of one boot: by the name they are bound under, too, for inodes repeat; /run may be /var/run."""
    return one[1:] == other[1:] and one.path.rpartition("/")[2] == other.path.rpartition("/")[2]


def _attachment(inventory: Inventory, vf: PciAddress, stray: OrphanNetdev) -> Attachment:
    known, link = inventory.vf(vf), stray.link
    rdma = None if known is None else known.rdma
    return Attachment(
        ifname=link.ifname,
        vf=vf,
        rail=inventory.rail(vf) or 0,
        link_layer=link.link_layer or (known.link_layer if known is not None else "InfiniBand"),
        guid=None if rdma is None else rdma.node_guid,
        mtu=link.mtu,
        addresses=tuple(sorted((one for one in link.addresses if not one.ip.is_link_local), key=str)),
        host_ifname=stray.host_ifname or _home_ifname(inventory, vf) or link.ifname,
        rdma=None if rdma is None else rdma.name,
        uverbs=None if rdma is None else rdma.uverbs,
    )


def _home_ifname(inventory: Inventory, vf: PciAddress) -> str | None:
    """Return the name that udev gives a VF's netdev, if it does so on this node: its PF's with the VF's index.

    Source: systemd.net-naming-scheme(7), v239.
    """
    found = inventory.vf(vf)
    pf = None if found is None else inventory.pf(found.pf)
    if found is None or pf is None or pf.netdev is None:
        return None
    at_home = {other.index: other.netdev.name for other in pf.vfs if other.netdev is not None}
    names = {index: f"{pf.netdev.name}v{index}" for index in (*at_home, found.index)}
    return names[found.index] if any(at_home[index] == names[index] for index in at_home) else None


def _makes_netdevs(inventory: Inventory, vf: VirtualFunction) -> bool:
    pf = inventory.pf(vf.pf)
    if vf.driver is None:
        return False
    return vf.rdma is not None or (pf is not None and pf.driver is not None and vf.driver == driver_of_vfs(pf.driver))


def _pf_has_netdev(inventory: Inventory, vf: VirtualFunction) -> bool:
    pf = inventory.pf(vf.pf)
    return pf is None or pf.netdev is not None
