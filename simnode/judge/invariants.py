"""The invariants that a node must satisfy after any fault. Pure: they compare two states of a node and return violations.

One state is the node at rest, before any of the judged sandboxes; the other is the node now. Railnet's record is not
trusted: records, the kernel, and the files of the IPAM plugins must agree with each other and with `LiveSandbox`, which
is what container runtime and kubelet know.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Attachment, Record
from simnode.judge.machine_snapshot import difference
from simnode.judge.node_state import NETNS_DESCRIPTOR, Link, NodeState, RecordFile, Reservation

_HEX_GUID = 8 * 3 - 1  # as in 00:11:22:33:44:55:66:77
_IPOIB_ADDRESS = 20 * 3 - 1


class Violation(NamedTuple):
    """A violated invariant; `kind` is one of a few texts, `what` names the object."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class LiveSandbox:
    """A sandbox whose ADD has succeeded and whose DEL has not begun, as container runtime and kubelet know it.

    Attributes:
        vfs: the VFs that kubelet has allocated to its pod.
        reserved: True if host-local has reserved the address of its eth0.
    """

    container_id: str
    netns: Path
    vfs: frozenset[PciAddress] = frozenset()
    ifname: str = "eth0"
    reserved: bool = True


def violations(before: NodeState, now: NodeState, living: Collection[LiveSandbox] = ()) -> list[Violation]:
    """Judge a node on which no operation runs and which has no other sandboxes than `living`."""
    by_id = {one.container_id: one for one in living}
    return [
        *of_sandboxes(before, now, living),
        *_free_vfs(before, now, by_id),
        *_records_and_reservations(now, by_id),
        *_links(before, now, living),
        *_objects(before, now, living),
        *_rules(before, now, living),
        *_descriptors(before, now),
    ]


def of_sandboxes(before: NodeState, now: NodeState, resting: Collection[LiveSandbox]) -> list[Violation]:
    """Judge only these sandboxes, and that no VF and no address has two owners; other sandboxes may come and go meanwhile."""
    return [*_owned_twice(now, resting), *(found for one in resting for found in _sandbox(before, now, one))]


def _owned_twice(now: NodeState, resting: Iterable[LiveSandbox]) -> Iterator[Violation]:
    records = [file.record for file in now.records if file.record is not None]
    yield from _repeated("VF owned twice", ((one.vf, r.key) for r in records for one in r.attachments))
    on_rails = ((a, f"{r.key} as {one.ifname}") for r in records for one in r.attachments for a in one.addresses)
    yield from _repeated("address owned twice", on_rails)
    in_pods = (
        (address, f"{link.ifname} of {one.container_id}")
        for one in resting
        for link in now.links.get(now.named.get(str(one.netns), 0), ())
        for address in link.addresses
        if link.ifname != "lo"
    )
    yield from _repeated("address on two links", in_pods)


def _repeated(kind: str, owned: Iterable[tuple[object, str]]) -> Iterator[Violation]:
    owners: dict[object, list[str]] = {}
    for thing, owner in owned:
        owners.setdefault(thing, []).append(owner)
    for thing, several in owners.items():
        if len(several) > 1:
            yield Violation(kind, f"{thing} by {' and '.join(several)}")


def _sandbox(before: NodeState, now: NodeState, one: LiveSandbox) -> Iterator[Violation]:
    inode = now.named.get(str(one.netns))
    if inode is None or inode not in now.links:
        yield Violation("network namespace missing", f"{one.netns} of sandbox {one.container_id}")
        return
    links = {link.ifname: link for link in now.links[inode]}
    record = _record_of(now, one)
    attachments = () if record is None else record.attachments
    yield from _recorded(one, record)
    yield from _eth0(now, one, links)
    for attachment in attachments:
        yield from _rail(before, now, one, attachment, links.get(attachment.ifname), inode)
    expected = {"lo", one.ifname, *(attachment.ifname for attachment in attachments)}
    for ifname in sorted(links.keys() - expected):
        yield Violation("link left over", f"{ifname} in sandbox {one.container_id}")


def _record_of(now: NodeState, one: LiveSandbox) -> Record | None:
    records = (file.record for file in now.records if file.record is not None)
    return next((record for record in records if record.container_id == one.container_id), None)


def _recorded(one: LiveSandbox, record: Record | None) -> Iterator[Violation]:
    recorded = frozenset() if record is None else frozenset(attachment.vf for attachment in record.attachments)
    if recorded != one.vfs:
        yield Violation("record wrong", f"sandbox {one.container_id} has {_list(one.vfs)}, recorded {_list(recorded)}")
    if record is not None and record.stage != "attached":
        yield Violation("record wrong", f"sandbox {one.container_id} is recorded as {record.stage}")
    if record is not None and record.netns.path != str(one.netns):
        yield Violation("record wrong", f"sandbox {one.container_id} is in {one.netns}, recorded {record.netns.path}")


