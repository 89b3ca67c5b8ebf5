"""Gathers the facts of a node. Cards are read with a time limit, and what cannot be read is a fact, too."""

import asyncio
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import Any

from cni import primary_configuration
from cni.host.errors import CniError
from cni.host.status import SUBNET_FILE, names_subnet
from railnet.configuration import Configuration, HostConfiguration, load
from railnet.daemon.conflist import conflist
from railnet.daemon.conflist.conflist import ConflistFolder
from railnet.doctor import kubelet_folders, memlock_limit
from railnet.doctor.facts import Bridge, Daemon, Facts, Gpus, InheritedSetting, PortFacts, Unread
from railnet.errors import Misconfigured, NoAddress, NotReady
from railnet.kernel import inventory as node_inventory
from railnet.kernel import roce_facts
from railnet.kernel.clock_synchronisation import is_synchronised
from railnet.kernel.files import open_below, read_below
from railnet.kernel.roce_facts import RoceFacts
from railnet.kernel.sockets.local_address_check import is_local
from railnet.kernel.sysfs import pci_bridges
from railnet.kernel.sysfs.folder import SysfsFolder
from railnet.kernel.sysfs.functions import Sysfs, first_data_port
from railnet.kubelet.checkpoint_file import CheckpointFile
from railnet.kubelet.dra_manager_state import NAME
from railnet.kubelet.dra_manager_state_file import DraManagerStateFile
from railnet.status.status_command import Unreachable, ask
from railnet.vf.address_slice import IpNetwork, parse_subnet_env
from railnet.vf.dra_device_name import vf_of
from railnet.vf.inventory import Inventory, PhysicalFunction, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.permitted_networks import SliceIpam, StaticIpam, StickyIpam

_SUFFIXES = (".conf", ".conflist", ".json")  # what containerd and CRI-O read (libcni, ConfFiles)
_LEASE = re.compile(r"^FLANNEL_SUBNET=(\S+)$", re.MULTILINE)
_BRIDGE = "cni0"  # flannel's, unless its `delegate` names another
_MOST_BYTES = 65536
_COMPILED_VALUES = "2"  # of devconf_inherit_init_net (Documentation/admin-guide/sysctl/net.rst): a new namespace gets no values of the node


@dataclass(frozen=True, slots=True)
class Places:
    """Where the facts are. `proc` is that of the host's processes, which the DaemonSet's pod shares."""

    configuration: Path
    socket: Path
    proc: Path = Path("/proc")


def gather(places: Places) -> Facts:
    """Gather all facts.

    Raises:
        OSError: the node's sysfs is none.
        PermissionError: the caller is not root.
    """
    configuration, wrong = _configuration(places.configuration)
    sysfs = Sysfs(configuration.host.sysfs, configuration.rails, configuration.link_layers, configuration.rail_select)
    inventory, ports, roce, unread = asyncio.run(_cards(sysfs))
    folder = ConflistFolder.of(configuration.host)
    names, refused = _configurations(folder)
    daemon = _daemon(places.socket)
    pods = {sandbox["pod"]["uid"] for sandbox in (daemon.told or {}).get("sandboxes", ()) if sandbox["rails"]}
    runtimes, pod_processes = memlock_limit.read(places.proc, pods)
    gpus = _gpus(configuration.host.sysfs, places.proc)
    kubelet = kubelet_folders.read(configuration.host, places.proc)
    cards = [rail.address for _, rail in inventory.all_rails()]
    return Facts(
        inventory=inventory,
        daemon=daemon,
        ports=ports,
        roce=roce,
        runtimes=runtimes,
        pod_processes=pod_processes,
        gpus=gpus,
        configurations=names,
        conflist_folder=folder.path,
        bridge=_bridge(configuration.host.root, configuration.host.flannel),
        networks=tuple(configuration.networks),
        inherited=dict(_inherited(places.proc / "sys/net")),
        ranges=dict(_ranges(configuration)),
        occupied=dict(_occupied(configuration.host.root, configuration.host.flannel, os.environ)),
        iommu=dict(_iommu(configuration.host.sysfs, inventory)),
        pci_bridges=asyncio.run(pci_bridges.read(sysfs, cards, gpus.addresses)),
        clock_is_synchronised=is_synchronised(),
        allocated=_allocated(configuration.host, kubelet.looked_for.path),
        kubelet=kubelet,
        primary_trouble=_primary_trouble(configuration),
        is_node=kubelet.is_there or bool(names) or daemon.told is not None,
        wrong_configuration=wrong,
        unread=(*unread, *refused),
    )


