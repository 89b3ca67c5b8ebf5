"""What measurements mean."""

import json
from typing import Any

import pytest

from railnet.validate.findings.judgement import RailLimits, findings, judge, usual
from railnet.validate.findings.rail_finding import RailFinding
from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import Measured, MeasuredRdma, parse
from tests.railnet.validate.measurements import all_pairs, cut, measured, mtus
from tests.railnet.validate.probe.perftest_tables import BANDWIDTH, LATENCY

NONE = RailLimits()


def with_cut(nodes: str, *broken: tuple[str, str], rail: int = 0) -> list[Measured]:
    return [
        cut(rail, *nodes_of) if (nodes_of := (one.pair.server, one.pair.client)) in broken else one
        for one in all_pairs(rail, nodes)
    ]


def named(found: tuple[RailFinding, ...]) -> list[tuple[str, int, tuple[str, ...]]]:
    return [(one.kind, one.rail, one.nodes) for one in found]


def test_sound_rails_have_no_finding() -> None:
    assert findings([*all_pairs(0, "abc"), *all_pairs(1, "abc")], {**mtus(0, "abc"), **mtus(1, "abc")}, NONE) == ()


def test_node_whose_rail_is_cut_is_named_once() -> None:
    found = findings(with_cut("abc", ("a", "c"), ("b", "c"), rail=3), mtus(3, "abc"), NONE)

    assert named(found) == [("cut", 3, ("c",))]
    assert found[0].text == (
        "rail 3 of node c, all its 2 pairs: no connection, or it was lost (round trip: No route to host)"
    )


def test_pair_that_is_cut_between_nodes_that_reach_others_is_named() -> None:
    assert named(findings(with_cut("abcd", ("a", "b")), mtus(0, "abcd"), NONE)) == [("cut", 0, ("a", "b"))]


def test_of_two_nodes_neither_is_blamed() -> None:
    (found,) = findings([cut(0, "a", "b")], mtus(0, "ab"), NONE)

    assert (found.nodes, found.text.partition(":")[0]) == (("a", "b"), "rail 0 between a and b")


def test_whole_rail_that_is_cut_is_named_once() -> None:
    every = [("a", "b"), ("a", "c"), ("b", "c")]
    (found,) = findings(with_cut("abc", *every), mtus(0, "abc"), NONE)

    assert (found.nodes, found.text.partition(":")[0]) == ((), "rail 0, all 3 pairs")


def test_two_nodes_that_are_cut_are_both_named() -> None:
    broken = [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")]
    assert named(findings(with_cut("abcd", *broken), mtus(0, "abcd"), NONE)) == [("cut", 0, ("c",)), ("cut", 0, ("d",))]


def test_neighbour_of_a_cut_node_with_one_pair_is_not_blamed() -> None:
    one_pair_each = [cut(0, "a", "b"), measured(0, "b", "c")]

    assert named(findings(one_pair_each, mtus(0, "abc"), NONE)) == [("cut", 0, ("a",))]


def test_netdev_with_a_smaller_mtu_is_named_and_its_pairs_are_not() -> None:
    small = [one._replace(mtu=2044) if one.pair.client == "c" else one for one in all_pairs(0, "abc")]
    (found,) = findings(small, mtus(0, "abc", c=2044), NONE)

    assert (found.kind, found.nodes) == ("mtu", ("c",))
    assert found.text == "rail 0 of node c: its netdev has MTU 2044, the usual one of this rail is 4092"


def test_path_that_carries_less_than_its_netdevs_is_named() -> None:
    small = [one._replace(mtu=2044) if one.pair.client == "c" else one for one in all_pairs(0, "abc")]
    (found,) = findings(small, mtus(0, "abc"), NONE)

    assert (found.kind, found.nodes) == ("mtu", ("c",))
    assert found.text.endswith("no packet above 2044 bytes arrives, though netdevs have MTU 4092")


def test_each_kind_of_finding_says_what_to_look_at_next() -> None:
    rdma = MeasuredRdma(5.0, 9.0, "rping: status 1")
    wrong = [one._replace(mtu=1500, rdma=rdma) for one in all_pairs(0, "abc")]
    ports = [
        measured(1, "a", "b", port_gbits=(400.0, 400.0)),
        measured(1, "a", "c", port_gbits=(400.0, 10.0), gbits=1.0),
    ]
    judgement = judge(
        [*wrong, *ports, cut(2, "a", "b")],
        {**mtus(0, "abc", c=2044), **mtus(1, "abc"), **mtus(2, "ab")},
        RailLimits(most_microseconds=1, least_rdma_gbits=10),
    )

    assert {one.kind for one in judgement.findings} == {"cut", "late", "mtu", "port", "rdma", "slow"}
    assert [one.text for one in judgement.findings if not one.look] == []
    looks = [one.look for one in judgement.findings if one.kind == "mtu"]
    assert [look.split(" ", 3)[1] for look in looks] == ["`mtu`", "MTU"]  # of the netdev, and of the path


def test_tcp_that_stands_still_where_large_packets_are_lost_is_the_mtus_finding() -> None:
    lost = {"mtu": 2044, "gbits": None, "failed": "bandwidth: timed out"}
    pairs = [one._replace(**lost) if one.pair.client == "c" else one for one in all_pairs(0, "abc")]

    assert named(findings(pairs, mtus(0, "abc"), NONE)) == [("mtu", 0, ("c",))]


def test_mtu_that_the_node_does_not_say_is_not_judged() -> None:
    assert findings([measured(0, "a", "b", mtu=1500)], mtus(0, "ab", 0), NONE) == ()


def test_limits_are_judged_where_they_are_given() -> None:
    slow = [
        one._replace(gbits=40.0, round_trip_us=90.0) if one.pair.client == "c" else one for one in all_pairs(0, "abc")
    ]

    assert findings(slow, mtus(0, "abc"), NONE) == ()
    assert named(findings(slow, mtus(0, "abc"), RailLimits(least_gbits=80, most_microseconds=50))) == [
        ("slow", 0, ("c",)),
        ("late", 0, ("c",)),
    ]


def test_pair_that_was_not_tried_says_nothing_of_the_rail() -> None:
    tried = all_pairs(0, "abc")
    tried[0] = Measured(tried[0].pair, untried="the API server does not answer")

    assert findings(tried, mtus(0, "abc"), RailLimits(1.0, 1000.0)) == ()


def test_usual_is_the_most_frequent_and_of_several_the_largest() -> None:
    assert (usual([]), usual([1, 2, 2]), usual([1500, 4092])) == (0, 2, 4092)


def test_measurement_is_read() -> None:
    text = '{"round_trip_seconds": {"median": 2e-05, "p99": 4e-05}, "mtu": 4092, "bits_per_second": 9e10}'

    assert parse(Pair(0, "a", "b"), text) == measured(0, "a", "b")


def test_measurement_that_failed_half_way_keeps_what_it_has() -> None:
    text = '{"round_trip_seconds": {"median": 2e-05}, "failed": {"measurement": "mtu", "why": "timed out"}}'
    found = parse(Pair(0, "a", "b"), text)

    assert (found.round_trip_us, found.mtu, found.failed) == (20.0, None, "largest packet: timed out")


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"mtu": {}}', '{"failed": {"measurement": "x"}}', "1"])
def test_what_is_no_measurement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no measurement"):
        parse(Pair(0, "a", "b"), text)


