"""Speeds are judged beside each other and by the ports; what cannot be judged is said."""

import json

import pytest

from railnet.validate.findings.judgement import RailLimits, judge
from railnet.validate.findings.rail_finding import RailFinding
from railnet.validate.findings.speed_judgement import Judgement, port_rates, usual_rate
from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import Measured, MeasuredRdma, parse
from tests.railnet.validate.measurements import all_pairs, cut, measured, mtus

NODES = "abcdefgh"


def of_node(pairs: list[Measured], node: str, **changes: object) -> list[Measured]:
    return [one._replace(**changes) if node in (one.pair.server, one.pair.client) else one for one in pairs]


def judged(pairs: list[Measured], limits: RailLimits | None = None) -> Judgement:
    rails = {one.pair.rail for one in pairs}
    all_mtus = {place: mtu for rail in rails for place, mtu in mtus(rail, NODES).items()}
    return judge(pairs, all_mtus, limits or RailLimits())


ONE_PAIR = (
    "rail 0, TCP: 1 pair of two nodes, 90.0 Gbit/s, and no other rail to compare with; give --least-gbits or --baseline"
)


def whys(judgement: Judgement) -> list[str]:
    return [one.text for one in judgement.unjudged]


def texts(findings: tuple[RailFinding, ...]) -> list[str]:
    return [one.text for one in findings]


@pytest.mark.parametrize("nodes", ["abc", "abcd", "abcdefgh"])
def test_rail_of_a_node_at_a_hundredth_of_its_peers_is_a_finding(nodes: str) -> None:
    judgement = judged(of_node(all_pairs(0, nodes), "c", gbits=0.9))

    (slow,) = judgement.findings
    assert (slow.kind, slow.rail, slow.nodes, slow.speed) == ("slow", 0, ("c",), "TCP")
    count = len(nodes) - 1
    assert slow.text == (
        f"rail 0 of node c, all its {count} pairs: TCP 0.9 Gbit/s, 1% of 90.0, the median of this rail"
    )
    assert (judgement.warnings, judgement.unjudged) == ((), ())


def test_two_slow_nodes_of_five_are_named_though_most_pairs_are_slow() -> None:
    judgement = judged(of_node(of_node(all_pairs(0, "abcde"), "d", gbits=9.0), "e", gbits=9.0))

    assert [one.nodes for one in judgement.findings] == [("d",), ("e",)]


@pytest.mark.parametrize(("gbits", "level"), [(44.9, "findings"), (45.0, "warnings"), (71.9, "warnings"), (72.0, "")])
def test_below_half_is_a_finding_and_below_four_fifths_a_warning(gbits: float, level: str) -> None:
    judgement = judged(of_node(all_pairs(0, "abcd"), "c", gbits=gbits))

    assert [name for name in ("findings", "warnings") if getattr(judgement, name)] == ([level] if level else [])


def test_slow_pair_between_nodes_that_are_fast_with_others_is_named() -> None:
    pairs = all_pairs(0, "abcd")
    pairs[0] = pairs[0]._replace(gbits=9.0)

    assert [one.nodes for one in judged(pairs).findings] == [("a", "b")]


def at_rate(pairs: list[Measured], rate: float) -> list[Measured]:
    return [one._replace(port_gbits=(rate, rate)) for one in pairs]


def test_whole_rail_that_is_slow_beside_the_other_rails_is_a_finding() -> None:
    slow = [one._replace(gbits=9.0) for one in all_pairs(2, "abc")]
    judgement = judged(at_rate([*all_pairs(0, "abc"), *all_pairs(1, "abc"), *slow], 400.0))

    assert texts(judgement.findings) == [
        "rail 2, all 3 pairs: TCP 9.0 Gbit/s, 10% of 90.0, the median of the other rails"
    ]


def test_one_pair_alone_is_not_judged_and_that_is_said() -> None:
    judgement = judged(all_pairs(0, "ab"))

    assert (judgement.findings, judgement.warnings, whys(judgement)) == ((), (), [ONE_PAIR])


def test_one_pair_with_a_limit_is_judged_by_it() -> None:
    judgement = judged(all_pairs(0, "ab"), RailLimits(least_gbits=100.0))

    assert (len(judgement.findings), judgement.unjudged) == (1, ())


