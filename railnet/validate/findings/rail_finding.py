"""What is wrong with a rail, and where: said of the whole rail, of a node's rail, or of a pair. Pure.

A finding that is true of all pairs of a node's rail is said once, of the node's rail. A finding that is true of some pairs is said of
each pair.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from railnet.validate.findings.next_look import look
from railnet.validate.probe.measured import Measured

IsWrong = Callable[[Measured], bool]


class RailFinding(NamedTuple):
    """Something that is wrong with a rail, or may be.

    Attributes:
        kind: `cut`, `mtu`, `rdma`, `slow`, `late` or `port`.
        nodes: the node whose rail it is, or the two nodes of a pair; empty for the whole rail.
        text: what was seen, for a person.
        speed: what it is about alone: `TCP` or `RDMA`; empty if it is about the rail.
        own_look: what to look at next, where that does not follow from the kind; see `look`.
    """

    kind: str
    rail: int
    nodes: tuple[str, ...]
    text: str
    speed: str = ""
    own_look: str = ""

    @property
    def look(self) -> str:
        """What to look at next."""
        return self.own_look or look(self.kind, len(self.nodes))


def grouped(measured: Sequence[Measured], wrong: IsWrong) -> Iterator[tuple[tuple[str, ...], list[Measured]]]:
    """Yield what is wrong: the whole rail, else each node of which all pairs are wrong, else each pair; with its measurements."""
    bad = [measurement for measurement in measured if wrong(measurement)]
    if len(bad) == len(measured) > 1:
        yield (), bad
        return
    pairs_of = Counter(node for measurement in measured for node in nodes_of_pair(measurement))
    bad_of = Counter(node for measurement in bad for node in nodes_of_pair(measurement))
    # A node with one pair is not told from its peer, unless the peer has pairs that are right.
    whole = {
        node for node, count in bad_of.items() if count == pairs_of[node] and _is_told(node, bad, pairs_of, bad_of)
    }
    for node in sorted(whole):
        yield (node,), [measurement for measurement in bad if node in nodes_of_pair(measurement)]
    for measurement in bad:
        if not whole & set(nodes_of_pair(measurement)):
            yield nodes_of_pair(measurement), [measurement]


def _is_told(node: str, bad: Sequence[Measured], pairs_of: Mapping[str, int], bad_of: Mapping[str, int]) -> bool:
    """Return whether a node is the cause: it has several pairs, or each of its peers has a pair that is right."""
    peers = {
        other
        for measurement in bad
        if node in nodes_of_pair(measurement)
        for other in nodes_of_pair(measurement)
        if other != node
    }
    return pairs_of[node] > 1 or all(bad_of[peer] < pairs_of[peer] for peer in peers)


def nodes_of_pair(measurement: Measured) -> tuple[str, str]:
    """Return the server's node and the client's node."""
    return (measurement.pair.server, measurement.pair.client)


def shown_gbits(gbits: float) -> str:
    """Return a bandwidth in Gbit/s for a person: a slow one with two digits that say something."""
    return f"{gbits:.1f}" if gbits >= 1 or not gbits else f"{gbits:.2g}"


def where(rail: int, nodes: tuple[str, ...], pairs: int) -> str:
    """Return the place of a finding in words; `nodes` and `pairs` are what `grouped` yields."""
    match nodes:
        case ():
            return f"rail {rail}, all {pairs} pairs"
        case (node,):
            return f"rail {rail} of node {node}, {'all its' if pairs > 1 else 'its only'} {pairs} {'pairs' if pairs > 1 else 'pair'}"
        case _:
            return f"rail {rail} between {' and '.join(nodes)}"