def _configuration(path: Path) -> tuple[Configuration, str | None]:
    try:
        return load(path), None
    except (Misconfigured, OSError) as error:
        return Configuration(), str(error)


def _daemon(path: Path) -> Daemon:
    try:
        return Daemon(ask(path))
    except (Unreachable, ValueError) as error:
        return Daemon(None, str(error))


async def _cards(sysfs: Sysfs) -> tuple[Inventory, dict[PciAddress, PortFacts], RoceFacts, list[Unread]]:
    inventory = await node_inventory.inventory(sysfs, Inventory())
    ports: dict[PciAddress, PortFacts] = {}
    unread: list[Unread] = []
    # A function with a fault is a finding already, and one that hangs would hang again.
    readable = {
        card: [function.address for function in functions if function.fault is None]
        for card, functions in _by_card(inventory)
    }
    of_cards = (sysfs.reads.read_each(card, functions, partial(_port, sysfs)) for card, functions in readable.items())
    for outcomes in await asyncio.gather(*of_cards):
        for address, outcome in outcomes.items():
            if isinstance(outcome, PortFacts):
                ports[address] = outcome
            elif not isinstance(outcome, FileNotFoundError):  # else it has gone away
                unread.append(Unread(str(address), str(outcome)))
    roce = await roce_facts.read(sysfs, inventory)
    known = {failure.where for failure in unread}
    unread += [Unread(str(address), why) for address, why in roce.unread.items() if str(address) not in known]
    return inventory, ports, roce, unread


def _by_card(inventory: Inventory) -> Iterator[tuple[PciAddress, tuple[PhysicalFunction | VirtualFunction, ...]]]:
    for _, rail in inventory.all_rails():
        yield rail.address, (*(() if rail.pf is None else (rail.pf,)), *rail.vfs)


def _port(sysfs: Sysfs, function: PciAddress) -> PortFacts:
    pkeys = sysfs.pkeys(function)
    with sysfs.folder(function) as folder:
        lids = [_lid(folder, first_data_port(folder, name)) for name in folder.names("infiniband")]
        folder.require()
    lid, sm_lid = lids[0] if lids else (None, None)
    return PortFacts(lid, sm_lid, pkeys)


def _lid(folder: SysfsFolder, port: str) -> tuple[int | None, int | None]:
    def number(name: str) -> int | None:
        lid = folder.number(f"{port}/{name}", -1)
        return None if lid == -1 else lid

    return number("lid"), number("sm_lid")


def _gpus(sysfs: Path, proc: Path) -> Gpus:
    """Return the GPUs. A function that cannot be read is no GPU, as one without NVIDIA's driver."""
    version = ""
    with suppress(OSError):
        version = _text(proc / "driver/nvidia/version")
    addresses = tuple(sorted(_nvidia_functions(sysfs / "bus/pci/drivers/nvidia")))
    # `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15 …`
    return Gpus(addresses, (sysfs / "module/nvidia_peermem").exists(), "Open Kernel Module" in version)


def _nvidia_functions(driver: Path) -> Iterable[PciAddress]:
    """Yield the functions bound to NVIDIA's driver, by the names of the driver's links alone."""
    with suppress(OSError):
        for entry in driver.iterdir():
            with suppress(ValueError):
                yield PciAddress.parse(entry.name)


def _configurations(folder: ConflistFolder) -> tuple[tuple[str, ...] | None, list[Unread]]:
    try:
        fd = open_below(folder.root, folder.path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        return None, [Unread(folder.path, f"cannot be read: {error.strerror}", error.errno)]
    try:
        with os.scandir(fd) as entries:
            names = (entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))
            ordered = tuple(sorted((name for name in names if name.endswith(_SUFFIXES)), key=os.fsencode))
            return _from_railnets(folder, ordered), []
    finally:
        os.close(fd)


def _primary_trouble(configuration: Configuration) -> str | None:
    """Return why the primary network cannot make a pod's network, of the reasons that need no plugin. Without a primary there is none."""
    root = configuration.host.root
    try:
        path = conflist.find_primary(ConflistFolder.of(configuration.host), configuration)
        primary = primary_configuration.load(root, path)
    except (Misconfigured, OSError, ValueError):
        return None  # the daemon says it, and the conflist's findings
    except CniError as error:
        return str(error)
    troubles = (_lease_trouble(root, plugin) for plugin in primary.plugins if plugin["type"] == "flannel")
    return next((trouble for trouble in troubles if trouble is not None), None)


