"""Plans which nodes are tested against each other on each rail, and what runs at the same time. Pure."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

_ALL_PAIRS_UP_TO = 16  # nodes of a rail: 120 pairs in 15 rounds
_RING_ALONE_FROM = 4  # nodes: the ring of three has all pairs
_RANDOM_ROUNDS = 4  # of a larger rail: each node meets up to four nodes besides its two neighbours in the ring


class Pair(NamedTuple):
    """One test: a rail between two nodes."""

    rail: int
    server: str
    client: str


Round = tuple[Pair, ...]


def plan(rails_of: Mapping[str, Sequence[int]], seed: int, *, ring_only: bool = False) -> tuple[Round, ...]:
    """Return rounds of tests that may run at the same time: no port, which is a node's rail, is in two tests of a round.

    A rail of at most 16 nodes is tested between all of them. A larger one is tested along a ring, in which each node is reached, and
    between random pairs. `ring_only` has the ring alone, of more than three nodes. The same nodes, rails and seed give the same plan.
    A rail that one node alone has is in no test: see `untested`.
    """
    nodes_of: dict[int, list[str]] = {}
    for node in sorted(rails_of):
        for rail in sorted(set(rails_of[node])):
            nodes_of.setdefault(rail, []).append(node)
    of_rails = [list(_rounds(rail, nodes, seed, ring_only=ring_only)) for rail, nodes in sorted(nodes_of.items())]
    return tuple(
        tuple(pair for round_ in together for pair in round_) for together in zip_longest(*of_rails, fillvalue=())
    )


def untested(rails_of: Mapping[str, Sequence[int]]) -> tuple[tuple[int, str], ...]:
    """Return each rail that one node alone has, with that node."""
    nodes_of: dict[int, set[str]] = {}
    for node, rails in rails_of.items():
        for rail in rails:
            nodes_of.setdefault(rail, set()).add(node)
    return tuple((rail, next(iter(nodes))) for rail, nodes in sorted(nodes_of.items()) if len(nodes) == 1)


def _rounds(rail: int, nodes: Sequence[str], seed: int, *, ring_only: bool) -> Iterator[Round]:
    if len(nodes) <= (_RING_ALONE_FROM - 1 if ring_only else _ALL_PAIRS_UP_TO):
        matchings = _all_pairs(nodes)
    else:
        matchings = _ring_and_random(nodes, f"{seed}/{rail}", 0 if ring_only else _RANDOM_ROUNDS)
    for matching in matchings:
        if matching:
            yield tuple(Pair(rail, *sorted(pair)) for pair in matching)


def _all_pairs(nodes: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield the rounds of a tournament by the circle method: one place stays, the others turn by one place each round."""
    places: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    for _ in range(len(places) - 1):
        half = len(places) // 2
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        yield [(node, opposite) for node, opposite in facing if node is not None and opposite is not None]
        places = [places[0], places[-1], *places[1:-1]]


def _ring_and_random(nodes: Sequence[str], seed: str, random_rounds: int) -> Iterator[list[tuple[str, str]]]:
    ring = list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))
    # A ring of an odd number of nodes needs a third round, for the pair that closes it.
    even = len(nodes) - len(nodes) % 2
    yield ring[0:even:2]
    yield ring[1:even:2]
    yield ring[even:]
    seen = {frozenset(pair) for pair in ring}
    shuffled, chance = list(nodes), random.Random(seed)  # noqa: S311 - a plan that can be repeated, no secret
    for _ in range(random_rounds):
        chance.shuffle(shuffled)
        pairs = list(zip(shuffled[::2], shuffled[1::2], strict=False))
        yield [pair for pair in pairs if frozenset(pair) not in seen]
        seen.update(frozenset(pair) for pair in pairs)
