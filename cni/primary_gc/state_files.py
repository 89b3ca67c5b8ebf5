"""The books of the primary network: the files that its plugins and libcni keep of each container. Pure: bytes in, values out.

Only those of this network: plugins share folders with other networks.
"""

import json
from collections.abc import Iterator
from ipaddress import ip_address, ip_interface
from typing import Any, Literal, NamedTuple

from cni.host import flannel
from cni.host.chain import Primary
from cni.host.environment import is_container_id
from kernel.host_folder import Entry
from vf.address_slice import IpAddress
from vf.record import Pod

_NETWORKS = "/var/lib/cni/networks"  # host-local's, plugins/ipam/host-local/backend/disk/backend.go
_RESULTS = "/var/lib/cni/results"  # libcni/api.go, CacheDir
_CACHED = "cniCacheV1"


class Book(NamedTuple):
    """One folder of the host: host-local's with a file for each address, flannel's for each container, or libcni's."""

    kind: Literal["host-local", "flannel", "libcni"]
    folder: str


class Cached(NamedTuple):
    """What libcni remembers of an ADD: its result, what the runtime passed for capabilities, and how it named the pod."""

    result: dict[str, Any]
    runtime_config: dict[str, Any]
    pod: Pod

    @property
    def sandboxes(self) -> tuple[str, ...]:
        """Give the paths of the namespaces that the interfaces were put into."""
        return tuple(str(one["sandbox"]) for one in _objects(self.result, "interfaces") if one.get("sandbox"))

    @property
    def host_links(self) -> tuple[tuple[str, str], ...]:
        """Give names and hardware addresses of the interfaces that were made on the node."""
        on_node = [one for one in _objects(self.result, "interfaces") if not one.get("sandbox")]
        return tuple((str(one.get("name")), str(one["mac"])) for one in on_node if one.get("mac"))


class Trace(NamedTuple):
    """One file about one container.

    `container_id` is None for an address that was reserved by a host-local which died before it wrote for whom. `sure` is
    whether the file says that it is of this network, rather than that it cannot be read. `ifname` may be "".
    """

    book: Book
    entry: Entry
    container_id: str | None
    ifname: str = ""
    addresses: tuple[IpAddress, ...] = ()
    cached: Cached | None = None
    sure: bool = True


def books(primary: Primary) -> tuple[Book, ...]:
    """Give the folders in which this primary's plugins and libcni keep their books."""
    if not primary.name or "/" in primary.name or "\0" in primary.name or primary.name in (".", ".."):
        return ()  # then host-local's folder would be another's
    found = [book for plugin in primary.plugins for book in _of_plugin(plugin, primary.name)]
    return (*dict.fromkeys(found), Book("libcni", _RESULTS))


def read(book: Book, entry: Entry, network: str) -> Trace | None:
    """Understand one file; None where it is of another network, or of nobody that could be taken down."""
    readers = {"host-local": _of_host_local, "flannel": _of_flannel, "libcni": _of_libcni}
    try:
        return readers[book.kind](book, entry, network)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # whatever it is, it is not a book
        return None


def _of_plugin(plugin: dict[str, Any], network: str) -> Iterator[Book]:
    ipam = plugin.get("ipam")
    ipam = ipam if isinstance(ipam, dict) else {}
    is_flannel = plugin["type"] == "flannel"
    if is_flannel:
        yield from _book("flannel", plugin.get("dataDir") or flannel.FOLDER, "")
    if ipam.get("type", "host-local" if is_flannel else "") == "host-local":
        yield from _book("host-local", ipam.get("dataDir") or _NETWORKS, f"/{network}")


def _book(kind: Literal["host-local", "flannel"], folder: object, below: str) -> Iterator[Book]:
    if isinstance(folder, str) and folder.startswith("/") and "\0" not in folder:
        yield Book(kind, folder.rstrip("/") + below or "/")


def _of_host_local(book: Book, entry: Entry, network: str) -> Trace | None:  # noqa: ARG001 - the folder is this network's
    address = ip_address(entry.name)  # else it is the lock or last_reserved_ip.0
    if not entry.content.strip():
        return Trace(book, entry, None, addresses=(address,))
    container_id, _, ifname = entry.content.decode().strip().partition("\r\n")  # the id alone before v0.8
    return Trace(book, entry, container_id, ifname, (address,)) if is_container_id(container_id) else None


def _of_flannel(book: Book, entry: Entry, network: str) -> Trace | None:
    container_id = flannel.container_of(entry.name) or entry.name
    if not is_container_id(container_id):
        return None
    try:
        name = json.loads(entry.content)["name"]
    except (ValueError, KeyError, TypeError):
        return Trace(book, entry, container_id, sure=False)
    return Trace(book, entry, container_id) if name == network else None


def _of_libcni(book: Book, entry: Entry, network: str) -> Trace | None:
    document = json.loads(entry.content)
    container_id = document["containerId"]
    if (document["kind"], document["networkName"]) != (_CACHED, network) or not is_container_id(container_id):
        return None
    arguments = {str(key): str(value) for key, value in document.get("cniArgs") or ()}
    pod = Pod(*(arguments.get(f"K8S_POD_{part}", "") for part in ("NAMESPACE", "NAME", "UID")))
    cached = Cached(dict(document["result"]), dict(document.get("capabilityArgs") or {}), pod)
    addresses = tuple(ip_interface(str(one["address"])).ip for one in _objects(cached.result, "ips"))
    return Trace(book, entry, container_id, str(document["ifName"]), addresses, cached)


def _objects(result: dict[str, Any], key: str) -> list[dict[str, Any]]:
    listed = result.get(key)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
