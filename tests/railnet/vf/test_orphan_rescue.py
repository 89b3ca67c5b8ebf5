"""VFs whose netdev is not on the node: which record is rebuilt, and what is tried to bring the netdev back."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface

import pytest

from railnet.vf import orphan_rescue
from railnet.vf.arp_and_source_routing import APART
from railnet.vf.inventory import Inventory, LinkLayer, Netdev, VirtualFunction
from railnet.vf.orphan_rescue import Absence, OrphanNetdev, RebuildSources
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import LostRecord, Netns, Record, SandboxPod
from railnet.vf.sandbox_difference import SandboxLink
from railnet.vf.steps import ProbeAgain, RailRouting, RenameLink, Rule
from tests.deviceplugin.builders import two_rails
from tests.railnet.vf.builders import a_record, an_attachment

NETNS = Netns("/run/netns/cni-1", 4, 4026532300)
INVENTORY = two_rails()
FIRST, SECOND = INVENTORY.pfs[0].vfs[:2]
ADDRESSES = frozenset(map(ip_interface, ("10.56.3.1/16", "fe80::1/64")))


def with_vf(vf: VirtualFunction, **changes: object) -> Inventory:
    return INVENTORY.with_vfs({vf.address: replace(vf, **changes)})


def an_orphan(ifname: str = "net1", netns: Netns = NETNS, host_ifname: str | None = "ibs5v0") -> OrphanNetdev:
    return OrphanNetdev(netns, SandboxLink(ifname, "InfiniBand", 4092, up=True, addresses=ADDRESSES), host_ifname)


def sources(
    *lost_records: LostRecord, records: tuple[Record, ...] = (), pods: dict[PciAddress, str] | None = None
) -> RebuildSources:
    return RebuildSources({record.key: record for record in records}, lost_records, pods or {}, "boot-1")


# Missing netdevs.


@pytest.mark.parametrize(
    ("changes", "is_missing"),
    [
        ({"netdev": None}, True),
        ({}, False),
        ({"netdev": None, "rdma": None}, True),
        ({"netdev": None, "driver": None}, False),
        ({"netdev": None, "rdma": None, "driver": "vfio-pci"}, False),
    ],
    ids=["no netdev", "on the node", "no RDMA device either", "unbound", "another driver"],
)
def test_free_vf_whose_driver_makes_netdevs_and_that_has_none_is_missing(changes, is_missing: bool) -> None:
    found = orphan_rescue.missing(with_vf(FIRST, **changes), frozenset())

    assert [vf.address for vf in found] == ([FIRST.address] if is_missing else [])


def test_vf_of_a_sandbox_is_not_missing() -> None:
    assert orphan_rescue.missing(with_vf(FIRST, netdev=None), {FIRST.address}) == ()


def test_vf_on_no_rail_is_left_to_other_software() -> None:
    away, returned = with_vf(FIRST, netdev=None), with_vf(FIRST, netdev=Netdev("net1", 31, 1500))
    ethernet = frozenset[LinkLayer]({"Ethernet"})

    assert [vf.address for vf in orphan_rescue.missing(away, ())] == [FIRST.address]
    assert [vf.address for vf in orphan_rescue.misnamed(returned, {FIRST.address})] == [FIRST.address]
    assert orphan_rescue.missing(replace(away, rail_link_layers=ethernet), ()) == ()
    assert orphan_rescue.misnamed(replace(returned, rail_link_layers=ethernet), {FIRST.address}) == ()


# Rebuilt records.


def test_rebuilt_record_has_the_rules_that_del_has_to_remove() -> None:
    own, others = ip_address("10.56.3.1"), ip_address("10.56.3.2")
    orphan = an_orphan()
    link = replace(orphan.link, ipv4=APART, rules=frozenset({Rule(own, 5601), Rule(others, 5602)}))

    (record,) = orphan_rescue.rebuild(INVENTORY, {FIRST.address: replace(orphan, link=link)}, sources())

    assert record.attachments[0].routing == RailRouting(APART, 5601, (own,))


def test_record_is_rebuilt_from_what_the_kernel_shows() -> None:
    (record,) = orphan_rescue.rebuild(INVENTORY, {FIRST.address: an_orphan()}, sources(pods={FIRST.address: "uid-7"}))

    (one,) = record.attachments
    assert (record.key, record.pod, record.stage) == (
        "unknown-4026532300@eth0",
        SandboxPod("", "", "uid-7"),
        "attached",
    )
    assert (record.netns, record.boot, record.rebuilt, record.named) == (NETNS, "boot-1", True, False)
    assert (one.ifname, one.vf, one.rail, one.mtu, one.host_ifname) == ("net1", FIRST.address, 0, 4092, "ibs5v0")
    assert one.addresses == (ip_interface("10.56.3.1/16"),)
    assert (one.rdma, one.guid) == (FIRST.rdma.name, FIRST.rdma.node_guid)


def test_vfs_of_one_namespace_are_one_record_in_the_order_of_their_names() -> None:
    found = {FIRST.address: an_orphan("net2"), SECOND.address: an_orphan("net1")}

    (record,) = orphan_rescue.rebuild(INVENTORY, found, sources())

    assert [(one.ifname, one.vf) for one in record.attachments] == [
        ("net1", SECOND.address),
        ("net2", FIRST.address),
    ]


LOST = LostRecord("c0ffee", "eth0", NETNS, SandboxPod("ml", "train-0", "uid-1"))


@pytest.mark.parametrize("path", ["/run/netns/cni-1", "/var/run/netns/cni-1"])
def test_rebuilt_record_has_the_name_and_pod_that_are_still_readable_in_the_lost_one(path: str) -> None:
    lost = LOST._replace(netns=NETNS._replace(path=path))

    (record,) = orphan_rescue.rebuild(INVENTORY, {FIRST.address: an_orphan()}, sources(lost))

    assert (record.key, record.pod, record.netns, record.named) == ("c0ffee@eth0", LOST.pod, NETNS, True)


@pytest.mark.parametrize(
    "lost",
    [
        LOST._replace(netns=None),
        LOST._replace(netns=NETNS._replace(inode=1)),
        LOST._replace(netns=NETNS._replace(path="/run/netns/cni-2")),
    ],
    ids=["no namespace", "another inode", "an earlier namespace with the same inode"],
)
def test_lost_record_of_another_namespace_is_not_used(lost: LostRecord) -> None:
    (record,) = orphan_rescue.rebuild(INVENTORY, {FIRST.address: an_orphan()}, sources(lost))

    assert record.key == "unknown-4026532300@eth0"


def test_name_that_another_record_has_is_not_taken() -> None:
    other = a_record(an_attachment(vf=SECOND.address))

    (record,) = orphan_rescue.rebuild(INVENTORY, {FIRST.address: an_orphan()}, sources(LOST, records=(other,)))

    assert record.key == "unknown-4026532300@eth0"


def test_namespace_waits_while_an_earlier_one_still_has_its_made_up_name() -> None:
    before = a_record(container_id="unknown-4026532300", primary={}, netns=NETNS._replace(path="/run/netns/cni-0"))

    assert orphan_rescue.rebuild(INVENTORY, {FIRST.address: an_orphan()}, sources(records=(before,))) == ()


def test_vf_that_is_found_later_is_added_to_its_namespaces_record() -> None:
    (record,) = orphan_rescue.rebuild(INVENTORY, {FIRST.address: an_orphan()}, sources())

    (both,) = orphan_rescue.rebuild(INVENTORY, {SECOND.address: an_orphan("net2")}, sources(records=(record,)))

    assert both == replace(record, attachments=both.attachments)
    assert [one.vf for one in both.attachments] == [FIRST.address, SECOND.address]


# Names on the node.


def on_node(first: str, second: str) -> Inventory:
    """Name the netdevs of the first PF's two VFs on the node."""
    named = ((FIRST, first), (SECOND, second))
    return INVENTORY.with_vfs({vf.address: replace(vf, netdev=replace(vf.netdev, name=name)) for vf, name in named})


