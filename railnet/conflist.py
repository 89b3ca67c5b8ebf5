"""Railnet's own CNI configuration: what stands in it, and whether a runtime would pick it. Pure but for two reads."""

import json
from pathlib import Path
from typing import Any

from cni.host.chain import OURSELVES, parse
from cni.host.errors import CniError
from cni.host.netconf import SUPPORTED_VERSIONS
from kernel.files import below
from railnet.configuration import Configuration
from vf.errors import Misconfigured

FOLDER = "/etc/cni/net.d"
NAME = "00-railnet.conflist"
_OUR_CAPABILITIES = {"io.kubernetes.cri.pod-annotations": True}


def compose(primary: bytes, path: str, configuration: Configuration) -> bytes:
    """Spell the conflist that puts Railnet before the primary configuration at `path`.

    The version is the primary's, at most 1.0.0: with 1.1.0 containerd 1.6 runs ADD and then fails every DEL.

    Raises:
        Misconfigured: the primary is broken, or is Railnet.
    """
    try:
        chain = parse(primary, path)
    except CniError as error:
        raise Misconfigured(str(error)) from None
    if chain.version not in SUPPORTED_VERSIONS or not chain.name:
        raise Misconfigured(
            f"{path} has name {chain.name!r} and cniVersion {chain.version!r}; "
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
        "cniVersion": chain.version,
        "name": chain.name,
        "disableCheck": True,
        "loadOnlyInlinedPlugins": True,
        "plugins": [plugin],
    }
    return json.dumps(conflist, indent=2).encode() + b"\n"


def find_primary(root: Path, configuration: Configuration) -> str:
    """Give the path of the primary configuration: the configured one, or the first valid file that is not ours.

    Raises:
        Misconfigured: there is none.
    """
    if configuration.primary is not None:
        return configuration.primary
    folder = below(root, FOLDER)
    for path in _in_order(folder):
        if path.name != NAME and _is_valid(path):
            return f"{FOLDER}/{path.name}"
    raise Misconfigured(f"{FOLDER} has no CNI configuration but Railnet's: install flannel first, or set 'primary'")


def why_inactive(root: Path) -> str | None:
    """Tell why a runtime would not use Railnet's configuration; None if it would, since it takes the first file."""
    first = next(iter(_in_order(below(root, FOLDER))), None)
    if first is not None and first.name == NAME:
        return None
    found = "there is none" if first is None else f"it takes {first.name}"
    return f"the container runtime does not use {FOLDER}/{NAME} ({found}): pods would start without their rails; run `railnet install`"


def _in_order(folder: Path) -> list[Path]:
    # libcni's ConfFiles: .conf, .conflist and .json in lexical order.
    return sorted(
        path for path in folder.glob("*") if path.suffix in (".conf", ".conflist", ".json") and path.is_file()
    )


def _is_valid(path: Path) -> bool:
    try:
        parse(path.read_bytes(), str(path))
    except (CniError, OSError):
        return False
    return True
