"""Provisioning of VFs: their number, GUIDs, MACs and drivers, and the refused configurations."""

from dataclasses import replace

import pytest

from railnet.errors import Misconfigured
from railnet.vf.guid import Guid, derived
from railnet.vf.inventory import Inventory, Netdev, Port
from railnet.vf.mac import Mac
from railnet.vf.mac import derived as derived_mac
from railnet.vf.pci_address import PciAddress
from railnet.vf.provision import Provision, came_back, create, name_and_bind
from railnet.vf.steps import AllowDrivers, BindDriver, BringUp, CreateVfs, SetGuid, SetGuidByLink, SetMac
from tests.deviceplugin.builders import a_pf, a_vf, an_rdma_device, two_rails

PF = PciAddress.parse("0000:03:00.0")
FIRST, SECOND = PciAddress.parse("0000:03:00.1"), PciAddress.parse("0000:03:00.2")
PF_GUID = Guid.parse("b859:9f03:00f9:8f86")
PF_MAC = Mac.parse("b8:59:9f:f9:8f:86")
ETHERNET = 0x020000


def unbound(address: str, number: int) -> object:
    return a_vf(address, number, driver=None, netdev=None, rdma=None)


def a_new_pf(**changes: object) -> Inventory:
    """Return a node with one PF and two new, unbound VFs."""
    pf = a_pf(unbound("0000:03:00.1", 1), unbound("0000:03:00.2", 2), rdma=an_rdma_device(0, node_guid=PF_GUID))
    return Inventory((a_pf(*pf.vfs, **{"rdma": pf.rdma, "ofed_guid_files": True, **changes}),))


def test_create_plans_vfs_for_a_pf_without_vfs() -> None:
    assert create([Provision(PF, 8)], Inventory((a_pf(),)), in_use=()) == (CreateVfs(PF, 8, replaced=0),)


def test_create_does_not_change_a_pf_with_the_wanted_number() -> None:
    assert create([Provision(PF, 2)], two_rails(), in_use=()) == ()


def test_create_replaces_another_number_when_no_vf_is_in_use() -> None:
    other = PciAddress.parse("0000:83:00.1")

    assert create([Provision(PF, 4)], two_rails(), in_use={other}) == (CreateVfs(PF, 4, replaced=2),)


def test_create_does_not_change_a_pf_while_one_of_its_vfs_is_in_use() -> None:
    assert create([Provision(PF, 4)], two_rails(), in_use={SECOND}) == ()


def test_card_without_vfs_that_should_have_some_came_back() -> None:
    node, faulty = Inventory((a_pf(),)), Inventory((replace(a_pf(), fault="sriov_numvfs is empty"),))

    assert came_back([Provision(PF, 8)], node)
    assert not came_back([Provision(PF, 0)], node)
    assert not came_back([Provision(PF, 8)], Inventory())
    assert not came_back([Provision(PF, 8)], faulty)
    assert not came_back([Provision(PF, 8)], two_rails())


def test_create_plans_each_pf_independently() -> None:
    second = PciAddress.parse("0000:83:00.0")

    steps = create([Provision(PF, 4), Provision(second, 4)], two_rails(), in_use={FIRST})

    assert steps == (CreateVfs(second, 4, replaced=2),)


