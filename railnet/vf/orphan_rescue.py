"""Free VFs whose netdev is not on the node: which sandbox record is rebuilt, which driver is bound again, which name a netdev gets. Pure.

A record can be lost: its file was deleted, or cannot be read any more. The kernel still shows what the sandbox has.
The search in the kernel belongs to `railnet.kernel.namespaces.orphan_netdev_return`, and acting on these decisions to `cni.recovery`.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from railnet.vf.inventory import Inventory, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.provision import driver_of_vfs
from railnet.vf.record import UNKNOWN, Attachment, LostRecord, Netns, Record, SandboxPod
from railnet.vf.sandbox_difference import SandboxLink
from railnet.vf.steps import ProbeAgain, RailRouting, RenameLink

_IFNAME = "eth0"  # CNI_IFNAME of every Kubernetes runtime
_PATIENCE_SECONDS = 8.0  # a network namespace that ends returns its netdevs only after some seconds
_TRIES = 2
# A netdev's name in a pod, and the name that the kernel gives it on the node where the pod's name is taken.
_OF_A_POD = re.compile(r"(net|dev)[0-9]+")


@dataclass(frozen=True, slots=True)
class OrphanNetdev:
    """A VF's netdev in a network namespace that is not the node's.

    `host_ifname` is the name that the netdev had on the node, None if it is not known.
    """

    netns: Netns
    link: SandboxLink
    host_ifname: str | None


class Absence(NamedTuple):
    """Since when a VF's netdev is in no namespace (monotonic seconds), and how often its driver was bound again since."""

    since: float
    tries: int


@dataclass(frozen=True, slots=True)
class RebuildSources:
    """A record is rebuilt from these, beside the kernel.

    `records` are the journal's, by key. `lost_records` are the remains of unreadable records. `pods` are the UIDs of the
    pods that kubelet gave VFs to. `boot` is the present boot.
    """

    records: Mapping[str, Record]
    lost_records: Sequence[LostRecord]
    pods: Mapping[PciAddress, str]
    boot: str


def missing(inventory: Inventory, owned: Container[PciAddress]) -> tuple[VirtualFunction, ...]:
    """Return the free VFs that should have a netdev on the node and have none.

    Not a VF whose driver makes no netdev, such as vfio-pci: other software uses it. Not a VF that is on no rail, as of a
    card that no pool names: another CNI plugin may have moved its netdev. Not a VF with a fault: its netdev may be there.
    """
    unseen = (vf for vf in _free(inventory, owned) if vf.netdev is None and vf.fault is None)
    return tuple(vf for vf in unseen if _makes_netdevs(inventory, vf))


def is_at_rest(vf: VirtualFunction, *, owned: bool) -> bool:
    """Return whether a VF's netdev is where it should be: in the sandbox that owns the VF, or on the node under the node's name.

    So it is after an ADD and after a DEL. It is not if the sandbox has ended, if a program took the netdev, or in the midst of a request.
    """
    if vf.fault is not None:
        return False
    if owned:
        return vf.netdev is None
    return vf.netdev is not None and not _OF_A_POD.fullmatch(vf.netdev.name)


def rebuild(
    inventory: Inventory, orphans: Mapping[PciAddress, OrphanNetdev], sources: RebuildSources
) -> tuple[Record, ...]:
    """Rebuild the records of namespaces that have VFs and no record. Link-local addresses are left out."""
    by_netns: dict[Netns, dict[PciAddress, OrphanNetdev]] = {}
    for vf, orphan in sorted(orphans.items()):
        by_netns.setdefault(orphan.netns, {})[vf] = orphan
    rebuilt = (_record(inventory, netns, netns_orphans, sources) for netns, netns_orphans in by_netns.items())
    return tuple(record for record in rebuilt if record is not None)


def probe(
    inventory: Inventory, absent: Mapping[PciAddress, Absence], in_use: Container[PciAddress], now: float
) -> tuple[ProbeAgain, ...]:
    """Return the steps that bring back VFs whose netdev is in no namespace.

    Some netdevs are destroyed with their namespace: those whose driver has `rtnl_link_ops` without `netns_refund`
    (default_device_exit_net(), net/core/dev.c). A VF that is `in_use` is not bound again, since its pod may use its RDMA
    device. `now` is on the clock of `Absence.since`.
    """
    return tuple(
        step
        for step, absence in _to_be_tried(inventory, absent, in_use)
        if now - absence.since >= _PATIENCE_SECONDS * (absence.tries + 1)
    )


