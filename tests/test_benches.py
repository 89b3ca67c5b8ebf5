"""`scripts/bench` is the one way to run a bench: it lists each module of `benches`, and what else it can measure by tests."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BY_TESTS = {"cluster", "gang-scale", "host-ports"}


def test_script_lists_every_bench() -> None:
    usage = subprocess.run([ROOT / "scripts/bench", "--help"], capture_output=True, text=True, check=True).stdout
    modules = {path.stem.replace("_", "-") for path in (ROOT / "benches").glob("*.py") if path.stem != "__init__"}

    assert set(re.findall(r"^  ([\w-]+) ", usage, re.MULTILINE)) == modules | BY_TESTS


def test_each_bench_calls_itself_as_the_script_does() -> None:
    modules = [path for path in (ROOT / "benches").glob("*.py") if path.stem != "__init__"]

    assert modules
    assert [
        path.name for path in modules if f'prog="scripts/bench {path.stem.replace("_", "-")}"' not in path.read_text()
    ] == []
