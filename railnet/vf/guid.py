"""InfiniBand GUIDs, 64-bit ids of nodes and ports: their two text forms, and the GUIDs derived for VFs."""

import re
from typing import NamedTuple, Self

_GROUPS = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}){3}|[0-9a-f]{2}(:[0-9a-f]{2}){7}")

_ALL_ONE = (1 << 64) - 1
_LOCALLY_ADMINISTERED = 0x02 << 56  # the U/L bit of an EUI-64's first octet (IEEE 802, clause 8.2)
_VF_INDEX_SHIFT = 24  # octets 3 and 4: between the vendor's OUI and its serial number


class Guid(NamedTuple):
    """One GUID; `value` is the EUI-64 as a number, most significant octet first."""

    value: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `b859:9f03:00f9:8f86` (RDMA sysfs) or `b8:59:9f:03:00:f9:8f:86` (netlink, OFED's sysfs).

        Raises:
            ValueError: any other text.
        """
        if _GROUPS.fullmatch(text) is None:
            raise ValueError(f"{text!r:.80} is not a GUID of the form b859:9f03:00f9:8f86")
        return cls(int(text.replace(":", ""), 16))

    @property
    def usable(self) -> bool:
        """Return whether a port may have this GUID. A zero GUID was never set; an all-one GUID is invalid."""
        return self.value not in (0, _ALL_ONE)

    @property
    def quads(self) -> str:
        """Return the form of `/sys/class/infiniband/<dev>/node_guid`: four groups of four digits."""
        digits = f"{self.value:016x}"
        return ":".join(digits[i : i + 4] for i in range(0, 16, 4))

    def __str__(self) -> str:
        return self.value.to_bytes(8, "big").hex(":")


def derived(pf_node_guid: Guid, vf_index: int) -> Guid:
    """Derive the GUID of a VF from its PF's GUID. The result is the same after every reboot, without a store or a controller.

    The VF's index is counted from 1, so that the result differs from the PF's GUID. It is combined by XOR with octets 3 and
    4, which hold a filler or the upper part of a serial number. The octets that distinguish two HCAs stay. The result is
    locally administered, so it differs from every GUID that is burnt into a card.
    """
    return Guid((pf_node_guid.value ^ ((vf_index + 1) << _VF_INDEX_SHIFT)) | _LOCALLY_ADMINISTERED)
