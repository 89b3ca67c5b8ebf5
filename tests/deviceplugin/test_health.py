"""The health of a VF: the reason why it cannot serve a pod, with the remedy."""

import re
from dataclasses import replace

import pytest

from deviceplugin import health
from railnet.vf.guid import Guid
from railnet.vf.inventory import PhysicalFunction, Rail, VirtualFunction
from railnet.vf.pci_address import PciAddress
from tests.deviceplugin.builders import ACTIVE, DOWN, a_pf, a_vf, an_rdma_device

VF = a_vf()
PF = a_pf(VF)
POLLING = replace(DOWN, phys_state="2: Polling")

HEALTHY = {
    "a free VF": (PF, VF, False),
    "a card with its data on port 3": (
        a_pf(rdma=an_rdma_device(0, replace(ACTIVE, number=3), data_ports=(3,), port_numbers=(3,))),
        a_vf(),
        False,
    ),
    "a free VF whose own port is down": (PF, a_vf(rdma=an_rdma_device(1, DOWN)), False),
    "a pod's VF whose RDMA device is visible": (PF, a_vf(netdev=None), True),
    "a pod's VF of which no device is visible": (PF, a_vf(netdev=None, rdma=None), True),
    "a PF whose port state has no number": (
        a_pf(rdma=an_rdma_device(0, replace(ACTIVE, state="ACTIVE"))),
        VF,
        False,
    ),
    "a PF whose port cannot be read": (a_pf(rdma=an_rdma_device(0, port=None)), VF, False),
}


@pytest.mark.parametrize(("pf", "vf", "owned"), HEALTHY.values(), ids=HEALTHY.keys())
def test_reason_is_none_for(pf: PhysicalFunction, vf: VirtualFunction, owned: bool) -> None:
    assert health.reason(pf, vf, owned=owned, rdma=True) is None


LONE = a_vf("0101:00:00.0", pf=None, rdma=an_rdma_device(1, ACTIVE))
INIT = replace(ACTIVE, state="2: INIT")

UNHEALTHY = {
    "PF without a subnet manager": (
        a_pf(rdma=an_rdma_device(0, INIT)),
        VF,
        False,
        "PF .* is '2: INIT', .*no subnet manager",
    ),
    "RoCE PF that is down": (
        a_pf(rdma=an_rdma_device(0, replace(DOWN, phys_state="5: LinkUp", link_layer="Ethernet"))),
        VF,
        False,
        "check its cable",
    ),
    "no PF, port down": (
        None,
        replace(LONE, rdma=an_rdma_device(1, DOWN)),
        False,
        "port 1 of VF 0101:00:00.0 .mlx5_1. is",
    ),
    "no PF, zero GUID": (
        None,
        replace(LONE, rdma=an_rdma_device(1, node_guid=Guid(0))),
        False,
        "the machine that passes the VF to this machine",
    ),
    "no PF, no driver": (None, replace(LONE, driver=None), False, "no driver is bound"),
    "no PF, no netdev": (None, replace(LONE, netdev=None), False, "modprobe ib_ipoib"),
    "no driver": (PF, a_vf(driver=None), False, "no driver is bound to VF 0000:03:00.1: .*drivers_probe"),
    "no driver in a pod": (PF, a_vf(driver=None), True, "no driver"),
    "no RDMA device": (PF, a_vf(rdma=None), False, "no RDMA device under driver mlx5_core: load"),
    "vfio": (PF, a_vf(driver="vfio-pci", rdma=None, netdev=None), False, "no RDMA device under driver vfio-pci"),
    "zero GUID": (PF, a_vf(rdma=an_rdma_device(1, node_guid=Guid(0))), False, "0000:0000:0000:0000, .*vf 0 node_guid"),
    "zero GUID in a pod": (PF, a_vf(rdma=an_rdma_device(1, node_guid=Guid(0))), True, "node GUID"),
    "no uverbs": (PF, a_vf(rdma=an_rdma_device(1, uverbs=None)), False, "modprobe ib_uverbs"),
    "no netdev": (PF, a_vf(netdev=None), False, "no network interface on the host: modprobe ib_ipoib"),
    "PF port down": (a_pf(rdma=an_rdma_device(0, POLLING)), VF, False, "PF 0000:03:00.0 .*'1: DOWN', '2: Polling'"),
    "PF port down under a pod": (a_pf(rdma=an_rdma_device(0, DOWN)), a_vf(netdev=None), True, "check its cable"),
    "PF without RDMA": (a_pf(rdma=None), VF, False, "PF 0000:03:00.0 has no RDMA device: .*modprobe mlx5_ib"),
}


