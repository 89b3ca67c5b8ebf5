"""Addresses for net1: what vf.slice computes, from flannel's subnet.env and the journal as the allocation table."""

from collections.abc import Iterable
from pathlib import Path

from cni.journal import Journal
from vf.address import PciAddress
from vf.errors import Misconfigured, NoAddress
from vf.function import Inventory
from vf.plan import Assigned
from vf.slice import IpNetwork, Slice, choose, node_slice, parse_subnet_env
from vf.step import IpInterface


class SliceAddresses:
    """The node's slices of one network's `range`, a slice per rail."""

    def __init__(self, range_: IpNetwork, subnet_env: Path) -> None:
        self._range = range_
        self._subnet_env = subnet_env

    def give(
        self, assigned: Iterable[Assigned], inventory: Inventory, journal: Journal
    ) -> dict[PciAddress, tuple[IpInterface, ...]]:
        """Choose the addresses of a sandbox's VFs; they are taken once the record with them is written.

        Raises:
            NoAddress: flannel has no lease, its file is malformed, or the slice is used up.
            Misconfigured: the range is too small.
        """
        taken = set(journal.addresses())
        given: dict[PciAddress, tuple[IpInterface, ...]] = {}
        for one in assigned:
            address = choose(self._slice(one.rail, inventory), one.vf.index, taken)
            taken.add(address.ip)
            given[one.vf.address] = (address,)
        return given

    def check(self, inventory: Inventory) -> None:
        """Make sure that each rail's slice has an address for each of its VFs.

        Raises:
            Misconfigured: it has not; the message has the arithmetic.
            NoAddress: flannel has no lease yet.
        """
        for number, rail in enumerate(inventory.rails):
            slice_ = self._slice(number, inventory)
            if slice_.capacity < len(rail.vfs):
                raise Misconfigured(
                    f"range {self._range} gives this node {slice_.part} on rail {number}: {slice_.capacity} addresses for "
                    f"the {len(rail.vfs)} VFs of {rail.address}; use a larger range or fewer VFs"
                )

    def _slice(self, rail: int, inventory: Inventory) -> Slice:
        try:
            text = self._subnet_env.read_text()
        except (OSError, UnicodeDecodeError) as error:
            message = f"flannel's {self._subnet_env} cannot be read: {error}; is flanneld running on this node?"
            raise NoAddress(message) from None
        return node_slice(self._range, rail, len(inventory.rails), parse_subnet_env(text))
