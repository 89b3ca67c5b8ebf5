"""Says of each rail whether RDMA was tested on it: with success, without, or not at all and why. Pure."""

from collections.abc import Sequence
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple

from railnet.validate.findings.rail_finding import shown_gbits
from railnet.validate.mode import Mode
from railnet.validate.probe.measured import Measured, MeasuredRdma

_REASONS = 2  # that are shown; each pair may have its own


class RdmaState(StrEnum):
    """What became of RDMA's test on a rail."""

    WORKS = "works"
    FAILED = "failed"
    UNTRIED = "not tried"


class RailRdma(NamedTuple):
    """The outcome of RDMA's test on one rail.

    Attributes:
        gbits, latency_us: the medians of ib_write_bw and of ib_write_lat; None if no pair has them.
        pairs: how many pairs have tried it; `failed` is how many of these have failed.
        why: of the pairs that have failed, or why it was not tried; empty if it works.
    """

    state: RdmaState
    gbits: float | None = None
    latency_us: float | None = None
    pairs: int = 0
    failed: int = 0
    why: str = ""


def rdma_of(measured: Sequence[Measured], mode: Mode) -> RailRdma:
    """Return what became of RDMA on a rail, by its pairs. One pair that fails is enough for `FAILED`."""
    numbers = [measurement.rdma for measurement in measured]
    failed = [rdma for rdma in numbers if rdma.failed]
    works = [rdma for rdma in numbers if not rdma.failed and _has_run(rdma)]
    gbits = [rdma.gbits for rdma in numbers if rdma.gbits is not None]
    latencies = [rdma.latency_us for rdma in numbers if rdma.latency_us is not None]
    if not failed and not works:
        return RailRdma(RdmaState.UNTRIED, why=_why_untried(measured, mode))
    return RailRdma(
        RdmaState.FAILED if failed else RdmaState.WORKS,
        median(gbits) if gbits else None,
        median(latencies) if latencies else None,
        len(failed) + len(works),
        len(failed),
        "; ".join(list(dict.fromkeys(rdma.failed for rdma in failed))[:_REASONS]),
    )


def rdma_words(outcome: RailRdma) -> str:
    """Return what the line of a rail says of RDMA, such as `RDMA 92.1 Gbit/s` or `RDMA: not tried (--mode quick)`."""
    match outcome.state:
        case RdmaState.UNTRIED:
            return f"RDMA: not tried ({outcome.why})"
        case RdmaState.FAILED:
            others = "" if outcome.gbits is None else f", {shown_gbits(outcome.gbits)} Gbit/s between others"
            return f"RDMA: failed between {outcome.failed} of {outcome.pairs} pairs{others}"
        case RdmaState.WORKS if outcome.gbits is not None:
            return f"RDMA {shown_gbits(outcome.gbits)} Gbit/s"
        case RdmaState.WORKS:
            return "RDMA: works, and its bandwidth was not measured"


def rdma_as_json(outcome: RailRdma) -> dict[str, Any]:
    """Return it for programs."""
    return {
        "state": str(outcome.state),
        "gbits": outcome.gbits,
        "latencyMicroseconds": outcome.latency_us,
        "pairs": outcome.pairs,
        "failedPairs": outcome.failed,
        "why": outcome.why or None,
    }


def _has_run(rdma: MeasuredRdma) -> bool:
    return rdma.gbits is not None or rdma.latency_us is not None or rdma.connected


def _why_untried(measured: Sequence[Measured], mode: Mode) -> str:
    if not mode.tries_rdma:
        return f"--mode {mode}"
    tools: dict[str, list[str]] = {}
    for tool, why in dict.fromkeys(each for measurement in measured for each in measurement.rdma.untried):
        tools.setdefault(why, []).append(tool)
    words = [f"{', '.join(names)}: {why}" for why, names in tools.items()][:_REASONS]
    if words:
        return "; ".join(words)
    has_connection = any(not measurement.failed and not measurement.untried for measurement in measured)
    return "no pair has said why" if has_connection else "no pair has a connection by TCP"