@pytest.mark.parametrize(("pf", "vf", "owned", "words"), UNHEALTHY.values(), ids=UNHEALTHY.keys())
def test_reason_says_what_is_wrong_for(
    pf: PhysicalFunction | None, vf: VirtualFunction, owned: bool, words: str
) -> None:
    reason = health.reason(pf, vf, owned=owned, rdma=True)

    assert re.search(words, reason or "none")


@pytest.mark.parametrize(
    ("vf", "owned"), [(LONE, False), (replace(LONE, netdev=None, rdma=None), True)], ids=["free", "in a pod"]
)
def test_reason_is_none_for_a_vf_without_a_pf(vf: VirtualFunction, owned: bool) -> None:
    assert health.reason(None, vf, owned=owned, rdma=True) is None


def test_reason_is_none_without_an_rdma_device_when_the_pool_needs_none() -> None:
    ethernet = a_pf(class_code=0x020000, rdma=None)

    assert health.reason(ethernet, a_vf(rdma=None), owned=False, rdma=False) is None


@pytest.mark.parametrize("owned", [False, True])
def test_reason_is_the_carrier_of_an_ethernet_pf_when_the_pool_needs_no_rdma_device(owned: bool) -> None:
    pf = a_pf(class_code=0x020000, rdma=None, carrier=False)

    reason = health.reason(pf, a_vf(rdma=None), owned=owned, rdma=False)

    assert reason == "PF 0000:03:00.0 (ibs5) has no carrier: check its cable and switch port"


@pytest.mark.parametrize(
    ("pf", "rdma"),
    [
        (a_pf(class_code=0x020000, rdma=None, carrier=True), False),
        (a_pf(class_code=0x020000, rdma=None, carrier=None), False),
        (a_pf(class_code=0x020000, rdma=None, netdev=None, carrier=None), False),
        (a_pf(carrier=False), False),
        (a_pf(carrier=False), True),
        (a_pf(rdma=an_rdma_device(0, replace(ACTIVE, link_layer="Ethernet")), carrier=False), True),
    ],
    ids=[
        "carrier",
        "administratively down",
        "no netdev",
        "InfiniBand without RDMA",
        "InfiniBand with an active port",
        "RoCE with an active port",
    ],
)
def test_reason_is_no_carrier_where_it_decides_nothing(pf: PhysicalFunction, rdma: bool) -> None:
    assert health.reason(pf, VF, owned=False, rdma=rdma) is None


def test_reason_names_a_missing_netdev_also_when_the_pool_needs_no_rdma_device() -> None:
    ethernet = a_pf(class_code=0x020000, rdma=None)

    reason = health.reason(ethernet, a_vf(rdma=None, netdev=None), owned=False, rdma=False)

    assert reason == "VF 0000:03:00.1 has no network interface on the host: rebind the VF"


CARD = PciAddress.parse("0000:03:00.0")
POLLING_RAIL = a_pf(a_vf(), rdma=an_rdma_device(0, DOWN))


@pytest.mark.parametrize(
    ("rail", "rdma", "said"),
    [
        (Rail(CARD, a_pf(a_vf()), (a_vf(),)), True, None),
        (Rail(CARD, POLLING_RAIL, (a_vf(),)), True, "port 1 of PF 0000:03:00.0 (mlx5_0) is '1: DOWN', '3: Disabled'"),
        (Rail(CARD, POLLING_RAIL, (a_vf(),)), False, None),
        (Rail(CARD, a_pf(a_vf(), rdma=None), (a_vf(),)), True, "PF 0000:03:00.0 has no RDMA device"),
        (Rail(CARD, a_pf(a_vf(), fault="it hangs"), (a_vf(),)), True, "PF 0000:03:00.0 cannot be used: it hangs"),
        (Rail(CARD, None, (a_vf(pf=None),)), True, "port 1 of VF 0000:03:00.1 (mlx5_1) is '1: DOWN'"),
        (Rail(CARD, None, (a_vf(pf=None, rdma=None),)), True, None),
        (Rail(CARD, None, ()), True, "the card 0000:03:00.0 is missing"),
        (Rail(CARD, None, (), "its slot is empty"), True, "its slot is empty"),
    ],
    ids=[
        "ACTIVE",
        "down",
        "down, for plain Ethernet",
        "no RDMA",
        "fault",
        "lone VF",
        "VF in a pod",
        "absent",
        "reason",
    ],
)
def test_port_of_a_rail(rail: Rail, rdma: bool, said: str | None) -> None:
    found = health.port_reason(rail, rdma=rdma)

    assert (found is None) == (said is None)
    assert (found or "").startswith(said or "")
