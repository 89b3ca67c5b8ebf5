"""The choice of a host port, from what one of several choosers knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.errors import Misconfigured
from railnet.jobs.host_port_choice import PortRange, PortShare, choose, parse

RANGE = PortRange(20000, 20199)
PORTS = st.integers(RANGE.first, RANGE.last)


def test_range_is_two_ports() -> None:
    assert parse("20000-29999") == PortRange(20000, 29999)
    assert parse("20000-29999").size == 10_000
    assert parse("20000-20000").size == 1


NO_RANGES = {
    "20000": "should be two ports",
    "": "should be two ports",
    "a-b": "should be two ports",
    "20000-": "should be two ports",
    "-1-5": "should be two ports",
    "20000-999999": "should be two ports",
    "29999-20000": "29999-20000 is empty: .* turn them round",
    "80-90": "80-90 is not within 1024-65535",
    "65000-65536": "65000-65536 is not within 1024-65535",
}


@pytest.mark.parametrize(("text", "words"), NO_RANGES.items(), ids=NO_RANGES.keys())
def test_range_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        parse(text)


@pytest.mark.slow
@given(st.sets(PORTS), st.dictionaries(PORTS, st.floats(0, 100)), st.integers(0, 2))
def test_chosen_port_is_free_and_in_the_range(taken: set[int], resting: dict[int, float], place: int) -> None:
    found = choose(RANGE, [taken], resting, PortShare(place, 3))

    assert found is None or (RANGE.first <= found <= RANGE.last and found not in taken)


@pytest.mark.slow
@given(st.sets(PORTS), st.dictionaries(PORTS, st.floats(0, 100)))
def test_one_chooser_finds_a_port_as_long_as_one_is_free(taken: set[int], resting: dict[int, float]) -> None:
    found = choose(RANGE, [taken], resting, PortShare())

    assert (found is None) is (len(taken) == RANGE.size)


@given(st.sets(PORTS))
def test_choosers_have_no_port_in_common_while_each_has_one_of_its_own(taken: set[int]) -> None:
    of_each = [
        [port for port in range(RANGE.first + place, RANGE.last + 1, 3) if port not in taken] for place in range(3)
    ]

    found = [choose(RANGE, [taken], {}, PortShare(place, 3)) for place in range(3)]

    for place, (port, own) in enumerate(zip(found, of_each, strict=True)):
        assert not own or port == own[0], place


def test_port_that_a_pod_had_until_recently_is_given_last() -> None:
    ports = PortRange(20000, 20002)

    assert choose(ports, [{20001}], {20000: 5.0}, PortShare()) == 20002
    assert choose(ports, [{20001}], {20000: 5.0, 20002: 4.0}, PortShare()) == 20002


def test_chooser_takes_the_highest_port_of_another_when_it_has_none_left() -> None:
    own = set(range(RANGE.first, RANGE.last + 1, 2))

    assert choose(RANGE, [own], {}, PortShare(0, 2)) == RANGE.last


def test_chooser_leaves_another_the_last_ports() -> None:
    """The other one may be about to give them: 64 choices of its may not be known yet."""
    free = {RANGE.first + 2 * number + 1 for number in range(64)}
    taken = [set(range(RANGE.first, RANGE.last + 1)) - free]

    assert choose(RANGE, taken, {}, PortShare(0, 2)) is None
    assert choose(RANGE, taken, {}, PortShare(1, 2)) == min(free)
