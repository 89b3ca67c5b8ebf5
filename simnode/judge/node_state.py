"""The state of a node as kernel and disk show it: VFs, namespaces with their links, records, reservations, rules, descriptors.

`invariants` decides which state is right. This module asks neither Railnet's daemon nor its code; of Railnet's files it
reads only the journal, whose form `railnet.vf.record` defines.
"""

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record, UnreadableRecord, decode
from simnode.hardware.infiniband_tun import NetdevPlace
from simnode.judge import machine_snapshot
from simnode.judge.machine_snapshot import Snapshot
from simnode.linux import netns

# The folders in which a node's programs write. A file that DEL leaves in /run/railnet is left over, too. /sys is judged by
# its VFs.
NODE_FOLDERS = ("/run", "/var/lib/cni", "/var/lib/kubelet", "/var/lib/railnet", "/etc/cni", "/opt/cni/bin", "/dev")
_JOURNAL = Path("/run/railnet/journal")
_RESERVATIONS = Path("/var/lib/cni/networks")  # host-local has a folder for each network, for eth0 and for rails
_NAMED = Path("/run/netns")
_SOCKET = re.compile(r"/railnet-[^/]*\.sock$")
NETNS_DESCRIPTOR = "network namespace"


class Link(NamedTuple):
    """A link of one network namespace.

    `addresses` have prefix lengths and contain no link-local address. `peer` is the ifindex of a veth's other end.
    `parent` is the PCI address of the link's device, None if the kernel names none. `hardware` is the hardware address.
    `settings` are those that a pod may leave on a VF's netdev: alternative names, group, length of the queue, promiscuity.
    """

    ifindex: int
    ifname: str
    kind: str | None
    mtu: int
    up: bool
    addresses: frozenset[str]
    peer: int | None
    parent: str | None
    hardware: str | None
    settings: frozenset[str] = frozenset()


class VfState(NamedTuple):
    """The driver and GUIDs of a VF in sysfs, and the place of its netdev.

    `guids` has those of the RDMA device, of its port, and those that were set through the PF.
    """

    driver: str | None
    guids: tuple[str, ...]
    place: NetdevPlace | None


class Reservation(NamedTuple):
    """An address that an IPAM plugin has reserved, and its owner: container id and interface name, "" if the file has none."""

    network: str
    address: str
    container_id: str
    ifname: str


class RecordFile(NamedTuple):
    """A file of the journal; `record` is None if the file cannot be read, and `problem` has the reason."""

    path: Path
    record: Record | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a node at one moment.

    Attributes:
        own: the inode of the node's own network namespace.
        links: the links of each network namespace, by the namespace's inode.
        named: the inodes of the network namespaces that are mounted at a path, by path.
        vfs: the VFs by PCI address.
        records: the files of the journal.
        reservations: the addresses that IPAM plugins have reserved.
        snapshot: files, mounts, namespaces and processes without the daemon; empty in the state of single sandboxes.
        rules: lines of iptables-save.
        descriptors: the number of descriptors that the daemon has open, by kind.
    """

    own: int
    links: Mapping[int, tuple[Link, ...]]
    named: Mapping[str, int]
    vfs: Mapping[PciAddress, VfState]
    records: tuple[RecordFile, ...]
    reservations: tuple[Reservation, ...]
    snapshot: Snapshot = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    descriptors: Mapping[str, int] = field(default_factory=dict)


def of_node(
    daemon: int | None,
    places: Mapping[PciAddress, NetdevPlace],
    sysfs: Path = Path("/sys"),
    roots: Iterable[str] = NODE_FOLDERS,
) -> NodeState:
    """Return the state of the node on which this process runs.

    Args:
        daemon: the daemon's process id; None if there is no daemon.
        places: the places of netdevs whose links do not name their PCI device, which simulated netdevs do not.
        sysfs: the root of the sysfs tree with the VFs.
        roots: the folders whose files count.
    """
    taken = machine_snapshot.take([Path(root) for root in roots])
    links = dict(_links((int(inode), Path(path)) for inode, path in taken["network namespace"].items()))
    return NodeState(
        netns.inode(),
        links,
        {str(path): path.stat().st_ino for path in _listed(_NAMED)},
        dict(_vfs(sysfs, {**places, **places_by_links(links)})),
        tuple(_records()),
        tuple(_reservations()),
        {**taken, "process": _without(daemon, taken["process"]), "file": _numbered(taken["file"])},
        tuple(_rules()),
        {} if daemon is None else _descriptors(daemon),
    )


def of_sandboxes(
    paths: Collection[Path], places: Mapping[PciAddress, NetdevPlace], sysfs: Path = Path("/sys")
) -> NodeState:
    """Return the state of the node's own namespace and of these sandboxes; it is cheap, and others may come and go meanwhile."""
    named = {str(path): path.stat().st_ino for path in paths if path.exists()}
    own = netns.inode()
    links = dict(_links([(own, Path("/proc/self/ns/net")), *((inode, Path(path)) for path, inode in named.items())]))
    vfs = dict(_vfs(sysfs, {**places, **places_by_links(links)}))
    return NodeState(own, links, named, vfs, tuple(_records()), tuple(_reservations()))


def _without(daemon: int | None, processes: Mapping[str, str]) -> dict[str, str]:
    """Return the processes without the daemon, because a restart gives it another process id."""
    return {name: what for name, what in processes.items() if not name.startswith(f"{daemon} ")}