def is_pending(inventory: Inventory, absent: Mapping[PciAddress, Absence], in_use: Container[PciAddress]) -> bool:
    """Return whether a driver is still to be bound again."""
    return any(True for _ in _to_be_tried(inventory, absent, in_use))


def _to_be_tried(
    inventory: Inventory, absent: Mapping[PciAddress, Absence], in_use: Container[PciAddress]
) -> Iterator[tuple[ProbeAgain, Absence]]:
    for address, absence in sorted(absent.items()):
        vf = inventory.vf(address)
        if vf is None or vf.driver is None or address in in_use or absence.tries >= _TRIES:
            continue
        if _pf_has_netdev(inventory, vf):  # otherwise no driver makes a netdev: ib_ipoib is not loaded
            yield ProbeAgain(address, vf.driver), absence


def misnamed(inventory: Inventory, vfs: Iterable[PciAddress]) -> tuple[VirtualFunction, ...]:
    """Return those of some VFs whose netdev has, on the node, the name of a netdev that came back from an ended namespace."""
    rails = frozenset(rail.address for _, rail in inventory.all_rails())
    functions = filter(None, map(inventory.vf, vfs))
    return tuple(
        vf
        for vf in functions
        if not rails.isdisjoint((vf.address, vf.pf or vf.address))
        and vf.netdev is not None
        and _OF_A_POD.fullmatch(vf.netdev.name)
    )


def rename_on_node(
    inventory: Inventory, vfs: Iterable[VirtualFunction], written: Mapping[PciAddress, str]
) -> tuple[RenameLink, ...]:
    """Return the steps that rename netdevs to their names on the node.

    That is the name `written` on the netdev, otherwise the name that udev's scheme gives it. A written name that is itself
    a pod's name is not used: the netdev was attached again before it had its own name back.
    """
    wanted = ((vf.netdev, _if_not_a_pods(written.get(vf.address)) or _udev_ifname(inventory, vf.address)) for vf in vfs)
    return tuple(
        RenameLink(netdev.ifindex, name)
        for netdev, name in wanted
        if netdev is not None and name not in (None, netdev.name)
    )


def _free(inventory: Inventory, owned: Container[PciAddress]) -> Iterator[VirtualFunction]:
    return (vf for _, rail in inventory.all_rails() for vf in rail.vfs if vf.address not in owned)


def _if_not_a_pods(written: str | None) -> str | None:
    return None if written is None or _OF_A_POD.fullmatch(written) else written


def reason_absent(inventory: Inventory, vf: VirtualFunction, absence: Absence, *, in_use: bool) -> str:
    """Explain why a VF whose netdev is in no namespace is withheld, and what to do."""
    what = f"VF {vf.address} has no network interface in any network namespace"
    if not _pf_has_netdev(inventory, vf):
        return f"{what}, and neither has its PF: modprobe ib_ipoib"
    if in_use:
        return f"{what}, and kubelet has given it to a pod: when that pod has ended its driver is bound again"
    if absence.tries < _TRIES:
        return f"{what}: its driver is bound again in a few seconds"
    return f"{what}, even after its driver {vf.driver} was bound again {absence.tries} times: dmesg says why; then bind it by hand"


def reason_unnamed(record: Record, vf: PciAddress) -> str:
    """Explain why a VF in a namespace of an unknown pod is withheld, and what to do; `record` is the rebuilt one."""
    ifname = next((attachment.ifname for attachment in record.attachments if attachment.vf == vf), "its netdev")
    return (
        f"VF {vf} is in network namespace {record.netns.path} ({record.netns.inode}) as {ifname}, and neither a record nor "
        "kubelet names its pod: the VF is free when that namespace ends, or when its netdev is moved back to the host"
    )


