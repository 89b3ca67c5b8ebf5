"""How long to wait before what has failed is tried again. Pure: who waits brings the random number."""

from typing import NamedTuple

_MOST_DOUBLINGS = 1023  # sys.float_info.max_exp - 1: a larger power of 2.0 raises OverflowError


class Backoff(NamedTuple):
    """Pauses that double with each failure, up to the longest. As `Backoff` of k8s.io/apimachinery/pkg/util/wait: Duration, and Cap."""

    first_seconds: float
    longest_seconds: float

    def pause(self, failures: int, jitter: float) -> float:
        """Return the seconds to wait: at least half of the doubled pause, so that many programs which failed at once return one by one.

        A Retry-After of the API server is a lower bound, which the caller keeps.

        Args:
            failures: in succession, with the last one; from 1.
            jitter: a random number in [0, 1), drawn for this pause.
        """
        whole = min(self.first_seconds * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), self.longest_seconds)
        return whole * (0.5 + jitter / 2)
