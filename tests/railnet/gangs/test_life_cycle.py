"""The table of a gang's life: each pair of a state and an event has a row or is impossible, and each action is done."""

from itertools import product

import pytest

from railnet.gangs.life_cycle import IMPOSSIBLE, LIFE_CYCLE, GangAction, GangEvent, GangState
from railnet.gangs.planning import GangPlanning
from tests.railnet.gangs.life_cycle_page import PAGE, with_tables

A, E, S = GangAction, GangEvent, GangState
PAIRS = list(product(GangState, GangEvent))
BEHIND = {S.WAITING, S.COOLING, S.CLOSED}
BEGUN = {S.PLACED, S.INCOMPLETE, S.LAPSED}


def test_each_pair_of_a_state_and_an_event_has_a_row_with_a_reason_or_is_impossible_for_a_reason() -> None:
    assert LIFE_CYCLE.keys() | IMPOSSIBLE.keys() == set(PAIRS)
    assert LIFE_CYCLE.keys() & IMPOSSIBLE.keys() == set()
    assert all(rule.reason for rule in LIFE_CYCLE.values())
    assert all(IMPOSSIBLE.values())


def test_every_state_event_and_action_is_in_the_table_and_planning_can_do_each_action() -> None:
    assert {state for state, _ in LIFE_CYCLE} | {rule.then for rule in LIFE_CYCLE.values()} == set(GangState)
    assert {event for _, event in LIFE_CYCLE} == set(GangEvent)
    assert {rule.action for rule in LIFE_CYCLE.values()} == set(GangAction) == set(GangPlanning()._actions.acts)


def test_a_gang_is_evicted_exactly_when_it_enters_or_is_in_the_state() -> None:
    evicts = {pair for pair, rule in LIFE_CYCLE.items() if rule.action is A.EVICT}

    assert evicts == {
        pair for pair, rule in LIFE_CYCLE.items() if rule.then is S.EVICTING and rule.action is not A.SAY_OTHERS_LEAVE
    }
    assert {event for _, event in evicts} == {E.MARKED, E.NO_NODE, E.STILL_THERE, E.OVERDUE, E.SPLIT, E.PREEMPTED}


def test_an_eviction_ends_only_when_all_have_left_or_gangs_are_switched_off() -> None:
    ends = {event for (state, event), rule in LIFE_CYCLE.items() if state is S.EVICTING and rule.then is not S.EVICTING}

    assert ends == {E.ALL_LEFT, E.SWITCHED_OFF}


def test_gates_open_only_for_a_place_or_where_gangs_are_switched_off() -> None:
    opens = {event for (_, event), rule in LIFE_CYCLE.items() if rule.action in (A.ADMIT, A.OPEN)}

    assert opens == {E.PLACE_FOUND, E.SWITCHED_OFF}


def test_a_gang_whose_members_did_not_come_is_not_opened_early_again_while_its_gates_are_closed() -> None:
    assert LIFE_CYCLE[S.WAITING, E.STAGED].action is A.PLAN
    assert LIFE_CYCLE[S.CLOSED, E.STAGED].action is A.SAY_CLOSED


@pytest.mark.parametrize("state", [S.WAITING, S.COOLING, S.CLOSED])
def test_a_gang_leaves_the_gate_only_by_a_place_or_where_gangs_are_switched_off(state: GangState) -> None:
    leaves = {event for (before, event), rule in LIFE_CYCLE.items() if before is state and rule.then not in BEHIND}

    assert leaves == {E.PLACE_FOUND, E.SWITCHED_OFF}


def test_page_has_the_table() -> None:
    page = PAGE.read_text()

    assert with_tables(page) == page, "scripts/setup python -m tests.railnet.gangs.life_cycle_page writes it"
