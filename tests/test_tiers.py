"""`scripts/test` with several tiers: which run beside others, and whose processor time a line of the summary counts."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SETUP = '_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)\n'
# It stands in for each program that runs a tier. The log names the tier by the folder or file of its tests, else by the program.
TIER = r"""#!/usr/bin/env bash
[[ $* =~ testpaths=([^ ]+) ]] && name=${BASH_REMATCH[1]} || name=${0##*/}
echo "begin $name" >>"$TIERS_LOG"
echo "priority $name $(nice)" >>"$TIERS_LOG"
[[ $name != "${BUSY-}" ]] || "$TIERS_PYTHON" -c "$(printf 'import time\nwhile time.process_time() < 1.5: pass')"
if [[ " ${LATE-} " == *" $name "* ]]; then
    for ((i = 0; i < 200; i++)); do
        ! eval "$UNTIL" >/dev/null 2>&1 || break
        sleep 0.1
    done
    sleep 0.3
fi
echo "end $name" >>"$TIERS_LOG"
"""
PROGRAMS = ("split-over-processors", "in-vm", "fuzz", "faults", "with-containerd", "with-control-plane", "with-cluster")

pytestmark = pytest.mark.slow  # the tiers wait for each other


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout whose tiers run no test."""
    for folder in ("scripts", "programs", "temporary", "tests/vm", "tests/containerd"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/test", tmp_path / "scripts")
    for name in (*(f"scripts/{name}" for name in PROGRAMS), "programs/python"):
        (tmp_path / name).write_text(TIER)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "scripts/setup").write_text(SETUP)
    (tmp_path / "scripts/prepare-tiers").symlink_to("/bin/true")
    for name in ("vm", "containerd"):
        (tmp_path / f"tests/{name}/test_{name}.py").touch()
    return tmp_path


def run(checkout: Path, *arguments: str, **environment: str) -> str:
    """Run `scripts/test`; return what it prints."""
    given = {
        **os.environ,
        "PATH": f"{checkout / 'programs'}:{os.environ['PATH']}",
        "TMPDIR": str(checkout / "temporary"),
        "TIERS_LOG": str(checkout / "log"),
        "TIERS_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [checkout / "scripts/test", *arguments],
        cwd=checkout,
        env=given | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_tiers(checkout: Path, *arguments: str, **environment: str) -> tuple[dict[str, int], list[str]]:
    """Run `scripts/test`; return the seconds of a processor that its summary counts for each tier, and the lines of the log."""
    printed = run(checkout, *arguments, **environment)
    lines = re.findall(r"^([a-z-]+) +\d+ s, +(\d+) s of a processor  passed$", printed, re.MULTILINE)
    return {tier: int(seconds) for tier, seconds in lines}, (checkout / "log").read_text().splitlines()


def test_processor_time_of_a_tier_beside_another_counts_for_itself_alone(checkout: Path) -> None:
    seconds, _ = run_tiers(
        checkout,
        *("tests/vm", "tests/containerd"),
        BUSY="tests/containerd",
        LATE="tests/vm",
        UNTIL="ls temporary/*/ended-containerd",
    )

    assert seconds.keys() == {"vm", "containerd"}
    assert (seconds["vm"], seconds["containerd"] > 0) == (0, True)


# One tier of each chain, for which the other chains do not wait.
@pytest.mark.parametrize("late", ["tests/vm", "tests/cluster"])
def test_chains_that_are_free_take_what_fits_beside_all_tiers(checkout: Path, late: str) -> None:
    until = 'grep -x "end fuzz" "$TIERS_LOG" && grep -x "end tests/image" "$TIERS_LOG"'
    seconds, log = run_tiers(checkout, LATE=late, UNTIL=until)

    ended = [line.removeprefix("end ") for line in log if line.startswith("end ")]
    assert len(seconds) == len(ended) == len(set(ended)) == 12
    assert max(ended.index("fuzz"), ended.index("tests/image")) < ended.index(late)


def test_tier_that_heeds_no_clock_leaves_the_processors_to_the_others(checkout: Path) -> None:
    _, log = run_tiers(checkout, LATE="tests/vm tests/containerd", UNTIL='grep -x "begin fuzz" "$TIERS_LOG"')
    priorities = {line.split()[1]: int(line.split()[2]) for line in log if line.startswith("priority ")}

    others = ("tests/vm", "tests/churn", "tests/control_plane", "tests/cluster")
    assert max(priorities[tier] for tier in others) < priorities["fuzz"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("tests/vm", "tests/vm/test_killed.py"),
        ("tests/cluster", "tests/cluster/test_training.py"),
        ("tests/simnode", "faults"),
    ],
)
def test_tiers_that_conflict_run_one_after_the_other(checkout: Path, first: str, second: str) -> None:
    _, log = run_tiers(checkout, LATE=first, UNTIL=f'grep -x "begin {second}" "$TIERS_LOG" || ((i == 20))')

    assert log.index(f"end {first}") < log.index(f"begin {second}")


@pytest.mark.parametrize("tier", ["fuzz", "image"])
def test_tier_that_is_alone_runs_beside_nothing(checkout: Path, tier: str) -> None:
    assert "beside" not in run(checkout, tier)
