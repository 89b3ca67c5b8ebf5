"""Facts about PFs and VFs: what follows from them."""

import pytest

from tests.deviceplugin.builders import ACTIVE, a_pf, a_vf, an_rdma_device, two_rails
from vf.address import PciAddress
from vf.function import Inventory, Port, RdmaDevice

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
def test_link_layer_is_the_ports_or_else_the_pci_classs(class_code: int, rdma: RdmaDevice, link_layer: str) -> None:
    assert a_pf(class_code=class_code, rdma=rdma).link_layer == link_layer


@pytest.mark.parametrize(("address", "rail"), [("0000:03:00.0", 0), ("0000:83:00.0", 1), ("0000:03:00.1", None)])
def test_rail_is_the_pfs_place_in_pci_order(address: str, rail: int | None) -> None:
    assert two_rails().rail(PciAddress.parse(address)) == rail


@pytest.mark.parametrize("address", ["0000:03:00.0", "0000:83:00.2"], ids=["PF", "VF"])
def test_inventory_finds_pfs_and_vfs_by_address(address: str) -> None:
    wanted = PciAddress.parse(address)
    node = two_rails()

    found = node.pf(wanted) or node.vf(wanted)

    assert found is not None
    assert found.address == wanted


def test_inventory_finds_nothing_when_it_is_empty() -> None:
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
