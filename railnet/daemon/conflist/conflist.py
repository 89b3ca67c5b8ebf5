"""Railnet's CNI configuration: its content, and whether the container runtime uses it. This module only reads."""

import json
import os
from collections.abc import Callable
from errno import EFBIG, EINVAL, EISDIR, ELOOP, ENAMETOOLONG
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cni.host import multus_circle
from cni.host.appended_plugins import after_railnet
from cni.host.chain import NEWEST_WITHOUT_LISTS, OURSELVES, Primary, parse, unreadable
from cni.host.errors import CONFIGURATION, CniError
from cni.host.json_object import load_object
from cni.host.multus_circle import LeadsBack
from cni.host.netconf import DEFAULT_CONFLIST, DEFAULT_KUBELET, SUPPORTED_VERSIONS
from cni.host.result_version_conversion import chosen
from cni.primary_configuration import read_folder
from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon.conflist import foreign_plugins, multus_default_network
from railnet.daemon.conflist.foreign_plugins import ForeignPlugins, Plugin, appended_to_copy, elsewhere, is_runnable
from railnet.daemon.conflist.multus_default_network import ConfiguredNetwork
from railnet.errors import Misconfigured
from railnet.kernel.files import followed, read_below

NAME = "00-railnet.conflist"
_LISTED_VERSIONS = ["1.0.0", "1.1.0"]
# No content can be read from a file of another kind, nor through such a link; a rename replaces both. A folder has to be removed.
_NOT_A_FILE = (EFBIG, EINVAL, ELOOP, ENAMETOOLONG)
_OUR_CAPABILITIES = {"io.kubernetes.cri.pod-annotations": True}


