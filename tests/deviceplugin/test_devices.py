"""The devices that a pool offers: its VFs with their owners and reasons."""

from dataclasses import replace

from deviceplugin.devices import Offers, differing
from deviceplugin.pool_selection import DEFAULT, Pool, Selector
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from railnet.vf.rail_memory import RailNumbers, RememberedRail
from railnet.vf.vf_table import Owner, VfTable
from tests.deviceplugin.builders import ACTIVE, a_pf, a_vf, an_rdma_device, two_rails

POOL = DEFAULT[0]
VF = PciAddress.parse("0000:03:00.1")


def test_offers_are_healthy_vfs_in_rail_order() -> None:
    offered = Offers(DEFAULT, POOL).now(VfTable(two_rails()))

    assert [(offer.id, offer.reason) for offer in offered] == [
        ("0000:03:00.1", None),
        ("0000:03:00.2", None),
        ("0000:83:00.1", None),
        ("0000:83:00.2", None),
    ]


def test_offer_stays_healthy_when_a_sandbox_has_the_vf() -> None:
    table = VfTable(Inventory((a_pf(a_vf(netdev=None, rdma=None)),)))
    table.claim(VF, Owner("c0ffee", "eth0", "uid-1"))

    assert [offer.reason for offer in Offers(DEFAULT, POOL).now(table)] == [None]


def test_offer_has_a_reason_when_the_devices_of_a_free_vf_are_missing() -> None:
    table = VfTable(Inventory((a_pf(a_vf(netdev=None, rdma=None)),)))

    assert all(offer.reason for offer in Offers(DEFAULT, POOL).now(table))


def test_offers_have_the_nodes_reason_when_there_is_one() -> None:
    offered = Offers(DEFAULT, POOL).now(VfTable(two_rails()), "Railnet's configuration is not the active one")

    assert {offer.reason for offer in offered} == {"Railnet's configuration is not the active one"}


def test_vf_without_a_pf_is_offered_as_a_separate_rail() -> None:
    lone = a_vf("0101:00:00.0", pf=None, rdma=an_rdma_device(1, ACTIVE))

    offered = Offers(DEFAULT, POOL).now(VfTable(replace(two_rails(), lone_vfs=(lone,))))

    assert [(offer.id, offer.rail, offer.reason) for offer in offered[2:]] == [
        ("0000:83:00.1", 1, None),
        ("0000:83:00.2", 1, None),
        ("0101:00:00.0", 2, None),
    ]


def test_offers_omit_vfs_that_are_on_no_rail() -> None:
    node = two_rails()

    offered = Offers(DEFAULT, POOL).now(VfTable(replace(node, named_rails=(node.pfs[1].address,))))

    assert [(offer.id, offer.rail) for offer in offered] == [("0000:83:00.1", 0), ("0000:83:00.2", 0)]


def test_offers_omit_vfs_of_an_earlier_pool() -> None:
    pools = (Pool("rdma/rail0", Selector(pf=(PciAddress.parse("0000:03:00.0"),))), POOL)

    offered = Offers(pools, POOL).now(VfTable(two_rails()))

    assert [offer.id for offer in offered] == ["0000:83:00.1", "0000:83:00.2"]


def test_withheld_vf_has_its_reason_also_when_a_sandbox_has_it() -> None:
    table = VfTable(two_rails())
    table.claim(VF, Owner("unknown-1", "eth0", ""))
    table.withhold({VF: "it is in an unknown namespace"})

    assert next(offer.reason for offer in Offers(DEFAULT, POOL).now(table)) == "it is in an unknown namespace"


def test_offer_has_a_lasting_reason_only_when_an_operator_must_act() -> None:
    first, second = two_rails().pfs[0].vfs
    coming = VfTable(Inventory((a_pf(replace(first, netdev=None, rdma=None), replace(second, driver=None)),)))

    assert [bool(offer.lasting) for offer in Offers(DEFAULT, POOL).now(coming)] == [False, True]


