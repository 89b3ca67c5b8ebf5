"""SECURITY.md and CONTRIBUTING.md say what is so today: versions, folders, tiers."""

import re
import subprocess
import tomllib
from pathlib import Path

from railnet import VERSION

ROOT = Path(__file__).resolve().parent.parent
SECURITY = (ROOT / "SECURITY.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def folders() -> set[str]:
    """Return the tracked folders of the checkout's root."""
    listed = subprocess.run(["git", "ls-files", "*/*"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition("/")[0] for name in listed.stdout.splitlines()}


def rooms() -> set[str]:
    """Return the folders and files in the first column of the table of rooms, without the slash at an end."""
    table = CONTRIBUTING.partition("| room | contents |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    return {name.rstrip("/") for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def tiers() -> list[str]:
    """Return the tiers of scripts/test as it lists them."""
    usage = subprocess.run([ROOT / "scripts/test", "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  ([\w-]+)  ", usage.partition("\ntiers:\n")[2], re.MULTILINE)


def test_version_that_gets_security_fixes_is_this_one() -> None:
    assert re.findall(r"latest minor version \((.+?)\)", SECURITY) == [VERSION.rpartition(".")[0]]
    assert re.findall(r"not fixed in (\d+\.\d+\.\d+)", SECURITY) == [VERSION]


def test_every_room_exists() -> None:
    assert {"cni", "railnet/vf", "railnet/backoff.py"} <= rooms()
    assert [name for name in rooms() if not (ROOT / name).exists()] == []


def test_every_folder_of_the_root_is_a_room() -> None:
    assert {name.partition("/")[0] for name in rooms()} == folders()


def test_every_package_of_railnet_is_a_room_or_is_named_in_one() -> None:
    packages = {path.parent.name for path in (ROOT / "railnet").glob("*/__init__.py")}
    table = CONTRIBUTING.partition("| room | contents |")[2].partition("\n\n")[0]

    assert {name for name in packages if f"`{name}/`" not in table and f"`railnet/{name}`" not in table} == set()


def test_folders_of_tests_that_the_rules_name_exist() -> None:
    named = set(re.findall(r"`(tests/\w+)`", CONTRIBUTING))

    assert {"tests/node", "tests/control_plane"} <= named
    assert [name for name in named if not (ROOT / name).is_dir()] == []


def test_tiers_of_the_documents_are_those_of_the_script() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \|", (ROOT / "docs/testing.md").read_text().partition("## Tiers")[2], re.MULTILINE
    )
    (line,) = re.findall(r"^Tiers: (.+)\.$", CONTRIBUTING, re.MULTILINE)

    assert rows == tiers()
    assert re.findall(r"`([\w-]+)`", line) == tiers()


def test_oldest_python_is_the_one_of_the_metadata() -> None:
    (oldest,) = set(re.findall(r"Python (\d+\.\d+)", CONTRIBUTING))

    assert PYPROJECT["project"]["requires-python"] == f">={oldest}"
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
