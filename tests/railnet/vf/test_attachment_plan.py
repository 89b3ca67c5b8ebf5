"""What a sandbox gets, which steps attach it, and which take it back."""

from dataclasses import replace
from ipaddress import ip_interface, ip_network

import pytest

from railnet.errors import Misconfigured, NotOurs, Unusable
from railnet.vf.arp_and_source_routing import APART
from railnet.vf.attachment_plan import Assigned, assign, attach, attachments, move_out, rename, take_out
from railnet.vf.guid import Guid
from railnet.vf.inventory import Inventory, Netdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.rail_memory import RailNumbers, RememberedRail
from railnet.vf.steps import (
    ConfigureLink,
    Given,
    MoveLinkIn,
    MoveLinkOut,
    RailRouting,
    RemoveRules,
    RenameLink,
    Route,
    RouteBySource,
    Rule,
)
from tests.deviceplugin.builders import a_pf, a_vf, an_rdma_device, two_rails
from tests.railnet.vf.builders import FIRST, SECOND, an_attachment

NET1, NET2 = an_attachment(), an_attachment(ifname="net2", vf=SECOND, rail=1, host_ifname="ibs6v0", addresses=())
MTUS = {FIRST: 4092}
ON_NODE = {FIRST: Netdev("ibs5v0", 11, 4092), SECOND: Netdev("ibs6v0", 12, 4092)}


def names(assigned: tuple[Assigned, ...]) -> list[tuple[str, int, str]]:
    return [(one.ifname, one.rail, str(one.vf.address)) for one in assigned]


def test_assign_names_vfs_by_rail_then_pci_address_whatever_kubelets_order() -> None:
    given = [PciAddress.parse(text) for text in ("0000:83:00.1", "0000:03:00.2", "0000:83:00.2", "0000:03:00.1")]

    assert names(assign(two_rails(), given)) == [
        ("net1", 0, "0000:03:00.1"),
        ("net2", 0, "0000:03:00.2"),
        ("net3", 1, "0000:83:00.1"),
        ("net4", 1, "0000:83:00.2"),
    ]


def test_assign_sorts_by_rail_first_when_a_vfs_address_is_far_from_its_pfs() -> None:
    far = a_vf("0000:90:00.0", 1, pf=PciAddress.parse("0000:03:00.0"))
    near = a_vf("0000:83:00.1", 2)
    inventory = Inventory((a_pf(far), a_pf(near, address="0000:83:00.0")))

    assert names(assign(inventory, [near.address, far.address])) == [
        ("net1", 0, "0000:90:00.0"),
        ("net2", 1, "0000:83:00.1"),
    ]


def test_assign_counts_net_from_1_on_whatever_the_rail() -> None:
    assert names(assign(two_rails(), [SECOND])) == [("net1", 1, "0000:83:00.1")]


def test_assign_without_vfs_is_empty() -> None:
    assert assign(two_rails(), []) == ()


@pytest.mark.parametrize("text", ["0000:99:00.1", "0000:03:00.0"], ids=["no such function", "the PF"])
def test_assign_refuses_a_device_that_is_no_vf_of_this_node(text: str) -> None:
    with pytest.raises(NotOurs, match=f"kubelet gave this pod {text}, which is not a VF of this node"):
        assign(two_rails(), [FIRST, PciAddress.parse(text)])


def test_assign_refuses_a_vf_that_is_on_no_rail() -> None:
    only_second = replace(two_rails(), named_rails=(SECOND._replace(function=0),))

    with pytest.raises(NotOurs, match=f"VF {FIRST}, which is on none of this node's rails"):
        assign(only_second, [FIRST])


def test_attachments_have_all_that_taking_back_needs() -> None:
    vf = a_vf("0000:03:00.1", rdma=an_rdma_device(4, node_guid=Guid(7)))
    address = ip_interface("10.56.3.1/16")

    (attachment,) = attachments(
        [Assigned("net1", 0, vf)], {FIRST: Netdev("ib9", 5, 2044)}, {FIRST: 2044}, {FIRST: Given((address,))}
    )

    assert attachment == an_attachment(guid=Guid(7), mtu=2044, addresses=(address,), host_ifname="ib9")


def test_attachments_leave_guid_and_rdma_out_when_the_vf_has_no_rdma_device() -> None:
    (attachment,) = attachments([Assigned("net1", 0, a_vf(rdma=None))], ON_NODE, MTUS, {FIRST: Given()})

    assert (attachment.guid, attachment.rdma, attachment.uverbs) == (None, None, None)


