"""Where the names and folders lead that Multus has for its default network, as the primary network of this node. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from cni.host import multus_circle

_FOLDER = "/etc/cni/net.d"
_OWN_FOLDER = "/etc/cni/multus/net.d"  # Multus' default for confDir, in which it looks for names


def refuse(path: str, plugins: Iterable[dict[str, Any]], networks: Sequence[tuple[str, str]], ours: str) -> None:
    """Refuse a primary that is Multus, if a name or a folder of its default networks leads to Railnet's file.

    Args:
        path: of the primary.
        plugins: the primary's.
        networks: the files of the runtime's folder in its order, each with the name of its network.
        ours: the name of Railnet's file, which is one of them.

    Raises:
        LeadsBack: it does.
    """
    for plugin in plugins:
        if plugin.get("type") in multus_circle.TYPES:
            for name in multus_circle.default_networks(plugin):
                if _file(name, str(plugin.get("confDir", _OWN_FOLDER)), networks) == ours:
                    raise multus_circle.circle(path, f"names {name} as a default network, which is {ours}")


def _file(name: str, names_in: str, networks: Sequence[tuple[str, str]]) -> str | None:
    """Return the file that Multus takes for a name or a folder, if it is one of the runtime's folder; None if it is not."""
    if name.startswith("/"):
        return networks[0][0] if networks and _is_the_folder(name) else None
    if not _is_the_folder(names_in):
        return None
    return next((file for file, network in networks if network == name), None)


def _is_the_folder(path: str) -> bool:
    """Return whether a path is the runtime's folder, as the host or as a container sees it."""
    return path.rstrip("/").endswith(_FOLDER)
