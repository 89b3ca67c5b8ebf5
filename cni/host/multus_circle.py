"""Multus whose default network is Railnet, as Railnet's primary network: the two would call each other without end.

Multus names its default network in `clusterNetwork` and `defaultNetworks`, or has it whole in `delegates` (k8snetworkplumbingwg/multus-cni,
pkg/types/conf.go, pkg/k8sclient/k8sclient.go: getDefaultNetDelegateCRD, getNetDelegate). Pure.
"""

from cni.host.errors import CONFIGURATION, CniError

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cni.host.json_object import JsonObject

TYPES = ("multus", "multus-shim")
MARK = b"RAILNET_CALLS_MULTUS"  # in Multus' environment; thin Multus passes its own on to its delegates
_OURS = "00-railnet.conflist"
_REMEDY = (
    "set Multus' clusterNetwork (of the daemon: multusMasterCNI) to the file of the network that is neither of both, such as "
    "10-flannel.conflist, or Railnet's 'primary' to that file"
)


class LeadsBack(CniError):
    """A primary configuration calls Railnet."""

    def __init__(self, message: str) -> None:
        super().__init__(CONFIGURATION, message)


def refuse(plugin: "JsonObject", path: str) -> None:
    """Refuse a plugin of the primary at `path` if it is Multus, and names Railnet's file or has Railnet among its delegates.

    Raises:
        LeadsBack: it is so.
    """
    if plugin.get("type") not in TYPES:
        return
    for name in default_networks(plugin):
        if name.rpartition("/")[2] == _OURS:
            raise circle(path, f"names {name} as a default network")
    delegates = plugin.get("delegates")
    for delegate in delegates if isinstance(delegates, list) else ():
        if _calls_railnet(delegate):
            raise circle(path, "has Railnet among its delegates")


def default_networks(plugin: "JsonObject") -> "Iterator[str]":
    """Yield what Multus' configuration names as its default networks: names, files or folders."""
    listed = plugin.get("defaultNetworks")
    for name in (plugin.get("clusterNetwork"), *(listed if isinstance(listed, list) else ())):
        if isinstance(name, str):
            yield name


def circle(path: str, why: str) -> LeadsBack:
    """Return the error of a circle."""
    return LeadsBack(
        f"{path} is Multus and {why}, and Railnet's primary is {path}: they would call each other without end; {_REMEDY}"
    )


def called_in_a_circle() -> CniError:
    """Return the error of a request that comes from Multus, which Railnet called."""
    return CniError(
        CONFIGURATION,
        f"Railnet's primary is Multus, and Multus' default network is Railnet: they call each other; {_REMEDY}",
    )


def _calls_railnet(delegate: object) -> bool:
    if not isinstance(delegate, dict):
        return False
    plugins = delegate.get("plugins", [delegate])
    return isinstance(plugins, list) and any(
        isinstance(plugin, dict) and plugin.get("type") == "railnet" for plugin in plugins
    )
