"""Imports point down only. The contracts stand in pyproject.toml; each is shown to hold, and to be able to fail."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PYPROJECT["tool"]["importlinter"]["root_packages"]
CONTRACTS = [contract["name"] for contract in PYPROJECT["tool"]["importlinter"]["contracts"]]

LAYERS = "Imports point down only, and siblings are strangers"
HOST = "What runs on the host is light"
NETLINK = "Only kernel and simnode speak netlink"
GRPC = "Only kubelet, deviceplugin and simnode speak gRPC"
TLS = "Only apiserver, the webhook and simnode speak TLS"
TRAINING = "Only admission, the controllers and commands of users ask what a training job is"
REVIEW = "What a review decides is pure"
WEBHOOK = "Only the webhook serves and signs"
KUBERNETES = "Only the transports and the Lease need the kubernetes package"
TRANSPORT = "Only a program chooses the transport of the kubernetes package"
# Imports that no package may have, and the contract that refuses each. All are planted at once: one run of the linter proves all.
PLANTED = [
    ("vf", "kernel", LAYERS),
    ("kernel", "kubelet", LAYERS),
    ("kubelet", "deviceplugin", LAYERS),
    ("apiserver", "kernel", LAYERS),
    ("apiserver", "cni", LAYERS),
    ("cni", "deviceplugin", LAYERS),
    ("deviceplugin", "simnode", LAYERS),
    ("railnet", "simnode", LAYERS),
    ("cni", "railnet", LAYERS),
    ("training", "admission", LAYERS),
    ("training", "cni", LAYERS),
    ("admission", "cni", LAYERS),
    ("kubelet", "training", LAYERS),
    ("controllers", "admission", LAYERS),
    ("controllers", "railnet", LAYERS),
    ("cni", "training", TRAINING),
    ("railnet", "training.operators", TRAINING),
    ("training", "time", REVIEW),
    ("training", "apiserver", REVIEW),
    ("admission.decision", "os", REVIEW),
    ("controllers.net1_names.net1_records", "time", "What the controllers decide is pure"),
    ("controllers.gangs.planning", "apiserver.client", "What the controllers decide is pure"),
    ("vf", "os", "vf is pure"),
    ("vf", "time", "vf is pure"),
    ("cni.recovery.rules", "time", "What recovery decides is pure"),
    ("cni", "pyroute2", NETLINK),
    ("railnet", "pyroute2.netlink", NETLINK),
    ("cni", "grpc.aio", GRPC),
    ("kernel", "grpc", GRPC),
    ("cni", "ssl", TLS),
    ("admission", "ssl", TLS),
    ("railnet", "aiohttp.web", WEBHOOK),
    ("apiserver", "kubernetes.client", KUBERNETES),
    ("admission", "kubernetes.client", KUBERNETES),
    ("controllers", "kubernetes.client", KUBERNETES),
    ("admission", "apiserver.kubernetes_transport", TRANSPORT),
    ("controllers", "apiserver.kubernetes_transport", TRANSPORT),
    ("controllers", "apiserver.kubeconfig", TRANSPORT),
    ("admission.certificates.renewal", "ssl", "What is decided about certificates is pure"),
    ("railnet.daemon.composition", "admission", "The node runs nothing of the webhook"),
    ("cni.host", "dataclasses", HOST),
    ("cni.host", "vf", HOST),
    ("cni.host", "kubelet.api", HOST),
]


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


def planted_in(checkout: Path) -> list[tuple[str, str, str]]:
    """Write each of `PLANTED` into a copy of the packages: the importing module, what it imports, the contract."""
    written = []
    for number, (importer, imported, contract) in enumerate(PLANTED):
        path = checkout / importer.replace(".", "/")
        package = path.is_dir()
        with (path / f"planted{number}.py" if package else path.with_suffix(".py")).open("a") as file:
            file.write(f"\nimport {imported}\n")
        written.append((f"{importer}.planted{number}" if package else importer, imported, contract))
    return written


def report_on(contract: str, broken: str) -> str:
    """Cut out what import-linter reports on one contract: a title, a line below it, and the chains up to the next title."""
    return re.split(r"\n.+\n-+\n", broken.partition(f"\n{contract}\n")[2].partition("\n\n")[2])[0]


def test_imports_point_down_only():
    checked = lint_imports(ROOT)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_package_is_under_contract():
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}

    assert found == set(PACKAGES)


def test_every_contract_is_broken_by_an_import_that_is_planted_below():
    assert {contract for _, _, contract in PLANTED} == set(CONTRACTS)


def test_every_planted_import_is_caught_by_its_contract(tmp_path: Path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    planted = planted_in(tmp_path)

    checked = lint_imports(tmp_path)

    assert checked.returncode == 1, checked.stdout + checked.stderr
    broken = checked.stdout.partition("Broken contracts")[2]
    missed = [
        (module, imported, contract)
        for module, imported, contract in planted
        if f"{module} -> {imported.partition('.')[0]}" not in report_on(contract, broken)
    ]
    assert missed == [], broken
