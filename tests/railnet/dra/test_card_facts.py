"""What devices say of their cards: read once, and kept while it cannot be read."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from errno import EIO
from pathlib import Path

from railnet.dra.card_facts import CardReads
from railnet.dra.devices import CardFacts
from railnet.fabric.topology_labels import Leaf, RailPlace
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.guid import Guid
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from tests.deviceplugin.builders import DOWN, a_vf, an_rdma_device, two_rails

FIRST, SECOND = (pf.address for pf in two_rails().pfs)
LEAF = RailPlace(Leaf(Guid(0xA1), 3))


class Ports(Sysfs):
    """Ports whose rate a test sets; None is an error. Each has the same PCIe root."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent"))
        self.speed: str | None = "400"
        self.asked: list[PciAddress] = []

    def rate(self, function: PciAddress) -> str | None:
        self.asked.append(function)
        if self.speed is None:
            raise OSError(EIO, "no answer")
        return self.speed

    def pcie_root(self, function: PciAddress) -> str | None:
        return f"pci0000:{function.bus:02x}"


class Cards:
    """The reads of a node with two rails."""

    def __init__(self) -> None:
        self.ports, self.places, self.now = Ports(), dict[int, RailPlace](), 0.0
        self.reads = CardReads(self.ports, lambda: self.places, clock=lambda: self.now)

    def read(self, *inventories: Inventory) -> Mapping[PciAddress, CardFacts]:
        async def whole() -> Mapping[PciAddress, CardFacts]:
            for inventory in inventories[:-1]:
                await self.reads.now(inventory)
            return await self.reads.now(inventories[-1])

        return asyncio.run(whole())


def down() -> Inventory:
    return two_rails().with_pfs({FIRST: replace(two_rails().pfs[0], rdma=an_rdma_device(0, DOWN))})


def test_cards_have_their_root_and_rate() -> None:
    facts = Cards().read(two_rails())

    assert facts == {FIRST: CardFacts("pci0000:03", "400"), SECOND: CardFacts("pci0000:83", "400")}


def test_port_is_asked_once_while_it_stays_active() -> None:
    cards = Cards()
    cards.read(two_rails(), two_rails(), two_rails())

    assert cards.ports.asked == [FIRST, SECOND]


def test_port_that_comes_up_again_is_asked_again_and_keeps_its_rate_until_then() -> None:
    cards = Cards()
    assert cards.read(two_rails(), down())[FIRST].rate == "400"
    cards.ports.speed = "200"

    assert cards.read(two_rails())[FIRST].rate == "200"


def test_port_that_does_not_answer_is_asked_a_minute_later() -> None:
    cards = Cards()
    cards.ports.speed = None
    assert cards.read(two_rails(), two_rails())[FIRST].rate is None
    assert cards.ports.asked == [FIRST, SECOND]
    cards.ports.speed, cards.now = "400", 60.0

    assert cards.read(two_rails())[FIRST].rate == "400"


def test_leaf_stays_while_it_is_only_not_known_now() -> None:
    cards = Cards()
    cards.places = {0: LEAF}
    assert cards.read(two_rails())[FIRST].leaf == "00000000000000a1"
    cards.places = {0: RailPlace(reason="the link is down")}
    assert cards.read(two_rails())[FIRST].leaf == "00000000000000a1"
    cards.places = {0: RailPlace(reason="the cable leads to a CA", lasting=True)}

    assert cards.read(two_rails())[FIRST].leaf is None


def test_vf_without_a_pf_is_a_card_of_its_own() -> None:
    alone = a_vf(pf=None)

    assert Cards().read(Inventory(lone_vfs=(alone,)))[alone.address].pcie_root == "pci0000:03"
