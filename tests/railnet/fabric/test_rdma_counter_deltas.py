"""What a function's counters say: baselines of pods, resets, and totals that only grow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.fabric.rdma_counter_deltas import (
    RECEIVED,
    Tally,
    difference,
    of_port,
    over_ports,
    parse_counter,
    ports_of,
    saturated,
    summed,
    tallied,
)
from railnet.vf.vf_table import Owner

ONE, OTHER = Owner("one", "eth0", "1"), Owner("other", "eth0", "2")
LARGEST = (1 << 64) - 1


def after(*readings: tuple[int | None, Owner | None]) -> Tally:
    tally = Tally()
    for value, holder in readings:
        tally = tallied(tally, {} if value is None else {RECEIVED: value}, holder)
    return tally


def test_pod_begins_at_zero_and_counts_its_own() -> None:
    assert after((1000, ONE)).moved() == {RECEIVED: 0}
    assert after((1000, ONE), (1300, ONE)).moved() == {RECEIVED: 300}


def test_next_pod_begins_at_zero_and_the_total_stays() -> None:
    first = after((1000, ONE), (1300, ONE), (1310, None))
    second = tallied(first, {RECEIVED: 1310}, OTHER)

    assert first.moved() == {}
    assert second.moved() == {RECEIVED: 0}
    assert first.total == second.total == {RECEIVED: 1310}


def test_pod_that_follows_without_a_reading_between_begins_at_zero() -> None:
    assert after((1000, ONE), (1300, OTHER)).moved() == {RECEIVED: 0}


def test_counter_that_was_reset_goes_on_from_zero() -> None:
    tally = after((1000, ONE), (1300, ONE), (50, ONE))

    assert tally.moved() == {RECEIVED: 350}
    assert tally.total == {RECEIVED: 1350}


def test_absent_counter_is_left_out_and_its_return_is_no_reset() -> None:
    absent = after((1000, ONE), (1300, ONE), (None, ONE))

    assert absent.moved() == {}
    assert absent.total == {RECEIVED: 1300}
    assert tallied(absent, {RECEIVED: 1400}, ONE).moved() == {RECEIVED: 400}


def test_counter_that_appears_later_begins_at_zero() -> None:
    assert after((None, ONE), (1000, ONE)).moved() == {RECEIVED: 0}


@pytest.mark.parametrize(
    "text", ["", "N/A (no PMA)", "-1", "1e3", "0x10", "\u0661", str(LARGEST + 1), "9" * 200, "12\n13"], ids=ascii
)
def test_text_that_is_no_counter_is_absent(text: str) -> None:
    assert parse_counter(text) is None


def test_largest_number_is_a_counter() -> None:
    assert parse_counter(str(LARGEST)) == LARGEST


def test_saturated_counters_are_named() -> None:
    reading = {"counters/link_downed": 255, "counters/symbol_error": 255, "counters/port_xmit_wait": 0xFFFFFFFF}
    of_two_ports = {of_port(port, name): value for port in (3, 6) for name, value in reading.items()}
    assert saturated({**of_two_ports, of_port(6, RECEIVED): LARGEST}) == [
        "counters/link_downed",
        "counters/port_xmit_wait",
        RECEIVED,
    ]


def test_totals_are_added_by_name() -> None:
    assert summed([{"a": 1, "b": 2}, {"a": 3}]) == {"a": 4, "b": 2}


def test_each_port_is_counted_for_itself_and_the_sum_is_told() -> None:
    """Port 3 is reset, port 6 is not readable for a while, port 9 is ACTIVE later."""
    tally = tallied(Tally(), {of_port(3, RECEIVED): 100, of_port(6, RECEIVED): 1000}, ONE)
    tally = tallied(tally, {of_port(3, RECEIVED): 7}, ONE)
    tally = tallied(tally, {of_port(port, RECEIVED): value for port, value in ((3, 8), (6, 1020), (9, 50))}, ONE)

    assert over_ports(tally.moved()) == {RECEIVED: 8 + 20}
    assert over_ports(tally.total) == {RECEIVED: 108 + 1020 + 50}
    assert ports_of(tally.last) == {3, 6, 9}


VALUES = st.integers(0, LARGEST) | st.none()


@pytest.mark.slow
@given(st.lists(st.tuples(VALUES, st.sampled_from([None, ONE, OTHER])), min_size=1))
def test_totals_never_fall_and_no_pod_has_more_than_the_total(readings: list[tuple[int | None, Owner | None]]) -> None:
    tally = Tally()
    for value, holder in readings:
        newer = tallied(tally, {} if value is None else {RECEIVED: value}, holder)
        assert newer.total.get(RECEIVED, 0) >= tally.total.get(RECEIVED, 0)
        assert 0 <= newer.moved().get(RECEIVED, 0) <= newer.total.get(RECEIVED, 0)
        if value is not None and holder == tally.holder and holder is not None and RECEIVED in tally.begun:
            moved = tally.total[RECEIVED] - tally.begun[RECEIVED]
            assert newer.moved()[RECEIVED] == moved + difference(tally.last[RECEIVED], value)
        tally = newer


@given(st.text(max_size=30))
def test_any_text_is_a_number_of_64_bits_or_absent(text: str) -> None:
    number = parse_counter(text)
    assert number is None or 0 <= number <= LARGEST