def test_reason_of_a_withheld_vf_lasts() -> None:
    table = VfTable(two_rails())
    table.withhold({VF: "it is in an unknown namespace"})

    assert [offer.lasting for offer in Offers(DEFAULT, POOL).now(table)][:2] == ["it is in an unknown namespace", None]


def test_vfs_of_a_card_without_a_rail_are_offered_last_and_unhealthy() -> None:
    node = two_rails()
    memory = (RememberedRail(node.pfs[1].address),)
    table = VfTable(replace(node, numbers=RailNumbers(memory, None, "ipam.rails is 1")))

    offered = Offers(DEFAULT, DEFAULT[0]).now(table)

    assert [(one.id, one.rail, one.reason) for one in offered[:2]] == [
        ("0000:83:00.1", 0, None),
        ("0000:83:00.2", 0, None),
    ]
    assert {(one.rail, one.reason) for one in offered[2:]} == {
        (None, "card 0000:03:00.0 has no rail yet: ipam.rails is 1")
    }
    assert {str(one.card) for one in offered[2:]} == {"0000:03:00.0"}


def test_list_that_is_made_again_is_the_same_as_a_new_one_after_each_change() -> None:
    node = two_rails()
    table, kept = VfTable(node), Offers(DEFAULT, POOL)
    first, owner = node.pfs[0], Owner("c0ffee", "eth0", "uid-1")
    changes = [
        lambda: table.claim(VF, owner),
        lambda: table.reread({VF: replace(first.vfs[0], netdev=None, rdma=None)}),
        lambda: table.release(VF, owner),
        lambda: table.withhold({VF: "it is in an unknown namespace"}),
        lambda: table.claim(VF, owner),
        lambda: table.release(VF, owner),
        lambda: table.withhold({VF: "it is in an unknown namespace"}),
        lambda: table.withhold({}),
        lambda: table.report_unprovisioned({first.address: "it has too few VFs"}),
        lambda: table.report_unprovisioned({}),
        lambda: table.reread_pfs({first.address: replace(first, driver=None)}),
        lambda: table.refresh(Inventory((node.pfs[1],))),
        lambda: table.refresh(node),
        lambda: table.refresh(replace(node, pfs=(), lone_vfs=first.vfs[:1])),
        lambda: table.refresh(replace(node, pfs=(replace(first, vfs=()),), lone_vfs=first.vfs[:1])),
        lambda: table.refresh(node),
        lambda: table.number(RailNumbers((RememberedRail(node.pfs[1].address),))),
    ]

    for change in changes:
        change()

        assert kept.now(table) == Offers(DEFAULT, POOL).now(table)
    assert kept.now(table, "not the active one") == Offers(DEFAULT, POOL).now(table, "not the active one")


def test_vf_whose_facts_are_the_same_keeps_its_offer() -> None:
    node = two_rails()
    table, kept = VfTable(node), Offers(DEFAULT, POOL)
    before = kept.now(table)

    table.claim(VF, Owner("c0ffee", "eth0", "uid-1"))
    table.reread({VF: replace(node.pfs[0].vfs[0], netdev=None)})
    after = kept.now(table)

    assert [old is new for old, new in zip(before, after, strict=True)] == [False, True, True, True]


def test_two_lists_differ_in_the_offers_that_were_made_anew_and_in_those_that_only_one_has() -> None:
    node = two_rails()
    table, kept = VfTable(node), Offers(DEFAULT, POOL)
    before = kept.now(table)

    table.reread({VF: replace(node.pfs[0].vfs[0], netdev=None)})
    after = kept.now(table)

    assert list(differing(before, before)) == []
    assert list(differing(before, after)) == [(before[0], after[0])]
    assert list(differing(before, before[:3])) == [(before[3], None)]
    assert list(differing((), before[:1])) == [(None, before[0])]


def test_list_is_not_made_again_while_the_table_is_the_same() -> None:
    table, kept = VfTable(two_rails()), Offers(DEFAULT, POOL)
    before = kept.now(table)

    table.refresh(two_rails())

    assert kept.now(table) is before
    assert kept.now(VfTable(two_rails())) == before
