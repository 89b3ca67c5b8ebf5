"""The admission helper's metrics. No label names a pod, a namespace or a job."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime

from railnet.prometheus_text import Histogram, Labels, counted, family

# A pod without a known operator takes the least, a pod of megabytes the most. An API server waits ten seconds at most.
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class AdmissionMetrics:
    """The metrics of reviews (an `railnet.admission.server.server.ReviewMeter`) and of the certificate; `expires` returns its end, None without one."""

    def __init__(self, expires: Callable[[], datetime | None]) -> None:
        """Start with all counters at zero."""
        self._expires = expires
        self._reviews: Counter[Labels] = Counter()
        self._seconds = Histogram(_BUCKETS)

    def reviewed(self, outcome: str, operator: str, seconds: float) -> None:
        """Count a request and its duration."""
        self._reviews[("outcome", outcome), ("operator", operator)] += 1
        self._seconds.observe(seconds)

    def text(self) -> str:
        """Return the text of /metrics."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from family(
            "railnet_admission_reviews_total", "counter", "Reviews by outcome and operator.", counted(self._reviews)
        )
        yield from family(
            "railnet_admission_review_seconds",
            "histogram",
            "Time from a request's head to its answer.",
            self._seconds.samples(()),
        )
        expires = self._expires()
        yield from family(
            "railnet_admission_certificate_expiry_timestamp_seconds",
            "gauge",
            "End of the served certificate's validity.",
            [] if expires is None else [("", (), expires.timestamp())],
        )
