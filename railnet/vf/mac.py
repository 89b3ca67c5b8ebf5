"""MAC addresses of Ethernet VFs: their text form, and the MACs derived for VFs."""

import re
from typing import NamedTuple, Self

_OCTETS = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")

# The first octet's two lowest bits (IEEE 802, clause 8.2).
_GROUP = 0x01 << 40
_LOCALLY_ADMINISTERED = 0x02 << 40
_VF_INDEX_SHIFT = 24  # octets 2 and 3, the end of the vendor's OUI; the serial number in the lower octets stays
_VF_INDEXES = 0xFFFF


class Mac(NamedTuple):
    """One MAC address; `value` is the EUI-48 as a number, most significant octet first."""

    value: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `b8:59:9f:f9:8f:86`, as the kernel and `ip link` write it.

        Raises:
            ValueError: any other text.
        """
        if _OCTETS.fullmatch(text) is None:
            raise ValueError(f"{text!r:.80} is not a MAC address of the form b8:59:9f:f9:8f:86")
        return cls(int(text.replace(":", ""), 16))

    def __bytes__(self) -> bytes:
        return self.value.to_bytes(6, "big")

    def __str__(self) -> str:
        return bytes(self).hex(":")


def derived(pf_mac: Mac, vf_index: int) -> Mac:
    """Derive the MAC of a VF from its PF's MAC. The result is the same after every reboot, without a store or a controller.

    The VF's index is counted from 1, so that the result differs from the PF's MAC. It is combined by XOR with octets 2 and
    3, which all cards of a vendor share. The three octets that distinguish two cards stay. The result is locally
    administered, so it differs from every MAC that is burnt into a card.

    Raises:
        ValueError: PCI has no VF with that index.
    """
    if not 0 <= vf_index < _VF_INDEXES:
        raise ValueError(f"a VF's index is from 0 to {_VF_INDEXES - 1}, not {vf_index}")
    return Mac((pf_mac.value ^ ((vf_index + 1) << _VF_INDEX_SHIFT)) & ~_GROUP | _LOCALLY_ADMINISTERED)
