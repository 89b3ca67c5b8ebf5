"""Judges the measurements: a rail that is cut, a rail with a smaller MTU, a rail that is slow. Pure.

A finding that is true of all pairs of a node's rail is said once, of the node's rail. A finding that is true of some pairs is said of
each pair.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import gt, lt
from typing import NamedTuple

from railnet.validate.measured import Measured
from railnet.validate.pair_plan import Pair

Mtus = Mapping[tuple[int, str], int]  # a netdev's MTU by rail and node
_Is = Callable[[Measured], bool]
_Number = Callable[[Measured], float | None]


class RailLimits(NamedTuple):
    """The limits that a rail must keep to; None for what is not judged."""

    least_gbits: float | None = None
    most_microseconds: float | None = None
    least_rdma_gbits: float | None = None
    most_rdma_microseconds: float | None = None

    @property
    def of_rdma(self) -> bool:
        """Return whether RDMA must keep to a limit, so that it must be measured."""
        return self.least_rdma_gbits is not None or self.most_rdma_microseconds is not None


class RailFinding(NamedTuple):
    """Something that is wrong with a rail.

    Attributes:
        kind: `cut`, `mtu`, `rdma`, `slow` or `late`.
        nodes: the node whose rail it is, or the two nodes of a pair; empty for the whole rail.
        text: what was seen, for a person.
    """

    kind: str
    rail: int
    nodes: tuple[str, ...]
    text: str


def findings(measured: Sequence[Measured], mtus: Mtus, limits: RailLimits) -> tuple[RailFinding, ...]:
    """Return what is wrong, by rail."""
    tried = [measurement for measurement in measured if not measurement.untried]
    all_findings: list[RailFinding] = []
    for rail in sorted({measurement.pair.rail for measurement in tried}):
        of_rail = [measurement for measurement in tried if measurement.pair.rail == rail]
        all_findings += _cut(rail, of_rail, mtus)
        all_findings += _smaller_netdevs(
            rail, {node: mtu for (number, node), mtu in mtus.items() if number == rail and mtu}
        )
        all_findings += _smaller_paths(rail, of_rail, mtus)
        all_findings += _without_rdma(rail, of_rail)
        all_findings += _beyond(rail, of_rail, limits)
    return tuple(all_findings)


def usual(numbers: Iterable[int]) -> int:
    """Return the most frequent number; of several the largest, and 0 of none."""
    counted = Counter(numbers)
    return max(counted, key=lambda number: (counted[number], number), default=0)


def _cut(rail: int, of_rail: Sequence[Measured], mtus: Mtus) -> Iterator[RailFinding]:
    """Name what has no connection. TCP that stands still where large packets are lost is the MTU's finding."""
    for nodes, told in _grouped(
        of_rail, lambda measurement: bool(measurement.failed) and not _is_smaller(measurement, mtus)
    ):
        why = "; ".join(sorted({measurement.failed for measurement in told})[:2])
        where = _where(rail, nodes, len(told))
        yield RailFinding("cut", rail, nodes, f"{where}: no connection, or it was lost ({why})")


def _smaller_netdevs(rail: int, mtu_of: Mapping[str, int]) -> Iterator[RailFinding]:
    most = usual(mtu_of.values())
    for node, mtu in sorted(mtu_of.items()):
        if mtu != most:
            text = f"rail {rail} of node {node}: its netdev has MTU {mtu}, the usual one of this rail is {most}"
            yield RailFinding("mtu", rail, (node,), text)


def _smaller_paths(rail: int, of_rail: Sequence[Measured], mtus: Mtus) -> Iterator[RailFinding]:
    """Name paths that carry less than both of their netdevs would."""
    for nodes, told in _grouped(
        [measurement for measurement in of_rail if measurement.mtu is not None],
        lambda measurement: _is_smaller(measurement, mtus),
    ):
        largest = max(measurement.mtu or 0 for measurement in told)
        netdevs = max(_least_netdev(measurement.pair, mtus) for measurement in told)
        text = f"{_where(rail, nodes, len(told))}: no packet above {largest} bytes arrives, though netdevs have MTU {netdevs}"
        yield RailFinding("mtu", rail, nodes, text)


def _is_smaller(measurement: Measured, mtus: Mtus) -> bool:
    return measurement.mtu is not None and measurement.mtu < _least_netdev(measurement.pair, mtus)


def _least_netdev(pair: Pair, mtus: Mtus) -> int:
    return min(mtus.get((pair.rail, node), 0) for node in (pair.server, pair.client))


