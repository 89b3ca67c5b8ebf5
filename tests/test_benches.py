"""`scripts/bench` is the one way to run a bench, and it lists each module of `benches`."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = [path for path in sorted((ROOT / "benches").glob("*.py")) if path.stem != "__init__"]


def name_of(module: Path) -> str:
    """Return the name that the script knows a bench by."""
    return module.stem.replace("_", "-")


def test_script_lists_every_bench() -> None:
    usage = subprocess.run([ROOT / "scripts/bench", "--help"], capture_output=True, text=True, check=True).stdout

    assert sorted(re.findall(r"^  ([\w-]+) ", usage, re.MULTILINE)) == sorted(map(name_of, MODULES))


def test_each_bench_calls_itself_as_the_script_does() -> None:
    assert MODULES
    assert [path.name for path in MODULES if f'prog="scripts/bench {name_of(path)}"' not in path.read_text()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [("webhook", "--seconds", "0.5"), ("inventory",), ("netlink", "--rounds", "20")],
    ids=lambda arguments: arguments[0],
)
def test_bench_that_needs_no_node_prints_its_figures(arguments: tuple[str, ...]) -> None:
    """The benches of milliseconds on a simulated node: tests/node/test_benches.py."""
    done = subprocess.run([ROOT / "scripts/bench", *arguments, "--json"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert numbers(json.loads(done.stdout))


def numbers(figures: Any) -> list[float]:
    """Return the numbers above zero in a document."""
    match figures:
        case dict():
            return [number for value in figures.values() for number in numbers(value)]
        case list():
            return [number for value in figures for number in numbers(value)]
        case int() | float() if figures > 0:
            return [figures]
    return []
