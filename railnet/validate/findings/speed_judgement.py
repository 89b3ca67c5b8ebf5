"""Judges speeds that the user has set no limit for: beside the other pairs of their rail, beside the other rails, and by the ports' rates. Pure.

A rail's median is that of its nodes, and not of its pairs: a third of the nodes is in more than half of the pairs, and if these nodes are slow,
the median of the pairs is the slow speed. A node counts with the median of its pairs, on a rail of few nodes with its fastest pair. So slow nodes
are noticed while they are fewer than half of a rail that is tested between all pairs. A rail of two nodes has one pair, and no median of its own:
it is judged by the other rails, and without these it is not judged, which is said.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median, median_high
from typing import NamedTuple

from railnet.validate.findings.next_look import SHARED_RATE
from railnet.validate.findings.rail_finding import RailFinding, grouped, nodes_of_pair, shown_gbits, where
from railnet.validate.probe.measured import Measured

FINDING, WARNING = (
    0.5,
    0.8,
)  # shares of what a speed is judged by: below the first it is a finding, below the second a warning
_RATES_APART = 1 / 8  # ports of sound rails may differ so much: EDR has 100 Gbit/s, XDR 800
_LEAST_NODES = 3  # of a rail with a median of its own
_FEW_NODES = 7  # of which each counts with its fastest pair: of more pairs than six, the fastest is fast by chance

Rates = Mapping[tuple[int, str], float]  # the rate of a port in Gbit/s by rail and node
Number = Callable[[Measured], float | None]


class Speed(NamedTuple):
    """One of the speeds that are judged.

    Attributes:
        name: how reports call it.
        limit: the option that sets a limit.
        of: the speed of a pair in Gbit/s; None if it was not measured.
        of_port: whether a sound rail has nearly the rate of its port. TCP has not: one connection is one processor core's work.
    """

    name: str
    limit: str
    of: Number
    of_port: bool


class _Reference(NamedTuple):
    """What a speed is judged by.

    Attributes:
        gbits: in Gbit/s; 0 if it is not known.
        words: what it is.
        fits: whether a sound rail is known to have this speed; if not, a slower one may be as it should: a finding is what no port's rate explains.
    """

    gbits: float
    words: str
    fits: bool = True

    def share(self, gbits: float) -> float:
        """Return which part of it a speed is; not below the bound of a finding where a finding would say too much."""
        share = gbits / self.gbits
        return share if self.fits or share < _RATES_APART else max(share, FINDING)


TCP = Speed("TCP", "--least-gbits", lambda measurement: measurement.gbits, of_port=False)
RDMA = Speed("RDMA", "--least-rdma-gbits", lambda measurement: measurement.rdma.gbits, of_port=True)


class Unjudged(NamedTuple):
    """A speed of a rail that was measured and not judged, and why."""

    rail: int
    speed: Speed
    text: str


class Judgement(NamedTuple):
    """What is wrong, what may be, and which speeds were not judged."""

    findings: tuple[RailFinding, ...] = ()
    warnings: tuple[RailFinding, ...] = ()
    unjudged: tuple[Unjudged, ...] = ()


def together(judgements: Iterable[Judgement]) -> Judgement:
    """Return several judgements as one."""
    each = tuple(judgements)
    return Judgement(
        tuple(finding for judgement in each for finding in judgement.findings),
        tuple(finding for judgement in each for finding in judgement.warnings),
        tuple(why for judgement in each for why in judgement.unjudged),
    )


def strictly(judgement: Judgement) -> Judgement:
    """Return a judgement whose warnings are findings."""
    return judgement._replace(findings=(*judgement.findings, *judgement.warnings), warnings=())


def port_rates(measured: Iterable[Measured]) -> dict[tuple[int, str], float]:
    """Return the rates of ports that the pods have read, the lowest of each."""
    rates: dict[tuple[int, str], float] = {}
    for measurement in measured:
        for node, rate in zip(nodes_of_pair(measurement), measurement.port_gbits, strict=True):
            if rate is not None:
                place = (measurement.pair.rail, node)
                rates[place] = min(rate, rates.get(place, rate))
    return rates


def judge_ports(rates: Rates, wanted: float | None = None) -> Judgement:
    """Judge ports whose rate is below the usual one of their rail.

    A rate that several nodes have may be that of older cards: it is a warning at most, and none if it is at least the bandwidth that the user
    has set a limit for, `wanted` in Gbit/s.
    """
    of_rails: dict[int, dict[str, float]] = {}
    for (rail, node), rate in sorted(rates.items()):
        of_rails.setdefault(rail, {})[node] = rate
    return _by_level(
        verdict
        for rail, of_rail in of_rails.items()
        for verdict in _slow_ports(rail, of_rail, usual_rate(rail, rates), wanted)
    )


def _slow_ports(
    rail: int, of_rail: Mapping[str, float], usual: float | None, wanted: float | None
) -> Iterator[tuple[float, RailFinding]]:
    """Yield what `judge_ports` says of one rail, with the share that the rate is of the usual one."""
    nodes_with = Counter(of_rail.values())
    for node, rate in of_rail.items():
        if usual is None or rate >= usual * WARNING:
            continue
        text = f"rail {rail} of node {node}: its port has a rate of {rate:g} Gbit/s, the usual one of this rail is {usual:g}"
        if nodes_with[rate] == 1:
            yield rate / usual, RailFinding("port", rail, (node,), text)
        elif wanted is None or rate < wanted:
            text = f"{text}, and {nodes_with[rate]} of its nodes have {rate:g}"
            yield max(rate / usual, FINDING), RailFinding("port", rail, (node,), text, own_look=SHARED_RATE)


def judge_speed(measured: Sequence[Measured], speed: Speed, rates: Rates) -> Judgement:
    """Judge one speed of all rails; a rail on which it was not measured has nothing to judge."""
    of_rail: dict[int, list[Measured]] = {}
    for measurement in measured:
        if speed.of(measurement) is not None:
            of_rail.setdefault(measurement.pair.rail, []).append(measurement)
    typical = {rail: _typical(pairs, speed.of) for rail, pairs in of_rail.items()}
    return together(
        _judge_rail(
            rail,
            of_rail[rail],
            speed,
            _of_others(rail, typical, rates),
            _Reference(usual_rate(rail, rates) or 0.0 if speed.of_port else 0.0, "the rate of its ports"),
        )
        for rail in sorted(of_rail)
    )


def _of_others(rail: int, typical: Mapping[int, float], rates: Rates) -> _Reference:
    """Return what a rail is judged by beside the others: those whose ports have the same rate, else those of which that is not known."""
    rate, others = usual_rate(rail, rates), [other for other in typical if other != rail]
    alike = [typical[other] for other in others if rate is not None and usual_rate(other, rates) == rate]
    if alike:
        return _Reference(median(alike), _words_of(len(alike)))
    unknown = [typical[other] for other in others if rate is None or usual_rate(other, rates) is None]
    words = f"{_words_of(len(unknown))}, whose ports may have another rate"
    return _Reference(median(unknown or [0.0]), words, fits=False)


def _judge_rail(
    rail: int, pairs: Sequence[Measured], speed: Speed, of_others: _Reference, of_ports: _Reference
) -> Judgement:
    """Judge the pairs by the rail's median, and the rail by the other rails and by its ports; pairs without a median by the other rails."""
    own, typical = rail_median(pairs, speed.of), _typical(pairs, speed.of)
    of_pairs = of_others if own is None else _Reference(own, "the median of this rail")
    verdicts = list(_beside(rail, pairs, speed, of_pairs))
    for reference in (of_ports,) if own is None else (of_others, of_ports):
        if typical < reference.gbits * WARNING:
            nodes = nodes_of_pair(pairs[0]) if len(pairs) == 1 else ()
            text = f"{where(rail, nodes, len(pairs))}: {speed.name} {_compared(typical, reference)}"
            verdicts.append((reference.share(typical), RailFinding("slow", rail, nodes, text, speed.name)))
    judgement = _by_level(verdicts)
    if any(reference.gbits for reference in (of_pairs, of_others, of_ports)):
        return judgement
    why = f"rail {rail}, {speed.name}: {_why_unjudged(pairs, typical)}; give {speed.limit} or --baseline"
    return judgement._replace(unjudged=(Unjudged(rail, speed, why),))


