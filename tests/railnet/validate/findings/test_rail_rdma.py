"""What the report says of each rail's RDMA: it works, it has failed, or it was not tried and why."""

import json

import pytest

from railnet.validate.findings.judgement import RailLimits
from railnet.validate.findings.rail_rdma import RailRdma, RdmaState, rdma_of, rdma_words
from railnet.validate.mode import Mode
from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import Measured, MeasuredRdma, parse
from railnet.validate.reports.html_report import html
from railnet.validate.reports.report import Report, as_json, rendered
from tests.railnet.validate.measurements import all_pairs, cut, measured

_ABSENT = MeasuredRdma(untried=(("ib_write_bw", "not in the image"), ("rping", "not in the image")))
_NO_DEVICE = MeasuredRdma(untried=(("ib_write_bw", "net1 has no RDMA device in the pod"),))
_FAST = MeasuredRdma(92.1, 2.3)
_BROKEN = MeasuredRdma(failed="ib_write_bw: status 1: Completion with error")


@pytest.mark.parametrize(
    ("rdma", "words"),
    [
        ((_FAST, _FAST._replace(gbits=80.0), _FAST), "RDMA 92.1 Gbit/s"),
        ((_FAST, _BROKEN, _BROKEN), "RDMA: failed between 2 of 3 pairs, 92.1 Gbit/s between others"),
        ((_BROKEN, _BROKEN, _ABSENT), "RDMA: failed between 2 of 2 pairs"),
        ((_ABSENT,) * 3, "RDMA: not tried (ib_write_bw, rping: not in the image)"),
        (
            (_ABSENT, _NO_DEVICE, _ABSENT),
            "RDMA: not tried (ib_write_bw, rping: not in the image; ib_write_bw: net1 has no RDMA device in the pod)",
        ),
        ((_ABSENT._replace(connected=True),) * 3, "RDMA: works, and its bandwidth was not measured"),
    ],
)
def test_line_of_a_rail_says_what_became_of_rdma(rdma: tuple[MeasuredRdma, ...], words: str) -> None:
    pairs = [pair._replace(rdma=of_pair) for pair, of_pair in zip(all_pairs(0, "abc"), rdma, strict=True)]

    assert rdma_words(rdma_of(pairs, Mode.FULL)) == words


def test_rail_of_a_mode_without_rdma_and_a_rail_that_is_cut_say_why_it_was_not_tried() -> None:
    assert rdma_of(all_pairs(0, "abc"), Mode.QUICK) == RailRdma(RdmaState.UNTRIED, why="--mode quick")
    assert rdma_of([cut(0, "a", "b")], Mode.FULL).why == "no pair has a connection by TCP"


def test_rping_that_has_met_its_server_counts() -> None:
    sound = {"round_trip_seconds": {"median": 2e-5}, "mtu": 4092, "bits_per_second": 9e10}
    found = parse(Pair(0, "a", "b"), json.dumps({**sound, "rdma": {"rping": {"printed": ""}}}))

    assert rdma_of([found], Mode.FULL).state is RdmaState.WORKS


def test_rail_with_rdma_is_told_from_one_without_in_text_json_and_page() -> None:
    pairs: list[Measured] = [measured(0, "a", "b", rdma=_FAST), measured(1, "a", "b", rdma=_NO_DEVICE)]
    report = Report({}, tuple(pairs), (), (), RailLimits())
    lines = [line.partition("; ")[2] for line in rendered(report) if line.startswith("rail ")]

    assert lines == ["RDMA 92.1 Gbit/s", "RDMA: not tried (ib_write_bw: net1 has no RDMA device in the pod)"]
    assert all(line in html(report) for line in lines)
    assert as_json(report)["rails"] == [
        {
            "rail": 0,
            "rdma": {
                "state": "works",
                "gbits": 92.1,
                "latencyMicroseconds": 2.3,
                "pairs": 1,
                "failedPairs": 0,
                "why": None,
            },
        },
        {
            "rail": 1,
            "rdma": {
                "state": "not tried",
                "gbits": None,
                "latencyMicroseconds": None,
                "pairs": 0,
                "failedPairs": 0,
                "why": "ib_write_bw: net1 has no RDMA device in the pod",
            },
        },
    ]
