"""The annotation of a placement: what is written is read again, and nothing else is."""

import json

import pytest

from railnet.gangs.placement.gang import domain
from railnet.gangs.placement_annotation import Evicted, Placed, parse, written
from railnet.jobs.gang.gang_constraint import MOST_KEYS, constraint


def test_what_is_written_is_read() -> None:
    placed = Placed(domain({"b": "2", "a/leaf": "0x1"}), 2)

    assert written(placed) == '{"domain":{"a/leaf":"0x1","b":"2"},"attempt":2}'
    assert parse(written(placed)) == placed


def test_placement_by_as_many_keys_as_a_constraint_may_have_is_read() -> None:
    """Otherwise a pod would look as if it had never been placed."""
    keys = [f"{'.'.join(['p' * 63] * 3)}.{'q' * 61}/{number:063}" for number in range(MOST_KEYS)]
    topologies = [{"key": key} for key in keys]
    found = constraint(
        json.dumps({"required": {"topologies": topologies[:9]}, "preferred": {"topologies": topologies[9:]}})
    )
    where = domain(dict.fromkeys((*found.required, *found.preferred), "v" * 63))
    placed = Placed(where, 1, Evicted.PREEMPTED, reserved_until=1 << 39)

    assert len(placed.domain) == MOST_KEYS
    assert parse(written(placed)) == placed


def test_gang_without_topology_has_no_domain() -> None:
    assert parse(written(Placed((), 1))) == Placed((), 1)


def test_node_of_a_placement_is_read() -> None:
    placed = Placed(domain({"leaf": "a"}), 1, node="a-0")

    assert written(placed) == '{"domain":{"leaf":"a"},"attempt":1,"node":"a-0"}'
    assert parse(written(placed)) == placed
    assert parse(written(placed._replace(evicted=Evicted.FAILED))) == placed._replace(evicted=Evicted.FAILED)


def test_mark_of_an_eviction_is_read() -> None:
    placed = Placed((), 1, Evicted.PREEMPTED)

    assert written(placed) == '{"domain":{},"attempt":1,"evicted":"preempted"}'
    assert parse(written(placed)) == placed
    assert parse('{"domain":{},"attempt":1,"evicted":["other"]}') == Placed((), 1)


def test_time_until_which_room_is_kept_is_read() -> None:
    placed = Placed((), 1, reserved_until=1_800_000_000)

    assert written(placed) == '{"domain":{},"attempt":1,"reservedUntil":1800000000}'
    assert parse(written(placed)) == placed


@pytest.mark.parametrize("moment", ["true", '"1"', "0", "-1", "1.5", "1e999", str(1 << 40)])
def test_time_that_no_leader_writes_counts_as_none(moment: str) -> None:
    assert parse(f'{{"domain":{{}},"attempt":1,"reservedUntil":{moment}}}') == Placed((), 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        '{"domain":{},"attempt":0}',
        '{"domain":{},"attempt":true}',
        '{"domain":{},"attempt":"1"}',
        '{"domain":{},"attempt":1e999}',
        '{"domain":{"a":1},"attempt":1}',
        '{"domain":[],"attempt":1}',
        '{"domain":{},"attempt":1001}',
        '{"domain":{},"attempt":1,"node":1}',
        '{"domain":{},"attempt":1,"node":"ä"}',
        json.dumps({"domain": {}, "attempt": 1, "node": "n" * 254}),
        "[" * 4000,
        json.dumps({"domain": {str(number): "" for number in range(17)}, "attempt": 1}),
        json.dumps({"domain": {"a": "x" * 8200}, "attempt": 1}),
        json.dumps({"domain": {"a": "x" * 64}, "attempt": 1}),
        '{"domain":{"a":"\\ud800"},"attempt":1}',
        '{"domain":{"\\ud800":"a"},"attempt":1}',
    ],
)
def test_what_is_no_placement_is_none(text: str) -> None:
    assert parse(text) is None
