"""The state files that the primary's plugins and libcni keep of each container: where they are, and what they say. Pure.

Only files of this network: plugins share folders with other networks. Files are read and removed by `cni.primary_gc.collector`.
"""

import json
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any, Literal, NamedTuple

from cni import libcni_cache
from cni.host import flannel_state_backup
from cni.host.chain import Primary
from cni.host.environment import is_container_id
from cni.libcni_cache import CachedAdd
from railnet.kernel.foreign_state_files import Entry
from railnet.vf.address_slice import IpAddress

_NETWORKS = "/var/lib/cni/networks"  # host-local's, plugins/ipam/host-local/backend/disk/backend.go


class StateFolder(NamedTuple):
    """A folder of the host: host-local's with a file for each address, flannel's with one for each container, or libcni's."""

    kind: Literal["host-local", "flannel", "libcni"]
    path: str


class StateFile(NamedTuple):
    """One file about one container.

    `container_id` is None for an address whose host-local died before it wrote the container's id. `readable` is False if
    the file cannot be read, so that it is not known whether it belongs to this network. `ifname` may be "".
    """

    folder: StateFolder
    entry: Entry
    container_id: str | None
    ifname: str = ""
    addresses: tuple[IpAddress, ...] = ()
    cached: CachedAdd | None = None
    readable: bool = True


def state_folders(primary: Primary) -> tuple[StateFolder, ...]:
    """Return the folders in which this primary's plugins and libcni keep their files."""
    if not primary.name or "/" in primary.name or "\0" in primary.name or primary.name in (".", ".."):
        return ()  # host-local's folder would be one of another network
    folders = [folder for plugin in primary.plugins for folder in _of_plugin(plugin, primary.name)]
    return (*dict.fromkeys(folders), StateFolder("libcni", libcni_cache.FOLDER))


def parse(folder: StateFolder, entry: Entry, network: str) -> StateFile | None:
    """Parse one file; return None if it belongs to another network, or names no container."""
    parsers = {"host-local": _of_host_local, "flannel": _of_flannel, "libcni": _of_libcni}
    try:
        return parsers[folder.kind](folder, entry, network)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # it is some other file
        return None


def _of_plugin(plugin: dict[str, Any], network: str) -> Iterator[StateFolder]:
    ipam = plugin.get("ipam")
    ipam = ipam if isinstance(ipam, dict) else {}
    is_flannel = plugin["type"] == "flannel"
    if is_flannel:
        yield from _folder("flannel", plugin.get("dataDir") or flannel_state_backup.FOLDER, "")
    if ipam.get("type", "host-local" if is_flannel else "") == "host-local":
        yield from _folder("host-local", ipam.get("dataDir") or _NETWORKS, f"/{network}")


def _folder(kind: Literal["host-local", "flannel"], path: object, below: str) -> Iterator[StateFolder]:
    if isinstance(path, str) and path.startswith("/") and "\0" not in path:
        yield StateFolder(kind, path.rstrip("/") + below or "/")


def _of_host_local(folder: StateFolder, entry: Entry, network: str) -> StateFile | None:  # noqa: ARG001 - the folder is this network's
    address = ip_address(entry.name)  # raises for the lock and last_reserved_ip.0
    if not entry.content.strip():
        return StateFile(folder, entry, None, addresses=(address,))
    container_id, _, ifname = entry.content.decode().strip().partition("\r\n")  # the id alone before v0.8
    return StateFile(folder, entry, container_id, ifname, (address,)) if is_container_id(container_id) else None


def _of_flannel(folder: StateFolder, entry: Entry, network: str) -> StateFile | None:
    container_id = flannel_state_backup.container_of(entry.name) or entry.name
    if not is_container_id(container_id):
        return None
    try:
        name = json.loads(entry.content)["name"]
    except (ValueError, KeyError, TypeError):
        return StateFile(folder, entry, container_id, readable=False)
    return StateFile(folder, entry, container_id) if name == network else None


def _of_libcni(folder: StateFolder, entry: Entry, network: str) -> StateFile | None:
    cached = libcni_cache.parse(entry.content)
    if cached.network != network:
        return None
    return StateFile(folder, entry, cached.container_id, cached.ifname, cached.addresses, cached)
