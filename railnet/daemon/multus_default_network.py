"""Where the names and folders lead that Multus has for its default network, as the primary network of this node. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from cni.host import multus_circle

_IN_MULTUS = "/etc/cni/net.d"  # where Multus' DaemonSets mount the runtime's folder, whatever its path on the host is
_OWN_FOLDER = "/etc/cni/multus/net.d"  # Multus' default for confDir, in which it looks for names


class RuntimeFolder(NamedTuple):
    """The runtime's folder of configurations.

    Attributes:
        path: on the host.
        networks: its files in the runtime's order, each with the name of its network.
        ours: the name of Railnet's file, which is one of them.
    """

    path: str
    networks: tuple[tuple[str, str], ...]
    ours: str


def refuse(path: str, plugins: Iterable[dict[str, Any]], folder: RuntimeFolder) -> None:
    """Refuse a primary that is Multus, if a name or a folder of its default networks leads to Railnet's file.

    Args:
        path: of the primary.
        plugins: the primary's.
        folder: where Railnet's file is.

    Raises:
        LeadsBack: it does.
    """
    for plugin in plugins:
        if plugin.get("type") in multus_circle.TYPES:
            for name in multus_circle.default_networks(plugin):
                if _file(name, str(plugin.get("confDir", _OWN_FOLDER)), folder) == folder.ours:
                    raise multus_circle.circle(path, f"names {name} as a default network, which is {folder.ours}")


def _file(name: str, names_in: str, folder: RuntimeFolder) -> str | None:
    """Return the file that Multus takes for a name or a folder, if it is one of the runtime's folder; None if it is not."""
    if name.startswith("/"):
        return folder.networks[0][0] if folder.networks and _is(folder, name) else None
    if not _is(folder, names_in):
        return None
    return next((file for file, network in folder.networks if network == name), None)


def _is(folder: RuntimeFolder, path: str) -> bool:
    """Return whether a path is the runtime's folder, as the host or as a container sees it."""
    return path.rstrip("/").endswith((folder.path, _IN_MULTUS))