def _eth0(now: NodeState, one: LiveSandbox, links: Mapping[str, Link]) -> Iterator[Violation]:
    link = links.get(one.ifname)
    if link is None:
        yield Violation("link missing", f"{one.ifname} of sandbox {one.container_id}")
        return
    if not one.reserved:
        return
    reserved = {reservation.address for reservation in now.reservations if _is_of(reservation, one)}
    has = {address.partition("/")[0] for address in link.addresses}
    if has != reserved or len(has) != 1:
        what = f"{one.ifname} of sandbox {one.container_id} has {_list(has)}, reserved {_list(reserved)}"
        yield Violation("address wrong", what)


def _is_of(reservation: Reservation, one: LiveSandbox) -> bool:
    return reservation.container_id == one.container_id and reservation.ifname in ("", one.ifname)


def _rail(
    before: NodeState, now: NodeState, one: LiveSandbox, attachment: Attachment, link: Link | None, inode: int
) -> Iterator[Violation]:
    name = f"{attachment.ifname} (VF {attachment.vf}) of sandbox {one.container_id}"
    vf = now.vfs.get(attachment.vf)
    if vf is None or vf.place is None or vf.place != (inode, attachment.ifname):
        yield Violation("VF misplaced", f"{name}: its netdev is at {None if vf is None else vf.place}")
    if link is None:
        yield Violation("link missing", name)
        return
    at_rest = before.vfs.get(attachment.vf)
    if at_rest is not None and at_rest.place is not None and attachment.host_ifname != at_rest.place.name:
        yield Violation("record wrong", f"{name} was {at_rest.place.name}, recorded {attachment.host_ifname}")
    addresses = frozenset(map(str, attachment.addresses))
    if link.addresses != addresses:
        yield Violation("address wrong", f"{name} has {_list(link.addresses)}, recorded {_list(addresses)}")
    if (link.mtu, link.up) != (attachment.mtu, True):
        yield Violation("link wrong", f"{name} has MTU {link.mtu}, recorded {attachment.mtu}; up is {link.up}")
    yield from _guids(before, now, attachment.vf)


def _guids(before: NodeState, now: NodeState, address: PciAddress) -> Iterator[Violation]:
    """Compare GUIDs, MAC and driver of a VF with those at rest."""
    at_rest, vf = before.vfs.get(address), now.vfs.get(address)
    if at_rest is None or vf is None:
        return
    if vf.guids != at_rest.guids:
        yield Violation("GUID wrong", f"VF {address}: {_list(vf.guids)}, at rest {_list(at_rest.guids)}")
    had, has = _hardware(before, address), _hardware(now, address)
    if has != had:
        yield Violation("MAC wrong", f"VF {address} has {has}, at rest {had}")
    if vf.driver != at_rest.driver:
        yield Violation("driver wrong", f"VF {address} has {vf.driver}, at rest {at_rest.driver}")


def _hardware(state: NodeState, address: PciAddress) -> str | None:
    """Return the constant part of a VF's hardware address: of an IPoIB address the port GUID, because the queue pair changes."""
    link = _netdev(state, address)
    if link is None or link.hardware is None:
        return None
    return link.hardware[-_HEX_GUID:] if len(link.hardware) == _IPOIB_ADDRESS else link.hardware


def _netdev(state: NodeState, address: PciAddress) -> Link | None:
    place = state.vfs[address].place
    links = () if place is None else state.links.get(place.netns, ())
    return next((link for link in links if place is not None and link.ifname == place.name), None)


def _free_vfs(before: NodeState, now: NodeState, living: Mapping[str, LiveSandbox]) -> Iterator[Violation]:
    owned = {vf for one in living.values() for vf in one.vfs}
    for address in sorted(before.vfs.keys() | now.vfs.keys()):
        if address not in now.vfs or address not in before.vfs:
            yield Violation("VF misplaced", f"{address} is {'new' if address in now.vfs else 'gone'}")
        elif address not in owned:
            yield from _free(before, now, address)


def _free(before: NodeState, now: NodeState, address: PciAddress) -> Iterator[Violation]:
    at_rest, vf = before.vfs[address], now.vfs[address]
    if vf.place != at_rest.place:
        yield Violation("VF misplaced", f"{address} is free and at {vf.place}, at rest {at_rest.place}")
    link = _netdev(now, address)
    if link is not None and link.addresses:
        yield Violation("address left over", f"{_list(link.addresses)} on {link.ifname} of VF {address}, which is free")
    had = _netdev(before, address)
    if link is not None and had is not None and link.up and not had.up:
        yield Violation("link wrong", f"{link.ifname} of VF {address} is up, and the VF is free")
    if link is not None and had is not None and (link.mtu, link.settings) != (had.mtu, had.settings):
        has = f"MTU {link.mtu}, {_list(link.settings)}, at rest MTU {had.mtu}, {_list(had.settings)}"
        yield Violation("setting left over", f"{link.ifname} of VF {address}, which is free, has {has}")
    yield from _guids(before, now, address)


