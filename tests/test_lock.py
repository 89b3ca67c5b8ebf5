"""requirements.lock: each package has hashes, and scripts/locked-requirements prints a package with all that it depends on."""

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLERS = (
    "scripts/setup",
    "scripts/image",
    "scripts/build-cluster-programs",
    "scripts/clustermax",
    "daemonset/Containerfile",
)


def entries(lock: str) -> dict[str, str]:
    """Return the lines of each package, by its name."""
    return {canonicalize_name(entry.partition("==")[0]): entry for entry in re.split(r"\n(?=\S)", lock.strip())}


def printed(*what: str) -> dict[str, str]:
    done = subprocess.run([ROOT / "scripts/locked-requirements", *what], capture_output=True, text=True, check=True)
    return entries(done.stdout)


def installed_closure(names: set[str]) -> set[str]:
    """Return packages with all that they depend on, as what is installed here says."""
    packages: set[str] = set()
    while names - packages:
        packages |= names
        needed = (Requirement(line) for name in names for line in metadata.requires(name) or ())
        names = {canonicalize_name(one.name) for one in needed if not one.marker or one.marker.evaluate({"extra": ""})}
    return packages


@pytest.mark.parametrize(
    "path", ["requirements.lock", "tests/programs/requirements.lock", "tests/programs/clustermax.lock"]
)
def test_every_package_has_an_exact_version_and_hashes(path: str) -> None:
    packages = entries((ROOT / path).read_text())
    form = re.compile(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+(\n    # via .+)?")

    assert packages
    assert [name for name, entry in packages.items() if not form.fullmatch(entry)] == []


@pytest.mark.parametrize("path", INSTALLERS)
def test_pip_demands_the_hash_of_each_locked_file(path: str) -> None:
    commands = re.split(r"&&|\n", (ROOT / path).read_text().replace("\\\n", " "))
    reading = [command for command in commands if "--requirement" in command]

    assert reading
    assert [command for command in reading if "--require-hashes" not in command] == []


def test_every_package_of_the_lock_is_one_that_a_dependency_needs() -> None:
    wanted = ["railnet", *(f"railnet[{extra}]" for extra in PROJECT["optional-dependencies"])]

    assert printed(*wanted) == entries(LOCK)


@pytest.mark.parametrize("package", ["hatchling", "aiohttp", "kubernetes", "PyYAML"])
def test_package_is_printed_with_all_that_it_depends_on(package: str) -> None:
    expected = installed_closure({canonicalize_name(package)})

    assert set(printed(package)) == expected
    assert printed(package).items() <= entries(LOCK).items()


def test_extra_is_printed_with_the_dependencies_of_the_command_line() -> None:
    lines = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["webhook"]

    assert set(printed("railnet[webhook]")) == installed_closure(
        {canonicalize_name(Requirement(one).name) for one in lines}
    )


def test_dependency_that_is_left_out_takes_its_own_with_it() -> None:
    node = printed("--without", "kubernetes", "railnet[node]")

    assert {"grpcio", "protobuf", "pyyaml"} <= set(node)
    assert {"kubernetes", "urllib3", "aiohttp"} & set(node) == set()


def test_package_that_is_not_locked_is_refused() -> None:
    done = subprocess.run([ROOT / "scripts/locked-requirements", "absent"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "requirements.lock has no absent: run scripts/lock" in done.stderr
