"""The order in which gangs get their place."""

from typing import NamedTuple

from railnet.jobs.gang.queue import Turns, in_turn


class Waiting(NamedTuple):
    namespace: str
    name: str
    priority: int = 0
    since: float = 0.0
    queued: float = 0.0


def names(*gangs: Waiting) -> str:
    return " ".join(gang.name for gang in in_turn(gangs))


def test_priority_is_first_then_age_in_one_namespace() -> None:
    assert names(Waiting("a", "young", 0, 2), Waiting("a", "old", 0, 1), Waiting("a", "high", 5, 3)) == "high old young"


def test_namespaces_take_turns_beginning_with_the_oldest_gang() -> None:
    gangs = [Waiting("a", f"a{index}", 0, index) for index in range(3)]
    gangs += [Waiting("b", f"b{index}", 0, 10 + index) for index in range(2)]

    assert names(*gangs) == "a0 b0 a1 b1 a2"
    assert names(*reversed(gangs)) == "a0 b0 a1 b1 a2"


def test_gang_goes_behind_those_that_waited_when_an_older_one_of_its_namespace_was_served() -> None:
    waited = Waiting("b", "waited", 0, 5), Waiting("c", "late", 0, 30)

    assert names(Waiting("a", "second", 0, 1, queued=20), *waited) == "waited second late"


def test_namespace_that_has_got_no_place_keeps_its_turn() -> None:
    gangs = [Waiting("a", "huge", 0, 0), Waiting("a", "next", 0, 1), Waiting("b", "other", 0, 5)]
    turns, order = Turns(gangs), []
    for gang in turns:
        order.append(gang.name)
        if gang.name != "huge":
            turns.take_place()

    assert order == ["huge", "next", "other"]


def test_turns_count_for_each_priority_by_itself() -> None:
    gangs = Waiting("a", "high", 5, 1), Waiting("a", "low", 0, 2), Waiting("b", "other", 0, 3)

    assert names(*gangs) == "high low other"
