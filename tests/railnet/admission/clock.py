"""A clock that a test sets."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self, now: datetime = START):
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **by: float) -> None:
        self.now += timedelta(**by)