OWN, OTHER = (f"{INVENTORY.pfs[0].netdev.name}v{vf.index}" for vf in (FIRST, SECOND))


@pytest.mark.parametrize(
    ("written", "names", "renamed_to"),
    [
        ("ib7", ("net1", OTHER), "ib7"),
        (None, ("net1", OTHER), OWN),
        (None, ("dev12", OTHER), OWN),
        (None, ("net1", "ib1"), None),
        ("net1", ("net1", OTHER), OWN),
        ("net1", ("net1", "ib1"), None),
    ],
    ids=[
        "written on it",
        "by udev's scheme",
        "the kernel's substitute",
        "not known",
        "attached under that name",
        "perhaps its own name",
    ],
)
def test_netdev_that_came_back_under_a_pods_name_gets_its_name_on_the_node(
    written, names, renamed_to: str | None
) -> None:
    inventory = on_node(*names)
    misnamed = orphan_rescue.misnamed(inventory, {FIRST.address})

    steps = orphan_rescue.rename_on_node(inventory, misnamed, {FIRST.address: written} if written else {})

    assert steps == ((RenameLink(FIRST.netdev.ifindex, renamed_to),) if renamed_to else ())


@pytest.mark.parametrize("name", ["ib0", OTHER + "7", "net", "network1", "net1x"])
def test_netdev_with_any_other_name_keeps_it(name: str) -> None:
    assert FIRST.address not in [vf.address for vf in orphan_rescue.misnamed(on_node(name, OTHER), {FIRST.address})]


