"""What one measurement of the probe has found, and what all of them have. Pure."""

import json
from typing import Any, NamedTuple

from railnet.validate.pair_plan import Pair


class Measured(NamedTuple):
    """What was measured of one pair.

    Attributes:
        pair: the rail, and the two nodes.
        round_trip_us: the median of a TCP packet's round trip in microseconds; None if it could not be measured.
        mtu: the largest packet in bytes that arrived unfragmented; None if it could not be measured.
        gbits: the bandwidth of one TCP connection in Gbit/s, client to server; None if it could not be measured.
        failed: why the pair has no connection, or lost it; empty if all was measured.
        untried: why the probe could not be run, which says nothing about the rail; empty if it ran.
    """

    pair: Pair
    round_trip_us: float | None = None
    mtu: int | None = None
    gbits: float | None = None
    failed: str = ""
    untried: str = ""


_WORDS = {"round_trip_seconds": "round trip", "mtu": "largest packet", "bits_per_second": "bandwidth"}


def parse(pair: Pair, text: str) -> Measured:
    """Read what the probe has printed.

    Raises:
        ValueError: it is not what the probe prints.
    """
    try:
        found: dict[str, Any] = json.loads(text)
        failed = found.get("failed")
        trip, mtu, bits = (found.get(name) for name in _WORDS)
        return Measured(
            pair,
            None if trip is None else float(trip["median"]) * 1e6,
            None if mtu is None else int(mtu),
            None if bits is None else float(bits) / 1e9,
            "" if failed is None else f"{_WORDS[failed['measurement']]}: {failed['why']}",
        )
    except (TypeError, KeyError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(f"the probe printed {text!r:.200}, which is no measurement: {error}") from None
