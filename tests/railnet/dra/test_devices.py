"""A VF as a device of DRA: its attributes, its taint, and what does not change it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.devices import OfferedVf, Offers
from deviceplugin.pool_selection import DEFAULT, Pool, Selector
from railnet.dra.devices import CardFacts, Devices, DraDevice, device_object, label_value
from railnet.vf.guid import Guid
from railnet.vf.inventory import Inventory, Netdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner, VfTable
from tests.deviceplugin.builders import DOWN, a_pf, a_vf, an_rdma_device, two_rails

OF_A_POD = Owner("sandbox", "eth0", "uid")
CARD = CardFacts("pci0000:00", "400", "b8599f0300f98f86")


def devices_of(
    table: VfTable, devices: Devices | None = None, pools: Iterable[Pool] = DEFAULT
) -> tuple[DraDevice, ...]:
    """Return the devices of a node of which each card has the same facts."""
    offered = {pool.resource: Offers(tuple(pools), pool).now(table) for pool in pools}
    cards = {offer.card: CARD for offers in offered.values() for offer in offers}
    return (devices or Devices()).now(offered, {pf.address: pf for pf in table.inventory.pfs}, cards)


def offered_by_default(table: VfTable) -> dict[str, tuple[OfferedVf, ...]]:
    """Return the VFs of each pool of a node without a configuration."""
    return {pool.resource: Offers(DEFAULT, pool).now(table) for pool in DEFAULT}


def attributes(device: DraDevice) -> dict[str, Any]:
    return dict(device.attributes)


def test_device_has_the_facts_of_its_vf_and_of_its_card() -> None:
    first = devices_of(VfTable(two_rails()))[0]

    assert first.name == "pci-0000-03-00-1"
    assert attributes(first) == {
        "rail": 0,
        "pf": "0000:03:00.0",
        "resource": "rdma/ib_vf",
        "guid": "00:00:b8:59:9f:03:00:04",
        "mtu": 4092,
        "rate": "400",
        "linkType": "infiniband",
        "portState": "ACTIVE",
        "rdma": True,
        "leaf": "b8599f0300f98f86",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "resource.kubernetes.io/pciBusID": "0000:03:00.1",
        "resource.kubernetes.io/numaNode": 0,
    }


def test_devices_are_in_the_order_of_rails_and_then_of_addresses() -> None:
    devices = devices_of(VfTable(two_rails()))

    assert [device.name for device in devices] == [
        "pci-0000-03-00-1",
        "pci-0000-03-00-2",
        "pci-0000-83-00-1",
        "pci-0000-83-00-2",
    ]
    assert [device.rail for device in devices] == [0, 0, 1, 1]


def test_numa_node_that_the_firmware_does_not_report_is_left_out() -> None:
    assert "resource.kubernetes.io/numaNode" not in attributes(devices_of(VfTable(two_rails()))[3])


def test_vfs_of_two_pools_are_in_one_order() -> None:
    first = Pool("rdma/first", Selector(pci_address=(PciAddress.parse("0000:83:00.1"),)))
    second = Pool("rdma/second")
    devices = devices_of(VfTable(two_rails()), pools=(first, second))

    assert [attributes(device)["resource"] for device in devices] == [
        "rdma/second",
        "rdma/second",
        "rdma/first",
        "rdma/second",
    ]


def test_resource_with_a_name_longer_than_an_attribute_is_left_out() -> None:
    long = Pool("example.com/" + "x" * 53)

    assert "resource" not in attributes(devices_of(VfTable(two_rails()), pools=(long,))[0])


def test_a_pod_that_gets_a_vf_and_gives_it_back_changes_no_device() -> None:
    table, devices = VfTable(two_rails()), Devices()
    vf = two_rails().pfs[0].vfs[0]
    before = devices_of(table, devices)
    table.claim(vf.address, OF_A_POD)
    table.reread({vf.address: replace(vf, netdev=None)})
    in_pod = devices_of(table, devices)
    table.reread({vf.address: vf})
    table.release(vf.address, OF_A_POD)

    assert before == in_pod == devices_of(table, devices)


def test_mtu_is_that_of_the_card_and_not_that_of_a_pod() -> None:
    table = VfTable(two_rails())
    vf = two_rails().pfs[0].vfs[0]
    table.reread({vf.address: replace(vf, netdev=Netdev("ib4", 104, 2044))})

    assert attributes(devices_of(table)[0])["mtu"] == 4092


def test_guid_stays_while_the_rdma_device_is_away() -> None:
    table, devices = VfTable(two_rails()), Devices()
    vf = two_rails().pfs[0].vfs[0]
    before = devices_of(table, devices)[0]
    table.reread({vf.address: replace(vf, rdma=None)})
    without = devices_of(table, devices)[0]

    assert without.attributes == before.attributes
    assert without.reason is not None
    assert "has no RDMA device" in without.reason


def test_guid_that_was_never_set_is_left_out() -> None:
    vf = a_vf(rdma=an_rdma_device(1, node_guid=Guid(0)))

    assert "guid" not in attributes(devices_of(VfTable(Inventory((a_pf(vf),))))[0])


def test_vf_without_a_pf_on_the_node_has_the_state_of_its_own_port() -> None:
    alone = a_vf(pf=None)
    values = attributes(devices_of(VfTable(Inventory(lone_vfs=(alone,))))[0])

    assert values["portState"] == "DOWN"
    assert not {"pf", "mtu"} & values.keys()


def test_unhealthy_device_has_a_taint_with_the_reason() -> None:
    table = VfTable(Inventory((a_pf(a_vf(), rdma=an_rdma_device(0, DOWN)),)))
    (device,) = devices_of(table)

    assert device_object(device)["taints"] == [
        {
            "key": "rdma.railnet.io/unhealthy",
            "value": "port-1-of-pf-0000-03-00-0-mlx5-0-is-1-down-3-disabled-check-its",
            "effect": "NoSchedule",
        }
    ]
    assert attributes(device)["portState"] == "DOWN"


def test_attributes_have_the_types_of_the_api() -> None:
    device = device_object(devices_of(VfTable(two_rails()))[0])

    assert device["attributes"]["rail"] == {"int": 0}
    assert device["attributes"]["rdma"] == {"bool": True}
    assert device["attributes"]["rate"] == {"string": "400"}
    assert "taints" not in device


def test_unchanged_vfs_keep_their_devices() -> None:
    table, devices = VfTable(two_rails()), Devices()
    before = devices_of(table, devices)
    table.claim(PciAddress.parse("0000:03:00.1"), OF_A_POD)

    assert all(old is new for old, new in zip(before, devices_of(table, devices), strict=True))


@given(st.text(max_size=200))
def test_value_of_a_taint_is_the_value_of_a_label(text: str) -> None:
    value = label_value(text)

    assert 0 < len(value) <= 63
    assert value[0].isalnum()
    assert value[-1].isalnum()
    assert set(value) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@pytest.mark.parametrize(
    ("text", "value"), [("no driver!", "no-driver"), ("", "unhealthy"), ("---", "unhealthy"), ("ä", "unhealthy")]
)
def test_value_of_a_taint_is_the_reason_in_short(text: str, value: str) -> None:
    assert label_value(text) == value


def test_offers_of_a_device_plugin_are_what_devices_are_made_of() -> None:
    offer = OfferedVf(a_vf(), rail=None, reason="the memory of rails cannot be read")
    (device,) = Devices().now({"rdma/ib_vf": [offer]}, {}, {})

    assert (device.rail, device.reason) == (None, "the memory of rails cannot be read")
    assert "rail" not in attributes(device)
