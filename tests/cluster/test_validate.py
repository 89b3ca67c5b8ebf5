"""`railnet validate` on two nodes, with real pods, real commands in them, and a real garbage collector."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from railnet.apiserver import rail_reach
from railnet.cli.connection import connect_with_exec
from railnet.validate.findings.judgement import RailLimits
from railnet.validate.probe.probe_objects import LABEL, Run
from railnet.validate.reports.report import Report
from railnet.validate.validation import Validation, WantedTests
from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import NODE
from tests.cluster.node import ClusterNode
from tests.cluster.pods import RESOURCE, pod
from tests.cluster.railnet_on_node import IMAGE
from tests.cluster.worker import VFS

_SECONDS = 600.0
_WANTED = WantedTests(frozenset(), "", None, rails=2, seconds=0.5, start_seconds=240.0, seed=0, limits=RailLimits())


@pytest.fixture(scope="module", autouse=True)
def nodes(shared_node: ClusterNode) -> Iterator[list[str]]:
    """The names of two nodes with Railnet."""
    with shared_node.all_nodes():
        yield shared_node.nodes()


def validate(say: Callable[[str], None] = print) -> Report:
    api, execution = connect_with_exec(os.environ, str(ADMIN), None, "railnet validate")
    run = Run("railnet-validate-test", "default", IMAGE, RESOURCE)
    return Validation(api, execution, run, _WANTED, say).report()


def left(node: ClusterNode) -> list[str]:
    return [one["metadata"]["name"] for one in node.kubectl.get("configmap,pod", f"--selector={LABEL}")]


def test_rails_between_two_pods_are_measured_over_their_fabrics_and_nothing_is_left(
    node: ClusterNode, measured: Callable[[str], None]
) -> None:
    before = [fabric.counters.bytes for fabric in node.fabrics]
    report = validate()
    carried = [fabric.counters.bytes - count for fabric, count in zip(node.fabrics, before, strict=True)]
    found = {one.pair.rail: one for one in report.measured}
    for rail, one in found.items():
        measured(f"railnet validate, rail {rail}: {one.gbits:.1f} Gbit/s, {one.round_trip_us:.0f} us, {one.mtu} bytes")

    assert set(found) == {0, 1}
    assert [(one.failed, one.untried) for one in found.values()] == [("", "")] * 2
    assert [one for one in report.findings if one.kind != "slow"] == []  # both fabrics share this machine's processors
    assert (report.untested, left(node)) == ((), [])
    for rail, one in found.items():
        assert one.gbits is not None
        assert carried[rail] * 8 >= one.gbits * 1e9 * 0.4  # what was measured in half a second went over this fabric
        assert one.mtu == next(has.mtu for has in report.rails_of[NODE] if has.rail == rail)


def test_rail_that_is_cut_is_named_and_the_other_is_sound(node: ClusterNode, nodes: list[str]) -> None:
    node.fabrics[1].stop()
    report = validate()

    (cut,) = report.findings
    assert (cut.kind, cut.rail, set(cut.nodes)) == ("cut", 1, set(nodes))
    assert cut.look.startswith("the ports of both nodes")
    assert [(why.rail, why.speed.name) for why in report.unjudged] == [(0, "TCP")]  # nothing is left to compare it with
    assert {one.pair.rail for one in report.measured if not one.failed} == {0}
    assert left(node) == []


def test_rail_below_a_tenth_of_the_other_one_is_named(
    node: ClusterNode, nodes: list[str], measured: Callable[[str], None]
) -> None:
    node.fabrics[1].packet_seconds = 0.0005
    report = validate()

    (slow,) = report.findings
    measured(slow.text)
    assert (slow.kind, slow.rail, set(slow.nodes), slow.speed) == ("slow", 1, set(nodes), "TCP")
    assert slow.text.endswith("the speed of the other rail, whose ports may have another rate")
    assert (report.warnings, report.unjudged, left(node)) == ((), (), [])


def test_rails_of_one_fabric_reach_each_other_and_those_of_two_do_not(node: ClusterNode) -> None:
    apart = validate().reach
    with node.joined_rails():
        joined = validate().reach

    assert [(one.rail, one.other, one.reached) for one in apart] == [(0, 1, False)]
    assert [(one.rail, one.other, one.reached) for one in joined] == [(0, 1, True)]


def railnet(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "railnet", *words, f"--kubeconfig={ADMIN}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)


def publish() -> str:
    """Publish which rails reach each other as an administrator does; return what standard error says last."""
    options = ("--publish", "--rails=2", "--seconds=0.5", f"--image={IMAGE}", "--start-seconds=240")
    return railnet("validate", *options).stderr.splitlines()[-1]


def worker(number: int) -> dict[str, Any]:
    labels = {"railnet.io/net1": "true", "railnet.io/job": "hangs", "railnet.io/rank": str(number)}
    one = pod(f"hangs-{number}", vfs=1)
    return {**one, "metadata": {**one["metadata"], "labels": labels}, "spec": {**one["spec"], "nodeName": NODE}}


def test_job_on_rails_that_do_not_reach_each_other_is_named_once_that_is_published(node: ClusterNode) -> None:
    """More pods with one VF than a rail of the node has: they are on both rails."""
    names, joined = [f"hangs-{number}" for number in range(VFS + 1)], {frozenset({0, 1}): True}
    try:
        assert "published in ConfigMap railnet/railnet-rail-reach" in publish()
        node.create(*(worker(number) for number in range(VFS + 1)))
        node.wait_until_ready(*names)
        while_apart = railnet("train", "top", "--namespace=default").stdout
        finding = json.loads(railnet("doctor", f"--pod={names[0]}", "--json").stdout)["findings"]
        rail_reach.publish(connect_with_exec(os.environ, str(ADMIN), None, "test")[0], joined, datetime.now(UTC))
        while_joined = railnet("train", "top", "--namespace=default").stdout
    finally:
        node.kubectl.run("delete", "configmap/railnet-rail-reach", "--namespace=railnet", "--ignore-not-found")

    assert "default/hangs: pods hangs-0 (rail" in while_apart
    assert "do not reach each other over net1, as railnet validate found on 20" in while_apart
    assert [one["name"] for one in finding] == ["job-rails-apart"]
    assert "hangs" in while_joined
    assert "reach" not in while_joined


def test_rail_that_is_cut_in_the_middle_of_a_run_is_named(node: ClusterNode) -> None:
    def cut(line: str) -> None:
        if line.startswith("round 1"):
            node.fabrics[0].stop()

    report = validate(cut)

    assert [(one.kind, one.rail) for one in report.findings] == [("cut", 0)]


@pytest.mark.parametrize("at", ["creating", "round 1"])
def test_ctrl_c_leaves_nothing(node: ClusterNode, at: str) -> None:
    said: list[str] = []

    def interrupt(line: str) -> None:
        said.append(line)
        if line.startswith(at):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        validate(interrupt)
    assert left(node) == []
    assert said[-1] == "deleting the pods"


def test_rail_with_a_smaller_mtu_between_its_netdevs_is_named(node: ClusterNode) -> None:
    node.fabrics[0].most_bytes = 2044
    report = validate()

    smaller = next(one for one in report.findings if one.kind == "mtu")
    assert "no packet above 2044 bytes arrives, though netdevs have MTU 4092" in smaller.text
    assert {one.rail for one in report.findings} == {0}
