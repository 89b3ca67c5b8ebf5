"""MACs: their text form, and the MACs derived for VFs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.vf.mac import Mac, derived

PF = Mac.parse("b8:59:9f:f9:8f:86")
macs = st.builds(Mac, st.integers(0, (1 << 48) - 1))
indexes = st.integers(0, 0xFFFE)


@given(macs)
def test_mac_is_parsed_from_its_text_and_its_octets_match(mac: Mac) -> None:
    assert Mac.parse(str(mac)) == mac
    assert bytes(mac).hex(":") == str(mac)


@pytest.mark.parametrize(
    "text",
    ["", "b8:59:9f:f9:8f", "b8:59:9f:f9:8f:86:00", "B8:59:9F:F9:8F:86", "b8-59-9f-f9-8f-86", "b8:59:9f:f9:8f:8g"],
)
def test_malformed_mac_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a MAC address"):
        Mac.parse(text)


def test_derived_macs_never_change() -> None:
    assert [str(derived(PF, index)) for index in (0, 1, 126, 255)] == [
        "ba:59:9e:f9:8f:86",
        "ba:59:9d:f9:8f:86",
        "ba:59:e0:f9:8f:86",
        "ba:58:9f:f9:8f:86",
    ]


@given(macs, indexes)
def test_derived_mac_is_locally_administered_and_not_the_pfs(pf: Mac, index: int) -> None:
    mac = derived(pf, index)

    assert bytes(mac)[0] & 0x03 == 0x02
    assert mac != pf


@given(macs, indexes, indexes)
def test_vfs_of_one_pf_have_different_macs(pf: Mac, one: int, other: int) -> None:
    assert (derived(pf, one) == derived(pf, other)) == (one == other)


@given(macs, st.integers(1, 0xFFFFFF), indexes, indexes)
def test_vfs_of_two_cards_of_one_vendor_have_different_macs(pf: Mac, apart: int, one: int, other: int) -> None:
    assert derived(pf, one) != derived(Mac(pf.value ^ apart), other)


@pytest.mark.parametrize("index", [-1, 0xFFFF])
def test_impossible_vf_index_is_refused(index: int) -> None:
    with pytest.raises(ValueError, match="a VF's index is from 0 to 65534"):
        derived(PF, index)
