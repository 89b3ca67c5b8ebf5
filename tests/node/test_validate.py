"""`railnet validate` over real links: the matrix is right, a cut rail and a smaller MTU are named, and nothing is left."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from itertools import combinations

import pytest

from railnet.apiserver.request import ApiObject
from railnet.train.interruption import ended_by_sigterm
from railnet.validate.findings.judgement import RailLimits
from railnet.validate.probe.probe_objects import Run
from railnet.validate.reports.html_report import html
from railnet.validate.reports.report import Report, rendered
from railnet.validate.validation import Validation, WantedTests
from tests.node.probe_cluster import MTU, ProbeCluster

_NODES = ("gpu-1", "gpu-2", "gpu-3")
_RUN = Run("railnet-validate-0", "default")
_WANTED = WantedTests(frozenset(), "", None, None, 0.2, 60.0, 0, RailLimits())


@pytest.fixture
def cluster() -> Iterator[ProbeCluster]:
    with ProbeCluster(_NODES, rails=2) as cluster:
        yield cluster


class _Spoiling:
    """Does something to the cluster before the first command in a pod, when all pods run."""

    def __init__(self, cluster: ProbeCluster, spoil: Callable[[], None]) -> None:
        self._cluster, self._spoil = cluster, [spoil]

    def run(self, pod: ApiObject, container: str, command: list[str], seconds: float) -> str:
        return self._cluster.run(pod, container, command, seconds)

    def say(self, line: str) -> None:
        if line.startswith("round 1 "):
            self._spoil.pop()()


def validate(cluster: ProbeCluster, spoil: Callable[[], None] = lambda: None) -> Report:
    spoiling = _Spoiling(cluster, spoil)
    return Validation(cluster.server.api, spoiling, _RUN, _WANTED, spoiling.say, 0.01).report()


def left(cluster: ProbeCluster) -> list[str]:
    return [*cluster.server.names("pods"), *cluster.server.names("configmaps")]


def test_sound_rails_have_a_whole_matrix(cluster: ProbeCluster) -> None:
    report = validate(cluster)

    assert sorted(one.pair for one in report.measured) == [
        (rail, *pair) for rail in (0, 1) for pair in combinations(_NODES, 2)
    ]
    assert {one.mtu for one in report.measured} == {MTU}
    assert all(one.gbits and one.round_trip_us for one in report.measured)
    assert [(one.rail, one.other, one.reached) for one in report.reach] == [(0, 1, False)]  # a bridge for each rail
    assert (report.findings, report.untested, report.unjudged, left(cluster)) == ((), (), (), [])


def test_cut_rail_and_smaller_mtu_are_named(cluster: ProbeCluster) -> None:
    def spoil() -> None:
        cluster.cut("gpu-2", 1)
        cluster.shrink("gpu-1", 0, 2044)  # what arrives from a pod may be four bytes longer than the port's MTU

    report = validate(cluster, spoil)
    text = "\n".join(rendered(report))

    assert [(one.kind, one.rail, one.nodes) for one in report.findings] == [
        ("mtu", 0, ("gpu-1",)),
        ("cut", 1, ("gpu-2",)),
    ]
    assert (
        "rail 0 of node gpu-1, all its 2 pairs: no packet above 2044 bytes arrives, though netdevs have MTU 4092"
        in text
    )
    assert "rail 1 of node gpu-2, all its 2 pairs: no connection, or it was lost" in text
    assert re.search(r"^2 gpu-2 +cut +- +cut$", text, re.MULTILINE)
    assert html(report).count('<td class="bad"') == 4 + 4  # two pairs of each rail, from both sides
    assert html(report).count('<li class="bad"') == 2
    assert left(cluster) == []


def test_rails_whose_switches_are_joined_reach_each_other(cluster: ProbeCluster) -> None:
    report = validate(cluster, lambda: cluster.join(0, 1))

    assert [(one.rail, one.other, one.reached) for one in report.reach] == [(0, 1, True)]
    assert (report.findings, report.untested, left(cluster)) == ((), (), [])


def test_rail_of_a_node_at_a_tenth_of_its_rate_is_named(cluster: ProbeCluster) -> None:
    report = validate(cluster, lambda: cluster.slow("gpu-3", 1))

    (slow,) = report.findings
    assert (slow.kind, slow.rail, slow.nodes) == ("slow", 1, ("gpu-3",))
    assert slow.text.endswith("the median of this rail")
    assert (report.untested, left(cluster)) == ((), [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_interruption_while_it_measures_leaves_nothing(cluster: ProbeCluster, number: signal.Signals) -> None:
    # A shell without job control has its background programs ignore SIGINT, and then Python raises no KeyboardInterrupt.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), ended_by_sigterm():
            validate(cluster, lambda: os.kill(os.getpid(), number))
    finally:
        signal.signal(signal.SIGINT, before)

    assert left(cluster) == []
