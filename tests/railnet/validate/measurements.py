"""Measurements of made-up clusters."""

from itertools import combinations
from typing import Any

from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import Measured


def measured(rail: int, one: str, other: str, **changes: Any) -> Measured:
    sound = Measured(Pair(rail, one, other), round_trip_us=20.0, mtu=4092, gbits=90.0)
    return sound._replace(**changes)


def cut(rail: int, one: str, other: str) -> Measured:
    return Measured(Pair(rail, one, other), failed="round trip: No route to host")


def all_pairs(rail: int, nodes: str) -> list[Measured]:
    """Return sound measurements between all nodes, each named by a letter."""
    return [measured(rail, one, other) for one, other in combinations(nodes, 2)]


def mtus(rail: int, nodes: str, mtu: int = 4092, **others: int) -> dict[tuple[int, str], int]:
    return {(rail, node): others.get(node, mtu) for node in nodes}
