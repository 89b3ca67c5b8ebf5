"""Imports point down only. The contracts stand in pyproject.toml; each is shown to hold, and to be able to fail."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the packages and their contracts to where a violation may be planted."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_imports_point_down_only():
    checked = lint_imports(ROOT)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_package_is_under_contract():
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}

    assert found == set(PACKAGES)


@pytest.mark.parametrize(
    ("package", "imported", "contract"),
    [
        ("vf", "kernel", "Imports point down only"),
        ("kernel", "kubelet", "Imports point down only"),
        ("kubelet", "deviceplugin", "Imports point down only"),
        ("apiserver", "kernel", "Imports point down only"),
        ("apiserver", "cni", "Imports point down only"),
        ("cni", "deviceplugin", "Imports point down only"),
        ("deviceplugin", "simnode", "Imports point down only"),
        ("railnet", "simnode", "Imports point down only"),
        ("cni", "railnet", "Imports point down only"),
        ("training", "admission", "Imports point down only"),
        ("training", "cni", "Imports point down only"),
        ("admission", "cni", "Imports point down only"),
        ("kubelet", "training", "Imports point down only"),
        ("cni", "training", "Only admission asks what a training job is"),
        ("railnet", "training.operators", "Only admission asks what a training job is"),
        ("training", "time", "What a review decides is pure"),
        ("training", "apiserver", "What a review decides is pure"),
        ("vf", "os", "vf is pure"),
        ("vf", "time", "vf is pure"),
        ("cni", "pyroute2", "Only kernel and simnode speak netlink"),
        ("railnet", "pyroute2.netlink", "Only kernel and simnode speak netlink"),
        ("cni", "grpc.aio", "Only kubelet, deviceplugin and simnode speak gRPC"),
        ("cni", "ssl", "Only apiserver, the webhook and simnode speak TLS"),
        ("admission", "ssl", "Only apiserver, the webhook and simnode speak TLS"),
        ("railnet", "aiohttp.web", "Only the webhook serves and signs"),
        ("apiserver", "kubernetes.client", "One module needs the kubernetes package"),
        ("admission", "kubernetes.client", "One module needs the kubernetes package"),
        (
            "admission",
            "apiserver.kubernetes_transport",
            "Only a program chooses the transport of the kubernetes package",
        ),
        ("kernel", "grpc", "Only kubelet, deviceplugin and simnode speak gRPC"),
        ("cni/host", "dataclasses", "What runs on the host is light"),
        ("cni/host", "vf", "What runs on the host is light"),
        ("cni/host", "kubelet.api", "What runs on the host is light"),
    ],
)
def test_planted_import_is_caught(checkout: Path, package: str, imported: str, contract: str):
    (checkout / package / "planted.py").write_text(f'"""Planted."""\n\nimport {imported}\n')

    checked = lint_imports(checkout)

    broken = checked.stdout.partition("Broken contracts")[2]
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert contract in broken
    assert f"{package.replace('/', '.')}.planted" in broken