def test_of_two_nodes_the_slower_rail_is_named_by_the_faster_one() -> None:
    judgement = judged(at_rate([*all_pairs(0, "ab"), measured(1, "a", "b", gbits=9.0)], 400.0))

    assert texts(judgement.findings) == [
        "rail 1 between a and b: TCP 9.0 Gbit/s, 10% of 90.0, the speed of the other rail"
    ]
    assert judgement.unjudged == ()


def test_rails_whose_ports_have_other_rates_are_not_compared() -> None:
    fast = measured(0, "a", "b", port_gbits=(400.0, 400.0))
    slow = measured(1, "a", "b", gbits=9.0, port_gbits=(10.0, 10.0))
    judgement = judged([fast, slow])

    assert (judgement.findings, len(judgement.unjudged)) == ((), 2)


@pytest.mark.parametrize("known", [(), (0,), (1,)])
def test_slower_rail_whose_ports_may_have_another_rate_is_a_warning(known: tuple[int, ...]) -> None:
    pairs = [*all_pairs(0, "abc"), *(one._replace(gbits=22.5) for one in all_pairs(1, "abc"))]
    judgement = judged([one._replace(port_gbits=(400.0, 400.0)) if one.pair.rail in known else one for one in pairs])

    assert (judgement.findings, judgement.unjudged) == ((), ())
    assert texts(judgement.warnings) == [
        "rail 1, all 3 pairs: TCP 22.5 Gbit/s, 25% of 90.0, the speed of the other rail, whose ports may have another rate"
    ]


@pytest.mark.parametrize(("gbits", "level"), [(22.5, "warnings"), (9.0, "findings")])
def test_rail_that_is_slower_than_any_rate_of_its_ports_explains_is_a_finding(gbits: float, level: str) -> None:
    judgement = judged([*all_pairs(0, "ab"), measured(1, "a", "b", gbits=gbits)])

    assert [one.nodes for one in getattr(judgement, level)] == [("a", "b")]
    assert len(judgement.findings) + len(judgement.warnings) == 1
    assert judgement.unjudged == ()


def test_rail_is_judged_by_those_of_its_rate_and_not_by_those_of_an_unknown_one() -> None:
    known = at_rate([*all_pairs(0, "abc"), *(one._replace(gbits=9.0) for one in all_pairs(1, "abc"))], 400.0)
    unknown = [one._replace(gbits=9.0) for rail in (2, 3) for one in all_pairs(rail, "abc")]
    judgement = judged([*known, *unknown])

    assert texts(judgement.findings) == [
        "rail 1, all 3 pairs: TCP 9.0 Gbit/s, 10% of 90.0, the speed of the other rail"
    ]


def test_median_that_is_zero_judges_nothing_and_that_is_said() -> None:
    judgement = judged([one._replace(gbits=0.0) for one in all_pairs(0, "abc")])

    assert whys(judgement) == ["rail 0, TCP: the median is 0; give --least-gbits or --baseline"]


def test_slow_speed_is_shown_with_digits_that_say_something() -> None:
    judgement = judged(of_node([one._replace(gbits=0.39) for one in all_pairs(0, "abc")], "c", gbits=0.0391))

    assert texts(judgement.findings) == [
        "rail 0 of node c, all its 2 pairs: TCP 0.039 Gbit/s, 10% of 0.39, the median of this rail"
    ]


def test_cut_pairs_have_no_speed_and_do_not_change_the_median() -> None:
    judgement = judged([*all_pairs(0, "ab"), cut(0, "a", "c"), cut(0, "b", "c")])

    assert [(one.kind, one.nodes) for one in judgement.findings] == [("cut", ("c",))]
    assert whys(judgement) == [ONE_PAIR]


def test_rdma_is_judged_by_the_rate_of_the_ports_and_tcp_is_not() -> None:
    pair = measured(0, "a", "b", rdma=MeasuredRdma(gbits=190.0), port_gbits=(400.0, 400.0))
    judgement = judged([pair])

    assert texts(judgement.findings) == [
        "rail 0 between a and b: RDMA 190.0 Gbit/s, 48% of 400.0, the rate of its ports"
    ]
    assert [why.partition(":")[0] for why in whys(judgement)] == ["rail 0, TCP"]


