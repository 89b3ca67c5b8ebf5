"""Put the plugin executable, its modules and Railnet's CNI configuration on the host. Each file appears whole."""

import hashlib
import os
import py_compile
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from kernel.files import below, read_below, write_atomically
from railnet import VERSION, conflist
from railnet.configuration import Configuration

_BIN = "/opt/cni/bin"
_BUNDLE = f"{_BIN}/.railnet"
_INTERPRETER = "/usr/bin/python3"  # a version manager's shim would cost 60 ms for every pod

_EXECUTABLE = """#!{interpreter} -ISE
import sys

sys.path.insert(0, "{bundle}")
from cni.host.plugin import main

main()
"""


def install(configuration: Configuration) -> list[str]:
    """Install on the host seen at `host.root`; gives a line for each thing done.

    Raises:
        Misconfigured: there is no primary configuration, or it is broken; nothing has been written then.
        OSError: a folder is missing or cannot be written.
    """
    root = configuration.host.root
    primary = conflist.find_primary(root, configuration)
    content = conflist.compose(read_below(root, primary), primary, configuration)
    version = _install_bundle(below(root, _BUNDLE))
    executable = _EXECUTABLE.format(interpreter=_INTERPRETER, bundle=f"{_BUNDLE}/{version}")
    write_atomically(below(root, f"{_BIN}/railnet"), executable.encode(), 0o755)
    write_atomically(below(root, f"{conflist.FOLDER}/{conflist.NAME}"), content, 0o600)
    return [f"{_BIN}/railnet: version {version}", f"{conflist.FOLDER}/{conflist.NAME}: Railnet before {primary}"]


def _install_bundle(folder: Path) -> str:
    """Install the host's modules as a version of their own, named by content: who runs an older one goes on."""
    modules = dict(_modules())
    digest = hashlib.sha256(b"".join(path.encode() + content for path, content in sorted(modules.items()))).hexdigest()
    version = f"{VERSION}-{digest[:8]}"
    folder.mkdir(mode=0o755, exist_ok=True)
    if not (folder / version).is_dir():
        building = folder / f".{version}.{os.getpid()}"
        shutil.rmtree(building, ignore_errors=True)
        for path, content in modules.items():
            _install_module(building / path, content, f"{_BUNDLE}/{version}/{path}")
        building.rename(folder / version)
    return version


def _modules() -> Iterator[tuple[str, bytes]]:
    """Give what runs on the host: the packages' docstrings, all of cni.host, and kubelet's checkpoint."""
    for package, wanted in (("cni", "__init__"), ("cni.host", "*"), ("kubelet", "__init__"), ("kubelet", "checkpoint")):
        for entry in files(package).iterdir():
            stem, _, suffix = entry.name.partition(".")
            if suffix == "py" and wanted in (stem, "*"):
                yield f"{package.replace('.', '/')}/{entry.name}", entry.read_bytes()


def _install_module(path: Path, content: bytes, final: str) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_bytes(content)
    # Never compared with the source at start; another Python than ours compiles the source itself.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), dfile=final, doraise=True, invalidation_mode=mode)
