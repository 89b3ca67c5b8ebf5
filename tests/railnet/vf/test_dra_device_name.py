"""A VF's name as a device of DRA."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.vf.dra_device_name import device_name, vf_of
from railnet.vf.pci_address import PciAddress


def test_name_follows_from_the_pci_address() -> None:
    assert device_name(PciAddress.parse("0000:03:00.1")) == "pci-0000-03-00-1"


@given(st.builds(PciAddress, st.integers(0, 0xFFFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7)))
def test_address_follows_from_the_name(vf: PciAddress) -> None:
    assert vf_of(device_name(vf)) == vf


@pytest.mark.parametrize(
    "name", ["", "gpu-0", "pci-0000-03-00-8", "pci-0000-03-20-0", "pci-0000-03-00-1\n", "x" * 1000]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a VF's device"):
        vf_of(name)
