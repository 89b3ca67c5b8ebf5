"""The folder on the host: what is in it, and that its name says so. `tests/node/test_host_python.py` runs it where nothing else is."""

import ast
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from railnet.install import python_bundle
from railnet.install.executable_location import ExecutableLocation

ROOT = Path(__file__).resolve().parents[3]
MEBIBYTE = 1 << 20
ON_HOST = ExecutableLocation(Path("/")).bundles


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / ".railnet"
    return folder / python_bundle.install(folder, ON_HOST)


def run(version: Path, code: str) -> str:
    """Run code by the bundle's interpreter, which stands elsewhere than it was made for: its loader is told where."""
    (loader,) = (version / "lib").glob("ld-*")
    interpreter = version / Path(python_bundle.interpreter(ON_HOST, version.name)).relative_to(
        f"{ON_HOST}/{version.name}"
    )
    command = [loader, "--library-path", version / "lib", interpreter, python_bundle.FLAGS, "-c", code]
    return subprocess.run(command, env={}, capture_output=True, text=True, check=True).stdout


def test_every_host_module_is_imported_from_the_bundle_alone(version: Path) -> None:
    names = [f"cni.host.{path.stem}" for path in (ROOT / "cni/host").glob("*.py") if path.stem != "__init__"]
    code = f"import sys, json, railnet.kubelet.checkpoint, {', '.join(names)}\n"

    printed = run(version, code + "print(*(m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)))")

    assert [path for path in printed.split() if not path.startswith(f"{version}/")] == []
    # A checkpoint of a full node is read ten times faster by it. Debian 13's interpreter has it built in.
    assert "_json" in sys.builtin_module_names or "_json.cpython" in printed


def test_bundle_has_no_file_that_is_never_loaded(version: Path) -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "cni/host").glob("*.py")]
    loaded = run(
        version, f"import sys, json, {', '.join([*python_bundle._OF_KUBELET, *names])}\nprint(*sys.modules)"
    ).split()

    modules = {path.relative_to(version / f"lib/{python_bundle._PYTHON}") for path in version.rglob("*.pyc")}
    spelled = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in modules}
    assert spelled - set(loaded) == {"os"} - set(loaded)


def test_bundle_is_small(version: Path) -> None:
    assert sum(path.stat().st_size for path in version.rglob("*")) < 14 * MEBIBYTE


def test_bundle_is_written_by_root_alone_and_read_by_all(version: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (version, *version.rglob("*"))}

    assert modes <= {0o755, 0o644}


def test_version_is_the_same_for_the_same_content(version: Path, tmp_path: Path) -> None:
    assert python_bundle.install(tmp_path, ON_HOST) == version.name


def test_version_changes_with_any_module(version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_bundle, "STANDARD_MODULES", (*python_bundle.STANDARD_MODULES, "bisect"))

    assert python_bundle.install(tmp_path, ON_HOST) != version.name


def test_version_changes_with_the_way_a_program_is_made(
    version: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_bundle, "_LISTS", ())

    assert python_bundle.install(tmp_path, ON_HOST) != version.name


def test_interrupted_installation_is_started_again(version: Path, tmp_path: Path) -> None:
    unfinished = tmp_path / f".{version.name}.{os.getpid()}"
    unfinished.mkdir()
    (unfinished / "rest").touch()

    python_bundle.install(tmp_path, ON_HOST)

    assert [path.name for path in tmp_path.iterdir()] == [version.name]
    assert not (tmp_path / version.name / "rest").exists()


def test_kernel_accepts_the_interpreter_line(version: Path) -> None:
    bundles = ExecutableLocation(Path("/"), f"/{'a' * 159}").bundles  # the longest folder that host.cniBin may be

    assert len(f"#!{python_bundle.interpreter(bundles, version.name)} {python_bundle.FLAGS}\n") < 256  # BINPRM_BUF_SIZE


def test_running_interpreter_is_the_one_that_is_copied(version: Path) -> None:
    assert ast.literal_eval(run(version, "import sys; print(sys.version_info[:3])")) == sys.version_info[:3]
