"""What there is on a node, as kernel and disk tell it: VFs, namespaces with their links, records, reservations, rules, descriptors.

What should be there is decided in `invariants`. Nothing is asked of Railnet's daemon, nor of its code: of its own files only the
journal is read, as the value that `vf.record` says it is.
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

from simnode.hardware.tun import Place
from simnode.judge import snapshot
from simnode.judge.snapshot import Snapshot
from simnode.linux import netns
from vf.address import PciAddress
from vf.record import Record, UnreadableRecord, decode

# Where a node's programs write: what DEL leaves in /run/railnet is left over, too. /sys is judged by what it says of VFs.
NODE_FOLDERS = ("/run", "/var/lib/cni", "/var/lib/kubelet", "/var/lib/railnet", "/etc/cni", "/opt/cni/bin", "/dev")
_JOURNAL = Path("/run/railnet/journal")
_RESERVATIONS = Path("/var/lib/cni/networks")  # of host-local, for eth0 and for rails: a folder for each network
_NAMED = Path("/run/netns")
_SOCKET = re.compile(r"/railnet-[^/]*\.sock$")
NETNS_DESCRIPTOR = "network namespace"


class Link(NamedTuple):
    """A link of one namespace. `addresses` are with prefix length, without link-local ones; `peer` is a veth's other ifindex.

    `parent` is the PCI address of its device, None where the kernel names none; `hardware` is the hardware address, if any.
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


class VfFacts(NamedTuple):
    """What sysfs says of a VF, and where its netdev is. `guids`: of its RDMA device, its port, and what its PF was told."""

    driver: str | None
    guids: tuple[str, ...]
    place: Place | None


class Reservation(NamedTuple):
    """An address that an IPAM plugin has given, and whose: the container id and the interface's name, "" if it does not say."""

    network: str
    address: str
    container_id: str
    ifname: str


class RecordFile(NamedTuple):
    """A file of the journal; `record` is None where it cannot be read, and `problem` says why."""

    path: Path
    record: Record | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """A node at one moment.

    Attributes:
        own: the inode of the node's own network namespace.
        links: of each network namespace, by its inode.
        named: the inode of the namespace that is bound at a path.
        vfs: by PCI address.
        things: files, mounts, processes but the daemon's, namespaces; empty where only sandboxes were looked at.
        rules: lines of iptables-save.
        descriptors: how many of each kind the daemon has open.
    """

    own: int
    links: Mapping[int, tuple[Link, ...]]
    named: Mapping[str, int]
    vfs: Mapping[PciAddress, VfFacts]
    records: tuple[RecordFile, ...]
    reservations: tuple[Reservation, ...]
    things: Snapshot = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    descriptors: Mapping[str, int] = field(default_factory=dict)


def of_node(
    daemon: int | None,
    places: Mapping[PciAddress, Place],
    sysfs: Path = Path("/sys"),
    roots: Iterable[str] = NODE_FOLDERS,
) -> Facts:
    """Look at all of the node that this process is on.

    Args:
        daemon: its process; None if there is none.
        places: of the netdevs whose links do not name their PCI device, as simulated ones do not.
        sysfs: where VFs are seen.
        roots: the folders whose files count.
    """
    things = snapshot.take([Path(root) for root in roots])
    links = dict(_links((int(inode), Path(where)) for inode, where in things["network namespace"].items()))
    return Facts(
        netns.inode(),
        links,
        {str(path): path.stat().st_ino for path in _listed(_NAMED)},
        dict(_vfs(sysfs, {**places, **told_by_links(links)})),
        tuple(_records()),
        tuple(_reservations()),
        {**things, "process": _without(daemon, things["process"]), "file": _numbered(things["file"])},
        tuple(_rules()),
        {} if daemon is None else _descriptors(daemon),
    )


def of_sandboxes(paths: Collection[Path], places: Mapping[PciAddress, Place], sysfs: Path = Path("/sys")) -> Facts:
    """Look only at the node's own namespace and at these; cheap enough to be done while other sandboxes come and go."""
    named = {str(path): path.stat().st_ino for path in paths if path.exists()}
    own = netns.inode()
    links = dict(_links([(own, Path("/proc/self/ns/net")), *((inode, Path(path)) for path, inode in named.items())]))
    vfs = dict(_vfs(sysfs, {**places, **told_by_links(links)}))
    return Facts(own, links, named, vfs, tuple(_records()), tuple(_reservations()))


