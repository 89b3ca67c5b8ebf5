"""What a pool offers: VFs, owners and reasons put together."""

from deviceplugin.offers import offers
from deviceplugin.pools import DEFAULT, Pool, Selector
from tests.deviceplugin.builders import a_pf, a_vf, two_rails
from vf.address import PciAddress
from vf.function import Inventory
from vf.table import Owner, VfTable

POOL = DEFAULT[0]
VF = PciAddress.parse("0000:03:00.1")


def test_offers_are_healthy_vfs_in_rail_order() -> None:
    offered = offers(DEFAULT, POOL, VfTable(two_rails()))

    assert [(offer.id, offer.reason) for offer in offered] == [
        ("0000:03:00.1", None),
        ("0000:03:00.2", None),
        ("0000:83:00.1", None),
        ("0000:83:00.2", None),
    ]


def test_offer_stays_healthy_when_a_sandbox_has_the_vf() -> None:
    table = VfTable(Inventory((a_pf(a_vf(netdev=None, rdma=None)),)))
    table.claim(VF, Owner("c0ffee", "eth0", "uid-1"))

    assert [offer.reason for offer in offers(DEFAULT, POOL, table)] == [None]


def test_offer_has_a_reason_when_a_free_vf_is_out_of_sight() -> None:
    table = VfTable(Inventory((a_pf(a_vf(netdev=None, rdma=None)),)))

    assert all(offer.reason for offer in offers(DEFAULT, POOL, table))


def test_offers_have_the_nodes_reason_when_there_is_one() -> None:
    offered = offers(DEFAULT, POOL, VfTable(two_rails()), "our configuration is not the active one")

    assert {offer.reason for offer in offered} == {"our configuration is not the active one"}


def test_offers_leave_out_what_an_earlier_pool_has() -> None:
    pools = (Pool("rdma/rail0", Selector(pf=(PciAddress.parse("0000:03:00.0"),))), POOL)

    offered = offers(pools, POOL, VfTable(two_rails()))

    assert [offer.id for offer in offered] == ["0000:83:00.1", "0000:83:00.2"]