class ConflistFolder(NamedTuple):
    """The folder in which the runtime looks for CNI configurations: its path on the host, whose root folder is at `root`."""

    root: Path
    path: str = str(HostConfiguration().cni_conf)

    @classmethod
    def of(cls, host: HostConfiguration) -> "ConflistFolder":
        """Return the configured one."""
        return cls(host.root, str(host.cni_conf))

    @property
    def ours(self) -> str:
        """The path of Railnet's configuration on the host."""
        return self.file(NAME)

    def file(self, name: str) -> str:
        """Return the path of a file on the host."""
        return f"{self.path}/{name}"

    def reached(self) -> Path:
        """Return the path by which this process reaches the folder.

        Raises:
            OSError: links of its path lead in a circle.
        """
        return followed(self.root, self.path)

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            OSError, ValueError: as `read_below`.
        """
        return read_below(self.root, self.file(name))


class Beside(NamedTuple):
    """What other programs wrote on the host beside the primary's file.

    Attributes:
        foreign: what Railnet's conflist has of them now.
        copied: plugins beside Railnet in other files that copy Railnet's conflist.
        read_folder: reads a network's folder of further plugins.
    """

    foreign: ForeignPlugins = ForeignPlugins()
    copied: tuple[Plugin, ...] = ()
    read_folder: Callable[[str], list[tuple[str, bytes]]] = lambda _: []


def compose(
    primary: bytes,
    path: str,
    configuration: Configuration,
    beside: Beside = Beside(),  # noqa: B008 - never changed
    kubelet: str = DEFAULT_KUBELET,
) -> bytes:
    """Return the conflist that calls Railnet in place of the primary configuration at `path`, and after it the plugins of other programs.

    `kubelet` is the path of kubelet's root folder.

    The version is the primary's, at most 1.0.0: with 1.1.0 containerd 1.6 runs ADD and then fails every DEL. A libcni that
    reads `cniVersions` takes the newest it knows of those, which has STATUS and GC; to an older one they are nothing. A plugin of
    another program may know no newer version than those for which it was appended: beside one, the primary's versions are listed.

    Raises:
        Misconfigured: the primary is broken, or is Railnet. OSError: its folder cannot be read.
    """
    try:
        chain = parse(primary, path, read_folder=beside.read_folder)
        conf = load_object(primary, path)
    except CniError as error:
        raise Misconfigured(str(error)) from None
    declared = str(conf.get("cniVersion", "0.1.0"))
    version = chosen(declared, [], NEWEST_WITHOUT_LISTS)
    if version not in SUPPORTED_VERSIONS or not chain.name:
        raise Misconfigured(
            f"{path} has name {chain.name!r:.80} and cniVersion {version!r:.80}; "
            f"Railnet needs a name and one of {', '.join(SUPPORTED_VERSIONS)}"
        )
    own_list = len(chain.plugins) == len(conf.get("plugins", [conf]))
    foreign = foreign_plugins.decide(beside.foreign, elsewhere(chain.plugins, own_list, beside.copied))
    listed = conf.get("cniVersions", [declared] if declared != version else []) if foreign.plugins else _LISTED_VERSIONS
    conflist = {
        "cniVersion": version,
        **({"cniVersions": listed} if listed else {}),
        "name": chain.name,
        # disableGC says that other runtimes use this network too: this runtime does not know their attachments and must not delete them.
        **({"disableGC": True} if chain.disable_gc else {}),
        "loadOnlyInlinedPlugins": True,
        "plugins": [_own(chain, path, configuration, foreign, kubelet), *foreign.plugins],
    }
    return json.dumps(conflist, indent=2).encode() + b"\n"


def says_the_same(content: bytes | None, other: bytes) -> bool:
    """Return whether a runtime reads the same from both: programs that append a plugin write the rest of the file in their own way."""
    try:
        return content == other or (content is not None and load_object(content, NAME) == load_object(other, NAME))
    except CniError:
        return False


def require_plugins(host: HostConfiguration, path: str) -> None:
    """Make sure that a configured folder of plugins is one that the runtime has, by some plugin of the primary at `path`; and that it has Railnet.

    A runtime that does not find Railnet's executable starts no pod at all. Where both folders are the defaults, the folder is not looked at:
    beside it, CRI-O has another one, in which all plugins of a primary may be (cri-o/cri-o, pkg/config/config.go, plugin_dirs). A distribution
    with another folder of configurations has mostly another one of plugins, too.

    Raises:
        Misconfigured: it has none of them, or no Railnet. CniError: the primary is broken. OSError: it cannot be read, or links lead in a circle.
    """
    usual = HostConfiguration()
    if (host.cni_bin, host.cni_conf) == (usual.cni_bin, usual.cni_conf):
        return
    folder = followed(host.root, str(host.cni_bin))
    types = [plugin["type"] for plugin in _parsed(host.root, path).plugins]
    if not any(os.path.lexists(folder / name) for name in types):
        raise Misconfigured(
            f"host.cniBin is {host.cni_bin}, which has no plugin of {path} ({', '.join(types)}); it should be the folder in which the container "
            "runtime looks for plugins, or no pod could start"
        )
    if not os.path.lexists(folder / OURSELVES):
        raise Misconfigured(
            f"{host.cni_bin}/{OURSELVES} is absent, and no pod could start without it: run `railnet install`"
        )


def _own(
    primary: Primary, path: str, configuration: Configuration, foreign: ForeignPlugins, kubelet: str
) -> dict[str, Any]:
    """Return Railnet's own plugin. It names its own file where this is not the default: the executable reads no configuration."""
    ours = ConflistFolder.of(configuration.host).ours
    capabilities = {
        key: True for plugin in primary.plugins for key, on in (plugin.get("capabilities") or {}).items() if on
    }
    return {
        "type": OURSELVES,
        "primary": path,
        **({"conflist": ours} if ours != DEFAULT_CONFLIST else {}),
        "capabilities": {**capabilities, **_OUR_CAPABILITIES},
        "resources": sorted(configuration.resources),
        "devicePlugins": str(configuration.host.device_plugins),
        **({} if kubelet == DEFAULT_KUBELET else {"kubelet": kubelet}),
        "seconds": {"daemon": configuration.timeouts.daemon, "delegate": configuration.timeouts.delegate},
        **({"omit": list(foreign.omit)} if foreign.omit else {}),
        **({"copies": foreign.copies} if foreign.copies else {}),
    }


