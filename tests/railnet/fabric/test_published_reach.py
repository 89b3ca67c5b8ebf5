"""What is published of rails that reach each other: it is read as it was written, and anything else says nothing and why."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from railnet.fabric.published_reach import KEY, MOST_RAILS, config_map, first_apart, parse, reach_each_other

MOMENT = datetime(2026, 11, 27, 22, 31, tzinfo=UTC)
REACH = {frozenset({0, 1}): False, frozenset({1, 2}): True}


def rails(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def test_what_is_published_is_read_as_it_was_found() -> None:
    found = parse(config_map(REACH, MOMENT))

    assert (found.reach, found.date, found.trouble) == (REACH, "2026-11-27", "")


def test_rails_of_the_most_that_a_pod_may_have_are_read() -> None:
    reach = {frozenset({rail, other}): False for rail in range(MOST_RAILS) for other in range(rail)}

    assert parse(config_map(reach, MOMENT)).reach == reach


def content(**changes: Any) -> str:
    return json.dumps({**json.loads(config_map(REACH, MOMENT)["data"][KEY]), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[" * 100_000,
        content(format=2),
        content(found="yesterday"),
        content(found=None),
        content(reach=[{"rails": [0, 1], "reached": None}]),
        content(reach=[{"rails": [0, True], "reached": False}]),
        content(reach=[{"rails": [0, 0], "reached": False}]),
        content(reach=[{"rails": [0, 1, 2], "reached": False}]),
        content(reach=[{"rails": [0, 1], "reached": False}] * 2017),
    ],
)
def test_anything_else_says_nothing_and_why(text: str) -> None:
    found = parse({"data": {KEY: text}})

    assert (found.reach, found.date) == ({}, "")
    assert found.trouble.startswith(
        "ConfigMap railnet/railnet-rail-reach is not as `railnet validate --publish` writes it ("
    )
    assert len(found.trouble) < 500


@pytest.mark.parametrize("document", [{}, {"data": None}, {"data": {}}, {"data": {KEY: 7}}])
def test_config_map_without_the_key_says_nothing_and_why(document: dict[str, Any]) -> None:
    assert parse(document).trouble


def test_pods_reach_each_other_by_a_common_rail_or_by_one_that_is_reached() -> None:
    assert reach_each_other(rails(0, 3), rails(3, 1), REACH) is True
    assert reach_each_other(rails(0, 1), rails(2), REACH) is True
    assert reach_each_other(rails(0), rails(1), REACH) is False
    assert reach_each_other(rails(0), rails(1, 5), REACH) is None


def test_first_sets_that_are_known_to_be_apart_are_found() -> None:
    assert first_apart([rails(1), rails(2), rails(0, 5), rails(0)], REACH) == (0, 3)
    assert first_apart([rails(1), rails(2), rails(0, 5)], REACH) is None