def _lease_trouble(root: Path, plugin: Mapping[str, Any]) -> str | None:
    path = str(plugin.get("subnetFile") or SUBNET_FILE)
    try:
        content = read_below(root, path)
    except (OSError, ValueError) as error:
        return f"flannel has no lease for this node: {path} cannot be read: {getattr(error, 'strerror', None) or error}"
    return None if names_subnet(content) else f"flannel has no lease for this node: {path} names no subnet"


def _from_railnets(folder: ConflistFolder, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names without a copy of Railnet's own that comes first: in such a file a service mesh may keep its plugin."""
    with suppress(OSError):
        if conflist.NAME in names and conflist.why_inactive(folder) is None:
            return names[names.index(conflist.NAME) :]
    return names


def _bridge(root: Path, lease: Path) -> Bridge | None:
    """Compare flannel's lease with the node's addresses. A lease that cannot be read is the daemon's to report."""
    with suppress(OSError, ValueError):
        socket.if_nametoindex(_BRIDGE)
        match = _LEASE.search(read_below(root, str(lease)).decode())
        if match is not None:
            gateway = ip_interface(match[1]).ip
            return Bridge(str(gateway), is_local(gateway))
    return None


def _ranges(configuration: Configuration) -> Iterator[tuple[str, IpNetwork]]:
    for network in configuration.networks:
        match network.ipam:
            case SliceIpam(range=range_) | StickyIpam(range=range_) | StaticIpam(range=range_) if range_ is not None:
                yield network.name, range_


def _inherited(net: Path) -> Iterator[tuple[str, InheritedSetting]]:
    """Yield what a new namespace gets of `net.ipv4.conf`: a copy of the first namespace's, which is the node's (devinet_init_net()).

    The kernel shows the settings of the reader's own namespace, and the daemon's pod is in the node's.
    """
    with suppress(OSError):  # older kernels have no such choice
        if _text(net / "core/devconf_inherit_init_net") == _COMPILED_VALUES:
            return
    for name in ("rp_filter", "arp_ignore"):
        with suppress(OSError, ValueError):
            of_all, default = (int(_text(net / "ipv4/conf" / which / name)) for which in ("all", "default"))
            yield name, InheritedSetting(of_all, default)


def _occupied(root: Path, lease: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, IpNetwork]]:
    """Yield the addresses of pods and of one Service. A lease that cannot be read is the daemon's to report."""
    with suppress(OSError, ValueError, NoAddress, Misconfigured):
        for flannel_lease in parse_subnet_env(read_below(root, str(lease)).decode()):
            yield f"the pods' network in {lease}", flannel_lease.network
    with suppress(KeyError, ValueError):  # outside of a pod there is none
        yield "the address of the Service kubernetes", ip_network(environ["KUBERNETES_SERVICE_HOST"])


def _allocated(host: HostConfiguration, kubelet: Path) -> dict[str, frozenset[str]] | None:
    """Return the VFs that kubelet has for each pod, by the pod's UID: by its checkpoint and by claims. A file that cannot be read is the daemon's to report."""
    claims = DraManagerStateFile(partial(open_below, host.root, f"{kubelet}/{NAME}", os.O_RDONLY))
    with suppress(OSError, ValueError, NotReady):
        entries = CheckpointFile(host.device_plugins).read()
        allocated = {uid: frozenset[str]().union(*by_resource.values()) for uid, by_resource in entries.items()}
        for claim in claims.read():
            vfs = frozenset(str(vf_of(device)) for device in claim.devices)
            allocated |= {uid: allocated.get(uid, frozenset()) | vfs for uid in claim.pod_uids}
        return allocated
    return None


def _iommu(sysfs: Path, inventory: Inventory) -> Iterator[tuple[PciAddress, str]]:
    """Yield the type of each PF's IOMMU group (Documentation/ABI/testing/sysfs-kernel-iommu_groups); without an IOMMU there is none."""
    for pf in inventory.pfs:
        with suppress(OSError):
            yield pf.address, _text(sysfs / "bus/pci/devices" / str(pf.address) / "iommu_group/type")


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode(errors="backslashreplace").strip()