def _without_rdma(rail: int, of_rail: Sequence[Measured]) -> Iterator[RailFinding]:
    """Name what TCP reaches and a tool for RDMA does not."""
    for nodes, told in _grouped(of_rail, lambda measurement: bool(measurement.rdma.failed)):
        why = "; ".join(sorted({measurement.rdma.failed for measurement in told})[:2])
        yield RailFinding(
            "rdma", rail, nodes, f"{_where(rail, nodes, len(told))}: RDMA fails, and TCP does not ({why})"
        )


def _beyond(rail: int, of_rail: Sequence[Measured], limits: RailLimits) -> Iterator[RailFinding]:
    """Name what is slower than the user permits."""
    bandwidths: tuple[tuple[_Number, float | None, str], ...] = (
        (lambda measurement: measurement.gbits, limits.least_gbits, ""),
        (lambda measurement: measurement.rdma.gbits, limits.least_rdma_gbits, "RDMA has "),
    )
    for gbits, least, what in bandwidths:
        for nodes, values in () if least is None else _wrong(of_rail, gbits, partial(gt, least)):
            where = _where(rail, nodes, len(values))
            yield RailFinding(
                "slow", rail, nodes, f"{where}: {what}{min(values):.1f} Gbit/s, at least {least:g} wanted"
            )
    latencies: tuple[tuple[_Number, float | None, str], ...] = (
        (lambda measurement: measurement.round_trip_us, limits.most_microseconds, "round trip {:.0f} us"),
        (lambda measurement: measurement.rdma.latency_us, limits.most_rdma_microseconds, "latency of RDMA {:.2f} us"),
    )
    for latency, most, words in latencies:
        for nodes, values in () if most is None else _wrong(of_rail, latency, partial(lt, most)):
            text = f"{_where(rail, nodes, len(values))}: {words.format(max(values))}, at most {most:g} wanted"
            yield RailFinding("late", rail, nodes, text)


def _wrong(
    of_rail: Sequence[Measured], number: _Number, beyond: Callable[[float], bool]
) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    """Yield the nodes with numbers beyond a limit, and these numbers; a pair without the number is not judged."""

    def is_wrong(measurement: Measured) -> bool:
        value = number(measurement)
        return value is not None and beyond(value)

    for nodes, told in _grouped([measurement for measurement in of_rail if number(measurement) is not None], is_wrong):
        yield nodes, [value for measurement in told if (value := number(measurement)) is not None]


def _grouped(measured: Sequence[Measured], wrong: _Is) -> Iterator[tuple[tuple[str, ...], list[Measured]]]:
    """Yield what is wrong: the whole rail, else each node of which all pairs are wrong, else each pair; with its measurements."""
    bad = [measurement for measurement in measured if wrong(measurement)]
    if len(bad) == len(measured) > 1:
        yield (), bad
        return
    pairs_of = Counter(node for measurement in measured for node in _nodes(measurement))
    bad_of = Counter(node for measurement in bad for node in _nodes(measurement))
    # A node with one pair is not told from its peer, unless the peer has pairs that are right.
    whole = {
        node for node, count in bad_of.items() if count == pairs_of[node] and _is_told(node, bad, pairs_of, bad_of)
    }
    for node in sorted(whole):
        yield (node,), [measurement for measurement in bad if node in _nodes(measurement)]
    for measurement in bad:
        if not whole & set(_nodes(measurement)):
            yield _nodes(measurement), [measurement]


def _is_told(node: str, bad: Sequence[Measured], pairs_of: Mapping[str, int], bad_of: Mapping[str, int]) -> bool:
    """Return whether a node is the cause: it has several pairs, or each of its peers has a pair that is right."""
    peers = {
        other for measurement in bad if node in _nodes(measurement) for other in _nodes(measurement) if other != node
    }
    return pairs_of[node] > 1 or all(bad_of[peer] < pairs_of[peer] for peer in peers)


def _nodes(measurement: Measured) -> tuple[str, str]:
    return (measurement.pair.server, measurement.pair.client)


def _where(rail: int, nodes: tuple[str, ...], pairs: int) -> str:
    match nodes:
        case ():
            return f"rail {rail}, all {pairs} pairs"
        case (node,):
            return f"rail {rail} of node {node}, {'all its' if pairs > 1 else 'its only'} {pairs} {'pairs' if pairs > 1 else 'pair'}"
        case _:
            return f"rail {rail} between {' and '.join(nodes)}"
