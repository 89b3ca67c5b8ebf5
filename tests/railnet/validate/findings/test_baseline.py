"""A run is compared with an earlier one, and a file that is no report is refused with what to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from railnet.errors import Misconfigured
from railnet.validate.findings.baseline import Earlier, compare, parse, parse_reach, read, uncompared
from railnet.validate.findings.judgement import RailLimits, judge
from railnet.validate.probe.measured import Measured, MeasuredRdma
from railnet.validate.reports.report import Report, as_json
from railnet.validate.reports.run_description import RunDescription
from tests.railnet.validate.measurements import all_pairs, measured, mtus


def document(pairs: list[Measured]) -> dict[str, Any]:
    about = RunDescription("2026-10-27T08:00:00+00:00")
    told: dict[str, Any] = json.loads(json.dumps(as_json(Report({}, tuple(pairs), (), (), RailLimits(), about=about))))
    return told


def earlier(pairs: list[Measured]) -> Earlier:
    return parse("october.json", json.dumps(document(pairs)).encode())


def test_pair_below_half_of_its_earlier_speed_is_a_finding_and_below_four_fifths_a_warning() -> None:
    now = [measured(0, "a", "b", gbits=40.0), measured(1, "a", "b", gbits=60.0), measured(2, "a", "b", gbits=80.0)]
    before = [measured(rail, "b", "a") for rail in (0, 1, 2)]
    judgement = compare(now, earlier(before))

    assert [one.text for one in judgement.findings] == [
        "rail 0 between a and b: TCP 40.0 Gbit/s, 44% of 90.0, its speed in october.json of 2026-10-27T08:00:00+00:00"
    ]
    assert [one.rail for one in judgement.warnings] == [1]


def test_node_whose_pairs_all_are_slower_than_before_is_named_once() -> None:
    slow = [one._replace(gbits=9.0) if one.pair.client == "d" else one for one in all_pairs(0, "abcd")]

    assert [one.nodes for one in compare(slow, earlier(all_pairs(0, "abcd"))).findings] == [("d",)]


def test_rdma_is_compared_too() -> None:
    before = [measured(0, "a", "b", rdma=MeasuredRdma(gbits=380.0))]
    (found,) = compare([measured(0, "a", "b", rdma=MeasuredRdma(gbits=100.0))], earlier(before)).findings

    assert (found.speed, found.kind) == ("RDMA", "slow")


def test_pair_of_two_nodes_is_judged_by_the_earlier_run() -> None:
    alone = all_pairs(0, "ab")

    assert len(judge(alone, mtus(0, "ab"), RailLimits()).unjudged) == 1
    assert judge(alone, mtus(0, "ab"), RailLimits(), earlier(alone)).unjudged == ()
    assert len(judge(alone, mtus(0, "ab"), RailLimits(), earlier(all_pairs(1, "ab"))).unjudged) == 1


def test_nodes_of_one_run_alone_are_said() -> None:
    assert list(uncompared(all_pairs(0, "abc"), earlier(all_pairs(0, "abd")))) == [
        "in this run, and not in october.json of 2026-10-27T08:00:00+00:00: c",
        "not in this run, and in october.json of 2026-10-27T08:00:00+00:00: d",
    ]


def test_report_of_railnet_before_formats_is_read() -> None:
    told = document(all_pairs(0, "ab"))
    del told["format"], told["run"]

    assert parse("old.json", json.dumps(told).encode()).words == "old.json"


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": True},
        {"format": "1"},
        {"pairs": None},
        {"pairs": [{"rail": "0", "server": "a", "client": "b"}]},
        {"pairs": [{"rail": 0, "server": "a"}]},
        {"pairs": [{"rail": 0, "server": "a", "client": "b", "gbits": -1}]},
        {"pairs": [{"rail": 0, "server": "a", "client": "b", "gbits": float("nan")}]},
        {"pairs": [{"rail": 0, "server": "a", "client": "b", "gbits": "90"}]},
        {"pairs": [{"rail": 0, "server": "a", "client": "b", "rdma": []}, 1]},
        {"run": []},
    ],
    ids=str,
)
def test_report_of_another_form_is_refused(change: dict[str, Any]) -> None:
    text = json.dumps({**document(all_pairs(0, "ab")), **change}).encode()

    with pytest.raises(Misconfigured, match="x is no report of this `railnet validate -o json`"):
        parse("x", text)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"pairs": [{"rail": 1e999}]}'])
def test_what_is_no_report_is_refused(text: bytes) -> None:
    with pytest.raises(Misconfigured, match="is no report"):
        parse("x", text)


def test_infinite_speed_is_refused() -> None:
    text = json.dumps(document(all_pairs(0, "ab"))).replace("90.0", "1e999").encode()

    with pytest.raises(Misconfigured, match="inf is no speed"):
        parse("x", text)


def test_which_rails_reach_each_other_is_read_where_it_is_known() -> None:
    reach = [
        {"rails": [0, 1], "reached": False, "why": "timed out"},
        {"rails": [0, 2], "reached": True, "why": None},
        {"rails": [1, 2], "reached": None, "why": "HTTP 403"},
    ]
    text = json.dumps({**document(all_pairs(0, "ab")), "reach": reach}).encode()

    assert parse_reach("x", text) == {frozenset({0, 1}): False, frozenset({0, 2}): True}


@pytest.mark.parametrize(
    "reach",
    [
        None,
        {},
        [1],
        [{"rails": [0], "reached": True}],
        [{"rails": ["0", 1], "reached": True}],
        [{"rails": [0, 1], "reached": 1}],
        [{"rails": [0, 1]}],
    ],
)
def test_reach_of_another_form_is_refused(reach: object) -> None:
    text = json.dumps({"reach": reach} if reach != {} else {}).encode()

    with pytest.raises(Misconfigured, match="x is no report of this"):
        parse_reach("x", text)


def test_file_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"the report .*/none cannot be read: No such file"):
        read(tmp_path / "none")


def test_file_without_an_end_is_refused() -> None:
    with pytest.raises(Misconfigured, match="larger than 256 MiB"):
        read(Path("/dev/zero"))
