"""Waiting for what no event reports: both forms behave alike."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from kernel import waiting

Found = TypeVar("Found")
Wait = Callable[[Callable[[], Found], float, float], Found]


def on_a_loop(look: Callable[[], Found], seconds: float, every: float) -> Found:
    return asyncio.run(waiting.until(look, seconds, every))


@pytest.mark.parametrize("wait", [on_a_loop, waiting.block_until])
def test_first_result_that_is_true_is_returned(wait: Wait[str]) -> None:
    results = iter(["", "", "there", "later"])

    assert wait(lambda: next(results), 60, 0) == "there"
    assert next(results) == "later"


@pytest.mark.parametrize("wait", [on_a_loop, waiting.block_until])
def test_last_result_is_returned_when_the_time_is_over(wait: Wait[list[int]]) -> None:
    assert wait(list, 0.01, 0.001) == []


@pytest.mark.parametrize("wait", [on_a_loop, waiting.block_until])
def test_looks_once_when_there_is_no_time(wait: Wait[int]) -> None:
    looks: list[int] = []

    wait(lambda: looks.append(1), 0, 60)

    assert len(looks) == 1
