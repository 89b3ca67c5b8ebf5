"""`scripts/bench` is the one way to run a bench, and it lists each module of `benches`."""

import json
import re
import subprocess
from pathlib import Path

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
def test_bench_of_the_webhook_prints_its_figures() -> None:
    """`flood` starts the same server. The benches on a simulated node or a control plane take minutes, and no test runs them."""
    command = [ROOT / "scripts/bench", "webhook", "--seconds", "0.5", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["median"]
    assert min(figures["reviews/s"], figures["p50 ms"], figures["server MiB"]) > 0
