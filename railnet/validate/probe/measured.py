"""The measurement of one pair, and how it is read from what the probe has printed. Pure."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from railnet.fabric.topology_labels import parse_rate
from railnet.validate.pair_plan import Pair
from railnet.validate.probe import perftest_output


class MeasuredRdma(NamedTuple):
    """The numbers that tools for RDMA have measured of one pair.

    Attributes:
        gbits: the bandwidth of ib_write_bw in Gbit/s, client to server; None if it was not measured.
        latency_us: the typical latency of ib_write_lat in microseconds, one way; None if it was not measured.
        failed: which tool has failed, and why; empty if none has.
        untried: the tools that could not be tried, each with the reason.
        connected: whether rping has met its server, by the connection manager.
    """

    gbits: float | None = None
    latency_us: float | None = None
    failed: str = ""
    untried: tuple[tuple[str, str], ...] = ()
    connected: bool = False


class Measured(NamedTuple):
    """The measurement of one pair.

    Attributes:
        pair: the rail, and the two nodes.
        round_trip_us: the median of a TCP packet's round trip in microseconds; None if it could not be measured.
        mtu: the largest packet in bytes that arrived unfragmented; None if it could not be measured.
        gbits: the bandwidth of one TCP connection in Gbit/s, client to server; None if it could not be measured.
        failed: why the pair has no connection, or lost it; empty if all was measured.
        untried: why the probe could not be run, which says nothing about the rail; empty if it ran.
        rdma: what tools for RDMA have measured.
        seconds: how long the measurement took, with all its tools.
        port_gbits: the rates of the server's port and of the client's, in Gbit/s; None for one that its pod cannot read.
    """

    pair: Pair
    round_trip_us: float | None = None
    mtu: int | None = None
    gbits: float | None = None
    failed: str = ""
    untried: str = ""
    rdma: MeasuredRdma = MeasuredRdma()
    port_gbits: tuple[float | None, float | None] = (None, None)
    seconds: float = 0.0


def without_nodes(measured: Sequence[Measured], gone: Mapping[str, str]) -> list[Measured]:
    """Return the measurements; those with a node that is gone say nothing but why."""

    def told(measurement: Measured) -> Measured:
        why = gone.get(measurement.pair.client) or gone.get(measurement.pair.server)
        return Measured(measurement.pair, untried=why) if why else measurement

    return [told(measurement) for measurement in measured]


def without_failures(measured: Sequence[Measured], why: str) -> list[Measured]:
    """Return the measurements; those that failed say nothing but why that is not known to be the rail's fault."""
    return [Measured(measurement.pair, untried=why) if measurement.failed else measurement for measurement in measured]


_WORDS = {"round_trip_seconds": "round trip", "mtu": "largest packet", "bits_per_second": "bandwidth"}
_TABLES: Mapping[str, Callable[[str], float]] = {
    "ib_write_bw": perftest_output.gbits,
    "ib_write_lat": perftest_output.microseconds,
}
_MOST_TEXT = 400  # characters of a pod's own words that are kept


def parse(pair: Pair, text: str) -> Measured:
    """Read what the probe has printed.

    Raises:
        ValueError: it is not what the probe prints.
    """
    try:
        answer: dict[str, Any] = json.loads(text)
        failed = answer.get("failed")
        trip, mtu, bits = (answer.get(name) for name in _WORDS)
        return Measured(
            pair,
            None if trip is None else _finite(trip["median"]) * 1e6,
            None if mtu is None else int(_finite(mtu)),
            None if bits is None else _finite(bits) / 1e9,
            "" if failed is None else f"{_WORDS[failed['measurement']]}: {failed['why']!s:.{_MOST_TEXT}}",
            rdma=_rdma(answer.get("rdma") or {}),
            port_gbits=_rates(answer.get("port_rates") or {}),
        )
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError, ValueError) as error:
        raise ValueError(f"the probe printed {text!r:.200}, which is no measurement: {error!s:.{_MOST_TEXT}}") from None


def _rates(told: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Read the rates of the server's port and of the client's: the text of sysfs. A rate of another form, or of 0, is not known."""
    server, client = (_rate(told.get(end)) for end in ("server", "client"))
    return server, client


def _rate(told: Any) -> float | None:
    try:
        return float(parse_rate(told)) or None
    except (ValueError, AttributeError, TypeError):
        return None


def _finite(value: Any) -> float:
    """Read a number that a rail can have. Python's JSON takes NaN and 1e999 for numbers, and NaN is within every limit."""
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{number} is no measurement")
    return number


def _rdma(outcomes: Mapping[str, Mapping[str, str]]) -> MeasuredRdma:
    """Read the outcome of each tool. A table that is not known counts as not tried: the numbers of TCP are as good as without it."""
    numbers: dict[str, float] = {}
    failed: list[str] = []
    untried: list[tuple[str, str]] = []
    for tool, outcome in outcomes.items():
        if "failed" in outcome:
            failed.append(f"{tool:.{_MOST_TEXT}}: {outcome['failed']!s:.{_MOST_TEXT}}")
        elif "untried" in outcome:
            untried.append((tool[:_MOST_TEXT], str(outcome["untried"])[:_MOST_TEXT]))
        elif tool in _TABLES:
            try:
                numbers[tool] = _TABLES[tool](str(outcome["printed"]))
            except ValueError as error:
                untried.append((tool, str(error)))
    connected = "printed" in outcomes.get("rping", {})
    return MeasuredRdma(
        numbers.get("ib_write_bw"), numbers.get("ib_write_lat"), "; ".join(failed), tuple(untried), connected
    )
