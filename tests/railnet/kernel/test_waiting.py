"""Waiting for what no event reports: all forms behave alike."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from railnet.kernel import waiting

Found = TypeVar("Found")
Wait = Callable[[Callable[[], Found], float, float], Found]


def on_a_loop(look: Callable[[], Found], seconds: float, every: float) -> Found:
    return asyncio.run(waiting.until(look, seconds, every))


def on_a_loop_with_an_awaited_look(look: Callable[[], Found], seconds: float, every: float) -> Found:
    async def awaited() -> Found:
        return look()

    return asyncio.run(waiting.until_awaited(awaited, seconds, every))


FORMS = [on_a_loop, on_a_loop_with_an_awaited_look, waiting.block_until]


@pytest.mark.parametrize("wait", FORMS)
def test_first_result_that_is_true_is_returned(wait: Wait[str]) -> None:
    results = iter(["", "", "there", "later"])

    assert wait(lambda: next(results), 60, 0) == "there"
    assert next(results) == "later"


@pytest.mark.parametrize("wait", FORMS)
def test_last_result_is_returned_when_the_time_is_over(wait: Wait[list[int]]) -> None:
    assert wait(list, 0.01, 0.001) == []


@pytest.mark.parametrize("wait", FORMS)
def test_looks_once_when_there_is_no_time(wait: Wait[int]) -> None:
    looks: list[int] = []

    wait(lambda: looks.append(1), 0, 60)

    assert len(looks) == 1
