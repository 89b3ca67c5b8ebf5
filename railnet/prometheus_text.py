"""Prometheus's text format: families of counters, gauges and histograms as lines. docs/decisions/0026 says why no library does it.

Source: prometheus.io/docs/instrumenting/exposition_formats, "Text-based format".
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]  # of one family: what follows its name, labels, value


class Histogram:
    """Seconds, counted by bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Count nothing yet; `bounds` are the buckets' upper ones, in ascending order, without infinity."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def samples(self, labels: Labels) -> Iterator[Sample]:
        """Return its samples: all that is at most a bound counts for it."""
        bounds = (*(f"{bound:g}" for bound in self._bounds), "+Inf")
        for bound, count in zip(bounds, accumulate(self._counts), strict=True):
            yield "_bucket", (*labels, ("le", bound)), count
        yield "_sum", labels, self._sum
        yield "_count", labels, sum(self._counts)


def counted(counter: Counter[Labels]) -> Iterator[Sample]:
    """Return the samples of a counter, or of a gauge that is counted."""
    for labels, count in sorted(counter.items()):
        yield "", labels, count


def family(name: str, kind: str, what: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Write one family, line by line."""
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"
    for suffix, labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        yield f"{name}{suffix}{{{inside}}} {value!r}" if inside else f"{name}{suffix} {value!r}"


def _escaped(text: str) -> str:
    """Escape a label's value: a pod's name is what the runtime said."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