def _records_and_reservations(now: NodeState, living: Mapping[str, LiveSandbox]) -> Iterator[Violation]:
    """Find records and reservations without a live sandbox."""
    for file in now.records:
        if file.record is None:
            yield Violation("record unreadable", f"{file.path}: {file.problem}")
        elif file.record.container_id not in living or file.path.stem != file.record.key:
            yield Violation("record left over", f"{file.path} ({file.record.stage})")
    for reservation in now.reservations:
        if not _has_live_owner(reservation, living, now.records):
            yield Violation("address left over", f"{reservation.network}'s {reservation.address} of {reservation[2:]}")


def _has_live_owner(reservation: Reservation, living: Mapping[str, LiveSandbox], records: Iterable[RecordFile]) -> bool:
    one = living.get(reservation.container_id)
    if one is None:
        return False
    if reservation.ifname in ("", one.ifname):
        return True
    of_it = (file.record for file in records if file.record is not None)
    rails = (a for record in of_it if record.container_id == one.container_id for a in record.attachments)
    return any(
        rail.ifname == reservation.ifname and reservation.address in {str(address.ip) for address in rail.addresses}
        for rail in rails
    )


def _links(before: NodeState, now: NodeState, living: Iterable[LiveSandbox]) -> Iterator[Violation]:
    """Find new links in the node's own namespace that are not the veth of a live sandbox."""
    known = {link.ifname for link in before.links[before.own]}
    inodes = (now.named.get(str(one.netns), 0) for one in living)
    peers = {link.peer for inode in inodes for link in now.links.get(inode, ()) if link.peer is not None}
    for link in now.links[now.own]:
        if link.ifname not in known and not (link.kind == "veth" and link.ifindex in peers):
            yield Violation("link left over", f"{link.ifname} ({link.kind}) in the node's own network namespace")


def _objects(before: NodeState, now: NodeState, living: Collection[LiveSandbox]) -> Iterator[Violation]:
    """Compare files, mounts, processes and network namespaces; the names of a live sandbox's objects contain its id or path."""
    inodes = {str(now.named.get(str(one.netns), 0)) for one in living}
    reserved = {f"/{r.network}/{r.address}" for r in now.reservations}  # judged by `_records_and_reservations`
    records = {str(file.path) for file in now.records}
    names = [name for one in living for name in (one.container_id, str(one.netns))]
    kept = {
        kind: {
            name: description
            for name, description in objects.items()
            if not (
                (kind == "network namespace" and name in inodes)
                or (kind == "file" and (name in records or any(map(name.endswith, reserved))))
                or (kind in ("file", "mount") and any(one in name for one in names))
            )
        }
        for kind, objects in now.snapshot.items()
        if kind != "link"  # judged by `_links` and `_sandbox`
    }
    at_rest = {kind: objects for kind, objects in before.snapshot.items() if kind != "link"}
    for item in difference(at_rest, kept):
        yield Violation(f"{_kind(item, kept)} {'missing' if item.endswith('missing') else 'left over'}", item)


def _kind(item: str, kinds: Iterable[str]) -> str:
    return next(kind for kind in kinds if item.startswith(f"{kind} "))


def _rules(before: NodeState, now: NodeState, living: Iterable[LiveSandbox]) -> Iterator[Violation]:
    """Find new rules and chains that do not name a live sandbox, and that are not the target of a rule that does."""
    new = [rule for rule in now.rules if rule not in before.rules]
    ids = [one.container_id for one in living]
    chains = {rule.rpartition(" -j ")[2] for rule in new if any(one in rule for one in ids)}
    for rule in new:
        of_chain = rule.removeprefix("-A ").removeprefix(":").partition(" ")[0]
        if of_chain not in chains and not any(one in rule for one in ids):
            yield Violation("iptables rule left over", rule)


def _descriptors(before: NodeState, now: NodeState) -> Iterator[Violation]:
    for kind, count in sorted(now.descriptors.items()):
        if kind == NETNS_DESCRIPTOR:
            yield Violation("descriptor left over", f"the daemon is idle and has {count} network namespaces open")
        elif count > before.descriptors.get(kind, 0):
            had = before.descriptors.get(kind, 0)
            yield Violation("descriptor left over", f"the daemon has {count} of {kind}, at rest it had {had}")


def _list(things: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, things))) or "none"