def test_netdev_of_another_vf_is_left_alone() -> None:
    assert orphan_rescue.misnamed(on_node("net1", OTHER), frozenset()) == ()


# Netdevs that are in no namespace.


def probed(absence: Absence, now: float, inventory: Inventory = with_vf(FIRST, netdev=None), *, in_use=frozenset()):  # noqa: B008 - never changed
    return orphan_rescue.probe(inventory, {FIRST.address: absence}, in_use, now)


AGAIN = (ProbeAgain(FIRST.address, FIRST.driver),)


@pytest.mark.parametrize(
    ("absence", "now", "steps"),
    [
        (Absence(100.0, 0), 107.9, ()),
        (Absence(100.0, 0), 108.0, AGAIN),
        (Absence(100.0, 1), 108.0, ()),
        (Absence(100.0, 1), 116.0, AGAIN),
        (Absence(100.0, 2), 9999.0, ()),
    ],
    ids=["it may still come", "it is gone", "tried just now", "tried once", "tried twice"],
)
def test_absent_vf_is_probed_again_after_a_while_and_twice_at_most(absence, now: float, steps) -> None:
    assert probed(absence, now) == steps


def test_vf_that_a_pod_may_use_is_not_probed_again() -> None:
    assert probed(Absence(0.0, 0), 60.0, in_use={FIRST.address}) == ()


def test_vf_whose_pf_has_no_netdev_either_is_not_probed_again() -> None:
    (pf, other), vf = INVENTORY.pfs, replace(FIRST, netdev=None)
    bare = replace(INVENTORY, pfs=(replace(pf, netdev=None, vfs=(vf, *pf.vfs[1:])), other))

    assert probed(Absence(0.0, 0), 60.0, bare) == ()
    assert "modprobe ib_ipoib" in orphan_rescue.reason_absent(bare, vf, Absence(0.0, 0), in_use=False)


@pytest.mark.parametrize(
    ("tries", "in_use", "says"),
    [
        (0, False, "is bound again in a few seconds"),
        (0, True, "kubelet has given it to a pod"),
        (2, False, "even after its driver mlx5_core was bound again 2 times: dmesg says why"),
    ],
)
def test_reason_says_what_is_tried_and_what_to_do(tries: int, in_use: bool, says: str) -> None:
    assert says in orphan_rescue.reason_absent(INVENTORY, FIRST, Absence(0.0, tries), in_use=in_use)


@pytest.mark.parametrize(("tries", "in_use", "pending"), [(0, False, True), (2, False, False), (0, True, False)])
def test_probing_is_pending_until_all_was_tried(tries: int, in_use: bool, pending: bool) -> None:
    used = {FIRST.address} if in_use else frozenset()

    assert orphan_rescue.is_pending(INVENTORY, {FIRST.address: Absence(0.0, tries)}, used) is pending


def test_vf_in_a_namespace_of_an_unknown_pod_is_reported_with_its_place() -> None:
    record = a_record(an_attachment(vf=FIRST.address), netns=NETNS)

    assert (
        f"VF {FIRST.address} is in network namespace /run/netns/cni-1 (4026532300) as net1"
        in orphan_rescue.reason_unnamed(record, FIRST.address)
    )
