"""The bundle that runs on the host: an interpreter with its loader, libraries and standard modules, and Railnet's modules.

A node may have no Python, an older one, or another libc. So the installer copies the Python that runs the installer itself,
into a folder for each version below the CNI plugins' folder, the one place on a host that is surely executable (`executable_location`).
"""

import hashlib
import os
import py_compile
import re
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from importlib.resources import files
from pathlib import Path

from railnet import VERSION
from railnet.install import elf_relocation
from railnet.kernel.files import sync_tree

_OF_KUBELET = ("railnet.kubelet.checkpoint", "railnet.kubelet.dra_driver_name", "railnet.kubelet.dra_manager_state")
STANDARD_MODULES = ("_json", "json")  # what Railnet's modules may import beyond the interpreter's built-in modules
# No site module, no settings from the environment, and UTF-8 in every locale: the bundle has no other codecs.
FLAGS = "-ISEXutf8"

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_INTERPRETER = f"bin/{_PYTHON}"
_LIBRARIES = "lib"
_MODULES = f"lib/{_PYTHON}"
_EXTENSIONS = f"{_MODULES}/lib-dynload"
_LISTS = (b"/etc/ld.so.preload", b"/etc/ld.so.cache")
# Runs in the interpreter that is to be copied, with the executable's flags, except that it writes no bytecode.
_IMPORT_AND_TELL = """
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, {root!r})
import {wanted}
for name, module in sys.modules.items():
    if getattr(module.__spec__, "has_location", False):
        print(name, module.__spec__.origin, sep="\\t")
"""


def install(folder: Path, on_host: str) -> str:
    """Install into `folder`, as a version of its own, named by content, and return the version; processes of an older version go on.

    `on_host` is the path of the folder on the host, where the bundle will run.

    A version's folder appears whole and on disk, or not at all.

    Raises:
        NotRelocatable: the running interpreter cannot be copied.
        OSError: the folder cannot be written.
    """
    python = Path(sys.executable).resolve()
    modules = _modules(python)
    version = f"{VERSION}-{_digest({**_programs(python, home=''), **modules})[:8]}"
    folder.mkdir(mode=0o755, exist_ok=True)
    if not (folder / version).is_dir():
        building = folder / f".{version}.{os.getpid()}"
        shutil.rmtree(building, ignore_errors=True)
        home = f"{on_host}/{version}"
        for path, content in {**_programs(python, home), **modules}.items():
            _write(building / path, content, f"{home}/{path}")
        sync_tree(building)
        building.rename(folder / version)
    return version


def interpreter(on_host: str, version: str) -> str:
    """Return the host's path of a version's interpreter, which finds its modules and libraries by itself."""
    return f"{on_host}/{version}/{_INTERPRETER}"


def _programs(python: Path, home: str) -> dict[str, bytes]:
    """Return the interpreter, its loader and its libraries by their paths in the bundle, which will be at `home`."""
    program = python.read_bytes()
    loader = Path(elf_relocation.interpreter(program))
    listing = subprocess.run([loader, "--list", python], capture_output=True, text=True, check=True).stdout
    libraries = map(Path, re.findall(r"=> (/\S+)", listing))
    return {
        _INTERPRETER: elf_relocation.relocate(program, f"{home}/{_LIBRARIES}/{loader.name}", f"{home}/{_LIBRARIES}"),
        f"{_LIBRARIES}/{loader.name}": _without_the_hosts_lists(loader.read_bytes()),
        **{f"{_LIBRARIES}/{path.name}": path.read_bytes() for path in libraries},
    }


def _without_the_hosts_lists(loader: bytes) -> bytes:
    """Point the loader's two lists of libraries to a place without files: the host's lists are for the host's libc."""
    for path in _LISTS:
        loader = loader.replace(path + b"\0", b"/dev/null/".ljust(len(path), b"-") + b"\0")
    return loader


def _modules(python: Path) -> dict[str, bytes]:
    """Return the files that the interpreter loads when all of Railnet's modules are imported, and `os`, which marks its home."""
    names = (entry.name for entry in files("cni.host").iterdir() if entry.name.endswith(".py"))
    ours = [f"cni.host.{name.removesuffix('.py')}" for name in names]
    root = str(Path(__file__).parents[2])
    program = _IMPORT_AND_TELL.format(root=root, wanted=", ".join([*ours, *_OF_KUBELET, *STANDARD_MODULES]))
    # With this interpreter's own bytecode: the image has only that without docstrings, and FLAGS leave PYTHONOPTIMIZE out.
    optimize = ["-OO"] if sys.flags.optimize > 1 else []
    done = subprocess.run([python, *optimize, FLAGS, "-c", program], capture_output=True, text=True, check=True)
    landmark = PathFinder.find_spec("os")
    origins = [line.split("\t") for line in done.stdout.splitlines()] + [["os", str(landmark and landmark.origin)]]
    return {_place(name, Path(origin)): Path(origin).read_bytes() for name, origin in origins}


def _place(module: str, origin: Path) -> str:
    if origin.suffix != ".py":
        return f"{_EXTENSIONS}/{origin.name}"
    path = f"{_MODULES}/{module.replace('.', '/')}"
    return f"{path}/__init__.py" if origin.stem == "__init__" else f"{path}.py"


def _digest(contents: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(contents.items()):
        digest.update(f"{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _write(path: Path, content: bytes, final: str) -> None:
    """Write a program, or a compiled module without its source: a start then looks for one file and loads no docstrings."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o644 if path.suffix == ".py" else 0o755)
    if path.suffix == ".py":
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # a modification time would differ with each build
        py_compile.compile(str(path), f"{path}c", final, doraise=True, optimize=2, invalidation_mode=mode)
        path.unlink()
