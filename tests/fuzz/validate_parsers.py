"""Parsers of `railnet validate`: what a pod's probe prints, and an earlier report."""

import json
import math

from railnet.errors import Misconfigured
from railnet.fabric import published_reach
from railnet.validate.all_reduce.judgement import judge_all_reduces, untested_all_reduces
from railnet.validate.all_reduce.rail_all_reduce import NodeRank, RailAllReduce, all_reduce_as_json, all_reduce_lines
from railnet.validate.all_reduce.result import parse_rank
from railnet.validate.findings import baseline
from railnet.validate.findings.baseline import compare
from railnet.validate.findings.judgement import RailLimits, judge
from railnet.validate.findings.rail_reach import parse_try
from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import Measured, parse
from tests.fuzz.parser import Parser

_PAIR = Pair(0, "a", "b")


def probe(data: bytes) -> None:
    """Judge what a probe prints: each number is finite, no word is long, and it can be judged."""
    measured = parse(_PAIR, data.decode(errors="replace"))
    numbers = (measured.gbits, measured.round_trip_us, measured.mtu, measured.rdma.gbits, *measured.port_gbits)
    assert all(number is None or (math.isfinite(number) and number >= 0) for number in numbers)
    judgement = judge([measured], {(0, "a"): 4092, (0, "b"): 4092}, RailLimits())
    assert all(len(finding.text) < 4096 for finding in judgement.findings)


def earlier(data: bytes) -> None:
    """Judge an earlier report: a run can be compared with it, and each speed is a number of JSON."""
    report = baseline.parse("earlier.json", data)
    json.dumps([list(speeds.values()) for speeds in report.speeds.values()], allow_nan=False)
    judgement = compare([Measured(_PAIR, gbits=1.0)], report)
    assert all(len(finding.text) < 4096 for finding in judgement.findings)
    assert all(len(text) < 4096 for text in baseline.uncompared([Measured(_PAIR, gbits=1.0)], report))


def reach(data: bytes) -> None:
    """Judge what a report says of rails that reach each other: two numbers, and a verdict."""
    for rails, reached in baseline.parse_reach("earlier.json", data).items():
        assert 1 <= len(rails) <= 2
        assert type(reached) is bool


def published(data: bytes) -> None:
    """Judge what a ConfigMap says of rails that reach each other: two numbers and a verdict with a date, or why it says nothing."""
    found = published_reach.parse({"data": {published_reach.KEY: data.decode(errors="replace")}})
    assert bool(found.date) != bool(found.trouble)
    assert len(found.trouble) < 1024
    assert len(found.date) in (0, len("2026-11-27"))
    for rails, reached in found.reach.items():
        assert len(rails) == 2
        assert type(reached) is bool


def reach_try(data: bytes) -> None:
    """Judge what a probe prints of one try: a verdict, and no long word."""
    reached, why = parse_try(data.decode(errors="replace"))
    assert type(reached) is bool
    assert len(why) <= 200


def rank(data: bytes) -> None:
    """Judge what a rank of an all-reduce prints: it can be judged, and each number is one of JSON."""
    result = parse_rank(data.decode(errors="replace"), (8, 1024))
    both = RailAllReduce(0, (NodeRank("a", "net1", result), NodeRank("b", "net1", result)))
    judgement = judge_all_reduces([both])
    texts = [finding.text + finding.look for finding in (*judgement.findings, *judgement.warnings)]
    texts += [*untested_all_reduces([both]), *all_reduce_lines(both, wide=True)]
    assert all(len(text) < 65536 for text in texts)
    json.dumps(all_reduce_as_json(both), allow_nan=False)


PARSERS = (
    Parser("published-reach", published, (), {"railnet.fabric.published_reach": ("parse", "_pair")}),
    Parser(
        "validate-rank",
        rank,
        (ValueError,),
        {
            "railnet.validate.all_reduce.result": (
                "parse_rank",
                "_end",
                "_last_step",
                "_sizes",
                "_seconds",
                "_count",
                "_counts",
                "_settings",
                "_software",
                "_text",
            )
        },
        largest=1 << 14,
    ),
    Parser(
        "validate-reach",
        reach,
        (Misconfigured,),
        {"railnet.validate.findings.baseline": ("parse_reach", "_document", "_no_report")},
        largest=1 << 14,
    ),
    Parser(
        "validate-try",
        reach_try,
        (ValueError,),
        {"railnet.validate.findings.rail_reach": ("parse_try",)},
        largest=1 << 14,
    ),
    Parser("validate-probe", probe, (ValueError,), {"railnet.validate.probe.measured": ()}, largest=1 << 14),
    Parser(
        "validate-baseline",
        earlier,
        (Misconfigured,),
        {"railnet.validate.findings.baseline": ("parse", "_place", "_number", "_refuse")},
        largest=1 << 14,
    ),
)
