"""The statistics of a churn: operations and kills by kind and result, percentiles of their times, and the violations found.

`churn` prints them; `churn_operations` counts.
"""

import statistics
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

OK = "ok"
RAIL_ADD, PLAIN_ADD = "ADD with rails", "ADD without rails"
_TIMED = (RAIL_ADD, PLAIN_ADD, "DEL")
_PERCENT = 100
_LAST_EVENTS = 20  # of one sandbox or VF
_LAST_LOG_LINES = 60  # of the daemon's log about the sandboxes and VFs of a violation
_ID_CHARACTERS = 12  # of a container id in the daemon's log; a PCI address has as many


class ChurnStatistics:
    """The counts of one churn; many threads may add to them.

    Attributes:
        violations: a text for each violation, with the events and the log lines of the sandboxes and VFs that it names.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._operations: Counter[tuple[str, str]] = Counter()
        self._kills: Counter[str] = Counter()
        self._disturbances: Counter[str] = Counter()
        self._milliseconds: dict[str, list[float]] = {kind: [] for kind in _TIMED}
        self._history: dict[str, list[str]] = {}
        self._reviews: list[float] = []
        self._judgements = 0
        self.violations: list[str] = []

    def add_operation(self, kind: str, result: str, names: Collection[str], milliseconds: float | None = None) -> None:
        """Count an operation on the sandbox and the VFs `names`; `milliseconds` is None if a fault disturbed it."""
        with self._lock:
            self._operations[kind, result] += 1
            self._record_event(names, f"{kind}: {result}")
            if result == OK and milliseconds is not None and kind in self._milliseconds:
                self._milliseconds[kind].append(milliseconds)

    def add_kill(self, kind: str, names: Collection[str] = ()) -> None:
        """Count the kill of a process or a namespace, which concerns the sandbox and the VFs `names`."""
        with self._lock:
            self._kills[kind] += 1
            self._record_event(names, f"{kind} killed")

    def add_disturbance(self, kind: str) -> None:
        """Count a disturbance of the node, such as a card that was gone for a while."""
        with self._lock:
            self._disturbances[kind] += 1

    def add_review(self, milliseconds: float) -> None:
        """Count a review by the webhook, which is no operation of the node."""
        with self._lock:
            self._reviews.append(milliseconds)

    def _record_event(self, names: Collection[str], event: str) -> None:
        at = time.strftime("%H:%M:%S")
        for name in names:
            line = f"{at} {event}, {' '.join(other[:_ID_CHARACTERS] for other in names)}"
            self._history.setdefault(name, []).append(line)

    def add_judgement(self) -> None:
        """Count a judgement of the node or of one sandbox."""
        with self._lock:
            self._judgements += 1

    def add_violation(self, violation: str, log: str) -> None:
        """Record a violation with the events of the sandboxes and VFs that it names, and with the lines about them in `log`."""
        with self._lock:
            named = [name for name in self._history if name in violation]
            events = [event for name in named for event in self._history[name][-_LAST_EVENTS:]]
            short_names = {name[:_ID_CHARACTERS] for name in self._history}
            concerned = [name for name in short_names if any(name in event for event in events)]
            lines = [line for line in log.splitlines() if any(name in line for name in concerned)][-_LAST_LOG_LINES:]
            self.violations.append("\n  ".join([violation, *events, *(f"log: {line}" for line in lines)]))

    def usual_seconds(self, kind: str, first: float) -> float:
        """Return the median of the last times of an operation, in seconds; `first` while there is none."""
        with self._lock:
            latest = self._milliseconds.get(kind, [])[-20:]
        return statistics.median(latest) / 1000 if latest else first

    @property
    def operations(self) -> int:
        """The number of operations, without kills."""
        return sum(self._operations.values())

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return all statistics in the form of `scripts/churn --json`."""
        rails = self._operations[RAIL_ADD, OK]
        return {
            "seed": self._seed,
            "operations": self.operations,
            "rail_adds_ok": rails,
            "rail_adds_ok_percent": round(_PERCENT * rails / max(self.operations, 1), 1),
            "kills": self._kills.total(),
            "looks": self._judgements,
            "seconds": round(seconds, 1),
            "operations_by_kind_and_result": _nested(self._operations),
            "kills_by_kind": dict(sorted(self._kills.items())),
            "disturbances_by_kind": dict(sorted(self._disturbances.items())),
            "milliseconds": {kind: _percentiles(taken) for kind, taken in self._milliseconds.items() if taken},
            "reviews": _reviews(self._reviews),
            "left_over": len(self.violations),
            "left_over_items": self.violations,
        }


def rendered(summary: dict[str, Any]) -> Iterator[str]:
    """Yield a summary as lines of text."""
    yield (
        f"{summary['operations']} operations, {summary['rail_adds_ok_percent']} % of them rail ADDs that succeeded, "
        f"{summary['kills']} kills, {summary['looks']} judgements, in {summary['seconds']} s"
    )
    for kind, results in summary["operations_by_kind_and_result"].items():
        yield f"  {kind:<17} {', '.join(f'{count} {result}' for result, count in results.items())}"
    for kind, count in summary["kills_by_kind"].items():
        yield f"  killed: {kind:<24} {count}"
    for kind, count in summary["disturbances_by_kind"].items():
        yield f"  disturbed: {kind:<21} {count}"
    for kind, taken in summary["milliseconds"].items():
        yield f"  {kind:<17} p50 {taken['p50']} ms, p99 {taken['p99']} ms (operations that no fault disturbed)"
    if reviews := summary["reviews"]:
        yield (
            f"  reviews           {reviews['count']}, p50 {reviews['p50']} ms, p99 {reviews['p99']} ms, "
            f"longest {reviews['longest']} ms (nearly all while the webhook was flooded)"
        )
    yield f"seed {summary['seed']}"
    yield from summary["left_over_items"]
    yield f"left over: {summary['left_over']}"


def _nested(counted: Counter[tuple[str, str]]) -> dict[str, dict[str, int]]:
    kinds = sorted({kind for kind, _ in counted})
    return {kind: {result: n for (of, result), n in counted.most_common() if of == kind} for kind in kinds}


def _percentiles(milliseconds: list[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    at = (len(ordered) - 1) * 99 // 100
    return {"p50": round(statistics.median(ordered), 1), "p99": round(ordered[at], 1)}


def _reviews(milliseconds: list[float]) -> dict[str, float]:
    if not milliseconds:
        return {}
    return {"count": len(milliseconds), **_percentiles(milliseconds), "longest": round(max(milliseconds), 1)}