@pytest.mark.parametrize("value", [0, (1 << 64) - 1], ids=["zero", "all one"])
def test_attachments_are_refused_with_the_remedy_when_a_vf_has_no_guid(value: int) -> None:
    vf = a_vf(rdma=an_rdma_device(1, node_guid=Guid(value)))

    with pytest.raises(Unusable, match=r"VF 0000:03:00\.1 has no GUID; let Railnet provision 0000:03:00\.0"):
        attachments([Assigned("net1", 0, vf)], ON_NODE, MTUS, {FIRST: Given()})


def test_attach_moves_every_link_before_it_configures_any() -> None:
    steps = attach([NET1, replace(NET2, mtu=2044)], ON_NODE)

    assert steps == (
        MoveLinkIn(FIRST, 11, "ibs5v0", "net1", 4092),
        MoveLinkIn(SECOND, 12, "ibs6v0", "net2", 2044),
        ConfigureLink("net1", NET1.addresses),
    )


def test_attach_gives_rails_that_are_kept_apart_their_settings_and_tables_last() -> None:
    routing = RailRouting(APART, 5601, (NET1.addresses[0].ip,), (Route(ip_network("10.56.0.0/16"), None),))
    rails = [replace(NET1, routing=routing), replace(NET2, routing=RailRouting(APART, 5602))]

    assert attach(rails, ON_NODE) == (
        MoveLinkIn(FIRST, 11, "ibs5v0", "net1", 4092, APART),
        MoveLinkIn(SECOND, 12, "ibs6v0", "net2", 4092, APART),
        ConfigureLink("net1", NET1.addresses),
        RouteBySource("net1", routing),
    )


def test_rules_are_removed_after_the_netdevs_have_moved_out() -> None:
    source = NET1.addresses[0].ip
    rails = [replace(NET1, routing=RailRouting(APART, 5601, (source,))), NET2]

    assert take_out(rails) == (*move_out(rails), RemoveRules((Rule(source, 5601),)))
    assert take_out([NET1, NET2]) == move_out([NET1, NET2])


def test_every_recorded_netdev_is_moved_out_since_an_absent_one_changes_nothing() -> None:
    assert move_out([NET1, NET2]) == (MoveLinkOut(FIRST, "ibs5v0"), MoveLinkOut(SECOND, "ibs6v0"))


RETURNED = {
    "under its name": ({FIRST: Netdev("ibs5v0", 11, 4092)}, ()),
    "under the sandbox's name": ({FIRST: Netdev("net1", 31, 4092)}, (RenameLink(31, "ibs5v0"),)),
    "under the kernel's name": ({FIRST: Netdev("dev31", 31, 4092)}, (RenameLink(31, "ibs5v0"),)),
    "not at all": ({}, ()),
}


@pytest.mark.parametrize(("on_node", "expected"), RETURNED.values(), ids=RETURNED.keys())
def test_rename_restores_the_name_of_a_netdev_however_it_came_back(
    on_node: dict[PciAddress, Netdev], expected: tuple[RenameLink, ...]
) -> None:
    assert rename([NET1], on_node) == expected


def test_rename_leaves_a_netdev_alone_if_its_name_on_the_node_is_not_known() -> None:
    rebuilt = replace(NET1, host_ifname=NET1.ifname)

    assert rename([rebuilt], {FIRST: Netdev("eth5", 31, 4092)}) == ()


def test_rename_treats_each_rail_by_itself() -> None:
    on_node = {FIRST: Netdev("net1", 31, 4092), SECOND: Netdev("ibs6v0", 12, 4092)}

    assert rename([NET1, NET2], on_node) == (RenameLink(31, "ibs5v0"),)


def test_rename_gives_netdevs_that_have_each_others_names_other_ones_first() -> None:
    on_node = {FIRST: Netdev("ibs6v0", 31, 4092), SECOND: Netdev("ibs5v0", 12, 4092)}

    steps = rename([NET1, NET2], on_node)

    assert [(step.ifindex, step.ifname) for step in steps] == [
        (31, "railnet%d"),
        (12, "railnet%d"),
        (31, "ibs5v0"),
        (12, "ibs6v0"),
    ]


def test_assign_refuses_a_vf_whose_rail_is_not_certain() -> None:
    node = two_rails()
    numbers = RailNumbers((RememberedRail(node.pfs[1].address),), None, "ipam.rails is 1")
    unsure = replace(node, numbers=numbers)

    with pytest.raises(Misconfigured, match=r"card 0000:03:00\.0 has no rail yet: ipam\.rails is 1"):
        assign(unsure, [node.pfs[0].vfs[0].address])
    assert [one.rail for one in assign(unsure, [node.pfs[1].vfs[0].address])] == [0]
