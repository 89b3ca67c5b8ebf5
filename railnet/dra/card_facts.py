"""Reads what devices of DRA say of their cards beside the inventory: the PCIe root, the rate of the port, the leaf switch.

A fact that cannot be read now stays as it was: a port that is down for a moment changes no device.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial

from railnet.dra.devices import CardFacts
from railnet.fabric.topology_labels import RailPlace, leaf_digits
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.inventory import Inventory, Port, Rail
from railnet.vf.pci_address import PciAddress

_AGAIN_SECONDS = 60.0  # after a rate that could not be read

Places = Callable[[], Mapping[int, RailPlace]]


class CardReads:
    """The facts of a node's cards. A port is asked for its rate after it has become ACTIVE, and no more then."""

    def __init__(self, sysfs: Sysfs, places: Places, clock: Callable[[], float] = time.monotonic) -> None:
        """Read `sysfs`; `places` returns what is known of each rail's place in the fabric, by the rail's number."""
        self._sysfs, self._places, self._clock = sysfs, places, clock
        self._facts: dict[PciAddress, CardFacts] = {}
        self._asked: dict[PciAddress, Port] = {}
        self._not_before: dict[PciAddress, float] = {}

    async def now(self, inventory: Inventory) -> Mapping[PciAddress, CardFacts]:
        """Return the facts of the cards that are there, by the card's address."""
        places = self._places()
        for number, rail in inventory.all_rails():
            before = self._facts.get(rail.address, CardFacts())
            self._facts[rail.address] = CardFacts(
                before.pcie_root or self._sysfs.pcie_root(rail.address),
                await self._rate(rail, before.rate),
                before.leaf if number is None else _leaf(places.get(number), before.leaf),
            )
        return self._facts

    async def _rate(self, rail: Rail, before: str | None) -> str | None:
        port, now = _port(rail), self._clock()
        if port is None or not port.is_active:
            self._asked.pop(rail.address, None)
            return before
        if self._asked.get(rail.address) == port or now < self._not_before.get(rail.address, 0.0):
            return before
        try:
            rate = await self._sysfs.reads.read(rail.address, rail.address, partial(self._sysfs.rate, rail.address))
        except OSError:
            self._not_before[rail.address] = now + _AGAIN_SECONDS
            return before
        self._asked[rail.address] = port
        return rate or before


def _port(rail: Rail) -> Port | None:
    function = rail.pf or next(iter(rail.vfs), None)
    return None if function is None or function.rdma is None else function.rdma.port


def _leaf(place: RailPlace | None, before: str | None) -> str | None:
    if place is None:
        return before
    if place.leaf is None:
        return None if place.lasting else before
    return leaf_digits(place.leaf)
