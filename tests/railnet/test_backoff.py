"""The pauses between tries: they double, they end at the longest, and no two programs need have the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.backoff import Backoff

LEAST, MOST = 0.0, 1.0 - 2.0**-53  # the bounds of random.random()
SECONDS = st.floats(0.001, 1e6)
JITTER = st.floats(0.0, 1.0, exclude_max=True)
FAILURES = st.integers(1, 10**9)


def test_pause_doubles_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 30.0)

    assert [backoff.pause(failures, MOST) for failures in range(1, 10)] == pytest.approx(
        [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    )


def test_least_pause_is_half_of_the_largest() -> None:
    backoff = Backoff(0.5, 30.0)

    assert [backoff.pause(failures, LEAST) for failures in (1, 2, 7, 8)] == [0.25, 0.5, 15, 15]


def test_pauses_are_spread_evenly_between_the_bounds() -> None:
    assert [Backoff(2.0, 30.0).pause(1, jitter) for jitter in (0.0, 0.25, 0.5, 0.75)] == [1.0, 1.25, 1.5, 1.75]


@given(first=SECONDS, longest=SECONDS, failures=FAILURES, jitter=JITTER)
def test_pause_is_never_beyond_its_bounds(first: float, longest: float, failures: int, jitter: float) -> None:
    least = min(first, longest) / 2

    assert least <= Backoff(first, longest).pause(failures, jitter) <= longest


@given(first=SECONDS, longest=SECONDS, failures=FAILURES, jitter=JITTER)
def test_later_pause_is_never_shorter_with_the_same_jitter(
    first: float, longest: float, failures: int, jitter: float
) -> None:
    backoff = Backoff(first, longest)

    assert backoff.pause(failures, jitter) <= backoff.pause(failures + 1, jitter)


@pytest.mark.parametrize("failures", [1023, 1024, 1025, 10**9, 10**400])
@pytest.mark.parametrize("first", [1e-300, 0.5, 1e300])
def test_years_of_failures_do_not_overflow(first: float, failures: int) -> None:
    assert Backoff(first, 60.0).pause(failures, LEAST) == 30.0


def test_backoff_without_a_pause_waits_for_nothing() -> None:
    assert Backoff(0.0, 30.0).pause(2000, MOST) == 0.0
