"""A churn's decisions are its seed's alone, and every fate comes up."""

import itertools
from collections import Counter

from simnode.chaos.churn_schedule import NODE_FATES, POD_FATES, Fate, Life, block, life

MANY = 5_000  # lives, as a churn of 10,000 operations has


def lives(seed: int) -> list[Life]:
    return [life(seed, number) for number in range(MANY)]


def test_same_seed_decides_the_same() -> None:
    assert lives(7) == lives(7)
    assert block(7, 3, 100, 32) == block(7, 3, 100, 32)


def test_other_seed_decides_otherwise() -> None:
    assert lives(7) != lives(8)


def test_life_is_the_same_however_many_are_lived_at_once() -> None:
    numbered = {one.number: one for at_most in (1, 32) for one in block(7, 0, 40, at_most).lives}
    assert all(life(7, number) == one for number, one in numbered.items())


def test_every_fate_comes_up_and_most_pods_just_come_and_go() -> None:
    found = Counter(one.fate for one in lives(7))

    assert found.keys() == {*POD_FATES, *NODE_FATES}
    assert found[POD_FATES[0]] > MANY * 0.75


def test_pods_have_no_rail_one_or_several() -> None:
    assert {one.vfs for one in lives(7)} == {0, 1, 2, 4, 8}


def test_fates_are_thousandths() -> None:
    assert sum(fate.often for fate in POD_FATES) + sum(NODE_FATES.values()) == 1000


def test_blocks_have_1_to_32_at_once_and_no_more_than_asked_for() -> None:
    assert {block(7, number, 0, 32).at_once for number in range(200)} == {1, 2, 4, 8, 16, 32}
    assert {block(7, number, 0, 8).at_once for number in range(200)} == {1, 2, 4, 8}


def test_late_del_comes_when_at_least_twenty_other_lives_have_begun() -> None:
    late = [one.late for one in lives(7) if isinstance(one.fate, Fate) and "late" in one.fate.end]
    assert min(late) >= 20


def test_lives_of_a_block_are_numbered_on() -> None:
    blocks = list(itertools.islice((block(7, number, 50, 4) for number in itertools.count()), 3))
    assert all([one.number for one in each.lives] == list(range(50, 50 + len(each.lives))) for each in blocks)