def _without(daemon: int | None, processes: Mapping[str, str]) -> dict[str, str]:
    """Leave the daemon out, which is another process after each of its starts."""
    return {name: what for name, what in processes.items() if not name.startswith(f"{daemon} ")}


def _numbered(files: Mapping[str, str]) -> dict[str, str]:
    """Name the daemon's sockets for kubelet without what is another at each start; several are told apart by how many."""
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
        except OSError:  # its last process ended meanwhile
            continue
        yield inode, tuple(map(_link, listed))


def _ip() -> list[dict[str, Any]]:
    done = subprocess.run(["ip", "-json", "-details", "address", "show"], capture_output=True, check=True)
    if done.stderr:  # "Dump was interrupted and may be inconsistent."
        return _ip()
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return [one for one in listed if one]  # it prints {} for a link that goes meanwhile


def _link(told: Mapping[str, Any]) -> Link:
    addresses = [one for one in told["addr_info"] if one and one["scope"] != "link"]
    return Link(
        told["ifindex"],
        told["ifname"],
        told.get("linkinfo", {}).get("info_kind"),
        told["mtu"],
        "UP" in told["flags"],
        frozenset(f"{one['local']}/{one['prefixlen']}" for one in addresses),
        told.get("link_index"),
        told.get("parentdev"),
        told.get("address"),
    )


def told_by_links(links: Mapping[int, tuple[Link, ...]]) -> dict[PciAddress, Place]:
    """Return the places of netdevs whose links name their PCI device, as those of real VFs do."""
    return {
        PciAddress.parse(link.parent): Place(inode, link.ifname)
        for inode, listed in links.items()
        for link in listed
        if link.parent is not None and link.parent.count(":") == 2  # noqa: PLR2004 - not of another bus
    }


def _vfs(sysfs: Path, places: Mapping[PciAddress, Place]) -> Iterator[tuple[PciAddress, VfFacts]]:
    for pf in _listed(sysfs / "bus/pci/devices"):
        for virtfn in pf.glob("virtfn*"):
            address, driver = PciAddress.parse(virtfn.readlink().name), virtfn / "driver"
            name = driver.readlink().name if driver.is_symlink() else None
            told = pf / "sriov" / virtfn.name.removeprefix("virtfn")
            yield address, VfFacts(name, tuple(_guids(virtfn, told)), places.get(address))


def _guids(vf: Path, told: Path) -> Iterator[str]:
    for rdma in _listed(vf / "infiniband"):
        yield f"node_guid {_text(rdma / 'node_guid')}"
        yield f"gid {_text(rdma / 'ports/1/gids/0')}"
    yield from (f"sriov {path.name} {_text(path)}" for path in (told / "node", told / "port") if path.exists())


def _records() -> Iterator[RecordFile]:
    for path in _listed(_JOURNAL):
        if path.name.startswith("."):
            continue  # being written; one that stays is seen as a file
        try:
            yield RecordFile(path, decode(path.read_bytes()))
        except FileNotFoundError:  # just removed
            continue
        except (UnreadableRecord, OSError) as error:
            yield RecordFile(path, None, str(error))


def _reservations() -> Iterator[Reservation]:
    for network in _listed(_RESERVATIONS):
        for path in _listed(network):
            if path.name[0] in "0123456789abcdef" and ("." in path.name or ":" in path.name):
                whose = _text(path).split() or [""]
                yield Reservation(network.name, path.name, whose[0], whose[1] if len(whose) > 1 else "")


def _rules() -> Iterator[str]:
    done = subprocess.run(["iptables-save"], capture_output=True, check=True)
    for line in done.stdout.decode().splitlines():
        if not line.startswith("#"):
            yield line.partition(" [")[0] if line.startswith(":") else line  # without a chain's counters


def _descriptors(pid: int) -> dict[str, int]:
    """Count what a process has open by kind: by path where it has one, without the number of a socket or a pipe."""
    kinds: Counter[str] = Counter()
    for path in _listed(Path(f"/proc/{pid}/fd")):
        try:
            target = os.readlink(path)
        except OSError:
            continue
        kind = target if target.startswith(("/", "anon_inode")) else target.partition(":")[0]
        kinds[NETNS_DESCRIPTOR if snapshot.network_namespace(str(path)) is not None else kind] += 1
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
