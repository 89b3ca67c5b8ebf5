"""What is shipped: a wheel with all that the programs import and nothing that only tests use, under one version."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import grimp
import pytest
import yaml

from railnet import VERSION

ROOT = Path(__file__).resolve().parent.parent
TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
PACKAGES = TOOL["importlinter"]["root_packages"]
SHIPPED = TOOL["hatch"]["build"]["targets"]["wheel"]["packages"]
# Where a program begins: the command line, the plugin executable, and a file that the daemon runs in the host's root.
PROGRAMS = ("railnet.__main__", "cni.host.plugin", "railnet.kernel.processes.host_entry")
GENERATED = (
    "railnet.kubelet.api",
    "railnet.nri.api",
)  # protoc writes a module for each service, whether it is used or not

VERSIONED = ("README.md", "docs/*.md", "daemonset/*.yaml", "charts/railnet/**/*.yaml")
OURS = re.compile(r"\brailnet(?:-admission)?[: ](\d+\.\d+\.\d+)\b")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return zipfile.ZipFile(path)


def modules(wheel: zipfile.ZipFile) -> set[str]:
    names = (name.removesuffix(".py").removesuffix("/__init__") for name in wheel.namelist() if name.endswith(".py"))
    return {name.replace("/", ".") for name in names}


def imported() -> set[str]:
    """Return every module that a program imports, directly or through others, with the packages around it."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found: set[str] = set()
    waiting = list(PROGRAMS)
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += graph.find_modules_directly_imported_by(module)
            waiting += [module.rpartition(".")[0]] if "." in module else []
    return found


@pytest.mark.slow
def test_wheel_has_every_module_that_a_program_imports_and_no_other(wheel: zipfile.ZipFile) -> None:
    shipped, needed = modules(wheel), imported()

    assert needed - shipped == set(), "not in the wheel, but a program imports it"
    assert {one for one in shipped - needed if not one.startswith(GENERATED)} == set(), (
        "in the wheel, but no program imports it"
    )


@pytest.mark.slow
def test_simulated_node_and_tests_are_not_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    folders = {name.partition("/")[0] for name in wheel.namelist()}

    assert folders == {*SHIPPED, f"railnet-{VERSION}.dist-info"}
    assert set(PACKAGES) - set(SHIPPED) == {"benches", "simnode"}


@pytest.mark.slow
def test_source_distribution_has_what_a_wheel_is_built_of_and_no_tests(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(tmp_path / f"railnet-{VERSION}.tar.gz") as archive:
        names = {name.split("/")[1] for name in archive.getnames()}

    made = {"PKG-INFO", ".gitignore"}  # by hatchling
    assert names - made == {
        *SHIPPED,
        "proto",
        "requirements.lock",
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "pyproject.toml",
    }


@pytest.mark.slow
def test_wheel_has_the_version_of_the_package(wheel: zipfile.ZipFile) -> None:
    metadata = Parser().parsestr(wheel.read(f"railnet-{VERSION}.dist-info/METADATA").decode())

    assert metadata["Version"] == VERSION


def mentions() -> Iterator[tuple[str, str]]:
    """Yield every mention of a version of Railnet in manifests and documents, with its place."""
    for pattern in VERSIONED:
        for path in sorted(ROOT.glob(pattern)):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for found in OURS.findall(line):
                    yield f"{path.relative_to(ROOT)}:{number}", found


def test_manifests_and_documents_name_this_version() -> None:
    named = list(mentions())

    assert "daemonset/daemonset.yaml" in {place.partition(":")[0] for place, _ in named}
    assert [(place, version) for place, version in named if version != VERSION] == []


def test_chart_and_what_it_installs_have_this_version() -> None:
    chart = yaml.safe_load((ROOT / "charts/railnet/Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_newest_entry_of_the_changelog_is_this_version() -> None:
    entries = re.findall(r"^## \[?(\d+\.\d+\.\d+)\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert entries[0] == VERSION
    assert entries == sorted(set(entries), key=lambda entry: [*map(int, entry.split("."))], reverse=True)
