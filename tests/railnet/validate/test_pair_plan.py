"""Which nodes are tested against each other, and at the same time."""

from collections import Counter
from itertools import combinations

import pytest

from railnet.validate.pair_plan import plan, untested


def _nodes(count: int, rails: tuple[int, ...] = (0,)) -> dict[str, tuple[int, ...]]:
    return {f"node-{number:03}": rails for number in range(count)}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16])
def test_a_small_cluster_is_tested_between_all_pairs_once_in_the_fewest_rounds(count: int) -> None:
    rounds = plan(_nodes(count), seed=1)
    pairs = [(pair.server, pair.client) for one in rounds for pair in one]
    assert sorted(pairs) == sorted(combinations(_nodes(count), 2))
    assert len(rounds) == count - 1 + count % 2


@pytest.mark.parametrize("count", [2, 5, 16, 17, 64, 101])
def test_no_port_is_in_two_tests_of_a_round(count: int) -> None:
    for one in plan(_nodes(count, (0, 1, 2)), seed=3):
        ports = Counter((node, pair.rail) for pair in one for node in (pair.server, pair.client))
        assert one
        assert max(ports.values()) == 1


@pytest.mark.parametrize("count", [17, 64, 101])
def test_a_large_cluster_is_tested_along_a_ring_and_between_few_random_pairs(count: int) -> None:
    nodes = list(_nodes(count))
    pairs = [frozenset((pair.server, pair.client)) for one in plan(_nodes(count), seed=1) for pair in one]
    ring = {frozenset(pair) for pair in zip(nodes, [*nodes[1:], nodes[0]], strict=True)}
    assert ring < set(pairs)
    assert len(pairs) == len(set(pairs)) <= count + 4 * (count // 2)


def test_the_plan_is_repeated_by_its_seed() -> None:
    assert plan(_nodes(40), seed=1) == plan(_nodes(40), seed=1) != plan(_nodes(40), seed=2)


def test_rails_run_at_the_same_time() -> None:
    assert len(plan(_nodes(4, (0, 1, 2)), seed=1)) == len(plan(_nodes(4), seed=1))


def test_a_rail_of_one_node_is_in_no_test_and_is_named() -> None:
    rails_of = {"a": (0, 1), "b": (0,)}
    assert plan(rails_of, seed=1) == (((0, "a", "b"),),)
    assert untested(rails_of) == ((1, "a"),)


def test_no_nodes_make_no_plan() -> None:
    assert plan({}, seed=1) == ()


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 101])
def test_a_ring_alone_reaches_each_node_by_its_neighbours_and_no_pair_twice(count: int) -> None:
    rounds = plan(_nodes(count), seed=1, ring_only=True)
    pairs = [frozenset((pair.server, pair.client)) for one in rounds for pair in one]
    of_node = Counter(node for pair in pairs for node in pair)

    assert len(pairs) == len(set(pairs)) == (count if count > 2 else 1)
    assert set(of_node.values()) == {min(2, count - 1)}
    assert len(rounds) <= 3
