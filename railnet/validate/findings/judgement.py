"""Judges the measurements: a rail that is cut, a rail with a smaller MTU, a rail that is slow. Pure.

Speeds without a limit of the user are judged by `speed_judgement`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import gt, lt
from typing import NamedTuple

from railnet.validate.findings.baseline import Earlier, compare, knows
from railnet.validate.findings.next_look import NETDEV_MTU, PATH_MTU
from railnet.validate.findings.rail_finding import RailFinding, grouped, shown_gbits, where
from railnet.validate.findings.speed_judgement import (
    RDMA,
    TCP,
    Judgement,
    Number,
    judge_ports,
    judge_speed,
    port_rates,
    together,
)
from railnet.validate.pair_plan import Pair
from railnet.validate.probe.measured import Measured

Mtus = Mapping[tuple[int, str], int]  # a netdev's MTU by rail and node


class RailLimits(NamedTuple):
    """The limits that a rail must keep to; None for what is not judged."""

    least_gbits: float | None = None
    most_microseconds: float | None = None
    least_rdma_gbits: float | None = None
    most_rdma_microseconds: float | None = None
    least_busbw_gbits: float | None = None

    @property
    def of_rdma(self) -> bool:
        """Return whether RDMA must keep to a limit, so that it must be measured."""
        return self.least_rdma_gbits is not None or self.most_rdma_microseconds is not None

    @property
    def most_gbits_wanted(self) -> float | None:
        """Return the higher limit of a bandwidth in Gbit/s; None if none is given."""
        return max((limit for limit in (self.least_gbits, self.least_rdma_gbits) if limit is not None), default=None)


def judge(measured: Sequence[Measured], mtus: Mtus, limits: RailLimits, earlier: Earlier | None = None) -> Judgement:
    """Judge all measurements: by the limits, speeds without a limit beside each other and by the ports' rates, all speeds by an earlier run."""
    tried = [measurement for measurement in measured if not measurement.untried]
    rates = port_rates(tried)
    unlimited = [
        speed for speed, limit in ((TCP, limits.least_gbits), (RDMA, limits.least_rdma_gbits)) if limit is None
    ]
    judgement = together(
        (
            Judgement(findings(tried, mtus, limits)),
            judge_ports(rates, limits.most_gbits_wanted),
            *(judge_speed(tried, speed, rates) for speed in unlimited),
        )
    )
    if earlier is None:
        return judgement
    unjudged = [why for why in judgement.unjudged if not knows(earlier, tried, why.rail, why.speed)]
    return together((judgement._replace(unjudged=tuple(unjudged)), compare(tried, earlier)))


def findings(measured: Sequence[Measured], mtus: Mtus, limits: RailLimits) -> tuple[RailFinding, ...]:
    """Return what is wrong whatever the other rails have: what is cut, has another MTU, fails, or is beyond a limit; by rail."""
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
    for nodes, told in grouped(
        of_rail, lambda measurement: bool(measurement.failed) and not _is_smaller(measurement, mtus)
    ):
        why = "; ".join(sorted({measurement.failed for measurement in told})[:2])
        place = where(rail, nodes, len(told))
        yield RailFinding("cut", rail, nodes, f"{place}: no connection, or it was lost ({why})")


def _smaller_netdevs(rail: int, mtu_of: Mapping[str, int]) -> Iterator[RailFinding]:
    most = usual(mtu_of.values())
    for node, mtu in sorted(mtu_of.items()):
        if mtu != most:
            text = f"rail {rail} of node {node}: its netdev has MTU {mtu}, the usual one of this rail is {most}"
            yield RailFinding("mtu", rail, (node,), text, own_look=NETDEV_MTU)


def _smaller_paths(rail: int, of_rail: Sequence[Measured], mtus: Mtus) -> Iterator[RailFinding]:
    """Name paths that carry less than both of their netdevs would."""
    for nodes, told in grouped(
        [measurement for measurement in of_rail if measurement.mtu is not None],
        lambda measurement: _is_smaller(measurement, mtus),
    ):
        largest = max(measurement.mtu or 0 for measurement in told)
        netdevs = max(_least_netdev(measurement.pair, mtus) for measurement in told)
        text = f"{where(rail, nodes, len(told))}: no packet above {largest} bytes arrives, though netdevs have MTU {netdevs}"
        yield RailFinding("mtu", rail, nodes, text, own_look=PATH_MTU)


def _is_smaller(measurement: Measured, mtus: Mtus) -> bool:
    return measurement.mtu is not None and measurement.mtu < _least_netdev(measurement.pair, mtus)


def _least_netdev(pair: Pair, mtus: Mtus) -> int:
    return min(mtus.get((pair.rail, node), 0) for node in (pair.server, pair.client))


def _without_rdma(rail: int, of_rail: Sequence[Measured]) -> Iterator[RailFinding]:
    """Name what TCP reaches and a tool for RDMA does not."""
    for nodes, told in grouped(of_rail, lambda measurement: bool(measurement.rdma.failed)):
        why = "; ".join(sorted({measurement.rdma.failed for measurement in told})[:2])
        yield RailFinding(
            "rdma", rail, nodes, f"{where(rail, nodes, len(told))}: RDMA fails, and TCP does not ({why})", RDMA.name
        )


def _beyond(rail: int, of_rail: Sequence[Measured], limits: RailLimits) -> Iterator[RailFinding]:
    """Name what is slower than the user permits."""
    bandwidths = ((TCP, limits.least_gbits, ""), (RDMA, limits.least_rdma_gbits, "RDMA has "))
    for speed, least, what in bandwidths:
        for nodes, values in () if least is None else _wrong(of_rail, speed.of, partial(gt, least)):
            text = (
                f"{where(rail, nodes, len(values))}: {what}{shown_gbits(min(values))} Gbit/s, at least {least:g} wanted"
            )
            yield RailFinding("slow", rail, nodes, text, speed.name)
    latencies: tuple[tuple[Number, float | None, str, str], ...] = (
        (lambda measurement: measurement.round_trip_us, limits.most_microseconds, "round trip {:.0f} us", TCP.name),
        (
            lambda measurement: measurement.rdma.latency_us,
            limits.most_rdma_microseconds,
            "latency of RDMA {:.2f} us",
            RDMA.name,
        ),
    )
    for latency, most, words, name in latencies:
        for nodes, values in () if most is None else _wrong(of_rail, latency, partial(lt, most)):
            text = f"{where(rail, nodes, len(values))}: {words.format(max(values))}, at most {most:g} wanted"
            yield RailFinding("late", rail, nodes, text, name)


def _wrong(
    of_rail: Sequence[Measured], number: Number, beyond: Callable[[float], bool]
) -> Iterator[tuple[tuple[str, ...], list[float]]]:
    """Yield the nodes with numbers beyond a limit, and these numbers; a pair without the number is not judged."""

    def is_wrong(measurement: Measured) -> bool:
        value = number(measurement)
        return value is not None and beyond(value)

    for nodes, told in grouped([measurement for measurement in of_rail if number(measurement) is not None], is_wrong):
        yield nodes, [value for measurement in told if (value := number(measurement)) is not None]
