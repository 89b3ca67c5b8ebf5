"""Which slow nodes and pairs are noticed, by simulated runs. Each has its seed, and the plan and the judgement of the product."""

import random
from collections.abc import Collection

import pytest

from railnet.validate.findings.judgement import RailLimits, judge
from railnet.validate.findings.speed_judgement import Judgement
from railnet.validate.pair_plan import Pair, plan
from railnet.validate.probe.measured import Measured

_SEEDS = range(20)
_RING_ONLY = {"full": False, "quick": True}
_MODES = pytest.mark.parametrize("mode", list(_RING_ONLY))
_FAST, _SLOW, _NOISE = 100.0, 10.0, 0.1  # Gbit/s, and the part by which two runs of one pair differ at most


def names(nodes: int) -> list[str]:
    return [f"node-{number:03}" for number in range(nodes)]


def chance(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a run that can be repeated, no secret


def planned(nodes: int, mode: str, seed: int) -> list[Pair]:
    rounds = plan({node: [0] for node in names(nodes)}, seed, ring_only=_RING_ONLY[mode])
    return [pair for round_ in rounds for pair in round_]


def judged(pairs: list[Pair], slow: Collection[str | Pair], seed: int) -> Judgement:
    """Judge a run in which slow nodes and slow pairs have a tenth of the speed of the others."""
    noise = chance(seed)
    speeds = {pair: _SLOW if {pair, pair.server, pair.client}.intersection(slow) else _FAST for pair in pairs}
    measured = [
        Measured(pair, 20.0, 4092, gbits * noise.uniform(1 - _NOISE, 1 + _NOISE)) for pair, gbits in speeds.items()
    ]
    return judge(measured, {}, RailLimits())


def named(judgement: Judgement) -> list[tuple[str, ...]]:
    assert judgement.warnings == ()
    return [finding.nodes for finding in judgement.findings]


@_MODES
@pytest.mark.parametrize("nodes", range(3, 17))
def test_one_slow_node_is_named_and_no_other(nodes: int, mode: str) -> None:
    for seed in _SEEDS:
        slow = chance(seed).choice(names(nodes))

        assert named(judged(planned(nodes, mode, seed), [slow], seed)) == [(slow,)]


@_MODES
@pytest.mark.parametrize("nodes", range(3, 17))
def test_one_slow_pair_is_named_and_no_other(nodes: int, mode: str) -> None:
    for seed in _SEEDS:
        pairs = planned(nodes, mode, seed)
        slow = chance(seed).choice(pairs)

        assert named(judged(pairs, [slow], seed)) == [(slow.server, slow.client)]


@_MODES
@pytest.mark.parametrize("nodes", [*range(3, 17), 40])
def test_sound_nodes_whose_speeds_differ_by_a_tenth_have_neither_finding_nor_warning(nodes: int, mode: str) -> None:
    for seed in _SEEDS:
        assert named(judged(planned(nodes, mode, seed), [], seed)) == []


@pytest.mark.parametrize("nodes", range(3, 17))
def test_slow_nodes_are_named_while_they_are_fewer_than_half_of_those_that_are_all_tested(nodes: int) -> None:
    for seed in _SEEDS:
        slow = chance(seed).sample(names(nodes), (nodes - 1) // 2)

        assert named(judged(planned(nodes, "full", seed), slow, seed)) == [(node,) for node in sorted(slow)]


@pytest.mark.parametrize(("nodes", "mode"), [(17, "full"), (40, "full"), (4, "quick"), (9, "quick"), (40, "quick")])
def test_slow_nodes_are_named_while_they_are_a_quarter_of_those_that_are_not_all_tested(nodes: int, mode: str) -> None:
    for seed in _SEEDS:
        slow = chance(seed).sample(names(nodes), nodes // 4)
        findings = named(judged(planned(nodes, mode, seed), slow, seed))

        assert {(node,) for node in slow} <= set(findings)


def test_third_of_a_ring_is_named_where_each_sound_node_has_a_sound_neighbour() -> None:
    slow = names(9)[::3]

    assert named(judged(planned(9, "quick", 0), slow, 0)) == [(node,) for node in slow]


def test_quarter_of_a_ring_is_named_also_where_each_second_node_is_slow() -> None:
    slow = names(40)[:20:2]
    findings = named(judged(planned(40, "quick", 0), slow, 0))

    assert {(node,) for node in slow} <= set(findings)


def test_sound_node_between_two_slow_ones_of_a_ring_is_not_told_from_them() -> None:
    nodes = names(9)

    assert named(judged(planned(9, "quick", 0), [nodes[0], nodes[2]], 0)) == [(nodes[0],), (nodes[1],), (nodes[2],)]


def test_rail_of_which_more_than_half_is_slow_has_the_slow_speed_for_its_median() -> None:
    slow = names(9)[:5]

    assert named(judged(planned(9, "full", 0), slow, 0)) == []