def _record(
    inventory: Inventory, netns: Netns, orphans: Mapping[PciAddress, OrphanNetdev], sources: RebuildSources
) -> Record | None:
    """Rebuild one namespace's record; return None if another record, which is being taken back, still has its name."""
    attachments = tuple(
        _attachment(inventory, vf, orphan)
        for vf, orphan in sorted(orphans.items(), key=lambda item: item[1].link.ifname)
    )
    for record in sources.records.values():
        if record.rebuilt and _is_same_netns(record.netns, netns):
            return replace(record, attachments=record.attachments + attachments)
    uid = next((sources.pods[vf] for vf in orphans if vf in sources.pods), "")
    of_netns = [lost for lost in sources.lost_records if lost.netns is not None and _is_same_netns(lost.netns, netns)]
    # A later namespace may get the same inode, so a container id made of the inode may still be in the journal.
    for lost in (*of_netns, LostRecord(f"{UNKNOWN}{netns.inode}", _IFNAME, netns, SandboxPod("", "", uid))):
        pod = lost.pod if lost.pod.uid else lost.pod._replace(uid=uid)
        record = Record(lost.container_id, lost.ifname, netns, pod, "attached", attachments, boot=sources.boot)
        if record.key not in sources.records:
            return record
    return None


def _is_same_netns(netns: Netns, other: Netns) -> bool:
    """Compare two namespaces of one boot.

    The file name counts too, since a later namespace may get the same inode; its folder does not, since /run may be /var/run.
    """
    return netns[1:] == other[1:] and netns.path.rpartition("/")[2] == other.path.rpartition("/")[2]


def _attachment(inventory: Inventory, vf: PciAddress, orphan: OrphanNetdev) -> Attachment:
    known, link = inventory.vf(vf), orphan.link
    rdma = None if known is None else known.rdma
    return Attachment(
        ifname=link.ifname,
        vf=vf,
        rail=inventory.rail(vf) or 0,
        link_layer=link.link_layer or (known.link_layer if known is not None else "InfiniBand"),
        guid=None if rdma is None else rdma.node_guid,
        mtu=link.mtu,
        addresses=tuple(sorted((address for address in link.addresses if not address.ip.is_link_local), key=str)),
        host_ifname=orphan.host_ifname or _udev_ifname(inventory, vf) or link.ifname,
        rdma=None if rdma is None else rdma.name,
        uverbs=None if rdma is None else rdma.uverbs,
        routing=_routing(link),
    )


def _routing(link: SandboxLink) -> RailRouting | None:
    """Return the routing whose rules DEL has to remove; None if the namespace has no rule for the link's addresses."""
    own = {address.ip for address in link.addresses}
    rules = sorted((rule for rule in link.rules if rule.source in own), key=str)
    if link.ipv4 is None or not rules:
        return None
    table = rules[0].table
    return RailRouting(link.ipv4, table, tuple(rule.source for rule in rules if rule.table == table))


def _udev_ifname(inventory: Inventory, vf: PciAddress) -> str | None:
    """Return the name that udev gives a VF's netdev, if udev names netdevs on this node: the PF's with the VF's index.

    Source: systemd.net-naming-scheme(7), v239.
    """
    function = inventory.vf(vf)
    pf = None if function is None else inventory.pf(function.pf)
    if function is None or pf is None or pf.netdev is None:
        return None
    on_node = {other.index: other.netdev.name for other in pf.vfs if other.netdev is not None}
    names = {index: f"{pf.netdev.name}v{index}" for index in (*on_node, function.index)}
    return names[function.index] if any(on_node[index] == names[index] for index in on_node) else None


def makes_netdev(inventory: Inventory, address: PciAddress) -> bool:
    """Return whether a VF with a driver must have a netdev: its driver makes netdevs, and its PF has one."""
    vf = inventory.vf(address)
    return vf is not None and _makes_netdevs(inventory, vf) and _pf_has_netdev(inventory, vf)


def _makes_netdevs(inventory: Inventory, vf: VirtualFunction) -> bool:
    pf = inventory.pf(vf.pf)
    if vf.driver is None:
        return False
    return vf.rdma is not None or (pf is not None and pf.driver is not None and vf.driver == driver_of_vfs(pf.driver))


def _pf_has_netdev(inventory: Inventory, vf: VirtualFunction) -> bool:
    pf = inventory.pf(vf.pf)
    return pf is None or pf.netdev is not None