def test_tool_for_rdma_that_fails_where_tcp_does_not_is_named() -> None:
    failed = MeasuredRdma(failed="ib_write_bw: status 1: Failed status 12")
    pairs = [one._replace(rdma=failed) if one.pair.client == "c" else one for one in all_pairs(0, "abc")]
    (found,) = findings(pairs, mtus(0, "abc"), NONE)

    assert (found.kind, found.nodes) == ("rdma", ("c",))
    assert found.text.endswith("RDMA fails, and TCP does not (ib_write_bw: status 1: Failed status 12)")


def test_limits_of_rdma_are_judged_where_it_was_measured() -> None:
    pairs = [
        one._replace(rdma=MeasuredRdma(200.0, 3.0)) if one.pair.client == "c" else one for one in all_pairs(0, "abc")
    ]
    found = findings(pairs, mtus(0, "abc"), RailLimits(least_rdma_gbits=380, most_rdma_microseconds=2))

    assert findings(pairs, mtus(0, "abc"), RailLimits(80.0, 50.0)) == ()
    assert [(one.kind, one.nodes, one.text) for one in found] == [
        ("slow", (), "rail 0, all 2 pairs: RDMA has 200.0 Gbit/s, at least 380 wanted"),
        ("late", (), "rail 0, all 2 pairs: latency of RDMA 3.00 us, at most 2 wanted"),
    ]


def with_rdma(outcomes: dict[str, Any]) -> MeasuredRdma:
    sound = {"round_trip_seconds": {"median": 2e-05}, "mtu": 4092, "bits_per_second": 9e10}
    return parse(Pair(0, "a", "b"), json.dumps({**sound, "rdma": outcomes})).rdma


def test_outcome_of_each_tool_is_read() -> None:
    outcomes = {
        "ib_write_bw": {"printed": BANDWIDTH},
        "ib_write_lat": {"printed": "no table"},
        "rping": {"untried": "not in the image"},
    }

    assert with_rdma(outcomes) == MeasuredRdma(
        0.14,
        None,
        "",
        (("ib_write_lat", "it has printed no table of results that is known"), ("rping", "not in the image")),
    )
    assert (
        with_rdma({"rping": {"failed": "status 1: rdma_resolve_addr"}}).failed == "rping: status 1: rdma_resolve_addr"
    )
    both = with_rdma({"ib_write_lat": {"printed": LATENCY}, "rping": {"printed": ""}})
    assert both == MeasuredRdma(latency_us=31.4, connected=True)
