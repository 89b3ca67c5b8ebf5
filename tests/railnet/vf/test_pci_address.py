"""PCI addresses: the kernel's form is parsed, every other text is refused."""

import pytest
from hypothesis import given

from railnet.vf.pci_address import PciAddress
from tests.railnet.vf.builders import pci_addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:03:00.1", PciAddress(0, 3, 0, 1)),
        ("ffff:ff:1f.7", PciAddress(0xFFFF, 0xFF, 0x1F, 7)),
        ("10000:e1:00.0", PciAddress(0x10000, 0xE1, 0, 0)),
    ],
    ids=["lowest domain", "largest parts", "domain of Intel VMD"],
)
def test_address_is_parsed_and_written_in_the_kernels_form(text: str, address: PciAddress) -> None:
    assert PciAddress.parse(text) == address
    assert str(address) == text


@given(pci_addresses)
def test_address_is_parsed_from_its_own_text(address: PciAddress) -> None:
    assert PciAddress.parse(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "03:00.1",
        "0000:03:00",
        "0000:03:00.8",
        "0000:03:20.0",
        "0000:3:00.1",
        "000:03:00.1",
        "000000000:03:00.1",
        "0000:AF:00.1",
        "0000:03:00.1\n",
        " 0000:03:00.1",
        "0000:03:00.1 ",
        "0000:03:00.1/..",
        "\uff10000:03:00.1",
        "0000-03-00.1",
    ],
)
def test_malformed_address_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a PCI address") as raised:
        PciAddress.parse(text)

    assert repr(text) in str(raised.value)


def test_addresses_sort_in_pci_order_not_in_text_order() -> None:
    in_order = ["0000:03:00.7", "0000:03:01.0", "0000:0a:00.0", "0001:00:00.0", "10000:00:00.0"]

    assert [str(address) for address in sorted(PciAddress.parse(text) for text in reversed(in_order))] == in_order
