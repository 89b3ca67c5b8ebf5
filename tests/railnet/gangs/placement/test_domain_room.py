"""The nodes that a number of equal members takes: few, and what is left of nodes stays together."""

from hypothesis import given
from hypothesis import strategies as st

from railnet.gangs.placement.domain_room import fewest


@given(st.lists(st.integers(1, 8), min_size=1, max_size=7), st.integers(1, 40))
def test_no_smaller_number_of_nodes_has_room(slots: list[int], count: int) -> None:
    rooms = [(room, position) for position, room in enumerate(slots)]
    chosen = fewest(rooms, count)
    largest = sum(sorted(slots, reverse=True)[: len(chosen) - 1])

    assert len(set(chosen)) == len(chosen)
    assert sum(slots[position] for position in chosen) >= min(count, sum(slots))
    assert largest < count


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(1, 8))
def test_of_single_nodes_that_do_the_fullest_is_taken(slots: list[int], count: int) -> None:
    chosen = fewest([(room, position) for position, room in enumerate(slots)], count)
    enough = [room for room in slots if room >= count]

    assert not enough or [slots[position] for position in chosen] == [min(enough)]


def test_nothing_is_chosen_where_nothing_has_room() -> None:
    assert fewest([], 3) == []
    assert fewest([(4, 0), (2, 1)], 7) == [0, 1]
