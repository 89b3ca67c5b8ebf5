"""GUIDs: their two text forms, and the GUIDs derived for VFs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.vf.guid import Guid, derived
from tests.railnet.vf.builders import guids

PF = Guid.parse("b859:9f03:00f9:8f86")
LOCALLY_ADMINISTERED = 0x02 << 56
INDEXES = range(128)


@pytest.mark.parametrize("text", ["b859:9f03:00f9:8f86", "b8:59:9f:03:00:f9:8f:86"], ids=["quads", "octets"])
def test_guid_is_parsed_in_both_forms(text: str) -> None:
    assert Guid.parse(text) == Guid(0xB8599F0300F98F86)


def test_guid_is_written_in_both_forms() -> None:
    assert (PF.quads, str(PF)) == ("b859:9f03:00f9:8f86", "b8:59:9f:03:00:f9:8f:86")


@given(guids)
def test_guid_is_parsed_from_both_of_its_texts(guid: Guid) -> None:
    assert Guid.parse(str(guid)) == Guid.parse(guid.quads) == guid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b8599f0300f98f86",
        "0xb8599f0300f98f86",
        "b859:9f03:00f9",
        "b859:9f03:00f9:8f86:0000",
        "b8:59:9f:03:00:f9:8f",
        "b859:9f03:00:f9:8f86",
        "B859:9F03:00F9:8F86",
        "b859:9f03:00f9:8f86\n",
        "b859-9f03-00f9-8f86",
        "b859:9f03:00f9:8f8g",
    ],
)
def test_malformed_guid_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a GUID") as raised:
        Guid.parse(text)

    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "usable"),
    [("0000:0000:0000:0000", False), ("ffff:ffff:ffff:ffff", False), ("0000:0000:0000:0001", True)],
    ids=["never set", "all one", "any other"],
)
def test_guid_is_usable_unless_it_is_zero_or_all_one(text: str, usable: bool) -> None:
    assert Guid.parse(text).usable is usable


def test_derived_guids_never_change() -> None:
    assert [derived(PF, index).quads for index in (0, 1, 127)] == [
        "ba59:9f03:01f9:8f86",
        "ba59:9f03:02f9:8f86",
        "ba59:9f03:80f9:8f86",
    ]


@given(guids)
def test_derived_guid_differs_from_the_pfs_and_for_each_vf(pf: Guid) -> None:
    found = {derived(pf, index) for index in INDEXES}

    assert len(found) == len(INDEXES)
    assert pf not in found


@given(st.integers(0, (1 << 64) - 17), st.integers(1, 15))
def test_derived_guids_of_neighbouring_cards_differ(value: int, distance: int) -> None:
    first = {derived(Guid(value << 4 & (1 << 64) - 1), index) for index in INDEXES}
    second = {derived(Guid((value << 4 & (1 << 64) - 1) + distance), index) for index in INDEXES}

    assert first.isdisjoint(second)


@given(guids, st.sampled_from(INDEXES))
def test_derived_guid_is_locally_administered(pf: Guid, index: int) -> None:
    assert derived(pf, index).value & LOCALLY_ADMINISTERED


@given(guids, st.sampled_from(INDEXES))
def test_derived_guid_keeps_the_octets_that_distinguish_two_cards(pf: Guid, index: int) -> None:
    changed = derived(pf, index).value ^ pf.value

    assert changed & ~LOCALLY_ADMINISTERED & ~(0xFFFF << 24) == 0
