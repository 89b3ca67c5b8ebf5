"""From what is known of each rail, and the labels of a node, to the labels that change."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.fabric.topology_labels import (
    LEAF,
    RAILS,
    RATE,
    Leaf,
    RailPlace,
    changes,
    is_ours,
    leaf_of_rail,
    parse_rate,
)
from railnet.vf.guid import Guid

A, B = 0x0002C903007E5A10, 0xB83FD2030000AA00
A_TEXT, B_TEXT = "0002c903007e5a10", "b83fd2030000aa00"
# k8s.io/apimachinery, pkg/util/validation: IsValidLabelValue and IsQualifiedName
VALUE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
DOWN = RailPlace(reason="the link is not up")
BACK_TO_BACK = RailPlace(rate="400", reason="the cable leads to a CA", lasting=True)
GONE = RailPlace(reason="its card is missing", absent=True)


def on(switch: int, port: int = 1, rate: str = "400") -> RailPlace:
    return RailPlace(Leaf(Guid(switch), port), rate)


def test_node_with_one_leaf_is_labelled_by_the_guid_of_the_switch() -> None:
    assert changes({}, {0: on(A)}) == {LEAF: A_TEXT, RAILS: "1", RATE: "400", "railnet.io/rail0-leaf": A_TEXT}


def test_rails_on_the_same_switch_have_one_leaf() -> None:
    found = changes({}, {0: on(A, 1), 1: on(A, 2)})

    assert (found[LEAF], found[RAILS], found[leaf_of_rail(1)]) == (A_TEXT, "2", A_TEXT)


def test_nodes_of_one_rail_group_have_the_same_leaf_and_other_nodes_have_another() -> None:
    one, other = changes({}, {0: on(A, 1), 1: on(B, 1)}), changes({}, {0: on(A, 9), 1: on(B, 7)})
    crossed = changes({}, {0: on(B), 1: on(A)})

    assert one[LEAF] == other[LEAF] == "2-leaves-00f5a8b195ef"  # sha256 of "0=0002c903007e5a10,1=b83fd2030000aa00"
    assert crossed[LEAF] != one[LEAF]
    assert (one[leaf_of_rail(0)], one[leaf_of_rail(1)]) == (A_TEXT, B_TEXT)


def labelled(places: dict[int, RailPlace], **others: str) -> dict[str, str]:
    found = {**others, **changes({}, places)}
    return {key: value for key, value in found.items() if value is not None}


def test_nothing_changes_when_the_labels_are_right() -> None:
    places = {0: on(A), 1: on(B)}

    assert changes(labelled(places, zone="z1"), places) == {}


def test_node_without_rails_loses_its_labels_and_keeps_all_others() -> None:
    found = labelled({0: on(A), 1: on(B)}, zone="z1") | {"railnet.io/net1": "true", "railnet.io/leaf-of-mine": "x"}

    assert changes(found, {}) == dict.fromkeys([LEAF, leaf_of_rail(0), leaf_of_rail(1), RAILS, RATE])


def test_rail_that_is_gone_from_the_configuration_loses_its_label() -> None:
    found = changes(labelled({0: on(A), 1: on(A)}), {0: on(A)})

    assert found == {leaf_of_rail(1): None, RAILS: "1"}


@pytest.mark.parametrize("unknown", [DOWN, GONE], ids=["down", "absent"])
def test_rail_whose_leaf_is_not_known_now_is_believed_to_be_where_it_was(unknown: RailPlace) -> None:
    before = {0: on(A), 1: on(B)}
    found = changes(labelled(before), {0: on(A), 1: unknown})

    assert found == ({RAILS: "1"} if unknown.absent else {})


def test_node_that_was_moved_while_a_port_is_down_has_no_leaf_of_the_old_place() -> None:
    found = changes(labelled({0: on(A), 1: on(A)}), {0: on(B), 1: DOWN})

    assert found[leaf_of_rail(0)] == B_TEXT
    assert found[LEAF] not in (A_TEXT, B_TEXT)


def test_new_node_with_a_port_that_is_down_has_no_leaf_until_the_port_is_up() -> None:
    assert changes({}, {0: on(A), 1: DOWN}) == {leaf_of_rail(0): A_TEXT, RAILS: "2", RATE: "400"}


def test_card_that_never_was_here_is_not_waited_for() -> None:
    assert changes({}, {0: on(A), 1: GONE}) == {LEAF: A_TEXT, leaf_of_rail(0): A_TEXT, RAILS: "1", RATE: "400"}


def test_rail_that_is_connected_back_to_back_has_no_leaf_and_the_node_has_none() -> None:
    found = changes(labelled({0: on(A), 1: on(A)}), {0: on(A), 1: BACK_TO_BACK})

    assert found == {LEAF: None, leaf_of_rail(1): None}


def test_rate_is_the_lowest_and_stays_while_none_is_known() -> None:
    assert changes({}, {0: on(A, rate="400"), 1: on(A, rate="56")})[RATE] == "56"
    assert changes({RATE: "400", RAILS: "1"}, {0: DOWN}) == {}


def test_labels_that_another_program_spoilt_are_not_believed() -> None:
    found = {LEAF: "rack-7", leaf_of_rail(0): "rack-7", RATE: "fast", RAILS: "1"}

    assert changes(found, {0: DOWN}) == {LEAF: None, leaf_of_rail(0): None, RATE: None}


@pytest.mark.parametrize(
    ("text", "rate"),
    [("400 Gb/sec (4X NDR)", "400"), ("2.5 Gb/sec (1X SDR)", "2.5"), ("25.0 Gb/sec (1X EDR)", "25"), ("0 Gb/sec", "0")],
)
def test_rate_is_the_number_of_sysfs(text: str, rate: str) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "400", "fast Gb/sec", "400 Mb/sec", "4e2 Gb/sec (4X NDR)", "-1 Gb/sec"])
def test_another_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        parse_rate(text)


@pytest.mark.parametrize("key", ["railnet.io/leafs", "railnet.io/rail01-leaf", "railnet.io/rail-leaf", "leaf", "zone"])
def test_other_keys_are_not_ours(key: str) -> None:
    assert not is_ours(key)


PLACES = st.one_of(
    st.builds(on, st.integers(1, 2**64 - 2), st.integers(1, 254), st.sampled_from(["2.5", "100", "400", "800"])),
    st.sampled_from([DOWN, GONE, BACK_TO_BACK]),
)
LABELS = st.dictionaries(
    st.one_of(st.sampled_from([LEAF, RAILS, RATE, leaf_of_rail(0), leaf_of_rail(7)]), st.text(max_size=20)),
    st.one_of(st.sampled_from([A_TEXT, "400", ""]), st.text(max_size=20)),
)


@pytest.mark.slow
@given(found=LABELS, places=st.dictionaries(st.integers(0, 15), PLACES))
def test_only_own_keys_change_to_valid_values_and_once_is_enough(
    found: dict[str, str], places: dict[int, RailPlace]
) -> None:
    changed = changes(found, places)
    after = {key: value for key, value in {**found, **changed}.items() if value is not None}

    assert all(is_ours(key) for key in changed)
    assert all(value is None or (VALUE.fullmatch(value) and len(value) <= 63) for value in changed.values())
    assert changes(after, places) == {}
