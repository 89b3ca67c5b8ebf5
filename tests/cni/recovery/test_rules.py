"""The tables of recovery: they are total, each row is what the design says, and each row's action is done."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from cni.recovery import rules
from cni.recovery.rules import GC, SWEEP, GcState, NamespaceState, RecordState, RecoveryAction, RecoveryRule
from cni.recovery.sweep import Recovery
from railnet.vf.record import Record, RecordedIpam
from tests.cni.attachment_node import a_node
from tests.railnet.vf.builders import a_record, an_attachment

A, N, R, G = RecoveryAction, NamespaceState, RecordState, GcState
# In the order of NamespaceState: ALIVE, MOVED, GONE, OLDER_BOOT, UNKNOWN.
SWEEP_ROWS = {
    R.PLANNED: (A.TAKE_BACK, A.FOLLOW, A.TAKE_BACK_AND_FORGET, A.TAKE_BACK_AND_FORGET, A.TRY_AGAIN),
    R.ATTACHED: (A.LEAVE, A.FOLLOW, A.TAKE_BACK_AND_FORGET, A.TAKE_BACK_AND_FORGET, A.TRY_AGAIN),
    R.DETACHING: (A.TAKE_BACK, A.FOLLOW, A.TAKE_BACK_AND_FORGET, A.TAKE_BACK_AND_FORGET, A.TRY_AGAIN),
    R.UNNAMED: (A.FREE_RETURNED, A.FOLLOW, A.TAKE_BACK_AND_FORGET, A.TAKE_BACK_AND_FORGET, A.TRY_AGAIN),
    R.UNNAMED_DETACHING: (
        A.FREE_RETURNED_THEN_TAKE_BACK,
        A.FOLLOW,
        A.TAKE_BACK_AND_FORGET,
        A.TAKE_BACK_AND_FORGET,
        A.TRY_AGAIN,
    ),
    R.RETURNED: (A.LEAVE, A.LEAVE, A.FORGET, A.FORGET, A.TRY_AGAIN),
    R.AWAITS_IPAM: (A.LEAVE, A.LEAVE, A.RELEASE_IPAM, A.RELEASE_IPAM, A.TRY_AGAIN),
}
GC_ROWS = {
    G.LISTED: (A.LEAVE,) * 5,
    G.UNLISTED: (A.TAKE_BACK_WHOLLY,) * 5,
    G.UNLISTED_YOUNG: (A.LEAVE, A.LEAVE, A.TAKE_BACK_WHOLLY, A.TAKE_BACK_WHOLLY, A.TRY_AGAIN),
    G.UNLISTED_UNNAMED: (A.LEAVE, A.LEAVE, A.TAKE_BACK_WHOLLY, A.TAKE_BACK_WHOLLY, A.TRY_AGAIN),
}


@pytest.mark.parametrize(("table", "states"), [(SWEEP, RecordState), (GC, GcState)], ids=["sweep", "GC"])
def test_table_has_a_row_with_a_reason_for_each_pair_of_states(table: Mapping[object, RecoveryRule], states) -> None:
    assert list(table) == list(product(states, NamespaceState))
    assert all(rule.reason for rule in table.values())


@pytest.mark.parametrize("state", RecordState)
@pytest.mark.parametrize(("column", "namespace"), list(enumerate(NamespaceState)))
def test_sweep_does_what_the_row_says(state: RecordState, column: int, namespace: NamespaceState) -> None:
    assert rules.SWEEP[state, namespace].action is SWEEP_ROWS[state][column]


@pytest.mark.parametrize("state", GcState)
@pytest.mark.parametrize(("column", "namespace"), list(enumerate(NamespaceState)))
def test_gc_does_what_the_row_says(state: GcState, column: int, namespace: NamespaceState) -> None:
    assert rules.GC[state, namespace].action is GC_ROWS[state][column]


def test_no_rule_takes_anything_from_a_confirmed_sandbox_that_may_be_alive() -> None:
    may_be_alive = (N.ALIVE, N.MOVED, N.UNKNOWN)

    assert {SWEEP[R.ATTACHED, namespace].action for namespace in may_be_alive} == {A.LEAVE, A.FOLLOW, A.TRY_AGAIN}


def test_every_action_is_in_a_table_and_the_sweep_can_do_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recovery: Recovery = a_node(tmp_path, monkeypatch).daemon().recovery

    in_tables = {rule.action for table in (SWEEP, GC) for rule in table.values()}

    assert in_tables == set(RecoveryAction) == set(recovery._acts)


IPAM = RecordedIpam({}, ("net1",), "/opt/cni/bin")
NAMED, UNNAMED = (
    a_record(an_attachment()),
    a_record(an_attachment(), primary={}, container_id="unknown-7", stage="attached"),
)


@pytest.mark.parametrize(
    ("record", "state"),
    [
        (NAMED, R.PLANNED),
        (replace(NAMED, stage="attached"), R.ATTACHED),
        (replace(NAMED, stage="detaching"), R.DETACHING),
        (replace(NAMED, stage="attached", primary={}), R.ATTACHED),
        (UNNAMED, R.UNNAMED),
        (replace(UNNAMED, stage="detaching"), R.UNNAMED_DETACHING),
        (replace(NAMED, stage="detaching", attachments=()), R.RETURNED),
        (replace(UNNAMED, stage="detaching", attachments=()), R.RETURNED),
        (replace(NAMED, stage="detaching", attachments=(), ipam=IPAM), R.AWAITS_IPAM),
    ],
    ids=lambda value: value.name if isinstance(value, RecordState) else None,
)
def test_state_of_a_record_follows_from_its_stage_its_name_and_what_is_left(record: Record, state: RecordState) -> None:
    assert rules.record_state(record) is state


@pytest.mark.parametrize(
    ("record", "valid", "age", "state"),
    [
        (NAMED, {"c0ffee@eth0"}, 0, G.LISTED),
        (NAMED, {"c0ffee@eth1"}, 60, G.UNLISTED),
        (NAMED, set(), 59, G.UNLISTED_YOUNG),
        (UNNAMED, set(), 3600, G.UNLISTED_UNNAMED),
        (UNNAMED, {"unknown-7@eth0"}, 3600, G.LISTED),
    ],
)
def test_gc_state_follows_from_the_list_and_the_records_age(record: Record, valid, age: float, state: GcState) -> None:
    assert rules.gc_state(record, frozenset(valid), age, 60) is state