def _typical(pairs: Sequence[Measured], number: Number) -> float:
    """Return the rail's own median, else that of its pairs."""
    own = rail_median(pairs, number)
    return median(_numbers(pairs, number)) if own is None else own


def shown_share(slow: float, than: float) -> str:
    """Return a speed in words, and which part of another one it is."""
    return f"{shown_gbits(slow)} Gbit/s, {slow / than:.0%} of {shown_gbits(than)}"


def rail_median(pairs: Sequence[Measured], number: Number) -> float | None:
    """Return the median speed of a rail's nodes; None if there are fewer than three. All pairs have the number.

    A node's speed is that of its fastest pair, and on a rail of more than seven nodes the higher median of its pairs. Of the two pairs that a
    node has on a ring, the higher median is the faster one.
    """
    of_node: dict[str, list[float]] = {}
    for measurement in pairs:
        for node in nodes_of_pair(measurement):
            of_node.setdefault(node, []).append(number(measurement) or 0.0)
    if len(of_node) < _LEAST_NODES:
        return None
    speed_of = max if len(of_node) <= _FEW_NODES else median_high
    return median(speed_of(numbers) for numbers in of_node.values())


def usual_rate(rail: int, rates: Rates) -> float | None:
    """Return the most frequent rate of a rail's ports, of several the highest; None if none is known."""
    counted = Counter(rate for (number, _), rate in rates.items() if number == rail)
    return max(counted, key=lambda rate: (counted[rate], rate), default=None)


def _beside(
    rail: int, pairs: Sequence[Measured], speed: Speed, reference: _Reference
) -> Iterator[tuple[float, RailFinding]]:
    """Yield what is slower than a reference, with the share that the slowest pair has."""
    for nodes, told in grouped(pairs, lambda measurement: (speed.of(measurement) or 0.0) < reference.gbits * WARNING):
        slowest = min(_numbers(told, speed.of))
        text = f"{where(rail, nodes, len(told))}: {speed.name} {_compared(slowest, reference)}"
        yield reference.share(slowest), RailFinding("slow", rail, nodes, text, speed.name)


def _compared(slow: float, reference: _Reference) -> str:
    return f"{shown_share(slow, reference.gbits)}, {reference.words}"


def _words_of(rails: int) -> str:
    return "the median of the other rails" if rails > 1 else "the speed of the other rail"


def _why_unjudged(pairs: Sequence[Measured], typical: float) -> str:
    if not typical:
        return "the median is 0"
    count = f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'}"
    return f"{count} of two nodes, {shown_gbits(typical)} Gbit/s, and no other rail to compare with"


def _numbers(pairs: Iterable[Measured], number: Number) -> list[float]:
    return [value for measurement in pairs if (value := number(measurement)) is not None]


def _by_level(verdicts: Iterable[tuple[float, RailFinding]]) -> Judgement:
    """Return shares below the one bound as findings, and the rest as warnings."""
    by_level: tuple[list[RailFinding], list[RailFinding]] = ([], [])
    for share, finding in verdicts:
        by_level[share >= FINDING].append(finding)
    return Judgement(tuple(by_level[0]), tuple(by_level[1]))
