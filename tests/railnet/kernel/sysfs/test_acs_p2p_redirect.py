"""The ACS Control register in a configuration space, and which bridges are between two functions."""

import struct

import pytest

from railnet.kernel.sysfs.acs_p2p_redirect import acs_control, bridges_between, described, redirects
from railnet.vf.pci_address import PciAddress
from tests.railnet.kernel.nodes import configuration_space


def space(*capabilities: tuple[int, int, int], control: int = 0x1D, size: int = 4096) -> bytes:
    """Return a configuration space of capabilities (position, id, position of the next one); each has the same control."""
    found = bytearray(4096)
    for position, identifier, following in capabilities:
        found[position : position + 8] = struct.pack("<IHH", identifier | 1 << 16 | following << 20, 0x5F, control)
    return bytes(found[:size])


def test_control_is_found_behind_other_capabilities() -> None:
    assert acs_control(configuration_space(0x5D).encode()) == 0x5D
    assert acs_control(space((0x100, 0x0D, 0))) == 0x1D
    assert acs_control(space((0x100, 0x01, 0xFF8), (0xFF8, 0x0D, 0))) == 0x1D


def test_function_without_acs_has_control_0() -> None:
    assert acs_control(configuration_space(None).encode()) == 0
    assert acs_control(bytes(4096)) == 0
    assert acs_control(space((0x100, 0x01, 0x40), (0x40, 0x0D, 0))) == 0  # no extended capability is there


@pytest.mark.parametrize(
    "config",
    [
        b"",
        bytes(64),  # what a reader without CAP_SYS_ADMIN gets
        bytes(256),  # a conventional space
        space((0x100, 0x0D, 0), size=0x107),  # the register is cut
        space((0x100, 0x01, 0x140), size=0x143),  # the next header is cut
        space((0x100, 0x01, 0x140), (0x140, 0x02, 0x100)),  # a loop
        b"\xff" * 4096,  # the device does not answer
    ],
)
def test_what_was_not_read_is_unknown(config: bytes) -> None:
    assert acs_control(config) is None


@pytest.mark.parametrize(
    ("control", "expected", "words"),
    [
        (0x00, False, ""),
        (0x03, False, ""),  # source validation and translation blocking
        (0x04, True, "ReqRedir+"),
        (0x08, True, "CmpltRedir+"),
        (0x10, False, "UpstreamFwd+"),
        (0x1D, True, "ReqRedir+ CmpltRedir+ UpstreamFwd+"),
        (0x20, True, "EgressCtrl+"),
        (0x5D, False, "ReqRedir+ CmpltRedir+ UpstreamFwd+"),  # with Direct Translated P2P
    ],
)
def test_which_bits_redirect(control: int, expected: bool, words: str) -> None:
    assert redirects(control) is expected
    assert described(control) == words


ROOT_PORT, UPSTREAM, FIRST, SECOND = (PciAddress(0, bus, device, 0) for bus, device in ((0, 1), (1, 0), (2, 0), (2, 1)))
OTHER_ROOT_PORT = PciAddress(0, 0, 2, 0)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((ROOT_PORT, UPSTREAM, FIRST), (ROOT_PORT, UPSTREAM, SECOND), (FIRST, SECOND)),
        ((ROOT_PORT, UPSTREAM, FIRST), (ROOT_PORT, UPSTREAM), (FIRST,)),
        ((ROOT_PORT,), (ROOT_PORT,), ()),
        ((ROOT_PORT, UPSTREAM), (OTHER_ROOT_PORT,), ()),  # by the root complex in any case
        ((), (ROOT_PORT,), ()),
    ],
)
def test_bridges_between_two_functions(
    one: tuple[PciAddress, ...], other: tuple[PciAddress, ...], expected: tuple[PciAddress, ...]
) -> None:
    assert bridges_between(one, other) == expected
