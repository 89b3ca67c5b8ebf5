"""What one rank of an all-reduce has found, as its program prints it. Pure.

A pod's words may be of any author: each number is checked, and texts are cut.
"""

import json
import math
import re
import signal
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

_MOST_TEXT = 400  # characters of a pod's own words that are kept
_MOST_NETDEVS = 64
_LEAST_SECONDS, _MOST_SECONDS = 1e-7, 1e4  # of one all-reduce; a packet alone takes longer than the first
# "Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA", with "0(1)" if rank 1 sends for another one, and "Using network Socket":
# NVIDIA/nccl, src/transport/net.cc and src/init.cc.
_VIA = re.compile(r"via NET/([^/]+)/\d+(?:\(\d+\))?(/GDRDMA)?")
_USING = re.compile(r"Using network (\S+)")


class RankEnd(StrEnum):
    """How a rank has ended. `OUT_OF_REACH`: the API server or the node did not run its program to the end, so that is not known."""

    DONE = "done"
    NO_TORCH = "no torch"
    FAILED = "failed"
    KILLED = "killed"
    HUNG = "hung"
    LOST = "lost"
    OUT_OF_REACH = "out of reach"
    UNANSWERED = "unanswered"


class SizeTime(NamedTuple):
    """What an all-reduce of one size took.

    Attributes:
        bytes: of each rank's message.
        seconds: the median of the iterations, of the slowest rank.
        all_reduces: how many were made in all.
        is_right: whether the sum was right.
    """

    bytes: int
    seconds: float
    all_reduces: int
    is_right: bool


class RankSettings(NamedTuple):
    """What may keep NCCL from RDMA in a pod: the limit of locked memory in bytes (None for no limit), libibverbs, and variables of NCCL."""

    memlock: int | None = None
    has_libibverbs: bool = True
    variables: tuple[tuple[str, str], ...] = ()


class RankResult(NamedTuple):
    """What one rank has found.

    Attributes:
        end: how it ended; `why` in its own words, and `at` the last step before it: `start`, `meeting`, or the size.
        backend: `nccl` or `gloo`; empty if PyTorch was not loaded.
        software: the versions of PyTorch and NCCL.
        network: the transport that NCCL names, such as `IB` or `Socket`, with `/GDRDMA` for a GPU's memory; empty if it names none.
        by_tcp: the bytes that each netdev of the pod has sent meanwhile.
        by_rdma: the bytes that the RDMA ports of each rail, by netdev, have sent; no entry for one whose counters cannot be read.
        device: the RDMA device of the rail; empty if the pod has none.
        has_nccl_tests: whether an image without PyTorch has nccl-tests' `all_reduce_perf`.
    """

    end: RankEnd
    why: str = ""
    at: str = "start"
    backend: str = ""
    software: str = ""
    sizes: tuple[SizeTime, ...] = ()
    network: str = ""
    by_tcp: Mapping[str, int] = {}
    by_rdma: Mapping[str, int] = {}
    device: str = ""
    settings: RankSettings = RankSettings()
    has_nccl_tests: bool = False


def parse_rank(text: str, sizes: Sequence[int]) -> RankResult:
    """Read what the program of a rank has printed, which was asked for these sizes.

    Raises:
        ValueError: it is not what the program prints.
    """
    try:
        told: dict[str, Any] = json.loads(text)
        steps = {str(step["step"]): step for step in told["steps"]}
        measured = _sizes([step for step in told["steps"] if step["step"] == "size"], sizes)
        imported = steps.get("imported", {})
        end, why = _end(told, steps)
        return RankResult(
            end,
            why,
            _last_step(steps, measured, sizes),
            _text(imported.get("backend", "")),
            _software(imported),
            measured,
            nccl_network([_text(line) for line in told["nccl"]]),
            _counts(told["transmitted"]["tcp"]),
            _counts(told["transmitted"]["rdma"]),
            _text(told["device"]),
            _settings(told["settings"]),
            bool(steps.get("no torch", {}).get("nccl_tests")),
        )
    except (TypeError, KeyError, AttributeError, RecursionError, OverflowError, ValueError) as error:
        why = f"{type(error).__name__}: {error!s:.{_MOST_TEXT}}"
        raise ValueError(f"it has printed {text!r:.200}, which is no result of an all-reduce: {why}") from None


