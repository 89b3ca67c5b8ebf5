"""What a node says of a PF's port beside its state: the rate and the partitions. Pure."""

from typing import NamedTuple


class PfPort(NamedTuple):
    """The first data port of a PF.

    Attributes:
        rate: in Gb/s, such as `400`; None while it is not known.
        pkeys: the partition keys that the subnet manager gave it; None while they are not known.
    """

    rate: str | None = None
    pkeys: tuple[int, ...] | None = None
