"""CNI configurations as libcni handles them: choose the file, parse it, and compose a plugin's stdin.

Pure, except that it reads the folder; `runtime` executes plugins. Source: containernetworking/cni, libcni/{api,conf}.go.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SUFFIXES = (".conf", ".conflist", ".json")  # go-cni loads these


class NoNetwork(RuntimeError):
    """The folder has no valid configuration; a real node would be NotReady."""


@dataclass(frozen=True, slots=True)
class NetworkList:
    """A configuration list: the name and the version that each plugin gets, and the part of each plugin.

    `raw` has the bytes of the list. `newest` is the highest of its `cniVersions`, which a runtime of CNI 1.1 uses.
    """

    raw: bytes
    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]
    disable_check: bool = False
    newest: str = ""

    @property
    def caches_results(self) -> bool:
        """Whether the version has CHECK, and DEL gets the result of ADD as prevResult; both begin with 0.4.0."""
        return _parts(self.version) >= (0, 4, 0)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def find(folder: Path) -> NetworkList:
    """Return the lexically first valid configuration of a folder.

    Raises:
        NoNetwork: the folder has no valid configuration.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix in _SUFFIXES and (network := parse(path)) is not None:
            return network
    raise NoNetwork(f"no network config found in {folder}: cni plugin not initialized")


def parse(path: Path) -> NetworkList | None:
    """Read a file with a configuration or a configuration list; return None if the runtime would skip the file."""
    raw = path.read_bytes()
    if path.suffix == ".conflist":
        return parse_list(raw)
    try:
        plugin = json.loads(raw)
        # libcni's ConfListFromConf makes a list of one plugin
        head = {key: plugin[key] for key in ("cniVersion", "name") if key in plugin}
    except (ValueError, TypeError):
        return None
    return parse_list(json.dumps({**head, "plugins": [plugin]}).encode())


def parse_list(raw: bytes) -> NetworkList | None:
    """Parse a configuration list; return None if the runtime would skip it."""
    try:
        document = json.loads(raw)
        plugins = document["plugins"]
        if not plugins or any("type" not in plugin for plugin in plugins):
            return None
        version, disable_check = document.get("cniVersion", "0.1.0"), document.get("disableCheck", False)
        newest = max(document.get("cniVersions", [version]), key=_parts)
        return NetworkList(raw, document["name"], version, tuple(plugins), disable_check, newest)
    except (ValueError, KeyError, TypeError):
        return None


def stdin(
    network: NetworkList, plugin: Mapping[str, Any], capability_args: Mapping[str, Any], prev_result: bytes | None
) -> bytes:
    """Compose the stdin of one plugin: its part, name, version, prevResult, and runtimeConfig for its declared capabilities."""
    document = dict(plugin) | {"name": network.name, "cniVersion": network.version}
    if prev_result is not None:
        document["prevResult"] = json.loads(prev_result)
    declared = plugin.get("capabilities", {})
    wanted = {key: value for key, value in capability_args.items() if declared.get(key)}
    if wanted:
        document["runtimeConfig"] = wanted
    return _as_go_writes(json.dumps(document, sort_keys=True, separators=(",", ":")))


def _as_go_writes(text: str) -> bytes:
    """Escape what Go's encoding/json escapes for HTML (HTMLEscape): such a byte takes six."""
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode()