def nccl_network(lines: Sequence[str]) -> str:
    """Return the transport that NCCL names: that of its connections, else the one that it has chosen; empty if it names none."""
    for pattern in (_VIA, _USING):
        for line in lines:
            if match := pattern.search(line):
                return "".join(group for group in match.groups() if group)[:_MOST_TEXT]
    return ""


def _end(told: Mapping[str, Any], steps: Mapping[str, Mapping[str, Any]]) -> tuple[RankEnd, str]:
    """Return how a rank has ended, and why: its own word, else its last line, or the signal."""
    last = [_text(line) for line in told["last"] if line]
    status = told["status"]
    if "no torch" in steps:
        return RankEnd.NO_TORCH, _text(steps["no torch"].get("why", ""))
    if "failed" in steps:
        return RankEnd.FAILED, _text(steps["failed"].get("why", ""))
    if "done" in steps:
        return RankEnd.DONE, ""
    if told["hung"] is True or status is None:
        return RankEnd.HUNG, last[-1] if last else ""
    if type(status) is not int:
        raise TypeError("its status is no number")
    words = f"signal {-status}" if status < 0 else f"status {status}"
    if status == -signal.SIGKILL:
        words += ", by the memory limit of the container or by something else"
    return RankEnd.KILLED, f"{words}: {last[-1]}" if last else words


def _last_step(steps: Mapping[str, Any], measured: Sequence[SizeTime], sizes: Sequence[int]) -> str:
    if "met" not in steps:
        return "meeting" if "imported" in steps else "start"
    following = sizes[min(len(measured), len(sizes) - 1)]
    return f"{shown_size(following)}"


def shown_size(size: int) -> str:
    """Return a number of bytes for a person, such as `16 MiB`."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


def _sizes(steps: Sequence[Mapping[str, Any]], asked: Sequence[int]) -> tuple[SizeTime, ...]:
    """Read the sizes, which are the first of those asked for."""
    if [step["bytes"] for step in steps] != list(asked[: len(steps)]):
        raise ValueError("the sizes are not those that were asked for")
    return tuple(
        SizeTime(step["bytes"], _seconds(step["seconds"]), _count(step["all_reduces"]), step["right"] is True)
        for step in steps
    )


def _seconds(told: Any) -> float:
    """Read a time that an all-reduce can take. Python's JSON takes NaN for a number, and NaN is within every limit."""
    if type(told) not in (int, float) or not (math.isfinite(told) and _LEAST_SECONDS <= told <= _MOST_SECONDS):
        raise ValueError(f"{told!r:.40} is no time of an all-reduce in seconds")
    return float(told)


def _count(told: Any) -> int:
    if type(told) is not int or not 0 <= told < 1 << 64:
        raise ValueError(f"{told!r:.40} is no count")
    return told


def _counts(told: Mapping[str, Any]) -> dict[str, int]:
    """Read counts of bytes. One that is negative is of a counter that was reset meanwhile, and says nothing."""
    return {name[:_MOST_TEXT]: _count(count) for name, count in list(told.items())[:_MOST_NETDEVS] if count >= 0}


def _settings(told: Mapping[str, Any]) -> RankSettings:
    memlock = told["memlock"]
    if type(memlock) is not int:
        raise TypeError("the limit of locked memory is no number")
    variables = tuple((name[:_MOST_TEXT], _text(value)) for name, value in told["variables"].items())
    return RankSettings(memlock if memlock >= 0 else None, told["libibverbs"] is True, variables[:_MOST_NETDEVS])


def _software(imported: Mapping[str, Any]) -> str:
    parts = (("PyTorch", imported.get("torch")), ("NCCL", imported.get("nccl")))
    return ", ".join(f"{name} {_text(version)}" for name, version in parts if version)


def _text(told: Any) -> str:
    if not isinstance(told, str):
        raise TypeError(f"{told!r:.40} is no text")
    return told[:_MOST_TEXT]
