"""When the changes that other programs make are many."""

from itertools import pairwise

import pytest

from railnet.daemon.conflist.foreign_rewrites import ConflistRewrites


def warnings(pause_seconds: int, until: int, look_until: int) -> list[bool]:
    """Look each second while a program changes the file after each pause until a time; return whether there was a warning at each look."""
    rewrites = ConflistRewrites()
    seen = []
    for second in range(look_until):
        rewrites.look((min(second, until) // pause_seconds,), float(second))
        seen.append(rewrites.warning is not None)
    return seen


def begun_and_ended(seen: list[bool]) -> int:
    return sum(now is not before for before, now in pairwise(seen))


@pytest.mark.parametrize("pause_seconds", [1, 5, 15, 18, 19])
def test_changes_that_go_on_are_one_warning_at_any_pace(pause_seconds: int) -> None:
    assert begun_and_ended(warnings(pause_seconds, 1800, 1800)) == 1


@pytest.mark.parametrize("pause_seconds", [25, 59, 600])
def test_few_changes_are_no_warning(pause_seconds: int) -> None:
    assert not any(warnings(pause_seconds, 1800, 1800))


def test_warning_ends_a_minute_after_the_last_change() -> None:
    seen = warnings(5, 100, 300)

    assert (seen[150], seen[170], begun_and_ended(seen)) == (True, False, 2)


def test_daemons_own_writes_are_no_changes() -> None:
    rewrites = ConflistRewrites()
    for second in range(60):
        rewrites.look((second,), float(second))
        rewrites.note_own((second + 1,))

    assert rewrites.warning is None