def find_primary(folder: ConflistFolder, configuration: Configuration) -> str:
    """Return the path of the primary configuration: the configured one, or the first valid file other than Railnet's.

    A file that Railnet's own configuration names already is not skipped while it is broken: a program may be writing it. A file that
    calls Railnet is: a program has written it so.

    Raises:
        Misconfigured: there is none, or the one in use is broken. OSError: the folder or Railnet's file cannot be read.
    """
    if configuration.primary is not None:
        return configuration.primary
    used = named_primary(folder)
    why = ""
    for name in _in_order(folder):
        if name == NAME:
            continue
        path = folder.file(name)
        try:
            _require_primary(folder, name)
        except LeadsBack as error:
            why = why or f" ({error})"
        except (CniError, OSError) as error:
            broken = str(unreadable(path, error)) if isinstance(error, OSError) else str(error)
            if path == used:
                raise Misconfigured(f"{broken}; Railnet's configuration stays as it is") from None
            why = why or f" ({broken})"
        else:
            return _original(folder, name)
    raise _no_primary(folder, why)


def _no_primary(folder: ConflistFolder, why: str) -> Misconfigured:
    if not folder.reached().is_dir():
        why = why or " (this host has no such folder)"
    return Misconfigured(
        f"{folder.path} has no CNI configuration but Railnet's{why}: install flannel, set 'primary', or set host.cniConf to the folder "
        "in which the container runtime looks"
    )


def _original(folder: ConflistFolder, copy: str) -> str:
    """Return the path of the file of which this one is a copy with a mesh's plugin; its own path if it is none.

    Istio may keep a copy of its own, of the primary's file or of Railnet's: it may become the other at any time.
    """
    own = _valid(folder, copy)
    others = [network for name in _in_order(folder) if name != copy and (network := _valid(folder, name)) is not None]
    originals = (
        other.file
        for other in others
        if own is not None and other.name == own.name and appended_to_copy(own.plugins, other.plugins)
    )
    return folder.file(next(originals, copy))


def _valid(folder: ConflistFolder, name: str) -> ConfiguredNetwork | None:
    """Read a file; None if it is none for a primary network."""
    try:
        primary = _parsed(folder.root, folder.file(name))
    except (CniError, OSError, ValueError):
        return None
    return (
        ConfiguredNetwork(name, primary.name, tuple(primary.plugins)) if name != NAME and name.isprintable() else None
    )


def copied_plugins(folder: ConflistFolder, primary: str) -> tuple[Plugin, ...]:
    """Return the plugins that a mesh's copy of Railnet's conflist, or of the primary's file at this path, has beyond the original's."""
    of_ours = [
        plugin
        for _, content in files_beside_railnet(folder)
        for plugin in after_railnet(content)
        if is_runnable(plugin)
    ]
    original = _valid(folder, Path(primary).name) if primary.startswith(folder.file("")) else None
    networks = [network for name in _in_order(folder) if original and (network := _valid(folder, name)) is not None]
    of_primary = [
        plugin
        for network in networks
        if original is not None and network.name == original.name
        for plugin in appended_to_copy(network.plugins, original.plugins)
    ]
    return (*of_ours, *of_primary)


def files_beside_railnet(folder: ConflistFolder) -> tuple[tuple[str, bytes], ...]:
    """Return name and content of the other files that call Railnet, in the runtime's order."""
    others = ((name, _beside_railnet(folder, name)) for name in _in_order(folder) if name != NAME)
    return tuple((name, content) for name, content in others if content is not None)


def _beside_railnet(folder: ConflistFolder, name: str) -> bytes | None:
    """Read a file that is a list which calls Railnet; None if it is none."""
    try:
        content = folder.read(name)
        after_railnet(content)
    except (CniError, OSError, ValueError):
        return None
    return content


