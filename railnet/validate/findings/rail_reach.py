"""Which rails reach each other: plans the tries, and says what they mean. Pure.

On a fabric with one layer of switches for each rail and no spine, a pod with a VF of one rail has no way to a pod with a VF of another one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import NamedTuple

from railnet.validate.findings.rail_finding import nodes_of_pair
from railnet.validate.probe.measured import Measured

_TRIES = 2  # of two rails, between other nodes: one port that is slow to answer does not separate rails
_LONGEST_WHY = 200


class ReachTry(NamedTuple):
    """A connection from one rail of a node to another rail of another node."""

    rail: int
    other: int
    client: str
    server: str


class RailReach(NamedTuple):
    """Whether two rails reach each other; None if no try could be made. `why` says what a try has met."""

    rail: int
    other: int
    reached: bool | None
    why: str = ""


def sound_places(measured: Iterable[Measured]) -> set[tuple[int, str]]:
    """Return the ports, by rail and node, that have reached another one of their own rail."""
    return {
        (measurement.pair.rail, node)
        for measurement in measured
        if not measurement.failed and not measurement.untried
        for node in nodes_of_pair(measurement)
    }


def plan_tries(rails: Sequence[int], sound: Iterable[tuple[int, str]]) -> tuple[ReachTry, ...]:
    """Return the tries between each two rails: from a sound port to a sound port of another node, at most two."""
    places = sorted(sound)
    nodes_of = {rail: [node for number, node in places if number == rail] for rail in rails}
    return tuple(
        one_try for rail, other in combinations(sorted(rails), 2) for one_try in _between(rail, other, nodes_of)
    )


def parse_try(text: str) -> tuple[bool, str]:
    """Read what the probe has printed of one try: whether it has reached the peer, and if not, why.

    Raises:
        ValueError: it is not what the probe prints.
    """
    try:
        told = json.loads(text)
        reached, why = told["reached"], told.get("why", "")
        if type(reached) is not bool or not isinstance(why, str):
            raise TypeError("it says not whether the peer was reached")
        return reached, why[:_LONGEST_WHY]
    except (TypeError, KeyError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(f"the probe printed {text!r:.200}, which is no try: {error}") from None


def judge_reach(rails: Sequence[int], outcomes: Mapping[ReachTry, tuple[bool | None, str]]) -> tuple[RailReach, ...]:
    """Return what the tries say of each two rails: one that has succeeded is enough."""
    return tuple(_judged(rail, other, outcomes) for rail, other in combinations(sorted(rails), 2))


def known(reach: Iterable[RailReach]) -> dict[frozenset[int], bool]:
    """Return by two rails what is known of them."""
    return {frozenset((each.rail, each.other)): each.reached for each in reach if each.reached is not None}


def without_places(
    outcomes: Mapping[ReachTry, tuple[bool | None, str]], gone: Mapping[str, str]
) -> dict[ReachTry, tuple[bool | None, str]]:
    """Return the outcomes; those of a try with a node that is gone, which has failed, say nothing but why."""

    def told(tried: ReachTry, outcome: tuple[bool | None, str]) -> tuple[bool | None, str]:
        why = gone.get(tried.client) or gone.get(tried.server)
        return (None, why) if why and not outcome[0] else outcome

    return {tried: told(tried, outcome) for tried, outcome in outcomes.items()}


def reach_lines(reach: Sequence[RailReach]) -> Iterator[str]:
    """Yield what a person reads about it; nothing of one rail alone."""
    apart = [each for each in reach if each.reached is False]
    joined = [each for each in reach if each.reached]
    if apart and not joined:
        yield f"no rail reaches another one ({apart[0].why})"
    elif apart:
        yield from (f"rails {each.rail} and {each.other} do not reach each other ({each.why})" for each in apart)
    elif joined and len(joined) == len(reach):
        yield "all rails reach each other"
    if apart:
        yield "  a job whose pods have fewer VFs than their nodes have rails hangs there, unless its pods have the same rails"
    yield from (
        f"rails {each.rail} and {each.other}: not known whether they reach each other ({each.why})"
        for each in reach
        if each.reached is None
    )


def _between(rail: int, other: int, nodes_of: Mapping[int, Sequence[str]]) -> Iterator[ReachTry]:
    tries: list[ReachTry] = []
    for client, server in product(nodes_of[rail], nodes_of[other]):
        used = {node for earlier in tries for node in (earlier.client, earlier.server)}
        if client != server and (not tries or used != {client, server}):
            tries.append(ReachTry(rail, other, client, server))
        if len(tries) == _TRIES:
            break
    yield from tries


def _judged(rail: int, other: int, outcomes: Mapping[ReachTry, tuple[bool | None, str]]) -> RailReach:
    of_both = [outcome for tried, outcome in outcomes.items() if (tried.rail, tried.other) == (rail, other)]
    if any(reached for reached, _ in of_both):
        return RailReach(rail, other, True)
    refused = [why for reached, why in of_both if reached is False]
    if refused:
        return RailReach(rail, other, False, refused[0])
    return RailReach(rail, other, None, next((why for _, why in of_both), "no two nodes have sound ports of both"))