def _numbered(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files with the daemon's sockets for kubelet under constant names, because each start makes a new name.

    Several sockets are distinguished by a number.
    """
    named: dict[str, str] = {}
    for path, what in files.items():
        name = _SOCKET.sub("/railnet-*.sock", path)
        number = 2
        while name in named:
            name, number = f"{_SOCKET.sub('/railnet-*.sock', path)} (number {number})", number + 1
        named[name] = what
    return named


def _links(namespaces: Iterable[tuple[int, Path]]) -> Iterator[tuple[int, tuple[Link, ...]]]:
    for inode, path in namespaces:
        try:
            listed = netns.run_inside(path, _ip)
        except OSError:  # the namespace died meanwhile
            continue
        yield inode, tuple(map(_link, listed))


def _ip() -> list[dict[str, Any]]:
    done = subprocess.run(["ip", "-json", "-details", "address", "show"], capture_output=True, check=True)
    if done.stderr:  # "Dump was interrupted and may be inconsistent."
        return _ip()
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return [link for link in listed if link]  # ip(8) prints {} for a link that is deleted meanwhile


def _link(fields: Mapping[str, Any]) -> Link:
    """Return a link from the JSON object that ip(8) prints."""
    addresses = [address for address in fields["addr_info"] if address and address["scope"] != "link"]
    return Link(
        fields["ifindex"],
        fields["ifname"],
        fields.get("linkinfo", {}).get("info_kind"),
        fields["mtu"],
        "UP" in fields["flags"],
        frozenset(f"{address['local']}/{address['prefixlen']}" for address in addresses),
        fields.get("link_index"),
        fields.get("parentdev"),
        fields.get("address"),
        frozenset(_settings(fields)),
    )


def _settings(fields: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"altname {name}" for name in fields.get("altnames", ()))
    yield from (f"{name} {fields.get(name)}" for name in ("group", "txqlen", "promiscuity", "allmulti"))


def places_by_links(links: Mapping[int, tuple[Link, ...]]) -> dict[PciAddress, NetdevPlace]:
    """Return the places of netdevs whose links name their PCI device, as the links of real VFs do."""
    return {
        PciAddress.parse(link.parent): NetdevPlace(inode, link.ifname)
        for inode, listed in links.items()
        for link in listed
        if link.parent is not None and link.parent.count(":") == 2  # noqa: PLR2004 - a PCI address has two
    }


def _vfs(sysfs: Path, places: Mapping[PciAddress, NetdevPlace]) -> Iterator[tuple[PciAddress, VfState]]:
    for pf in _listed(sysfs / "bus/pci/devices"):
        for virtfn in pf.glob("virtfn*"):
            address, driver = PciAddress.parse(virtfn.readlink().name), virtfn / "driver"
            name = driver.readlink().name if driver.is_symlink() else None
            admin = pf / "sriov" / virtfn.name.removeprefix("virtfn")
            yield address, VfState(name, tuple(_guids(virtfn, admin)), places.get(address))


def _guids(vf: Path, admin: Path) -> Iterator[str]:
    for rdma in _listed(vf / "infiniband"):
        yield f"node_guid {_text(rdma / 'node_guid')}"
        yield f"gid {_text(rdma / 'ports/1/gids/0')}"
    yield from (f"sriov {path.name} {_text(path)}" for path in (admin / "node", admin / "port") if path.exists())


def _records() -> Iterator[RecordFile]:
    for path in _listed(_JOURNAL):
        if path.name.startswith("."):
            continue  # a temporary file; if it stays, the snapshot has it
        try:
            yield RecordFile(path, decode(path.read_bytes()))
        except FileNotFoundError:  # the daemon has just removed it
            continue
        except (UnreadableRecord, OSError) as error:
            yield RecordFile(path, None, str(error))


def _reservations() -> Iterator[Reservation]:
    for network in _listed(_RESERVATIONS):
        for path in _listed(network):
            if path.name[0] in "0123456789abcdef" and ("." in path.name or ":" in path.name):
                owner = _text(path).split() or [""]
                yield Reservation(network.name, path.name, owner[0], owner[1] if len(owner) > 1 else "")


def _rules() -> Iterator[str]:
    done = subprocess.run(["iptables-save"], capture_output=True, check=True)
    for line in done.stdout.decode().splitlines():
        if not line.startswith("#"):
            yield line.partition(" [")[0] if line.startswith(":") else line  # a chain's counters are cut off


def is_detaching() -> bool:
    """Return whether a record says that rails are being taken back which are not back yet."""
    return any(
        file.record is not None and file.record.stage == "detaching" and file.record.attachments for file in _records()
    )


def has_network_namespace(pid: int) -> bool:
    """Return whether a process has a network namespace open."""
    return NETNS_DESCRIPTOR in _descriptors(pid)


def _descriptors(pid: int) -> dict[str, int]:
    """Count the open descriptors of a process by kind, which is the path, or the type of a socket, pipe or namespace."""
    kinds: Counter[str] = Counter()
    for path in _listed(Path(f"/proc/{pid}/fd")):
        try:
            target = os.readlink(path)
        except OSError:
            continue
        kind = target if target.startswith(("/", "anon_inode")) else target.partition(":")[0]
        kinds[NETNS_DESCRIPTOR if machine_snapshot.network_namespace(str(path)) is not None else kind] += 1
    return dict(kinds)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
