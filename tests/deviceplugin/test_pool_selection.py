"""The pools: their selectors, and the assignment of VFs to pools."""

from dataclasses import replace

import pytest

from deviceplugin.pool_selection import DEFAULT, Pool, Selector, assign, link_layers
from railnet.vf.inventory import Inventory, Port, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import LinkType
from tests.deviceplugin.builders import a_pf, a_vf, two_rails

VF = a_vf()
PF = a_pf(VF)
OTHER = PciAddress.parse("0000:99:00.0")

SELECTORS = {
    "no condition": (Selector(), True),
    "link type": (Selector(link_type=("infiniband",)), True),
    "another link type": (Selector(link_type=("ether",)), False),
    "either link type": (Selector(link_type=("ether", "infiniband")), True),
    "vendor": (Selector(vendor=("15b3",)), True),
    "vendor as sysfs writes it": (Selector(vendor=("0x15B3",)), True),
    "another vendor": (Selector(vendor=("8086",)), False),
    "device": (Selector(device=("1234", "101e")), True),
    "the PF's device for the VF's": (Selector(device=("1021",)), False),
    "PF device": (Selector(pf_device=("1021",)), True),
    "another PF device": (Selector(pf_device=("101e",)), False),
    "driver": (Selector(driver=("mlx5_core",)), True),
    "another driver": (Selector(driver=("vfio-pci",)), False),
    "PF": (Selector(pf=(PF.address,)), True),
    "another PF": (Selector(pf=(OTHER,)), False),
    "PCI address": (Selector(pci_address=(OTHER, VF.address)), True),
    "another PCI address": (Selector(pci_address=(PF.address,)), False),
    "all keys": (Selector(link_type=("infiniband",), vendor=("15b3",), pf=(PF.address,)), True),
    "all keys but one": (Selector(link_type=("infiniband",), vendor=("15b3",), pf=(OTHER,)), False),
}


@pytest.mark.parametrize(("selector", "expected"), SELECTORS.values(), ids=SELECTORS.keys())
def test_selector_needs_one_value_of_each_key(selector: Selector, expected: bool) -> None:
    assert selector.matches(PF, VF) is expected


def test_selector_of_drivers_matches_no_vf_without_a_driver() -> None:
    assert not Selector(driver=("mlx5_core",)).matches(PF, replace(VF, driver=None))


def test_selector_takes_the_link_type_from_the_pf_when_a_pod_has_the_vf() -> None:
    in_a_pod = replace(VF, netdev=None, rdma=None)

    assert Selector(link_type=("infiniband",)).matches(PF, in_a_pod)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (Selector(link_type=("infiniband",), vendor=("15b3",), device=("101e",), driver=("mlx5_core",)), True),
        (Selector(link_type=("ether",)), False),
        (Selector(pf=(PF.address,)), False),
        (Selector(pf_device=("1021",)), False),
    ],
    ids=["the VF's facts", "another link type", "a PF", "a PF's device"],
)
def test_selector_of_a_pf_matches_no_vf_without_a_pf(selector: Selector, expected: bool) -> None:
    assert selector.matches(None, replace(VF, pf=None, netdev=None, rdma=None)) is expected


def addresses(vfs: tuple[VirtualFunction, ...]) -> list[str]:
    return [str(vf.address) for vf in vfs]


def test_assign_orders_by_rail_and_pci_address() -> None:
    first, second = two_rails().pfs
    shuffled = Inventory((replace(first, vfs=first.vfs[::-1]), second))

    assigned = assign(DEFAULT, shuffled)

    assert addresses(assigned["rdma/ib_vf"]) == ["0000:03:00.1", "0000:03:00.2", "0000:83:00.1", "0000:83:00.2"]


def test_assign_gives_a_vf_to_the_first_pool_that_matches() -> None:
    inventory = two_rails()
    pools = (Pool("rdma/rail1", Selector(pf=(inventory.pfs[1].address,))), *DEFAULT)

    assigned = assign(pools, inventory)

    assert {resource: addresses(vfs) for resource, vfs in assigned.items()} == {
        "rdma/rail1": ["0000:83:00.1", "0000:83:00.2"],
        "rdma/ib_vf": ["0000:03:00.1", "0000:03:00.2"],
    }


@pytest.mark.parametrize(
    ("link_types", "expected"),
    [
        ([("infiniband",)], {"InfiniBand"}),
        ([("infiniband",), ("ether",)], {"InfiniBand", "Ethernet"}),
        ([("ether",), ("ether",)], {"Ethernet"}),
        ([("infiniband",), ()], {"InfiniBand", "Ethernet"}),
    ],
)
def test_link_layers_are_those_that_a_pool_permits(link_types: list[tuple[LinkType, ...]], expected: set[str]) -> None:
    pools = [Pool(f"rdma/{number}", Selector(link_type=types)) for number, types in enumerate(link_types)]

    assert link_layers(pools) == expected


def test_assign_keeps_a_pool_without_a_vf() -> None:
    assert assign(DEFAULT, Inventory()) == {"rdma/ib_vf": ()}


def test_default_pool_has_no_ethernet_vfs() -> None:
    ethernet = replace(PF, class_code=0x020000, rdma=replace(PF.rdma, port=Port("4: ACTIVE", "5: LinkUp", "Ethernet")))

    assert assign(DEFAULT, Inventory((ethernet,))) == {"rdma/ib_vf": ()}
