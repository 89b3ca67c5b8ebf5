"""What becomes of conflists at an uninstall: plugins that other programs appended to Railnet's go to the primary's.

Their programs take what they find first, once, and some of them wait for ever for a file that is gone (Istio's, cni/pkg/install/cniconfig.go,
getCNIConfigFilepath). Pure.
"""

import json
from collections.abc import Sequence
from typing import Any

from cni.host.appended_plugins import REFERENCE_TYPES, after_railnet
from cni.host.chain import OURSELVES, parse
from railnet.daemon.conflist.foreign_plugins import ForeignPlugins, Plugin


def to_hand_over(foreign: ForeignPlugins) -> tuple[Plugin, ...]:
    """Return the plugins that Railnet's conflist alone has: copies have their original elsewhere."""
    return tuple(plugin for plugin in foreign.plugins if foreign.copies.get(plugin["type"]) != plugin)


def taken_out(foreign: ForeignPlugins) -> frozenset[str]:
    """Return the types that an installer took out of Railnet's conflist, and left in the primary's: their executable may be gone."""
    return frozenset(foreign.omit) - {plugin["type"] for plugin in foreign.plugins}


def primary_alone(primary: bytes, path: str, foreign: ForeignPlugins) -> bytes | None:
    """Return the primary's conflist as it should be without Railnet's; None if it is so already.

    What Railnet's alone has is appended, and what was taken out of Railnet's is taken out.

    Raises:
        ValueError: it is no list and would change. CniError: it is broken.
    """
    conf = _list(primary, path)
    first, *after = conf["plugins"]
    kept = [first, *(plugin for plugin in after if plugin["type"] not in taken_out(foreign))]
    kept += [plugin for plugin in to_hand_over(foreign) if not _has(kept, plugin)]
    if kept == conf["plugins"]:
        return None
    if "plugins" not in json.loads(primary):
        raise ValueError(f"{path} is no list of plugins")
    return _written({**conf, "plugins": kept})


def own_plugin(conflist: bytes) -> Plugin:
    """Return Railnet's plugin of a configuration that calls Railnet, which may be a list or this plugin alone."""
    configuration = json.loads(conflist)
    plugins: list[Plugin] = configuration.get("plugins", [configuration])
    return next(plugin for plugin in plugins if plugin["type"] == OURSELVES)


def without_railnet(copy: bytes, primary: bytes, path: str) -> bytes:
    """Return a copy of Railnet's conflist with the primary's plugins in the place of Railnet's; the copy's own plugins stay.

    Raises:
        ValueError: the primary's conflist, at `path`, is broken.
    """
    conf = _list(primary, path)
    beside = after_railnet(copy)
    own = [plugin for plugin in conf["plugins"] if plugin is conf["plugins"][0] or not _has(beside, plugin)]
    return _written({**conf, "plugins": [*own, *beside]})


def _list(primary: bytes, path: str) -> dict[str, Any]:
    """Parse a conflist. A configuration of one plugin becomes a list, as libcni makes it (ConfListFromConf)."""
    parse(primary, path)
    conf: dict[str, Any] = json.loads(primary)
    if "plugins" in conf:
        return conf
    return {key: conf[key] for key in ("cniVersion", "name") if key in conf} | {"plugins": [conf]}


def _has(plugins: Sequence[Plugin], plugin: Plugin) -> bool:
    if plugin["type"] in REFERENCE_TYPES:
        return plugin in plugins
    return any(own.get("type") == plugin["type"] for own in plugins)


def _written(conf: dict[str, Any]) -> bytes:
    return json.dumps(conf, indent=2).encode() + b"\n"
