"""`railnet validate --allreduce` on two nodes, with real PyTorch: an all-reduce by gloo over TCP on net1, and a rank and a pod that are killed."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.cli.connection import connect_with_exec
from railnet.validate.findings.judgement import RailLimits
from railnet.validate.probe.probe_objects import LABEL, Run
from railnet.validate.reports.report import Report, rendered
from railnet.validate.validation import AllReduce, Validation, WantedTests
from tests.cluster import pytorch
from tests.cluster.control_plane import ADMIN
from tests.cluster.node import ClusterNode
from tests.cluster.pods import RESOURCE
from tests.cluster.railnet_on_node import IMAGE
from tests.cluster.worker import Worker

_NAME = "railnet-validate-test"
_WANTED = WantedTests(
    frozenset(),
    "",
    None,
    rails=1,
    seconds=0.5,
    start_seconds=240.0,
    seed=0,
    limits=RailLimits(),
    all_reduce=AllReduce(pytorch.NAME),
)
_LITTLE = 2 << 20  # what may go over eth0
_BOUND_SECONDS = 100.0  # from a rank's end to the report: the others are awaited 20 s, then the pods are deleted
# In an image without a shell: wait for the process of the rank, and kill it, and not the one that watches it.
_KILL = """\
import os, pathlib, signal, time
ranks = []
while not ranks:
    time.sleep(0.1)
    ranks = [path.parent for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if b"\\0--steps\\0" in path.read_bytes()]
os.kill(int(ranks[0].name), signal.SIGKILL)
"""


@pytest.fixture(scope="module", autouse=True)
def nodes(shared_node: ClusterNode) -> Iterator[list[str]]:
    """The names of two nodes with Railnet, and with PyTorch's image."""
    archive = Path(os.environ["RAILNET_TORCH_IMAGE"])
    with shared_node.all_nodes():
        names = shared_node.nodes()
        for name in names:
            shared_node.on(name, Worker.load, archive)
        yield names
        for name in names:
            shared_node.on(name, Worker.forget, pytorch.NAME)


def validate(say: Callable[[str], None] = print, **changes: Any) -> Report:
    api, execution = connect_with_exec(os.environ, str(ADMIN), None, "railnet validate")
    return Validation(api, execution, Run(_NAME, "default", IMAGE, RESOURCE), _WANTED._replace(**changes), say).report()


def left(node: ClusterNode) -> list[str]:
    return [one["metadata"]["name"] for one in node.kubectl.get("configmap,pod", f"--selector={LABEL}")]


def test_all_reduce_goes_over_net1_of_each_rail_and_nothing_is_left(
    node: ClusterNode, nodes: list[str], measured: Callable[[str], None]
) -> None:
    report = validate(rails=2)
    for line in rendered(report, wide=True):
        measured(line)

    assert [(one.rail, one.nodes, one.is_done) for one in report.all_reduces] == [
        (rail, tuple(sorted(nodes)), True) for rail in (0, 1)
    ]
    assert [one.kind for one in report.findings if one.kind == "allreduce" and "bus bandwidth" not in one.text] == []
    for one in report.all_reduces:
        assert one.backend == "gloo"
        assert one.best is not None
        assert one.best.bus_gbits > 0
        assert {path.words for _, path in one.paths} == {f"over TCP on net{one.rail + 1}"}
        for rank in one.ranks:
            assert rank.result.by_tcp[rank.netdev] > sum(size.bytes for size in rank.result.sizes)
            assert rank.result.by_tcp["eth0"] < _LITTLE
            assert all(size.is_right for size in rank.result.sizes)
    assert (report.untested, left(node)) == ((), [])


@pytest.mark.parametrize("victim", ["rank", "pod"])
def test_rank_that_is_killed_is_named_in_bounded_time_and_nothing_is_left(
    node: ClusterNode, nodes: list[str], victim: str, measured: Callable[[str], None]
) -> None:
    name, killed = sorted(nodes)[1], threading.Event()
    pod, times = f"{_NAME}-1-all-reduce", [0.0]

    def kill() -> None:
        if victim == "rank":
            node.execute(pod, "python3", "-c", _KILL)
        else:
            time.sleep(2.0)
            node.on(name, Worker.kill_container, pod)
        times[0] = time.monotonic()
        killed.set()

    def say(line: str) -> None:
        if line.startswith("all-reduce over rail 0"):
            threading.Thread(target=kill, daemon=True).start()

    report = validate(say)
    took = time.monotonic() - times[0]

    assert killed.is_set()
    findings = [one for one in report.findings if one.kind == "allreduce"]
    untested = [why for why in report.untested if why.startswith("all-reduce over rail 0")]
    measured(f"{victim} killed, all is gone {took:.1f} s later: {findings or untested}")
    assert took < _BOUND_SECONDS
    assert left(node) == []
    if victim == "pod" and untested:
        # Containerd broke the command off, and did not give its status: so it is for an error of the node.
        assert (len(untested), findings) == (1, [])
    else:
        (finding,) = findings
        assert (finding.rail, finding.nodes) == (0, (name,))
        assert "was ended at" in finding.text if victim == "rank" else "was lost" in finding.text


def test_image_without_pytorch_is_said_and_is_no_finding(node: ClusterNode) -> None:
    report = validate(all_reduce=AllReduce(IMAGE))

    (why,) = report.untested
    assert why.startswith("all-reduce over rail 0: the image's python3 has no PyTorch (No module named 'torch')")
    assert [one for one in report.findings if one.kind == "allreduce"] == []
    assert left(node) == []
