"""The gangs for which a step of a pass has failed, by an error of Railnet itself: each is tried again after a pause that grows.

Nothing is asked of others by a try, so the pauses need no random part.
"""

from collections.abc import Iterable
from typing import NamedTuple

from railnet.backoff import Backoff
from railnet.gangs.placement.gang import GangKey
from railnet.gangs.planning_result import GangFailure

_BACKOFF = Backoff(first_seconds=2.0, longest_seconds=600.0)


class _Failures(NamedTuple):
    """How many there were in succession, and until when there is no further try."""

    times: int
    until: float


class FailedGangs:
    """Remembers the failures of gangs until a pass succeeds."""

    def __init__(self) -> None:
        self._failures: dict[GangKey, _Failures] = {}

    def __len__(self) -> int:
        """Return how many gangs there are of which the last try has failed."""
        return len(self._failures)

    def __contains__(self, key: GangKey) -> bool:
        """Return whether the last try of a gang has failed."""
        return key in self._failures

    def rests_until(self, key: GangKey) -> float:
        """Return until when a gang is not tried again; a past moment for one that has not failed."""
        failures = self._failures.get(key)
        return float("-inf") if failures is None else failures.until

    def failed(self, key: GangKey, error: Exception, now: float) -> GangFailure:
        """Take in that a step for a gang has failed."""
        times = 1 if key not in self._failures else self._failures[key].times + 1
        pause = _BACKOFF.pause(times, jitter=0.0)
        self._failures[key] = _Failures(times, now + pause)
        return GangFailure(key, error, pause)

    def tried(self, skipped: Iterable[GangKey]) -> None:
        """Take in that a pass has ended: what it has not skipped has not failed."""
        self._failures = {key: self._failures[key] for key in skipped if key in self._failures}
