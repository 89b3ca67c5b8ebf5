"""Plugins that other programs append to Railnet's configuration, such as those of service meshes: the runtime runs them after Railnet.

Such a program may append its plugin to the primary's configuration, too. The plugin runs once: the primary's chain leaves it out
(docs/decisions/0077). Pure, except that `on_host` reads Railnet's configuration.
"""

from cni.host import chain
from cni.host.errors import CONFIGURATION, CniError
from cni.host.json_object import load_object

TYPE_CHECKING = False  # typing's own constant, without typing: mypy takes it for true
if TYPE_CHECKING:
    from cni.host.json_object import JsonObject

_WHAT = "Railnet's configuration"
# No program appends these by itself: who has two of them wants two (containernetworking/plugins, plugins/meta).
REFERENCE_TYPES = frozenset(("bandwidth", "firewall", "portmap", "sbr", "tuning", "vrf"))


def after_railnet(raw: bytes) -> "list[JsonObject]":
    """Return the plugins that stand beside Railnet's own in a configuration of Railnet's.

    Raises:
        CniError: it is no list with Railnet's plugin.
    """
    plugins = load_object(raw, _WHAT).get("plugins")
    objects = [plugin for plugin in plugins if isinstance(plugin, dict)] if isinstance(plugins, list) else []
    others = [plugin for plugin in objects if plugin.get("type") != chain.OURSELVES]
    if len(others) == len(objects):
        raise CniError(CONFIGURATION, f"{_WHAT} has no plugin {chain.OURSELVES!r}")
    return others


def run_once(primary: "chain.Primary", omit: "list[str]", raw: bytes | None) -> "chain.Primary":
    """Return the primary without the plugins that the runtime runs: those of `omit`, and those appended since `omit` was written.

    `raw` is Railnet's configuration as it is on the host now; None if there is none.
    """
    try:
        appended = _by_others(raw) if raw is not None else []
    except CniError:
        appended = []
    return chain.without(
        primary, [*omit, *(plugin.get("type", "") for plugin in appended if not _is_reference(plugin))]
    )


def _by_others(raw: bytes) -> "list[JsonObject]":
    """Return the plugins that other programs appended. Of those that the daemon copied, `omit` tells: it is written together with them.

    A request whose list is older than the copy has its plugin from the primary's chain alone.
    """
    appended = after_railnet(raw)
    copies: list[str] = []
    for plugin in load_object(raw, _WHAT)["plugins"]:
        if isinstance(plugin, dict) and plugin.get("type") == chain.OURSELVES:
            copies += plugin["copies"] if isinstance(plugin.get("copies"), dict) else ()
    return [plugin for plugin in appended if plugin.get("type") not in copies]


def may_repeat(primary: "chain.Primary", omit: "list[str]") -> bool:
    """Return whether a program may append a plugin of the primary to Railnet's configuration, and `omit` does not tell."""
    return any(not _is_reference(plugin) and plugin["type"] not in omit for plugin in primary.plugins[1:])


def on_host(path: str) -> bytes | None:
    """Read Railnet's configuration on the host's disk; None if it cannot be read."""
    try:
        with open(path, "rb") as file:  # pathlib takes longer to import than this module may
            return file.read()
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


def _is_reference(plugin: "JsonObject") -> bool:
    return plugin.get("type") in REFERENCE_TYPES
