"""Where the names, files and folders lead that Multus has for its default network, as the primary network of this node. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cni.host import multus_circle
from cni.host.chain import OURSELVES

_IN_MULTUS = "/etc/cni/net.d"  # where Multus' DaemonSets mount the runtime's folder, whatever its path on the host is
_OWN_FOLDER = "/etc/cni/multus/net.d"  # Multus' default for confDir, in which it looks for names

Plugin = dict[str, Any]


class ConfiguredNetwork(NamedTuple):
    """A file of the runtime's folder: its own name, the name of its network, and its plugins."""

    file: str
    name: str
    plugins: tuple[Plugin, ...] = ()


class RuntimeFolder(NamedTuple):
    """The runtime's folder of configurations.

    Attributes:
        path: on the host.
        networks: its files in the runtime's order.
        ours: the name of Railnet's file, which is one of them.
    """

    path: str
    networks: tuple[ConfiguredNetwork, ...]
    ours: str


def refuse(path: str, plugins: Iterable[Plugin], folder: RuntimeFolder) -> None:
    """Refuse a primary that is Multus, if a default network leads to Railnet, also by another Multus or by a copy of Railnet's file.

    Args:
        path: of the primary.
        plugins: the primary's.
        folder: where Railnet's file is.

    Raises:
        LeadsBack: it does.
    """
    for name, network in _default_networks(plugins, folder):
        between = _between(network, folder, set())
        if between is not None:
            way = f"{network.file}, and that leads to {', '.join(between)}" if between else network.file
            raise multus_circle.circle(path, f"names {name} as a default network, which is {way}")


def _between(network: ConfiguredNetwork, folder: RuntimeFolder, seen: set[str]) -> tuple[str, ...] | None:
    """Return the files after a network on the way to Railnet; None if none of its default networks leads there.

    The networks that were looked at come into `seen`.
    """
    seen.add(network.file)
    if network.file == folder.ours or any(plugin.get("type") == OURSELVES for plugin in network.plugins):
        return ()
    for _, following in _default_networks(network.plugins, folder):
        between = None if following.file in seen else _between(following, folder, seen)
        if between is not None:
            return following.file, *between
    return None


def _default_networks(plugins: Iterable[Plugin], folder: RuntimeFolder) -> Iterator[tuple[str, ConfiguredNetwork]]:
    """Yield what Multus among the plugins names as a default network, with the network, if that is one of the runtime's folder."""
    for plugin in plugins:
        if plugin.get("type") in multus_circle.TYPES:
            for name in multus_circle.default_networks(plugin):
                network = _network(name, str(plugin.get("confDir", _OWN_FOLDER)), folder)
                if network is not None:
                    yield name, network


def _network(name: str, names_in: str, folder: RuntimeFolder) -> ConfiguredNetwork | None:
    """Return the network that Multus takes for a name, a file or a folder, if it is one of the runtime's folder; None if it is not."""
    if name.startswith("/"):
        parent, _, file = name.rpartition("/")
        if _is(folder, name):
            return folder.networks[0] if folder.networks else None
        return next((network for network in folder.networks if _is(folder, parent) and network.file == file), None)
    if not _is(folder, names_in):
        return None
    return next((network for network in folder.networks if network.name == name), None)


def _is(folder: RuntimeFolder, path: str) -> bool:
    """Return whether a path is the runtime's folder, as the host or as a container sees it."""
    return path.rstrip("/").endswith((folder.path, _IN_MULTUS))
