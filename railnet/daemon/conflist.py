"""Railnet's CNI configuration: its content, and whether the container runtime uses it. This module only reads."""

import json
from pathlib import Path
from typing import Any

from cni.host.chain import NEWEST_WITHOUT_LISTS, OURSELVES, parse
from cni.host.errors import CniError
from cni.host.json_text import load_object
from cni.host.netconf import SUPPORTED_VERSIONS
from cni.host.versions import chosen
from kernel.files import below
from railnet.configuration import Configuration
from vf.errors import Misconfigured

FOLDER = "/etc/cni/net.d"
NAME = "00-railnet.conflist"
_LISTED_VERSIONS = ["1.0.0", "1.1.0"]
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
        "kubelet": str(configuration.host.kubelet),
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
        Misconfigured: there is none, or the one in use is broken.
    """
    if configuration.primary is not None:
        return configuration.primary
    used = _named_primary(root)
    for path in _in_order(below(root, FOLDER)):
        found = f"{FOLDER}/{path.name}"
        broken = None if path.name == NAME else _why_broken(path)
        if broken is not None and found == used:
            raise Misconfigured(f"{broken}; Railnet's configuration stays as it is")
        if path.name != NAME and broken is None:
            return found
    raise Misconfigured(f"{FOLDER} has no CNI configuration but Railnet's: install flannel, or set 'primary'")


def read(root: Path) -> bytes | None:
    """Read Railnet's configuration on the host; None if there is none."""
    try:
        return below(root, f"{FOLDER}/{NAME}").read_bytes()
    except FileNotFoundError:
        return None


def why_inactive(root: Path) -> str | None:
    """Return why the runtime does not use Railnet's configuration; None if it does. A runtime uses the first file."""
    first = next(iter(_in_order(below(root, FOLDER))), None)
    if first is not None and first.name == NAME:
        return None
    found = "there is none" if first is None else f"it takes {first.name}"
    remedy = "; remove or rename what sorts before it" if first is not None and first.name < NAME else ""
    return f"the container runtime does not use {FOLDER}/{NAME} ({found}): pods would start without their rails{remedy}"


def copies(root: Path) -> list[Path]:
    """Find Railnet's configuration and copies that other tools renamed, such as `….cilium_bak`."""
    return sorted(below(root, FOLDER).glob(f"{NAME}*"))


def _named_primary(root: Path) -> str | None:
    """Return the primary that Railnet's configuration on the host names."""
    try:
        return str(json.loads(read(root) or b"")["plugins"][0]["primary"])
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None


def _in_order(folder: Path) -> list[Path]:
    # libcni's ConfFiles: .conf, .conflist and .json in lexical order.
    return sorted(
        path for path in folder.glob("*") if path.suffix in (".conf", ".conflist", ".json") and path.is_file()
    )


def _why_broken(path: Path) -> str | None:
    try:
        parse(path.read_bytes(), f"{FOLDER}/{path.name}")
    except (CniError, OSError) as error:
        return str(error)
    return None
