"""What a leader remembers of a gang: the state follows from it and the pods, and each state keeps only what belongs to it."""

import pytest

from railnet.gangs.leader_memory import BegunStage, EvictingStage, Eviction, GangMemory, News, Tries
from railnet.gangs.life_cycle import GangState
from railnet.gangs.placement_annotation import Evicted

LEAF = (("railnet.io/leaf", "a"),)
NOW = 100.0
COOLS, COOLED = Tries(2, {LEAF: NOW + 1}), Tries(2, {LEAF: NOW})
FAILED = Eviction(Evicted.FAILED, 1, domains=[LEAF], rests_until=NOW + 300)
LAPSED = Eviction(Evicted.LAPSED, 2, rests_until=NOW + 600)
PREEMPTED = Eviction(Evicted.PREEMPTED, 1)


@pytest.mark.parametrize(
    ("memory", "has_begun", "state"),
    [
        (GangMemory(), False, GangState.WAITING),
        (GangMemory(tries=COOLED), False, GangState.WAITING),
        (GangMemory(tries=COOLS), False, GangState.COOLING),
        (GangMemory(tries=Tries(closed_until=NOW)), False, GangState.WAITING),
        (GangMemory(tries=Tries(2, COOLS.cooling, NOW + 1)), False, GangState.CLOSED),
        (GangMemory(BegunStage(NOW, lapsed=True)), False, GangState.WAITING),
        (GangMemory(tries=COOLS), True, GangState.PLACED),
        (GangMemory(BegunStage()), True, GangState.PLACED),
        (GangMemory(BegunStage(incomplete_since=NOW)), True, GangState.INCOMPLETE),
        (GangMemory(BegunStage(NOW, lapsed=True)), True, GangState.LAPSED),
        (GangMemory(EvictingStage(Evicted.FAILED, NOW)), True, GangState.EVICTING),
        (GangMemory(EvictingStage(Evicted.FAILED, NOW)), False, GangState.EVICTING),
    ],
)
def test_state_follows_from_the_pods_and_from_what_is_remembered(
    memory: GangMemory, has_begun: bool, state: GangState
) -> None:
    assert memory.state(NOW, has_begun=has_begun) is state


def test_room_for_members_to_come_is_kept_since_the_first_was_missing() -> None:
    incomplete = GangMemory().entering(GangState.INCOMPLETE, NOW, None)
    lapsed = incomplete.entering(GangState.INCOMPLETE, NOW + 5, None).entering(GangState.LAPSED, NOW + 600, None)

    assert lapsed.stage == BegunStage(incomplete_since=NOW, lapsed=True)
    assert lapsed.entering(GangState.PLACED, NOW, None).stage == BegunStage()


def test_that_all_members_existed_is_remembered_until_none_has_a_place_any_more() -> None:
    whole = GangMemory().with_all_members()
    incomplete = whole.entering(GangState.INCOMPLETE, NOW, None)

    assert incomplete.stage == BegunStage(incomplete_since=NOW, whole=True)
    assert incomplete.entering(GangState.PLACED, NOW, None) == whole == whole.with_all_members()
    assert whole.entering(GangState.WAITING, NOW, None) == GangMemory()
    assert not whole.entering(GangState.EVICTING, NOW, PREEMPTED).begun.whole


@pytest.mark.parametrize(
    ("eviction", "tries"),
    [
        (FAILED, Tries(2, {LEAF: NOW + 300})),
        (LAPSED, Tries(3, closed_until=NOW + 600)),
        (PREEMPTED, Tries()),
    ],
    ids=lambda value: value.why.value if isinstance(value, Eviction) else "",
)
def test_eviction_is_remembered_once(eviction: Eviction, tries: Tries) -> None:
    evicting = GangMemory(BegunStage(NOW)).entering(GangState.EVICTING, NOW, eviction)

    assert evicting == GangMemory(EvictingStage(eviction.why, NOW), tries)
    assert evicting.entering(GangState.EVICTING, NOW + 1, LAPSED) == evicting


def test_gang_that_has_left_keeps_its_tries_only() -> None:
    evicting = GangMemory(news=News(placed=(frozenset(), 1, False))).entering(GangState.EVICTING, NOW, FAILED)

    assert evicting.entering(GangState.WAITING, NOW, None) == GangMemory(tries=Tries(2, {LEAF: NOW + 300}))


def test_domain_that_has_cooled_down_is_forgotten_with_the_next_eviction() -> None:
    assert COOLED.after(FAILED, NOW) == Tries(2, {LEAF: NOW + 300})
    assert Tries(1, {(("rack", "r"),): NOW}).after(FAILED, NOW).cooling == {LEAF: NOW + 300}
