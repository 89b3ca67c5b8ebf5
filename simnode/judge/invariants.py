"""What must hold of a node, whatever has died on it. Pure: `facts` go in, violations come out.

Compared are a node at rest, before any of the sandboxes that are judged, and the node now. Of Railnet nothing is believed: a
record is one witness, the kernel another, the IPAM plugins' files a third, and they must agree with what the runtime and kubelet
know, which is `Living`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simnode.judge.facts import NETNS_DESCRIPTOR, Facts, Link, RecordFile, Reservation
from simnode.judge.snapshot import difference
from vf.address import PciAddress
from vf.record import Attachment, Record

_HEX_GUID = 8 * 3 - 1  # as in 00:11:22:33:44:55:66:77
_IPOIB_ADDRESS = 20 * 3 - 1


class Violation(NamedTuple):
    """Something that must not be; `kind` is one of few words, `what` names it."""

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True, slots=True)
class Living:
    """A sandbox whose ADD has succeeded and whose DEL has not begun, as runtime and kubelet know it.

    Attributes:
        vfs: what kubelet gave to its pod.
        reserved: whether its eth0 has the address that host-local keeps for it.
    """

    container_id: str
    netns: Path
    vfs: frozenset[PciAddress] = frozenset()
    ifname: str = "eth0"
    reserved: bool = True


def violations(before: Facts, now: Facts, living: Collection[Living] = ()) -> list[Violation]:
    """Judge a node on which nothing is being done just now: of the sandboxes only `living` are left."""
    by_id = {one.container_id: one for one in living}
    return [
        *of_sandboxes(before, now, living),
        *_free_vfs(before, now, by_id),
        *_books(now, by_id),
        *_links(before, now, living),
        *_things(before, now, living),
        *_rules(before, now, living),
        *_descriptors(before, now),
    ]


def of_sandboxes(before: Facts, now: Facts, resting: Collection[Living]) -> list[Violation]:
    """Judge only these sandboxes, and that nothing is owned twice; others may come and go meanwhile."""
    return [*_twice(now, resting), *(found for one in resting for found in _sandbox(before, now, one))]


def _twice(now: Facts, resting: Iterable[Living]) -> Iterator[Violation]:
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


def _sandbox(before: Facts, now: Facts, one: Living) -> Iterator[Violation]:
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


def _record_of(now: Facts, one: Living) -> Record | None:
    records = (file.record for file in now.records if file.record is not None)
    return next((record for record in records if record.container_id == one.container_id), None)


def _recorded(one: Living, record: Record | None) -> Iterator[Violation]:
    recorded = frozenset() if record is None else frozenset(attachment.vf for attachment in record.attachments)
    if recorded != one.vfs:
        yield Violation("record wrong", f"sandbox {one.container_id} has {_list(one.vfs)}, recorded {_list(recorded)}")
    if record is not None and record.stage != "attached":
        yield Violation("record wrong", f"sandbox {one.container_id} is recorded as {record.stage}")
    if record is not None and record.netns.path != str(one.netns):
        yield Violation("record wrong", f"sandbox {one.container_id} is in {one.netns}, recorded {record.netns.path}")


def _eth0(now: Facts, one: Living, links: Mapping[str, Link]) -> Iterator[Violation]:
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


def _is_of(reservation: Reservation, one: Living) -> bool:
    return reservation.container_id == one.container_id and reservation.ifname in ("", one.ifname)


def _rail(
    before: Facts, now: Facts, one: Living, attachment: Attachment, link: Link | None, inode: int
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


def _guids(before: Facts, now: Facts, address: PciAddress) -> Iterator[Violation]:
    """Compare GUIDs, MAC and driver of a VF with those it had at rest."""
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


def _hardware(facts: Facts, address: PciAddress) -> str | None:
    """Return the part of a VF's hardware address that lasts: of IPoIB's the port GUID, since the queue pair changes."""
    link = _netdev(facts, address)
    if link is None or link.hardware is None:
        return None
    return link.hardware[-_HEX_GUID:] if len(link.hardware) == _IPOIB_ADDRESS else link.hardware


def _netdev(facts: Facts, address: PciAddress) -> Link | None:
    place = facts.vfs[address].place
    links = () if place is None else facts.links.get(place.netns, ())
    return next((link for link in links if place is not None and link.ifname == place.name), None)


def _free_vfs(before: Facts, now: Facts, living: Mapping[str, Living]) -> Iterator[Violation]:
    owned = {vf for one in living.values() for vf in one.vfs}
    for address in sorted(before.vfs.keys() | now.vfs.keys()):
        if address not in now.vfs or address not in before.vfs:
            yield Violation("VF misplaced", f"{address} is {'new' if address in now.vfs else 'gone'}")
        elif address not in owned:
            yield from _free(before, now, address)


def _free(before: Facts, now: Facts, address: PciAddress) -> Iterator[Violation]:
    at_rest, vf = before.vfs[address], now.vfs[address]
    if vf.place != at_rest.place:
        yield Violation("VF misplaced", f"{address} is free and at {vf.place}, at rest {at_rest.place}")
    link = _netdev(now, address)
    if link is not None and link.addresses:
        yield Violation("address left over", f"{_list(link.addresses)} on {link.ifname} of VF {address}, which is free")
    if link is not None and (had := _netdev(before, address)) is not None and link.up and not had.up:
        yield Violation("link wrong", f"{link.ifname} of VF {address} is up, and the VF is free")
    yield from _guids(before, now, address)


def _books(now: Facts, living: Mapping[str, Living]) -> Iterator[Violation]:
    """Look for records and reservations of sandboxes that do not live."""
    for file in now.records:
        if file.record is None:
            yield Violation("record unreadable", f"{file.path}: {file.problem}")
        elif file.record.container_id not in living or file.path.stem != file.record.key:
            yield Violation("record left over", f"{file.path} ({file.record.stage})")
    for reservation in now.reservations:
        if not _lives(reservation, living, now.records):
            yield Violation("address left over", f"{reservation.network}'s {reservation.address} of {reservation[2:]}")


def _lives(reservation: Reservation, living: Mapping[str, Living], records: Iterable[RecordFile]) -> bool:
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


def _links(before: Facts, now: Facts, living: Iterable[Living]) -> Iterator[Violation]:
    """Look for links in the node's own namespace that were not there and are no living sandbox's veth."""
    known = {link.ifname for link in before.links[before.own]}
    inodes = (now.named.get(str(one.netns), 0) for one in living)
    peers = {link.peer for inode in inodes for link in now.links.get(inode, ()) if link.peer is not None}
    for link in now.links[now.own]:
        if link.ifname not in known and not (link.kind == "veth" and link.ifindex in peers):
            yield Violation("link left over", f"{link.ifname} ({link.kind}) in the node's own network namespace")


def _things(before: Facts, now: Facts, living: Collection[Living]) -> Iterator[Violation]:
    """Compare files, mounts, processes and network namespaces; what is of a living sandbox is named after it."""
    inodes = {str(now.named.get(str(one.netns), 0)) for one in living}
    reserved = {f"/{r.network}/{r.address}" for r in now.reservations}  # `_books` judges them
    records = {str(file.path) for file in now.records}
    names = [name for one in living for name in (one.container_id, str(one.netns))]
    kept = {
        kind: {
            name: what
            for name, what in things.items()
            if not (
                (kind == "network namespace" and name in inodes)
                or (kind == "file" and (name in records or any(map(name.endswith, reserved))))
                or (kind in ("file", "mount") and any(one in name for one in names))
            )
        }
        for kind, things in now.things.items()
        if kind != "link"  # `_links` and `_sandbox` judge them
    }
    for item in difference({kind: things for kind, things in before.things.items() if kind != "link"}, kept):
        yield Violation(f"{_kind(item, kept)} {'missing' if item.endswith('missing') else 'left over'}", item)


def _kind(item: str, things: Mapping[str, object]) -> str:
    return next(kind for kind in things if item.startswith(f"{kind} "))


def _rules(before: Facts, now: Facts, living: Iterable[Living]) -> Iterator[Violation]:
    """Look for rules and chains that were not there, and that neither name a living sandbox nor are its rules' target."""
    new = [rule for rule in now.rules if rule not in before.rules]
    ids = [one.container_id for one in living]
    chains = {rule.rpartition(" -j ")[2] for rule in new if any(one in rule for one in ids)}
    for rule in new:
        of_chain = rule.removeprefix("-A ").removeprefix(":").partition(" ")[0]
        if of_chain not in chains and not any(one in rule for one in ids):
            yield Violation("iptables rule left over", rule)


def _descriptors(before: Facts, now: Facts) -> Iterator[Violation]:
    for kind, count in sorted(now.descriptors.items()):
        if kind == NETNS_DESCRIPTOR:
            yield Violation("descriptor left over", f"the daemon, which is idle, holds {count} network namespaces open")
        elif count > before.descriptors.get(kind, 0):
            had = before.descriptors.get(kind, 0)
            yield Violation("descriptor left over", f"the daemon has {count} of {kind}, at rest it had {had}")


def _list(things: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, things))) or "none"
