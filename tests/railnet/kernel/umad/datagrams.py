"""Datagrams of a neighbour, made field by field at the offsets of the InfiniBand specification, apart from the code under test."""

HEADER = 64  # struct ib_user_mad_hdr
SMP = 256
SWITCH_GUID = 0x0002C903007E5A10
# The answer of ibsim's switch "S-leaf1" to `smpquery -D NodeInfo 0,1`, without the transaction's number.
RECORDED = bytes.fromhex(
    "0181018180000001" + "0000000012345678" + "0011000000000000" + "0000000000000000" + "ffffffff" + "00" * 28
    # NodeInfo
    + "01010208" + "0000000000001000" + "0000000000001001" + "0000000000001001" + "0008" + "cb20" + "000000a1" + "01" + "0015b3"
    + "00" * 24
    + "0001" + "00" * 62  # the path there
    + "0001" + "00" * 62  # and back
)  # fmt: skip


def answer(
    transaction: int = 7,
    *,
    kind: int = 2,
    guid: int = SWITCH_GUID,
    port: int = 12,
    status: int = 0,
    fields: dict[int, bytes] | None = None,
) -> bytes:
    """Return what the device gives for an answer; `fields` are bytes by their offset in the SMP."""
    header = (3).to_bytes(4, "little") + status.to_bytes(4, "little") + bytes(HEADER - 8)
    smp = bytearray(RECORDED)
    smp[8:16] = (0xABCD << 32 | transaction).to_bytes(8, "big")  # the kernel's half and ours
    smp[64 + 2] = kind
    smp[64 + 12 : 64 + 20] = guid.to_bytes(8, "big")
    smp[64 + 36] = port
    for offset, value in (fields or {}).items():
        smp[offset : offset + len(value)] = value
    return header + bytes(smp)
