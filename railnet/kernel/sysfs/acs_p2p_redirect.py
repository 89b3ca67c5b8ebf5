"""Access Control Services (ACS) of PCI bridges: whether a bridge sends packets between two devices below it up to the root complex. Pure.

Constants are of include/uapi/linux/pci_regs.h.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

from railnet.vf.pci_address import PciAddress

_FIRST = 0x100  # PCI_CFG_SPACE_SIZE: the first extended capability
_MOST_CAPABILITIES = (4096 - _FIRST) // 8  # as pci_find_next_ext_capability() counts: a faulty list may be a loop
_ACS = 0x0D  # PCI_EXT_CAP_ID_ACS
_CONTROL = 0x06  # PCI_ACS_CTRL
_ALL_ONES = 0xFFFFFFFF  # what a device that does not answer reads as
_REQUEST_REDIRECT, _COMPLETION_REDIRECT, _EGRESS_CONTROL, _DIRECT_TRANSLATED = 0x04, 0x08, 0x20, 0x40
# Upstream Forwarding passes on what a bridge below has redirected, and redirects nothing itself. Linux decides by the same three
# bits (pci_bridge_has_acs_redir(), drivers/pci/p2pdma.c).
_REDIRECTS = _REQUEST_REDIRECT | _COMPLETION_REDIRECT | _EGRESS_CONTROL
# The words of lspci (cap_acs(), ls-ecaps.c of pciutils), of those bits that decide the way of a packet.
_WORDS: Mapping[int, str] = {
    _REQUEST_REDIRECT: "ReqRedir",
    _COMPLETION_REDIRECT: "CmpltRedir",
    0x10: "UpstreamFwd",
    _EGRESS_CONTROL: "EgressCtrl",
}


def acs_control(config: bytes) -> int | None:
    """Return the ACS Control register of a function's configuration space; 0 if the function has no ACS.

    None means unknown: the space was not read as far as that, or the device did not answer.
    """
    position = _FIRST
    for _ in range(_MOST_CAPABILITIES):
        header = int.from_bytes(config[position : position + 4], "little")
        if len(config) < position + 4 or header == _ALL_ONES:
            return None
        if header & 0xFFFF == _ACS:
            register = config[position + _CONTROL : position + _CONTROL + 2]
            return int.from_bytes(register, "little") if len(register) == 2 else None  # noqa: PLR2004 - 16 bits
        position = header >> 20 & 0xFFC
        if position < _FIRST:
            return 0
    return None


def redirects(control: int) -> bool:
    """Return whether a bridge with this ACS Control sends packets from one device below it to another up to the root complex.

    With Direct Translated P2P, packets with addresses that the device has translated (ATS) go the short way all the same. An
    administrator sets it for that purpose alone, so such a bridge counts as one that does not redirect.
    """
    return bool(control & _REDIRECTS) and not control & _DIRECT_TRANSLATED


def described(control: int) -> str:
    """Name the bits of an ACS Control that decide the way of a packet, as lspci does."""
    return " ".join(f"{word}+" for bit, word in _WORDS.items() if control & bit)


def bridges_between(first_path: Sequence[PciAddress], second_path: Sequence[PciAddress]) -> tuple[PciAddress, ...]:
    """Return the bridges below the last one that two functions have in common; none if they have none in common.

    `first_path` and `second_path` are the bridges above each function, from the root port down. Packets between functions without a common
    bridge go through the root complex in any case.
    """
    common = len(list(takewhile(lambda both: both[0] == both[1], zip(first_path, second_path, strict=False))))
    return (*first_path[common:], *second_path[common:]) if common else ()