def test_port_with_a_lower_rate_than_its_rail_is_named() -> None:
    pairs = [
        measured(0, "a", "b", port_gbits=(400.0, 400.0)),
        measured(0, "a", "c", port_gbits=(400.0, 100.0)),
        measured(0, "b", "d", port_gbits=(None, 200.0)),
    ]
    judgement = judged(pairs)

    assert texts(judgement.findings) == [
        "rail 0 of node c: its port has a rate of 100 Gbit/s, the usual one of this rail is 400"
    ]
    assert [one.nodes for one in judgement.warnings] == [("d",)]


def of_two_generations(old: str, new: str) -> list[Measured]:
    """Return measurements of nodes with ports of 100 Gbit/s and of 400; RDMA nearly reaches the slower port's rate."""
    pairs = []
    for one in all_pairs(0, new + old):
        rates = tuple(100.0 if node in old else 400.0 for node in (one.pair.server, one.pair.client))
        pairs.append(one._replace(rdma=MeasuredRdma(gbits=min(rates) * 0.98), port_gbits=rates))
    return pairs


def test_rate_that_two_nodes_share_is_a_warning_and_that_of_one_node_a_finding() -> None:
    shared = judged(of_two_generations("ef", "abcd"), RailLimits(least_rdma_gbits=0.0, least_gbits=101.0))
    ports = [one for one in shared.warnings if one.kind == "port"]
    alone = judged(of_two_generations("e", "abcd"))

    assert [one.kind for one in shared.findings if one.kind == "port"] == []
    assert texts(tuple(ports)) == [
        f"rail 0 of node {node}: its port has a rate of 100 Gbit/s, the usual one of this rail is 400, and 2 of its nodes have 100"
        for node in "ef"
    ]
    assert all("--least-rdma-gbits" in one.look for one in ports)
    assert [(one.kind, one.nodes) for one in alone.findings if one.kind == "port"] == [("port", ("e",))]


@pytest.mark.parametrize("limits", [RailLimits(10.0, None, 90.0), RailLimits(least_rdma_gbits=90.0)])
def test_shared_rate_that_reaches_the_limits_is_not_named(limits: RailLimits) -> None:
    assert judged(of_two_generations("ef", "abcd"), limits) == Judgement()


def test_limit_does_not_hide_the_rate_of_one_node_alone() -> None:
    judgement = judged(of_two_generations("e", "abcd"), RailLimits(10.0, None, 90.0))

    assert [(one.kind, one.nodes) for one in judgement.findings] == [("port", ("e",))]


def test_rates_are_by_node_and_the_usual_one_is_the_most_frequent() -> None:
    pairs = [measured(0, "a", "b", port_gbits=(400.0, 200.0)), measured(0, "b", "c", port_gbits=(200.0, None))]

    assert port_rates(pairs) == {(0, "a"): 400.0, (0, "b"): 200.0}
    assert usual_rate(0, {(0, "a"): 400.0, (0, "b"): 200.0, (0, "c"): 200.0, (1, "a"): 1.0}) == 200.0
    assert usual_rate(0, {(0, "a"): 400.0, (0, "b"): 200.0}) == 400.0
    assert usual_rate(0, {}) is None


@pytest.mark.parametrize(
    ("server", "rate"),
    [
        ("400 Gb/sec (4X NDR)", 400.0),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("0 Gb/sec (4X)", None),
        ("", None),
        ("nan Gb/sec", None),
        ("1e99 Gb/sec", None),
        (None, None),
        (400, None),
        ({}, None),
        ("9" * 60_000, None),
    ],
)
def test_rate_of_another_form_is_not_known(server: object, rate: float | None) -> None:
    sound = {"round_trip_seconds": {"median": 2e-05}, "mtu": 4092, "bits_per_second": 9e10}
    text = json.dumps({**sound, "port_rates": {"server": server, "client": "100 Gb/sec (4X EDR)"}})

    assert parse(Pair(0, "a", "b"), text).port_gbits == (rate, 100.0)
