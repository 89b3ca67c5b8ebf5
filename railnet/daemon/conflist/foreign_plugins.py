"""Plugins of other programs beside Railnet's in Railnet's conflist: which stay, which come, which go. Pure.

Installers of service meshes append their plugin to the first conflist, or to every one. What stands in Railnet's conflist, the runtime runs
after Railnet. So each plugin stands there or runs in the primary's chain, never both (docs/decisions/0077).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from cni.host.appended_plugins import REFERENCE_TYPES, after_railnet
from cni.host.chain import OURSELVES
from cni.host.errors import CniError
from cni.host.json_object import load_object
from cni.host.plugin_configuration_folder import is_file_name

Plugin = dict[str, Any]

# Plugins whose installers append them to one configuration or to all of them, whichever is there: they are copied from the primary's
# before their installers do it, so that no pod is made between the two with the plugin twice, or without it.
_OF_INSTALLERS = frozenset(
    (
        "consul-cni",  # hashicorp/consul-k8s, control-plane/subcommand/install-cni
        "istio-cni",  # istio/istio, cni/pkg/install
        "kmesh-cni",  # kmesh-net/kmesh, pkg/cni
        "kuma-cni",  # kumahq/kuma, app/cni/pkg/install
        "linkerd-cni",  # linkerd/linkerd2-proxy-init, cni-plugin/deployment/scripts/install-cni.sh
    )
)


class ForeignPlugins(NamedTuple):
    """What Railnet's conflist has beside Railnet's own plugin.

    Attributes:
        plugins: in the order in which the runtime runs them.
        omit: types of the primary's plugins that its chain leaves out.
        copies: plugins that the daemon copied from another file, by type, as they were copied.
    """

    plugins: tuple[Plugin, ...] = ()
    omit: tuple[str, ...] = ()
    copies: dict[str, Plugin] = {}  # noqa: RUF012 - never changed


class Elsewhere(NamedTuple):
    """Plugins that other files have.

    Attributes:
        plugins: those after the first of the primary, and those that copies of Railnet's conflist have beside Railnet.
        to_copy: those of them that installers appended, and that Railnet's conflist should have.
    """

    plugins: tuple[Plugin, ...]
    to_copy: tuple[Plugin, ...]


def parse(raw: bytes) -> ForeignPlugins | None:
    """Read Railnet's conflist; None if it is no such file, or half of one. A plugin that no runtime could run is dropped."""
    try:
        beside = after_railnet(raw)
        own = next(
            plugin
            for plugin in load_object(raw, "Railnet's configuration")["plugins"]
            if plugin.get("type") == OURSELVES
        )
    except (CniError, AttributeError):
        return None
    omit, copies = own.get("omit"), own.get("copies")
    return ForeignPlugins(
        tuple(plugin for plugin in beside if is_runnable(plugin)),
        tuple(kind for kind in omit if isinstance(kind, str)) if isinstance(omit, list) else (),
        {kind: plugin for kind, plugin in copies.items() if isinstance(plugin, dict)}
        if isinstance(copies, dict)
        else {},
    )


def is_runnable(plugin: Plugin) -> bool:
    """Return whether a runtime can run a plugin: one that cannot be costs the whole list."""
    return isinstance(plugin.get("type"), str) and is_file_name(plugin["type"])


def elsewhere(primary: Sequence[Plugin], own_list: bool, copies_of_ours: Iterable[Plugin]) -> Elsewhere:
    """Gather what other files have.

    Args:
        primary: the primary's plugins, in order.
        own_list: they all stand in the primary's file. If some come from the network's folder, none is copied: those run last.
        copies_of_ours: plugins beside Railnet in other files that copy Railnet's conflist.
    """
    after_first, copied = tuple(primary[1:]), tuple(copies_of_ours)
    appended = _appended(after_first) if own_list else ()
    return Elsewhere((*after_first, *copied), (*appended, *(plugin for plugin in copied if not _is_reference(plugin))))


def appended_to_copy(plugins: Sequence[Plugin], original: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """Return what installers have appended in a copy of another file's plugins beyond what the original has; none if it is no copy."""
    if _without_installers(plugins) != _without_installers(original):
        return ()
    kinds = {plugin["type"] for plugin in original}
    return tuple(plugin for plugin in plugins if plugin["type"] not in kinds)


def _without_installers(plugins: Sequence[Plugin]) -> list[Plugin]:
    return [plugin for plugin in plugins if plugin["type"] not in _OF_INSTALLERS]


def decide(present: ForeignPlugins, others: Elsewhere) -> ForeignPlugins:
    """Decide what Railnet's conflist should have beside Railnet's plugin.

    - What another program appended stays, in its order, until that program takes it out.
    - What a program appended to another file alone is copied once. It follows its original, until its program writes it itself.
    - What was in Railnet's conflist once, and was taken out, does not come back from another file: an installer that leaves cleans
      one file.
    """
    originals = {str(plugin["type"]): plugin for plugin in reversed(others.plugins)}
    plugins, copies = _kept(present, originals)
    was_here = {kind for kind in present.omit if kind in originals and kind not in REFERENCE_TYPES}
    here = {plugin["type"] for plugin in plugins}
    for kind in (plugin["type"] for plugin in others.to_copy):
        if kind not in was_here | here:
            here.add(kind)
            copies[kind] = originals[kind]
            plugins.append(originals[kind])
    omit = {kind for kind in originals if kind in was_here or (kind in here and _is_the_same(kind, plugins, others))}
    return ForeignPlugins(tuple(plugins), tuple(sorted(omit)), dict(sorted(copies.items())))


def _kept(present: ForeignPlugins, originals: Mapping[str, Plugin]) -> tuple[list[Plugin], dict[str, Plugin]]:
    """Return the plugins that stay, each once, and which of them are copies."""
    plugins: list[Plugin] = []
    copies: dict[str, Plugin] = {}
    for plugin in present.plugins:
        kind, kept = plugin["type"], plugin
        if present.copies.get(kind) == plugin:
            if kind not in originals:
                continue
            kept = copies[kind] = originals[kind]
        if kept not in plugins:
            plugins.append(kept)
    return plugins, copies


def _appended(plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    """Return the last plugins of a list as far as installers append them."""
    return tuple(takewhile(lambda plugin: plugin["type"] in _OF_INSTALLERS, reversed(plugins)))[::-1]


def _is_the_same(kind: str, plugins: Sequence[Plugin], others: Elsewhere) -> bool:
    """Return whether a type that is here and elsewhere is the same plugin. Of the reference plugins a pod may need two."""
    return kind not in REFERENCE_TYPES or all(plugin in plugins for plugin in others.plugins if plugin["type"] == kind)


def _is_reference(plugin: Plugin) -> bool:
    return plugin["type"] in REFERENCE_TYPES