@pytest.mark.parametrize(
    "plan",
    [lambda *arguments: create(*arguments, in_use=()), lambda *arguments: name_and_bind(*arguments, macs={})],
    ids=["create", "bind"],
)
@pytest.mark.parametrize(
    ("inventory", "known"),
    [(two_rails(), "0000:03:00.0, 0000:83:00.0"), (Inventory(), "none")],
    ids=["other PFs", "no PF"],
)
def test_unknown_pf_is_refused_with_the_nodes_pfs(plan, inventory: Inventory, known: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        plan([Provision(PciAddress.parse("0000:04:00.0"), 4)], inventory)

    assert str(raised.value) == f"provision: this node has no PF 0000:04:00.0 (it has: {known})"


def test_address_of_a_vf_is_refused() -> None:
    with pytest.raises(Misconfigured, match="this node has no PF"):
        create([Provision(FIRST, 4)], two_rails(), in_use=())


def test_more_vfs_than_the_hardware_supports_are_refused() -> None:
    with pytest.raises(Misconfigured, match=r"PF 0000:03:00\.0 has at most 16 VFs \(sriov_totalvfs\), not 17"):
        create([Provision(PF, 17)], two_rails(), in_use=())


def test_all_vfs_that_the_hardware_supports_are_planned() -> None:
    assert create([Provision(PF, 16)], two_rails(), in_use=()) == (CreateVfs(PF, 16, replaced=2),)


def test_name_and_bind_sets_all_guids_of_a_pf_before_it_binds_a_vf() -> None:
    assert name_and_bind([Provision(PF, 2)], a_new_pf(), macs={}) == (
        SetGuid(PF, 0, derived(PF_GUID, 0)),
        SetGuid(PF, 1, derived(PF_GUID, 1)),
        AllowDrivers(PF),
        BindDriver(FIRST, "mlx5_core"),
        BindDriver(SECOND, "mlx5_core"),
    )


def test_name_and_bind_does_not_change_bound_vfs() -> None:
    pf = a_pf(a_vf("0000:03:00.1", 1), unbound("0000:03:00.2", 2), rdma=an_rdma_device(0, node_guid=PF_GUID))

    steps = name_and_bind([Provision(PF, 2)], Inventory((replace(pf, ofed_guid_files=True),)), macs={})

    assert steps == (SetGuid(PF, 1, derived(PF_GUID, 1)), AllowDrivers(PF), BindDriver(SECOND, "mlx5_core"))


def test_name_and_bind_changes_only_provisioned_pfs() -> None:
    assert name_and_bind([], a_new_pf(), macs={}) == ()


@pytest.mark.parametrize(
    "changes",
    [{"rdma": None}, {"rdma": an_rdma_device(0, node_guid=Guid(0))}, {"driver": None}],
    ids=["no RDMA device", "a zero GUID", "no driver"],
)
def test_name_and_bind_fails_when_a_pf_has_no_guid_to_derive_from(changes: dict[str, object]) -> None:
    with pytest.raises(Misconfigured, match=r"PF 0000:03:00\.0 has no driver"):
        name_and_bind([Provision(PF, 2)], a_new_pf(**changes), macs={})


def test_name_and_bind_needs_no_guid_when_every_vf_is_bound() -> None:
    assert name_and_bind([Provision(PF, 1)], Inventory((a_pf(a_vf(), rdma=None),)), macs={}) == ()


def test_name_and_bind_fails_when_two_vfs_would_get_the_same_guid() -> None:
    twin = PciAddress.parse("0000:83:00.0")
    second = a_pf(unbound("0000:83:00.1", 1), address=str(twin), rdma=an_rdma_device(1, node_guid=PF_GUID))
    inventory = Inventory((*a_new_pf().pfs, second))

    with pytest.raises(Misconfigured, match=r"0000:03:00\.1 and 0000:83:00\.1 would both have GUID ba:59:9f:03:01"):
        name_and_bind([Provision(PF, 2), Provision(twin, 1)], inventory, macs={})


def test_guids_are_set_through_the_pfs_netdev_if_ofeds_files_are_missing() -> None:
    steps = name_and_bind([Provision(PF, 2)], a_new_pf(ofed_guid_files=False, netdev=Netdev("ibs5", 7, 4092)), macs={})

    assert steps[:3] == (
        SetGuidByLink(7, 0, derived(PF_GUID, 0)),
        SetGuidByLink(7, 1, derived(PF_GUID, 1)),
        AllowDrivers(PF),
    )


def test_pf_without_an_interface_for_guids_is_refused_with_the_remedy() -> None:
    with pytest.raises(Misconfigured, match=r"neither MLNX_OFED's GUID files .* modprobe ib_ipoib"):
        name_and_bind([Provision(PF, 2)], a_new_pf(ofed_guid_files=False, netdev=None), macs={})


def an_ethernet_pf(**changes: object) -> Inventory:
    """Return a node with one PF, an Ethernet card of Intel's, and two new, unbound VFs."""
    card = {"rdma": None, "class_code": ETHERNET, "driver": "igb", "ofed_guid_files": False}
    return a_new_pf(**{**card, "netdev": Netdev("eth0", 7, 1500), **changes})


def test_ethernet_vfs_get_macs_through_their_pf_after_it_is_up() -> None:
    assert name_and_bind([Provision(PF, 2)], an_ethernet_pf(), {PF: PF_MAC}) == (
        BringUp(7),
        SetMac(7, 0, derived_mac(PF_MAC, 0)),
        SetMac(7, 1, derived_mac(PF_MAC, 1)),
        AllowDrivers(PF),
        BindDriver(FIRST, "igbvf"),
        BindDriver(SECOND, "igbvf"),
    )


@pytest.mark.parametrize(
    ("pf", "vf"), [("ixgbe", "ixgbevf"), ("i40e", "iavf"), ("ice", "iavf"), ("mlx5_core", "mlx5_core")]
)
def test_vf_gets_the_driver_for_its_pfs_driver(pf: str, vf: str) -> None:
    steps = name_and_bind([Provision(PF, 2)], an_ethernet_pf(driver=pf), {PF: PF_MAC})

    assert steps[-1] == BindDriver(SECOND, vf)


def test_roce_vfs_get_macs_not_guids() -> None:
    port = an_rdma_device(0, node_guid=PF_GUID)
    roce = an_ethernet_pf(driver="mlx5_core", rdma=replace(port, port=Port("4: ACTIVE", "5: LinkUp", "Ethernet")))

    assert SetMac(7, 0, derived_mac(PF_MAC, 0)) in name_and_bind([Provision(PF, 2)], roce, {PF: PF_MAC})


def test_ethernet_pf_without_a_netdev_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        Misconfigured, match=r"PF 0000:03:00\.0 has no network interface here, .* host's network namespace"
    ):
        name_and_bind([Provision(PF, 2)], an_ethernet_pf(netdev=None), macs={})


def test_name_and_bind_fails_when_a_vf_would_get_the_mac_of_a_pf() -> None:
    other = PciAddress.parse("0000:83:00.0")

    with pytest.raises(Misconfigured, match=r"0000:83:00\.0 and 0000:03:00\.2 would both have MAC"):
        name_and_bind([Provision(PF, 2)], an_ethernet_pf(), {PF: PF_MAC, other: derived_mac(PF_MAC, 1)})
