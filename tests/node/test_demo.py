"""`scripts/demo --json` as users run it; the machine is the simulated node that these tests run in."""

import html
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import Any

import pytest

from simnode.demo.scenario import Findings
from simnode.demo.table import rendered

PICTURE = Path(__file__).parents[2] / "docs/demo.svg"
DEMO = [sys.executable, "-m", "simnode.demo"]
PLANTED = Path("/run/planted-by-a-test")
_SECONDS = 600  # the demo takes six on two processors, and many times that beside other work


class Run:
    """One run of the demo: its exit status, its JSON, its seconds."""

    def __init__(self, status: int, stdout: str, seconds: float) -> None:
        self.status, self.seconds = status, seconds
        self.shown: dict[str, Any] = json.loads(stdout)

    def rails(self) -> dict[str, list[dict[str, Any]]]:
        return {pod["name"]: pod["rails"] for pod in self.shown["pods"]}


def demo(env: dict[str, str] | None = None) -> Run:
    began = time.monotonic()
    done = subprocess.run([*DEMO, "--json"], stdout=subprocess.PIPE, text=True, env=env, check=False, timeout=_SECONDS)
    return Run(done.returncode, done.stdout, time.monotonic() - began)


@pytest.fixture(scope="module")
def run() -> Run:
    return demo()


def test_all_steps_of_the_demo_succeed(run: Run, measured: Callable[[str], None]) -> None:
    wrong = [entry for entry in (*run.shown["pings"], *run.shown["checks"]) if not entry["ok"]]

    measured(f"the demo: {run.seconds:.1f} s")
    assert (run.status, wrong) == (0, [])


def test_each_node_has_pods_with_0_1_and_2_vfs(run: Run) -> None:
    shape = [(pod["node"], len(pod["rails"])) for pod in run.shown["pods"]]

    assert shape == [("node-a", 0), ("node-a", 1), ("node-a", 2), ("node-b", 0), ("node-b", 1), ("node-b", 2)]


def test_eth0_is_from_the_subnet_that_flannel_leased_to_the_node(run: Run) -> None:
    subnets = {(pod["node"], str(ip_network(f"{pod['eth0']}/24", strict=False))) for pod in run.shown["pods"]}

    assert subnets == {("node-a", "10.244.3.0/24"), ("node-b", "10.244.4.0/24")}


def test_each_rail_is_a_subnet_of_its_own(run: Run) -> None:
    rails = [rail for pod in run.rails().values() for rail in pod]
    subnets = {(rail["rail"], str(ip_interface(rail["address"]).network)) for rail in rails}

    assert subnets == {(0, "10.56.0.0/17"), (1, "10.56.128.0/17")}
    assert [(rail["ifname"], rail["rail"]) for rail in run.rails()["wide-0"]] == [("net1", 0), ("net2", 1)]


def test_no_guid_and_no_address_is_given_twice(run: Run) -> None:
    rails = [rail for pod in run.rails().values() for rail in pod]

    assert len(rails) == 6
    assert len({rail["guid"] for rail in rails}) == 6
    assert len({rail["address"] for rail in rails}) == 6


def test_ping_puts_its_bytes_on_its_own_rail_only(run: Run) -> None:
    carried = {
        (ping["from"], ping["network"]): ping["rail_bytes"] for ping in run.shown["pings"] if "rail_bytes" in ping
    }

    assert carried == {("train-0", "net1"): [168, 0], ("wide-0", "net1"): [168, 0], ("wide-0", "net2"): [0, 168]}
    assert run.shown["fabric_bytes"] == 3 * 168


def test_nothing_is_left_over(run: Run) -> None:
    assert (run.shown["left_over"], run.shown["left_over_items"]) == (0, [])


def test_picture_in_the_readme_shows_what_the_demo_prints_in_the_same_columns(run: Run) -> None:
    printed = [line.rstrip() for line in rendered(Findings(**run.shown)) if line.strip(" ─")]

    assert list(map(without_times, picture_lines())) == ["$ scripts/demo", *map(without_times, printed)]


def picture_lines() -> list[str]:
    """Return the picture's text, each run at the column that its x stands for; rules are drawn as lines."""
    margin, column_width = 18, 7.25  # scripts/demo-picture: MARGIN, COLUMN
    lines: dict[int, str] = {}
    for x, y, run in re.findall(r'<text x="([\d.]+)" y="(\d+)"[^>]*>([^<]*)</text>', PICTURE.read_text()):
        column = round((float(x) - margin) / column_width)
        lines[int(y)] = lines.get(int(y), "").ljust(column) + html.unescape(run)
    return [lines[y] for y in sorted(lines)]


def without_times(line: str) -> str:
    return re.sub(r" +\d+\.\d$", "", line)


def test_new_file_counts_as_left_over_and_fails_the_demo_and_a_foreign_process_does_not() -> None:
    with subprocess.Popen([*DEMO, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()  # the demo has taken its first snapshot of the machine
        PLANTED.touch()
        foreign = subprocess.Popen(["unshare", "--net", "sleep", "60"])
        stdout, _ = process.communicate()
    PLANTED.unlink()
    foreign.kill()
    foreign.wait()
    shown = json.loads(stdout)

    assert process.returncode == 1
    assert shown["left_over"] == 1
    assert shown["left_over_items"] == [f"machine: file {PLANTED} (below /run) is left over"]


def test_ping_that_is_not_answered_fails_the_demo(tmp_path: Path) -> None:
    (tmp_path / "ping").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "ping").chmod(0o755)
    run = demo(os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"})

    assert run.status == 1
    assert {ping["ok"] for ping in run.shown["pings"]} == {False}
    assert run.shown["left_over"] == 0
