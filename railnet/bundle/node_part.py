"""What of this node a bundle has: each part for itself, so that a dead daemon or a file that hangs costs only its part."""

import json
import os
import platform
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from railnet import VERSION, configuration, strict_yaml
from railnet.bundle import allowed
from railnet.bundle.parts import BundleParts
from railnet.configuration import Configuration
from railnet.doctor import checks, doctor_table, gathering
from railnet.errors import Misconfigured
from railnet.kernel.files import followed, read_below
from railnet.kubelet import checkpoint
from railnet.status.status_command import Unreachable, ask
from railnet.vf import rail_memory
from railnet.vf.record import decode

MOST_NODE_BYTES = (
    2 << 20
)  # `pods/exec` answers with 4 MiB, and JSON has two bytes for each quote and each end of a line
_MOST_CONFLISTS, _MOST_RECORDS = 32, 512
_CHECKPOINT = "kubelet_internal_checkpoint"
_SUFFIXES = (".conf", ".conflist", ".json")


class NodeFiles(NamedTuple):
    """Where the files are: the node's configuration, the daemon's socket, the folder with its journal."""

    configuration: Path
    socket: Path
    journal: Path = Path("/run/railnet/journal")


def gather(places: NodeFiles, doctor: Callable[[gathering.Places], Any] = gathering.gather) -> BundleParts:
    """Return the parts. Nothing is raised for what cannot be read: it is left out, with the reason."""
    parts = BundleParts(MOST_NODE_BYTES)
    try:
        loaded = configuration.load(places.configuration)
    except (Misconfigured, OSError) as error:
        parts.leave_out("the configured paths", f"{error}; the default paths were used")
        loaded = Configuration()
    root = loaded.host.root
    parts.attempt("versions.json", lambda: _versions(root))
    parts.attempt("doctor.json", lambda: _doctor(doctor, places))
    _add_status(parts, places.socket)
    parts.attempt("node.yaml.json", lambda: _node_yaml(places.configuration))
    parts.attempt("kubelet/devices.json", lambda: _devices(loaded.host.device_plugins))
    parts.attempt(
        "rails.json", lambda: json.loads(rail_memory.encode(rail_memory.parse(read_below(root, rail_memory.FILE))))
    )
    _add_each(parts, "conflists", lambda: _conflists(loaded), _MOST_CONFLISTS)
    _add_each(parts, "journal", lambda: _records(places.journal), _MOST_RECORDS)
    return parts


def _versions(root: Path) -> dict[str, Any]:
    uname = os.uname()
    try:
        release = read_below(root, "/etc/os-release").decode(errors="replace")
    except OSError as error:
        release = f"PRETTY_NAME=unknown: {error.strerror}"
    names = [line.partition("=")[2].strip('"') for line in release.splitlines() if line.startswith("PRETTY_NAME=")]
    return {
        "railnet": VERSION,
        "python": platform.python_version(),
        "kernel": f"{uname.sysname} {uname.release} {uname.machine}",
        "os": names[0] if names else None,
    }


def _doctor(doctor: Callable[[gathering.Places], Any], places: NodeFiles) -> dict[str, Any]:
    return doctor_table.as_json(checks.findings(doctor(gathering.Places(places.configuration, places.socket))))


def _add_status(parts: BundleParts, socket: Path) -> None:
    try:
        parts.add_json("status.json", ask(socket))
    except (Unreachable, OSError, ValueError) as error:
        parts.leave_out("status.json", error)


def _node_yaml(path: Path) -> Any:
    with path.open("rb") as file:
        return allowed.configuration(strict_yaml.read(configuration.text_of(file, str(path))))


def _devices(folder: Path) -> list[dict[str, Any]]:
    return allowed.devices(checkpoint.listed(read_below(folder, f"/{_CHECKPOINT}")))


Named = Sequence[tuple[str, Callable[[], Any]]]


def _conflists(loaded: Configuration) -> Named:
    root, folder = loaded.host.root, str(loaded.host.cni_conf)
    names = sorted(file.name for file in followed(root, folder).iterdir() if file.name.endswith(_SUFFIXES))
    return [(name, partial(_conflist, root, f"{folder}/{name}")) for name in names]


def _conflist(root: Path, path: str) -> Any:
    return allowed.configuration(json.loads(read_below(root, path)))


def _records(folder: Path) -> Named:
    return [(name, partial(_record, folder, name)) for name in sorted(file.name for file in folder.glob("[!.]*.json"))]


def _record(folder: Path, name: str) -> dict[str, Any]:
    return allowed.record(decode(read_below(folder, f"/{name}")))


def _add_each(parts: BundleParts, folder: str, named: Callable[[], Named], most: int) -> None:
    try:
        each = named()
    except FileNotFoundError as error:
        parts.add_json(f"{folder}.json", {"absent": error.filename})
        return
    except OSError as error:
        parts.leave_out(folder, error.strerror or error)
        return
    for name, read in each[:most]:
        parts.attempt(f"{folder}/{name}", read)
    if len(each) > most:
        parts.leave_out(folder, f"{len(each) - most} files beside the first {most}")
