"""Which rails reach each other: the plan of the tries, and what they mean."""

import json

import pytest

from railnet.validate.findings.rail_reach import (
    RailReach,
    ReachTry,
    judge_reach,
    parse_try,
    plan_tries,
    reach_lines,
    sound_places,
)
from tests.railnet.validate.measurements import all_pairs, cut


def test_each_two_rails_are_tried_twice_between_other_nodes() -> None:
    tries = plan_tries((0, 1, 2), sound_places([*all_pairs(0, "abc"), *all_pairs(1, "abc"), *all_pairs(2, "abc")]))

    assert [(one.rail, one.other) for one in tries] == [(0, 1), (0, 1), (0, 2), (0, 2), (1, 2), (1, 2)]
    assert all(one.client != one.server for one in tries)
    assert len({(one.rail, one.other, frozenset((one.client, one.server))) for one in tries}) == 6


def test_port_that_is_cut_on_its_own_rail_tries_nothing() -> None:
    sound = sound_places([*all_pairs(0, "ab"), *all_pairs(1, "ab"), cut(0, "a", "c"), cut(0, "b", "c")])

    assert (0, "c") not in sound
    assert plan_tries((0, 1), sound) == (ReachTry(0, 1, "a", "b"),)


def test_one_try_that_succeeds_is_enough() -> None:
    tries = [ReachTry(0, 1, "a", "b"), ReachTry(0, 1, "a", "c")]

    assert judge_reach((0, 1), {tries[0]: (False, "timed out"), tries[1]: (True, "")}) == (RailReach(0, 1, True),)
    assert judge_reach((0, 1), {tries[0]: (None, "HTTP 403"), tries[1]: (False, "timed out")}) == (
        RailReach(0, 1, False, "timed out"),
    )
    assert judge_reach((0, 1), {tries[0]: (None, "HTTP 403")}) == (RailReach(0, 1, None, "HTTP 403"),)


def test_lines_say_what_a_job_needs() -> None:
    apart = [RailReach(0, 1, False, "timed out"), RailReach(0, 2, False, "x"), RailReach(1, 2, False, "x")]

    assert list(reach_lines(())) == []
    assert list(reach_lines([RailReach(0, 1, True)])) == ["all rails reach each other"]
    assert next(iter(reach_lines(apart))) == "no rail reaches another one (timed out)"
    assert any("hangs there" in line for line in reach_lines(apart))
    assert list(reach_lines([RailReach(0, 1, None, "HTTP 403")])) == [
        "rails 0 and 1: not known whether they reach each other (HTTP 403)"
    ]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "{}", '{"reached": 1}', '{"reached": "no"}', '{"reached": false, "why": 1}', "[" * 99_999],
)
def test_what_is_no_try_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="which is no try"):
        parse_try(text)


def test_words_of_a_node_are_cut() -> None:
    assert parse_try(json.dumps({"reached": False, "why": "x" * 60_000})) == (False, "x" * 200)
