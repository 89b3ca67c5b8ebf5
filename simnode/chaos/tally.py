"""What a churn has done: operations and kills by kind and result, how long they took, and what must not have been."""

import statistics
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

OK = "ok"
RAIL_ADD, PLAIN_ADD = "ADD with rails", "ADD without"
_TIMED = (RAIL_ADD, PLAIN_ADD, "DEL")
_PERCENT = 100
_LAST, _LAST_OF_LOG = 20, 60  # lines about one sandbox or VF, and of the daemon's about all who had it
_SHOWN = 12  # characters of a container id in the daemon's log, and no fewer than of a PCI address


class Tally:
    """Counts from many threads."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._lock = threading.Lock()
        self._operations: Counter[tuple[str, str]] = Counter()
        self._kills: Counter[str] = Counter()
        self._milliseconds: dict[str, list[float]] = {kind: [] for kind in _TIMED}
        self._history: dict[str, list[str]] = {}
        self._looks = 0
        self.wrong: list[str] = []

    def operation(self, kind: str, result: str, whose: Collection[str], milliseconds: float | None = None) -> None:
        """Count an operation; `whose` has the container id and the VFs. Timed is only what nothing disturbed."""
        with self._lock:
            self._operations[kind, result] += 1
            self._note(whose, f"{kind}: {result}")
            if result == OK and milliseconds is not None and kind in self._milliseconds:
                self._milliseconds[kind].append(milliseconds)

    def kill(self, kind: str, whose: Collection[str] = ()) -> None:
        """Count something that was alive and was killed."""
        with self._lock:
            self._kills[kind] += 1
            self._note(whose, f"{kind} killed")

    def _note(self, whose: Collection[str], what: str) -> None:
        at = time.strftime("%H:%M:%S")
        for one in whose:
            self._history.setdefault(one, []).append(f"{at} {what}, {' '.join(other[:_SHOWN] for other in whose)}")

    def look(self) -> None:
        """Count a look of the checker."""
        with self._lock:
            self._looks += 1

    def violation(self, what: str, log: str) -> None:
        """Note what must not be, with what was done to the sandboxes that it names, and what the daemon said of them."""
        with self._lock:
            named = [whose for whose in self._history if whose in what]
            lines = [line for whose in named for line in self._history[whose][-_LAST:]]
            others = {whose[:_SHOWN] for whose in self._history if any(whose[:_SHOWN] in line for line in lines)}
            told = [line for line in log.splitlines() if any(one in line for one in others)][-_LAST_OF_LOG:]
            self.wrong.append("\n  ".join([what, *lines, *(f"log: {line}" for line in told)]))

    def usual(self, kind: str, seconds: float) -> float:
        """Return the seconds that an operation usually takes; so many at first."""
        with self._lock:
            latest = self._milliseconds.get(kind, [])[-20:]
        return statistics.median(latest) / 1000 if latest else seconds

    @property
    def operations(self) -> int:
        """How many operations there were, kills not among them."""
        return sum(self._operations.values())

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        rails = self._operations[RAIL_ADD, OK]
        return {
            "seed": self._seed,
            "operations": self.operations,
            "rail_adds_ok": rails,
            "rail_adds_ok_percent": round(_PERCENT * rails / max(self.operations, 1), 1),
            "kills": self._kills.total(),
            "looks": self._looks,
            "seconds": round(seconds, 1),
            "operations_by_kind_and_result": _nested(self._operations),
            "kills_by_kind": dict(sorted(self._kills.items())),
            "milliseconds": {kind: _percentiles(taken) for kind, taken in self._milliseconds.items() if taken},
            "left_over": len(self.wrong),
            "left_over_items": self.wrong,
        }


def rendered(summary: dict[str, Any]) -> Iterator[str]:
    """Return a summary as lines."""
    yield (
        f"{summary['operations']} operations, {summary['rail_adds_ok_percent']} % of them rail ADDs that succeeded, "
        f"{summary['kills']} kills, {summary['looks']} looks, in {summary['seconds']} s"
    )
    for kind, results in summary["operations_by_kind_and_result"].items():
        yield f"  {kind:<16} {', '.join(f'{count} {result}' for result, count in results.items())}"
    for kind, count in summary["kills_by_kind"].items():
        yield f"  killed: {kind:<24} {count}"
    for kind, taken in summary["milliseconds"].items():
        yield f"  {kind:<16} p50 {taken['p50']} ms, p99 {taken['p99']} ms (undisturbed ones)"
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
