"""The all-reduce as a person, a program, a browser and a pipeline get it."""

import json

from railnet.validate.all_reduce.judgement import judge_all_reduces
from railnet.validate.all_reduce.rail_all_reduce import RailAllReduce, all_reduce_lines, sizes_of
from railnet.validate.all_reduce.result import RankEnd, RankResult
from railnet.validate.findings.judgement import RailLimits
from railnet.validate.mode import Mode
from railnet.validate.reports.ctrf import as_ctrf
from railnet.validate.reports.html_report import html
from railnet.validate.reports.report import Report, as_json, rendered
from tests.railnet.validate.all_reduce.all_reduces import all_reduce, nccl, result
from tests.railnet.validate.measurements import measured

_KILLED = all_reduce(1, result(), RankResult(RankEnd.KILLED, "<b>signal 9</b>", "1 MiB"))


def report(*all_reduces: RailAllReduce) -> Report:
    pairs = tuple(measured(rail, "a", "b") for rail in (0, 1))
    found = judge_all_reduces(all_reduces)
    return Report({}, pairs, found.findings, (), RailLimits(), unjudged=found.unjudged, all_reduces=all_reduces)


def test_line_below_the_matrix_has_the_bus_bandwidth_and_the_way() -> None:
    lines = list(rendered(report(all_reduce(0, result(), result()), _KILLED)))

    assert lines[
        lines.index("rail 0: largest packet 4092 bytes, round trip 20 us; RDMA: not tried (no pair has said why)") + 4
    ] == (
        "all-reduce of 2 nodes: bus bandwidth 8.4 Gbit/s at 1 MiB, 50 us at 8 bytes, over TCP on net1 (gloo: PyTorch 2.5.1)"
    )
    assert "all-reduce of 2 nodes: no result" in lines
    assert (
        "  rail 1, all-reduce of 2 nodes: no result: the rank of node b was ended at the all-reduce of 1 MiB: <b>signal 9</b>"
        in lines
    )


def test_ranks_that_went_different_ways_are_told_apart() -> None:
    (line,) = all_reduce_lines(all_reduce(0, nccl(), nccl(by_tcp={"net1": 23 << 20})))

    assert "over RDMA; over TCP on net1 (nccl: PyTorch 2.5.1, NCCL 2.21.5)" in line


def test_wide_has_each_size_as_nccl_tests_count_it() -> None:
    lines = list(all_reduce_lines(all_reduce(0, *(result(),) * 4), wide=True))

    assert [line.split() for line in lines[1:]] == [
        ["SIZE", "MICROSECONDS", "ALGORITHM", "Gbit/s", "BUS", "Gbit/s"],
        ["8", "bytes", "50", "0.0013", "0.0019"],
        ["1", "MiB", "1000", "8.4", "12.6"],  # 1.5 times: doc/PERFORMANCE.md of nccl-tests, 2(n-1)/n
    ]


def test_json_has_the_numbers_and_what_each_rank_has_sent() -> None:
    document = json.loads(json.dumps(as_json(report(all_reduce(0, result(), result()), _KILLED)), allow_nan=False))
    sound, killed = document["allReduce"]

    assert (sound["rail"], sound["nodes"], sound["backend"], sound["busGbits"]) == (0, ["a", "b"], "gloo", 8.389)
    assert sound["sizes"][1] == {"bytes": 1 << 20, "microseconds": 1000.0, "algorithmGbits": 8.389, "busGbits": 8.389}
    assert sound["ranks"][0] == {
        "node": "a",
        "netdev": "net1",
        "end": "done",
        "why": None,
        "software": "PyTorch 2.5.1",
        "network": None,
        "transport": "TCP",
        "sentByTcp": {"eth0": 9000, "net1": 23 << 20},
        "sentByRdma": {},
    }
    assert (killed["busGbits"], killed["sizes"], killed["ranks"][1]["end"]) == (None, [], "killed")


def test_page_has_the_sizes_and_a_failed_all_reduce_marks_no_pair() -> None:
    page = html(report(all_reduce(0, result(), result()), _KILLED))

    assert "busbw, Gbit/s" in page
    assert "<td>1 MiB</td><td>1000</td><td>8.4</td><td>8.4</td>" in page
    assert 'class="bad" title' not in page
    assert "<b>signal" not in page


def test_pipeline_gets_a_test_for_each_rail_and_its_pairs_stay_passed() -> None:
    absent = all_reduce(2, RankResult(RankEnd.NO_TORCH), RankResult(RankEnd.NO_TORCH))
    tests = {
        test["name"]: test
        for test in as_ctrf(report(all_reduce(0, result(), result()), _KILLED, absent))["results"]["tests"]
    }

    assert {name: test["status"] for name, test in tests.items() if name.startswith("rail")} == {
        "rail 0 between a and b": "passed",
        "rail 1 between a and b": "passed",
        "rail 0: all-reduce of 2 nodes": "passed",
        "rail 1: all-reduce of 2 nodes": "failed",
        "rail 2: all-reduce of 2 nodes": "other",
        "rail 0: the speed of all-reduce": "other",
    }
    assert tests["rail 0: all-reduce of 2 nodes"]["duration"] == 2500
    assert "signal 9" in tests["rail 1: all-reduce of 2 nodes"]["message"]


def test_quick_mode_has_fewer_sizes() -> None:
    assert sizes_of(Mode.QUICK) == (8, 1 << 20, 16 << 20)
    assert (sizes_of(Mode.FULL)[0], sizes_of(Mode.FULL)[-1]) == (8, 64 << 20)
