"""The planner and other policies in short simulations; `scripts/bench placement` runs long ones and compares the figures."""

from dataclasses import replace

import pytest

from simnode.placement.comparison import (
    CONTENDERS,
    RELAXED_AFTER_30,
    REQUIRES_LEAF,
    Contender,
    judged,
    prefers_leaf,
    railnet,
)
from simnode.placement.fabric import IRREGULAR, TEN_BY_64
from simnode.placement.figures import figures

GANGS = 120
RAILNET = [RELAXED_AFTER_30, Contender("Railnet, required leaf", railnet(REQUIRES_LEAF), one_leaf=True)]
POD_GROUPS = [
    Contender("PodGroups, relaxed after 30 s", railnet(prefers_leaf(30.0), pins_leaf=False)),
    Contender("PodGroups, required leaf", railnet(REQUIRES_LEAF, pins_leaf=False), one_leaf=True),
]
BY_NAME = {contender.name: contender for contender in CONTENDERS}


@pytest.mark.parametrize("contender", [*CONTENDERS, *POD_GROUPS], ids=lambda contender: contender.name)
def test_every_gang_is_bound_whole_where_it_may_be_and_no_node_is_over_booked(contender: Contender):
    result = judged(IRREGULAR, contender, seed=7, count=GANGS)

    assert len(result.runs) == GANGS


def test_the_same_seed_gives_the_same_result():
    assert judged(IRREGULAR, RELAXED_AFTER_30, seed=3, count=GANGS) == judged(
        IRREGULAR, RELAXED_AFTER_30, seed=3, count=GANGS
    )


def test_another_seed_gives_another_result():
    assert judged(IRREGULAR, RELAXED_AFTER_30, seed=3, count=GANGS) != judged(
        IRREGULAR, RELAXED_AFTER_30, seed=4, count=GANGS
    )


def test_a_pod_that_prefers_its_planned_node_always_finds_room_in_its_leaf():
    for seed in range(3):
        assert judged(IRREGULAR, RELAXED_AFTER_30, seed, GANGS).refused == 0


@pytest.mark.slow
@pytest.mark.parametrize("contender", RAILNET, ids=lambda contender: contender.name)
def test_gangs_with_parameter_servers_are_bound_whole_where_they_may_be(contender: Contender):
    fabric = replace(IRREGULAR, with_servers=0.5)

    result = judged(fabric, contender, seed=2, count=GANGS)

    assert any(len(set(run.gang.vfs)) > 1 for run in result.runs)
    assert result.refused == 0


@pytest.mark.parametrize(
    ("by_group", "by_gates"), [*zip(POD_GROUPS, RAILNET, strict=True)], ids=["preferred", "required"]
)
def test_gangs_of_pod_groups_lie_where_those_behind_gates_do(by_group: Contender, by_gates: Contender):
    assert judged(IRREGULAR, by_group, seed=5, count=GANGS) == judged(IRREGULAR, by_gates, seed=5, count=GANGS)


def test_a_gang_that_is_not_in_one_leaf_waited_until_it_relaxed():
    result = judged(IRREGULAR, RELAXED_AFTER_30, seed=1, count=2 * GANGS)
    leaf_of_node = IRREGULAR.leaf_of_node()

    spread = [run for run in result.runs if len({leaf_of_node[node] for node in run.nodes}) > 1]

    assert spread
    assert min(run.bound - run.gang.arrives for run in spread) >= 30.0 - 1e-6


@pytest.mark.slow
def test_the_planner_keeps_more_gangs_in_one_leaf_than_first_fit_and_none_waits_longer_on_average():
    ours, theirs = (
        figures(TEN_BY_64, [judged(TEN_BY_64, contender, seed=1, count=3 * GANGS)])
        for contender in (
            Contender("at once", railnet(prefers_leaf(0.0))),
            BY_NAME["first-fit leaf, then anywhere"],
        )
    )

    assert ours.one_leaf > theirs.one_leaf
    assert ours.ring_edges < theirs.ring_edges / 2
    assert ours.wait_mean <= theirs.wait_mean
