"""Which claims are prepared, and what their containers get."""

from dataclasses import replace

import pytest

from deviceplugin.allocation import PoolOffer
from deviceplugin.devices import Offers
from deviceplugin.pool_selection import DEFAULT, Pool, Selector
from railnet.dra.claim import AllocatedClaim, AllocatedRequest
from railnet.dra.preparation import Uses, prepare
from railnet.errors import NotOurs, NotReady, Unusable
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner, VfTable
from tests.deviceplugin.builders import two_rails
from tests.railnet.dra.claims import FIRST, IDENTITY, NODE, THIRD

OFFERS = [PoolOffer(DEFAULT[0], Offers(DEFAULT, DEFAULT[0]).now(VfTable(two_rails())), {})]
FREE = Uses({}, {}, lambda _: None)


def a_claim(*requests: AllocatedRequest) -> AllocatedClaim:
    return AllocatedClaim(IDENTITY, requests or (AllocatedRequest("vf", (FIRST,)),), frozenset({"uid-1"}))


def test_request_gets_the_nodes_and_variables_of_all_its_vfs() -> None:
    prepared = prepare(a_claim(AllocatedRequest("vf", (FIRST, THIRD))), NODE, OFFERS, FREE)

    (request,) = prepared.requests
    assert (prepared.identity, prepared.pool) == (IDENTITY, NODE)
    assert (request.name, request.vfs) == ("vf", (FIRST, THIRD))
    assert request.allocation.device_nodes == (
        "/dev/infiniband/uverbs4",
        "/dev/infiniband/uverbs2",
        "/dev/infiniband/rdma_cm",
    )
    assert request.allocation.envs["NCCL_IB_HCA"] == "=mlx5_4:1,mlx5_2:1"


def test_each_request_of_a_claim_has_its_own_nodes_and_the_list_of_all_vfs() -> None:
    requests = AllocatedRequest("b", (THIRD,)), AllocatedRequest("a", (FIRST,))

    allocations = [request.allocation for request in prepare(a_claim(*requests), NODE, OFFERS, FREE).requests]

    assert [allocation.device_nodes[:-1] for allocation in allocations] == [
        ("/dev/infiniband/uverbs2",),
        ("/dev/infiniband/uverbs4",),
    ]
    assert [allocation.envs["NCCL_IB_HCA"] for allocation in allocations] == ["=mlx5_4:1,mlx5_2:1"] * 2


@pytest.mark.parametrize(
    ("names", "hcas"),
    [
        (("container-0-request-0", "container-1-request-0"), ["=mlx5_2:1", "=mlx5_4:1"]),
        (("container-0-request-0", "container-0-request-1"), ["=mlx5_4:1,mlx5_2:1"] * 2),
        (("another", "form"), ["=mlx5_4:1,mlx5_2:1"] * 2),
    ],
    ids=["two containers", "two resources of one", "another form"],
)
def test_claim_for_limits_names_each_containers_vfs(names: tuple[str, str], hcas: list[str]) -> None:
    requests = tuple(AllocatedRequest(name, (vf,)) for name, vf in zip(names, (THIRD, FIRST), strict=True))
    claim = replace(a_claim(*requests), of_limits=True)

    prepared = prepare(claim, NODE, OFFERS, FREE)

    assert [request.allocation.envs["NCCL_IB_HCA"] for request in prepared.requests] == hcas


def test_vfs_of_several_pools_are_in_one_list() -> None:
    pools = (Pool("rdma/first", Selector(pf=(PciAddress.parse("0000:83:00.0"),))), Pool("rdma/second", nccl_rails=True))
    table = VfTable(two_rails())
    offers = [PoolOffer(pool, Offers(pools, pool).now(table), {}) for pool in pools]

    (request,) = prepare(a_claim(AllocatedRequest("vf", (FIRST, THIRD))), NODE, offers, FREE).requests

    assert request.allocation.envs["NCCL_IB_HCA"] == "=mlx5_4:1:0,mlx5_2:1"
    assert request.allocation.envs["PCIDEVICE_RDMA_FIRST"] == "0000:83:00.1"
    assert request.allocation.envs["PCIDEVICE_RDMA_SECOND"] == "0000:03:00.1"
    assert request.allocation.device_nodes.count("/dev/infiniband/rdma_cm") == 1


USED = {
    "another claim": (FREE._replace(by_claims={FIRST: "claim ml/other has it"}), "claim ml/other has it"),
    "a pod by the device plugin": (FREE._replace(by_pods={FIRST: "uid-9"}), "checkpoint gives it to pod uid-9"),
    "another pod's sandbox": (
        FREE._replace(attached=lambda _: Owner("c1", "eth0", "uid-9")),
        "sandbox c1 of pod uid-9",
    ),
    "a sandbox of no known pod": (FREE._replace(attached=lambda _: Owner("c1", "eth0", "")), "with an unknown UID"),
}


@pytest.mark.parametrize(("uses", "words"), USED.values(), ids=USED.keys())
def test_device_that_is_given_away_is_refused(uses: Uses, words: str) -> None:
    with pytest.raises(NotReady, match=words) as raised:
        prepare(a_claim(), NODE, OFFERS, uses)

    assert "claim ml/train-vf has device pci-0000-03-00-1, which is not free" in str(raised.value)


def test_device_of_the_claims_own_pod_is_prepared_again() -> None:
    attached = FREE._replace(attached=lambda _: Owner("c1", "eth0", "uid-1"))

    assert prepare(a_claim(), NODE, OFFERS, attached).vfs == (FIRST,)


def test_vf_that_the_node_does_not_offer_is_refused() -> None:
    gone = PciAddress.parse("0000:03:00.7")

    with pytest.raises(NotOurs, match=r"has device pci-0000-03-00-7, which rdma\.railnet\.io does not offer"):
        prepare(a_claim(AllocatedRequest("vf", (FIRST, gone))), NODE, OFFERS, FREE)


def test_vf_is_refused_when_its_reason_lasts() -> None:
    offer = OFFERS[0]
    unhealthy = [replace(vf, reason="no driver", lasting="no driver") for vf in offer.offered]

    with pytest.raises(Unusable, match="no driver"):
        prepare(a_claim(), NODE, [offer._replace(offered=unhealthy)], FREE)
