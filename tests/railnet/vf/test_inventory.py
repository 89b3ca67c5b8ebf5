"""The inventory of a node: link layers, rails, and lookup by address."""

from dataclasses import replace

import pytest

from railnet.vf.inventory import Inventory, Port, Rail, RdmaDevice
from railnet.vf.pci_address import PciAddress
from tests.deviceplugin.builders import ACTIVE, a_pf, a_vf, an_rdma_device, two_rails

ROCE = Port("4: ACTIVE", "5: LinkUp", "Ethernet")


@pytest.mark.parametrize(
    ("class_code", "rdma", "link_layer"),
    [
        (0x020700, an_rdma_device(0, ACTIVE), "InfiniBand"),
        (0x020700, None, "InfiniBand"),
        (0x020000, None, "Ethernet"),
        (0x020700, an_rdma_device(0, ROCE), "Ethernet"),
        (0x020000, an_rdma_device(0, ACTIVE), "InfiniBand"),
        (0x020700, an_rdma_device(0, None), "InfiniBand"),
    ],
)
def test_link_layer_of_a_pf_is_its_ports_or_else_by_pci_class(
    class_code: int, rdma: RdmaDevice, link_layer: str
) -> None:
    assert a_pf(class_code=class_code, rdma=rdma).link_layer == link_layer


@pytest.mark.parametrize(
    ("address", "rail"), [("0000:03:00.0", 0), ("0000:83:00.0", 1), ("0000:83:00.2", 1), ("0000:99:00.0", None)]
)
def test_rail_is_the_pfs_number_in_pci_order(address: str, rail: int | None) -> None:
    assert two_rails().rail(PciAddress.parse(address)) == rail


@pytest.mark.parametrize("address", ["0000:03:00.0", "0000:83:00.2"], ids=["PF", "VF"])
def test_inventory_finds_pfs_and_vfs_by_address(address: str) -> None:
    wanted = PciAddress.parse(address)
    node = two_rails()

    found = node.pf(wanted) or node.vf(wanted)

    assert found is not None
    assert found.address == wanted


def test_cards_that_were_looked_at_are_as_they_were_found_and_one_that_was_not_found_is_gone() -> None:
    first, second = two_rails().pfs
    lone, third = a_vf("0000:93:00.1", pf=None), a_pf(a_vf("0000:93:00.1"), address="0000:93:00.0")
    before = Inventory((first, second), (lone,))

    found = before.with_cards({first.address, third.address}, Inventory((third,)))

    assert found == Inventory((second, third))


def test_card_that_was_not_looked_at_stays() -> None:
    node = two_rails()

    assert node.with_cards({PciAddress.parse("0000:00:02.0")}, Inventory()) == node


def test_empty_inventory_finds_nothing() -> None:
    address = PciAddress.parse("0000:03:00.0")

    assert (Inventory().pf(address), Inventory().vf(address), Inventory().rail(address)) == (None, None, None)


def test_inventory_takes_newer_facts_about_some_vfs() -> None:
    newer = a_vf("0000:83:00.1", 2, driver=None, netdev=None, rdma=None)
    node = two_rails()

    after = node.with_vfs({newer.address: newer})

    assert after.vf(newer.address) == newer
    assert [vf for pf in after.pfs for vf in pf.vfs if vf != newer] == [
        vf for pf in node.pfs for vf in pf.vfs if vf.address != newer.address
    ]
    assert [new is old for new, old in zip(after.pfs, node.pfs, strict=True)] == [
        all(vf.address != newer.address for vf in pf.vfs) for pf in node.pfs
    ]


LONE = a_vf("0101:00:00.0", pf=None)
ANOTHER = a_vf("0000:07:00.0", pf=None)


def test_vf_without_a_pf_is_a_separate_rail_in_pci_order() -> None:
    node = replace(two_rails(), lone_vfs=(ANOTHER, LONE))

    assert [str(rail.address) for rail in node.rails] == [
        "0000:03:00.0",
        "0000:07:00.0",
        "0000:83:00.0",
        "0101:00:00.0",
    ]
    assert node.rails[3] == Rail(LONE.address, None, (LONE,))
    assert (node.rail(LONE.address), node.vf(LONE.address), node.pf(LONE.pf)) == (3, LONE, None)


def test_named_rails_keep_their_numbers_when_one_is_missing() -> None:
    node = two_rails()
    missing = PciAddress.parse("0000:43:00.0")

    named = replace(node, named_rails=(node.pfs[1].address, missing, node.pfs[0].address))

    assert [(rail.pf, len(rail.vfs)) for rail in named.rails] == [(node.pfs[1], 2), (None, 0), (node.pfs[0], 2)]
    assert named.rail(node.pfs[0].vfs[0].address) == 2


def test_pf_that_is_not_a_named_rail_is_on_no_rail() -> None:
    node = two_rails()

    named = replace(node, named_rails=(node.pfs[1].address,))

    assert named.rail(node.pfs[0].address) is None
    assert named.rail(node.pfs[0].vfs[0].address) is None
    assert len(list(named.vfs())) == 4


@pytest.mark.parametrize(
    ("link_layers", "rails"),
    [
        ({"InfiniBand"}, ["0000:03:00.0", "0000:83:00.0"]),
        ({"Ethernet"}, ["0000:01:00.0", "7ae6:00:02.0"]),
        ({"InfiniBand", "Ethernet"}, ["0000:01:00.0", "0000:03:00.0", "0000:83:00.0", "7ae6:00:02.0"]),
    ],
    ids=["InfiniBand", "Ethernet", "both"],
)
def test_cards_with_another_link_layer_are_rails_only_if_they_are_named(
    link_layers: set[str], rails: list[str]
) -> None:
    card = a_pf(
        a_vf("0000:01:00.1", class_code=0x020000, rdma=None), address="0000:01:00.0", class_code=0x020000, rdma=None
    )
    lone = a_vf("7ae6:00:02.0", pf=None, class_code=0x020000, rdma=None)
    node = Inventory((card, *two_rails().pfs), (lone,), rail_link_layers=frozenset(link_layers))

    assert [str(rail.address) for rail in node.rails] == rails
    assert replace(node, named_rails=(card.address,)).rail(card.vfs[0].address) == 0


def test_inventory_takes_newer_facts_about_a_vf_without_a_pf() -> None:
    newer = replace(LONE, netdev=None)
    node = replace(two_rails(), lone_vfs=(LONE,), named_rails=(LONE.address,))

    assert node.with_vfs({LONE.address: newer}) == replace(node, lone_vfs=(newer,))


@pytest.mark.parametrize(
    ("changes", "link_layer"),
    [({}, "InfiniBand"), ({"rdma": None}, "InfiniBand"), ({"rdma": None, "class_code": 0x020000}, "Ethernet")],
    ids=["by its port", "in a pod", "in a pod, Ethernet"],
)
def test_link_layer_of_a_vf_is_its_ports_or_else_by_pci_class(changes: dict[str, object], link_layer: str) -> None:
    assert replace(LONE, **changes).link_layer == link_layer
