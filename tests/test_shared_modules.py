"""Processes that share test modules run each test once, also where a module takes long, and a failure in any of them fails all."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """\
import os
from pathlib import Path
from tests.shared_modules import SharedModules

def pytest_configure(config):
    config.pluginmanager.register(SharedModules(Path(os.environ["TAKEN"])))
"""
# The module `a` goes on until all others have ended. Each line of the log is one write, so no line is cut by another process.
MODULE = """\
import os, time
from pathlib import Path
import pytest

LOG = Path(os.environ["LOG"])

def log(what):
    with LOG.open("a") as file:
        file.write(f"{{os.environ['PART']}} {name} {{what}}\\n")

@pytest.fixture(scope="module", autouse=True)
def of_module():
    log("set up")
    yield
    log("torn down")

@pytest.mark.parametrize("number", range(3))
def test_one(number):
    log(number)
    if ("{name}", number) == ("a", 1):
        while LOG.read_text().count("torn down") < {others}:
            time.sleep(0.01)
    if {is_long}:  # each process has taken a module before this one ends
        while len({{line.split()[0] for line in LOG.read_text().splitlines()}}) < int(os.environ["PART"].partition("/")[2]):
            time.sleep(0.01)
    assert "{name}" != os.environ.get("FAILS") or number != 1
"""
NAMES = "abcdef"

pytestmark = pytest.mark.slow  # each starts four processes with pytest


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Return a folder with six modules of three tests each."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name in NAMES:
        (tmp_path / f"test_{name}.py").write_text(MODULE.format(name=name, others=len(NAMES) - 1, is_long=False))
    return tmp_path


def run(modules: Path, *arguments: str, **environment: str) -> tuple[int, list[list[str]]]:
    """Run them in at least two processes. Return the exit status, and what each line of the log says: process, module, what."""
    log = modules / "log"
    split = [ROOT / "scripts/split-over-processors", "--each", "2", "--taken", "TAKEN", "PART"]
    done = subprocess.run(
        [*split, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, modules],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LOG": str(log), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert log.exists(), done.stdout + done.stderr
    return done.returncode, [line.split(" ", 2) for line in log.read_text().splitlines()]


def test_each_test_runs_once_and_a_long_module_delays_no_other(modules: Path) -> None:
    status, log = run(modules)

    tests = Counter((module, what) for _, module, what in log if what.isdigit())
    assert (status, tests) == (0, dict.fromkeys(((name, str(number)) for name in NAMES for number in range(3)), 1))
    assert log[-1][1:] == ["a", "torn down"]


def test_modules_of_a_process_run_one_after_the_other(modules: Path) -> None:
    _, log = run(modules)

    for part in {part for part, _, _ in log}:
        own = [(module, what) for of, module, what in log if of == part]
        order = list(dict.fromkeys(module for module, _ in own))
        assert own == [(module, what) for module in order for what in ("set up", "0", "1", "2", "torn down")]


def test_long_modules_are_taken_before_the_others(modules: Path) -> None:
    for name in "ef":
        module = MODULE.format(name=name, others=0, is_long=True)
        (modules / f"test_{name}.py").write_text(f"{module}\npytestmark = pytest.mark.long_module\n")

    status, log = run(modules)

    first = {part: next(module for of, module, _ in log if of == part) for part in {part for part, _, _ in log}}
    assert status == 0
    assert {"e", "f"} <= set(first.values())
    assert {module for _, module, what in log if what == "2"} == set(NAMES)


@pytest.mark.parametrize("fails", ["a", "f"])
def test_failure_in_any_process_fails_all_and_the_other_modules_run(modules: Path, fails: str) -> None:
    status, log = run(modules, FAILS=fails)

    assert status == 1
    assert {module for _, module, what in log if what == "2"} == set(NAMES)


def test_selection_of_one_module_is_no_failure_of_the_processes_without_it(modules: Path) -> None:
    status, log = run(modules, "-k", "test_b")

    assert status == 0
    assert [what for _, _, what in log] == ["set up", "0", "1", "2", "torn down"]


def test_module_that_cannot_be_collected_fails(modules: Path) -> None:
    (modules / "test_g.py").write_text("import nothing_of_this_name\n")
    (modules / "log").touch()

    status, log = run(modules)

    assert (status, log) == (2, [])