def read(folder: ConflistFolder) -> bytes | None:
    """Read Railnet's configuration on the host; None if there is none, empty if what has its name is no file.

    Raises:
        OSError: it cannot be read, or is a folder.
    """
    try:
        return folder.read(NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return b""
        if error.errno == EISDIR:
            raise IsADirectoryError(EISDIR, "it is a folder; remove it", folder.ours) from None
        raise


def signature(folder: ConflistFolder) -> tuple[int, ...] | None:
    """Return what differs between two versions of Railnet's configuration on the host; None if it cannot be read."""
    try:
        status = (folder.reached() / NAME).lstat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def why_inactive(folder: ConflistFolder) -> str | None:
    """Return why the runtime does not use Railnet's configuration; None if it does. A runtime uses the first file.

    Raises:
        OSError: the folder cannot be read.
    """
    first = next(iter(_in_order(folder)), None)
    if first == NAME or (first is not None and _calls_railnet_as_now(folder, first)):
        return None
    choice = "there is none" if first is None else f"it takes {_shown(first)}"
    remedy = "; remove or rename what sorts before it" if first is not None and first < NAME else ""
    return f"the container runtime does not use {folder.ours} ({choice}): pods would start without their rails{remedy}"


def _calls_railnet_as_now(folder: ConflistFolder, name: str) -> bool:
    """Return whether a file is a copy of Railnet's conflist, in which another program keeps its own plugin, and is up to date."""
    try:
        return _own_plugin(folder.read(name)) == _own_plugin(read(folder) or b"")
    except (CniError, OSError, ValueError):
        return False


def _own_plugin(content: bytes) -> Plugin:
    """Return the first plugin, which is Railnet's, without what follows from the others.

    Raises:
        CniError: the first plugin is not Railnet's.
    """
    after_railnet(content)
    first = load_object(content, NAME)["plugins"][0]
    if not isinstance(first, dict) or first.get("type") != OURSELVES:
        raise CniError(CONFIGURATION, "Railnet's plugin is not the first")
    return {key: value for key, value in first.items() if key not in ("omit", "copies", "capabilities")}


def copies(folder: ConflistFolder) -> list[Path]:
    """Find Railnet's configuration and copies that other tools renamed, such as `….cilium_bak`."""
    return sorted(folder.reached().glob(f"{NAME}*"))


def named_primary(folder: ConflistFolder) -> str | None:
    """Return the primary that Railnet's configuration on the host names."""
    try:
        plugins = json.loads(read(folder) or b"")["plugins"]
        return str(next(plugin["primary"] for plugin in plugins if plugin["type"] == OURSELVES))
    except (ValueError, KeyError, StopIteration, TypeError, RecursionError):
        return None


def named_kubelet(content: bytes | None) -> str:
    """Return kubelet's root folder as a content of Railnet's configuration has it; kubelet's default if it has none."""
    try:
        return str(_own_plugin(content or b"").get("kubelet", DEFAULT_KUBELET))
    except CniError:
        return DEFAULT_KUBELET


def _in_order(folder: ConflistFolder) -> list[str]:
    """Return what libcni takes for configurations, in its order: every name with the right end that is no folder's.

    Source: containernetworking/cni, libcni/conf.go, ConfFiles; a link is no folder there, wherever it leads.
    """
    try:
        with os.scandir(folder.reached()) as entries:
            names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return sorted((name for name in names if name.endswith((".conf", ".conflist", ".json"))), key=os.fsencode)


def _require_primary(folder: ConflistFolder, name: str) -> None:
    """Make sure that a file can be the primary configuration. One file that cannot be read costs no other.

    Raises:
        CniError: it cannot. LeadsBack: since it calls Railnet. OSError: it cannot be read.
    """
    if not name.isprintable():
        raise CniError(
            CONFIGURATION,
            f"{folder.path} has a file with the name {name!a}, which no configuration can name: rename it",
        )
    require_no_circle(folder, folder.file(name))


def require_no_circle(folder: ConflistFolder, path: str) -> None:
    """Make sure that a primary is whole, and does not lead back to Railnet.

    Raises:
        CniError: it is broken. LeadsBack: it calls Railnet. OSError: it cannot be read.
    """
    primary = _parsed(folder.root, path)
    if any(plugin["type"] in multus_circle.TYPES for plugin in primary.plugins):
        networks = [
            ConfiguredNetwork(NAME, primary.name),
            *(_network(folder, name) for name in _in_order(folder) if name != NAME),
        ]
        in_order = tuple(sorted(networks, key=lambda network: network.file))
        multus_default_network.refuse(
            path, primary.plugins, multus_default_network.RuntimeFolder(folder.path, in_order, NAME)
        )


def _parsed(root: Path, path: str) -> Primary:
    return parse(read_below(root, path), path, read_folder=partial(read_folder, root))


def _network(folder: ConflistFolder, name: str) -> ConfiguredNetwork:
    """Return the network in a file; one without a name and plugins if the file has none."""
    try:
        conf = load_object(folder.read(name), name)
    except (CniError, OSError, ValueError):
        return ConfiguredNetwork(name, "")
    plugins = conf.get("plugins", [conf])
    objects = [plugin for plugin in plugins if isinstance(plugin, dict)] if isinstance(plugins, list) else []
    return ConfiguredNetwork(name, str(conf.get("name", "")), tuple(objects))


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)
