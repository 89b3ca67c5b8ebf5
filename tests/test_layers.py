"""Imports point down only. The contracts stand in pyproject.toml; each is shown to hold, and to be able to fail."""

import graphlib
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PYPROJECT["tool"]["importlinter"]["root_packages"]
CONTRACTS_AS_WRITTEN = PYPROJECT["tool"]["importlinter"]["contracts"]
CONTRACTS = [contract["name"] for contract in CONTRACTS_AS_WRITTEN]

LAYERS = "Imports point down only, and siblings are strangers"
HOST = "What runs on the host is light"
PURE = "errors, vf, backoff, fabric and objects are pure"
NETLINK = "Only kernel, simnode and benches speak netlink"
GRPC = "Only kubelet, deviceplugin, dra and simnode speak gRPC"
TLS = "Only apiserver, the webhook, simnode and benches speak TLS"
OBJECTS = "Kubernetes' objects know nothing of Railnet but its errors"
TRAINING = "Only admission, the controllers and commands of users ask what a training job is"
REVIEW = "What a review decides is pure"
WEBHOOK = "Only the webhook serves and signs"
KUBERNETES = "Only the transports and the Lease need the kubernetes package"
TRANSPORT = "Only a program chooses the transport of the kubernetes package"
# Imports that no package may have, and the contract that refuses each. All are planted at once: one run of the linter proves all.
PLANTED = [
    ("railnet.errors", "railnet.vf", LAYERS),
    ("railnet.vf", "railnet.kernel", LAYERS),
    ("railnet.vf", "railnet.fabric", LAYERS),
    ("railnet.vf", "railnet.backoff", LAYERS),
    ("railnet.backoff", "railnet.fabric", LAYERS),
    ("railnet.objects", "railnet.fabric", LAYERS),
    ("railnet.objects", "railnet.apiserver", LAYERS),
    ("railnet.objects", "railnet.vf.record", OBJECTS),
    ("railnet.kernel", "railnet.kubelet", LAYERS),
    ("railnet.kubelet", "deviceplugin", LAYERS),
    ("railnet.nri", "railnet.kubelet", LAYERS),
    ("railnet.nri", "cni", LAYERS),
    ("deviceplugin", "railnet.dra", LAYERS),
    ("cni", "railnet.dra", LAYERS),
    ("railnet.apiserver", "railnet.kernel", LAYERS),
    ("railnet.apiserver", "cni", LAYERS),
    ("cni", "deviceplugin", LAYERS),
    ("deviceplugin", "simnode", LAYERS),
    ("simnode", "benches", LAYERS),
    ("railnet.daemon", "simnode", LAYERS),
    ("cni", "railnet.daemon", LAYERS),
    ("railnet.jobs", "railnet.admission", LAYERS),
    ("railnet.jobs", "railnet.gangs", LAYERS),
    ("railnet.gangs", "railnet.controllers", LAYERS),
    ("railnet.jobs", "cni", LAYERS),
    ("railnet.admission", "cni", LAYERS),
    ("railnet.kubelet", "railnet.jobs", LAYERS),
    ("railnet.controllers", "railnet.admission", LAYERS),
    ("railnet.controllers", "railnet.configuration", LAYERS),
    ("railnet.cli", "railnet.train", LAYERS),
    ("cni", "railnet.jobs", TRAINING),
    ("cni", "railnet.gangs", TRAINING),
    ("railnet", "railnet.jobs.operators", TRAINING),
    ("railnet.jobs", "time", REVIEW),
    ("railnet.jobs", "railnet.apiserver", REVIEW),
    ("railnet.gangs.placement", "railnet.apiserver", REVIEW),
    ("railnet.admission.decision", "os", REVIEW),
    ("railnet.controllers.net1_names.wanted_net1_records", "time", "What the controllers decide is pure"),
    ("railnet.gangs", "time", "What the controllers decide is pure"),
    ("railnet.gangs.planning", "railnet.apiserver.client", "What the controllers decide is pure"),
    ("railnet.errors", "os", PURE),
    ("railnet.vf", "os", PURE),
    ("railnet.vf", "time", PURE),
    ("railnet.fabric", "os", PURE),
    ("railnet.objects", "time", PURE),
    ("railnet.backoff", "random", PURE),
    ("railnet.backoff", "time", PURE),
    ("cni.recovery.rules", "time", "What recovery decides is pure"),
    ("cni", "pyroute2", NETLINK),
    ("railnet", "pyroute2.netlink", NETLINK),
    ("cni", "grpc.aio", GRPC),
    ("railnet.kernel", "grpc", GRPC),
    ("cni", "ssl", TLS),
    ("railnet.admission", "ssl", TLS),
    ("railnet", "aiohttp.web", WEBHOOK),
    ("railnet.apiserver", "kubernetes.client", KUBERNETES),
    ("railnet.admission", "kubernetes.client", KUBERNETES),
    ("railnet.controllers", "kubernetes.client", KUBERNETES),
    ("railnet.admission", "railnet.apiserver.kubernetes_package_transport", TRANSPORT),
    ("railnet.controllers", "railnet.apiserver.kubernetes_package_transport", TRANSPORT),
    ("railnet.controllers", "railnet.apiserver.kubeconfig_transport", TRANSPORT),
    ("railnet.admission.certificates.renewal", "ssl", "What is decided about certificates is pure"),
    ("railnet.daemon.composition", "railnet.admission", "The node runs nothing of the webhook"),
    ("railnet.install", "railnet.cluster_uninstall", "The node runs nothing of the webhook"),
    ("railnet.daemon.composition", "railnet.webhook", "The node runs nothing of the webhook"),
    ("cni.host", "dataclasses", HOST),
    ("cni.host", "railnet.errors", HOST),
    ("cni.host", "railnet.vf", HOST),
    ("cni.host", "railnet.fabric", HOST),
    ("cni.host", "railnet.objects", HOST),
    ("cni.host", "railnet.kubelet.api", HOST),
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


def as_reported(module: str) -> str:
    """Return a module as the linter names it: of another distribution, its top-level package."""
    return module if module.startswith("railnet.") else module.partition(".")[0]


def report_on(contract: str, broken: str) -> str:
    """Cut out what import-linter reports on one contract: a title, a line below it, and the chains up to the next title."""
    return re.split(r"\n.+\n-+\n", broken.partition(f"\n{contract}\n")[2].partition("\n\n")[2])[0]


def test_imports_point_down_only():
    checked = lint_imports(ROOT)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_package_and_every_room_is_in_the_layers():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    rooms = {f"railnet.{path.stem}" for path in (ROOT / "railnet").glob("*.py")} - {"railnet.__init__"}
    rooms |= {f"railnet.{path.parent.name}" for path in (ROOT / "railnet").glob("*/__init__.py")}
    (layers,) = (contract["layers"] for contract in CONTRACTS_AS_WRITTEN if contract["name"] == LAYERS)

    assert packages == set(PACKAGES)
    assert {name for layer in layers for name in re.split(r"[\s:|]+", layer)} == packages - {"railnet"} | rooms


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
        if f"{module} -> {as_reported(imported)}" not in report_on(contract, broken)
    ]
    assert missed == [], broken


def test_host_contract_names_every_room_but_kubelets_checkpoint():
    (host,) = (contract["forbidden_modules"] for contract in CONTRACTS_AS_WRITTEN if contract["name"] == HOST)
    rooms = {f"railnet.{path.parent.name}" for path in (ROOT / "railnet").glob("*/__init__.py")} - {"railnet.kubelet"}

    assert rooms - set(host) == set()


def test_no_module_imports_itself_by_way_of_others():
    """A room and its parent may import from each other; their modules, also those imported within a function, have an order."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    in_order = list(graphlib.TopologicalSorter(imported).static_order())

    assert set(in_order) == graph.modules


def test_product_does_not_know_its_simulator() -> None:
    """The simulated node must be taken for a node by the rules that hold for every node."""
    lines = [
        f"{file.relative_to(ROOT)}:{number}: {line}"
        for package in (*(set(PACKAGES) - {"simnode", "benches"}), "proto")
        for file in (ROOT / package).rglob("*")
        if file.suffix in (".py", ".pyi", ".proto", ".c")
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if re.search("simulat|simnode", line, re.IGNORECASE)
    ]

    assert lines == []
