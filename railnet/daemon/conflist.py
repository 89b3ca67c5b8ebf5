"""Railnet's CNI configuration: its content, and whether the container runtime uses it. This module only reads."""

import json
import os
from errno import EFBIG, EINVAL, EISDIR, ELOOP, ENAMETOOLONG
from pathlib import Path
from typing import Any

from cni.host.chain import NEWEST_WITHOUT_LISTS, OURSELVES, parse
from cni.host.errors import CniError
from cni.host.json_object import load_object
from cni.host.netconf import SUPPORTED_VERSIONS
from cni.host.result_version_conversion import chosen
from railnet.configuration import Configuration
from railnet.errors import Misconfigured
from railnet.kernel.files import below, read_below

FOLDER = "/etc/cni/net.d"
NAME = "00-railnet.conflist"
_LISTED_VERSIONS = ["1.0.0", "1.1.0"]
# No content can be read from a file of another kind, nor through such a link; a rename replaces both. A folder has to be removed.
_NOT_A_FILE = (EFBIG, EINVAL, ELOOP, ENAMETOOLONG)
_OUR_CAPABILITIES = {"io.kubernetes.cri.pod-annotations": True}


def compose(primary: bytes, path: str, configuration: Configuration) -> bytes:
    """Return the conflist that calls Railnet in place of the primary configuration at `path`.

    The version is the primary's, at most 1.0.0: with 1.1.0 containerd 1.6 runs ADD and then fails every DEL. A libcni that
    reads `cniVersions` takes the newest it knows of those, which has STATUS and GC; to an older one they are nothing.

    Raises:
        Misconfigured: the primary is broken, or is Railnet.
    """
    try:
        chain = parse(primary, path)
        declared = str(load_object(primary, path).get("cniVersion", "0.1.0"))
    except CniError as error:
        raise Misconfigured(str(error)) from None
    version = chosen(declared, [], NEWEST_WITHOUT_LISTS)
    if version not in SUPPORTED_VERSIONS or not chain.name:
        raise Misconfigured(
            f"{path} has name {chain.name!r:.80} and cniVersion {version!r:.80}; "
            f"Railnet needs a name and one of {', '.join(SUPPORTED_VERSIONS)}"
        )
    capabilities = {
        key: True for plugin in chain.plugins for key, on in (plugin.get("capabilities") or {}).items() if on
    }
    plugin: dict[str, Any] = {
        "type": OURSELVES,
        "primary": path,
        "capabilities": {**capabilities, **_OUR_CAPABILITIES},
        "resources": sorted(configuration.resources),
        "devicePlugins": str(configuration.host.device_plugins),
        "seconds": {"daemon": configuration.timeouts.daemon, "delegate": configuration.timeouts.delegate},
    }
    conflist = {
        "cniVersion": version,
        "cniVersions": _LISTED_VERSIONS,
        "name": chain.name,
        # disableGC says that other runtimes use this network too: this runtime does not know their attachments and must not delete them.
        **({"disableGC": True} if chain.disable_gc else {}),
        "loadOnlyInlinedPlugins": True,
        "plugins": [plugin],
    }
    return json.dumps(conflist, indent=2).encode() + b"\n"


def find_primary(root: Path, configuration: Configuration) -> str:
    """Return the path of the primary configuration: the configured one, or the first valid file other than Railnet's.

    A file that Railnet's own configuration names already is not skipped while it is broken: a program may be writing it.

    Raises:
        Misconfigured: there is none, or the one in use is broken. OSError: the folder or Railnet's file cannot be read.
    """
    if configuration.primary is not None:
        return configuration.primary
    used = _named_primary(root)
    why = ""
    for name in _in_order(root):
        if name == NAME:
            continue
        path, broken = f"{FOLDER}/{name}", _why_broken(root, name)
        if broken is None:
            return path
        if path == used:
            raise Misconfigured(f"{broken}; Railnet's configuration stays as it is")
        why = why or f" ({broken})"
    raise Misconfigured(f"{FOLDER} has no CNI configuration but Railnet's{why}: install flannel, or set 'primary'")


def read(root: Path) -> bytes | None:
    """Read Railnet's configuration on the host; None if there is none, empty if what has its name is no file.

    Raises:
        OSError: it cannot be read, or is a folder.
    """
    try:
        return read_below(root, f"{FOLDER}/{NAME}")
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return b""
        if error.errno == EISDIR:
            raise IsADirectoryError(EISDIR, "it is a folder; remove it", f"{FOLDER}/{NAME}") from None
        raise


def why_inactive(root: Path) -> str | None:
    """Return why the runtime does not use Railnet's configuration; None if it does. A runtime uses the first file.

    Raises:
        OSError: the folder cannot be read.
    """
    first = next(iter(_in_order(root)), None)
    if first == NAME:
        return None
    choice = "there is none" if first is None else f"it takes {_shown(first)}"
    remedy = "; remove or rename what sorts before it" if first is not None and first < NAME else ""
    return (
        f"the container runtime does not use {FOLDER}/{NAME} ({choice}): pods would start without their rails{remedy}"
    )


def copies(root: Path) -> list[Path]:
    """Find Railnet's configuration and copies that other tools renamed, such as `….cilium_bak`."""
    return sorted(below(root, FOLDER).glob(f"{NAME}*"))


def _named_primary(root: Path) -> str | None:
    """Return the primary that Railnet's configuration on the host names."""
    try:
        return str(json.loads(read(root) or b"")["plugins"][0]["primary"])
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None


def _in_order(root: Path) -> list[str]:
    """Return what libcni takes for configurations, in its order: every name with the right end that is no folder's.

    Source: containernetworking/cni, libcni/conf.go, ConfFiles; a link is no folder there, wherever it leads.
    """
    try:
        with os.scandir(below(root, FOLDER)) as entries:
            names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    return sorted((name for name in names if name.endswith((".conf", ".conflist", ".json"))), key=os.fsencode)


def _why_broken(root: Path, name: str) -> str | None:
    """Return why a file cannot be the primary configuration; None if it can. One file that cannot be read costs no other."""
    if not name.isprintable():
        return f"{FOLDER} has a file with the name {name!a}, which no configuration can name: rename it"
    path = f"{FOLDER}/{name}"
    try:
        parse(read_below(root, path), path)
    except CniError as error:
        return str(error)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)
