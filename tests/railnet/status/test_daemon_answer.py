"""What the daemon tells `railnet status`."""

import json
from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from deviceplugin.devices import OfferedVf
from railnet import VERSION
from railnet.fabric.port_rate_and_partitions import PfPort
from railnet.fabric.roce import FlowControl, Gid, RocePort
from railnet.fabric.topology_labels import Leaf, RailPlace
from railnet.kernel.roce_facts import RoceFacts
from railnet.status.daemon_answer import encode, report, with_functions, with_lost, with_roce, with_topology
from railnet.vf.guid import Guid
from railnet.vf.inventory import Inventory
from railnet.vf.lost_rails import RecordedRail
from railnet.vf.pci_address import PciAddress
from railnet.vf.rail_memory import RailNumbers, RememberedRail
from railnet.vf.record import SandboxPod
from tests.deviceplugin.builders import a_pf, a_vf, two_rails
from tests.railnet.vf.builders import a_record, an_attachment

NODE = two_rails()
OFFERED = {
    "rdma/ib_vf": [
        (OfferedVf(NODE.pfs[0].vfs[0], 0, None), True),
        (OfferedVf(NODE.pfs[0].vfs[1], 0, None), False),
        (OfferedVf(NODE.pfs[1].vfs[0], 1, "no driver is bound to it"), False),
    ]
}


def test_report_of_a_node_survives_encoding() -> None:
    record = a_record(an_attachment(), pod=SandboxPod("ml", "train-0", "uid-1"))

    told = json.loads(encode(report(NODE, OFFERED, [(record, 61.04)], 2, ["kubelet does not watch rdma/ib_vf"])))

    assert told["version"] == VERSION
    assert (told["queue"], told["reasons"]) == (2, ["kubelet does not watch rdma/ib_vf"])
    alike = {
        "netdev": "ibs5",
        "rdma": "mlx5_0",
        "port": "4: ACTIVE",
        "ports": [1],
        "vfs": 2,
        "fault": None,
        "reason": None,
    }
    assert told["rails"] == [
        {"rail": 0, "address": "0000:03:00.0"} | alike,
        {"rail": 1, "address": "0000:83:00.0"} | alike,
    ]
    assert [vf["card"] for vf in told["vfs"]] == ["0000:03:00.0", "0000:03:00.0", "0000:83:00.0"]
    assert [(vf["vf"], vf["rail"], vf["resource"], vf["state"], vf["reason"]) for vf in told["vfs"]] == [
        ("0000:03:00.1", 0, "rdma/ib_vf", "attached", None),
        ("0000:03:00.2", 0, "rdma/ib_vf", "free", None),
        ("0000:83:00.1", 1, "rdma/ib_vf", "unhealthy", "no driver is bound to it"),
    ]
    (sandbox,) = told["sandboxes"]
    (attachment,) = record.attachments
    assert sandbox == {
        "id": record.container_id,
        "ifname": "eth0",
        "pod": {"namespace": "ml", "name": "train-0", "uid": "uid-1"},
        "network": record.network,
        "stage": record.stage,
        "seconds": 61.0,
        "rails": [
            {
                "ifname": "net1",
                "vf": "0000:03:00.1",
                "rail": 0,
                "addresses": [str(address) for address in attachment.addresses],
                "guid": str(attachment.guid),
            }
        ],
    }


@pytest.mark.parametrize(
    ("carrier", "port"), [(True, "UP"), (False, "NO-CARRIER"), (None, None)], ids=["carrier", "none", "not known"]
)
def test_port_of_a_pf_without_rdma_is_its_carrier(carrier: bool | None, port: str | None) -> None:
    node = Inventory((a_pf(rdma=None, carrier=carrier),))

    assert [rail["port"] for rail in report(node, {}, [], 0, [])["rails"]] == [port]


def test_report_has_rails_with_missing_facts() -> None:
    alone = a_vf("0000:04:00.0", pf=None)
    missing = PciAddress.parse("0000:99:00.0")
    pf = a_pf(netdev=None, rdma=None)
    node = Inventory((pf,), (alone,), (pf.address, alone.address, missing))

    rails = report(node, {}, [], 0, [])["rails"]

    assert [(rail["address"], rail["netdev"], rail["rdma"], rail["port"], rail["vfs"]) for rail in rails] == [
        ("0000:03:00.0", None, None, None, 0),
        ("0000:04:00.0", None, None, None, 1),
        ("0000:99:00.0", None, None, None, 0),
    ]


def test_rail_without_its_card_and_card_without_a_rail_are_reported_with_the_reason() -> None:
    first, second = NODE.pfs
    memory = (RememberedRail(PciAddress.parse("0000:01:00.0"), None, "15b3:1021"), RememberedRail(first.address))
    node = replace(NODE, numbers=RailNumbers(memory, None, "ipam.rails is 2"))

    rails = report(node, {}, [], 0, [])["rails"]

    assert [(one["rail"], one["address"], one["vfs"]) for one in rails] == [
        (0, "0000:01:00.0", 0),
        (1, str(first.address), 2),
        (None, str(second.address), 2),
    ]
    assert rails[0]["reason"].startswith("rail 0 has no card: card 0000:01:00.0 (15b3:1021) is not on PCI")
    assert (rails[1]["reason"], rails[2]["reason"]) == (
        None,
        "card 0000:83:00.0 has no rail yet: ipam.rails is 2",
    )


def test_rails_whose_numbers_are_not_known_are_reported_with_the_reason() -> None:
    node = replace(NODE, numbers=RailNumbers((), "the memory is damaged"))

    assert [one["reason"] for one in report(node, {}, [], 0, [])["rails"]] == ["the memory is damaged"] * 2


def test_rails_have_their_leaf_switches_if_the_daemon_asks_for_them() -> None:
    told = report(NODE, OFFERED, [], 0, [])
    places = {
        0: RailPlace(Leaf(Guid(0xA1), 3), "400"),
        1: RailPlace(reason="the link of mlx5_1 is not up (2: Polling)"),
    }
    first, second = with_topology(told, places, None)["rails"]

    assert (first["leaf"], first["leafReason"], first["rate"]) == ("00000000000000a1/3", None, "400")
    assert (second["leaf"], second["leafReason"]) == (None, "the link of mlx5_1 is not up (2: Polling)")
    assert first["address"] == told["rails"][0]["address"]
    assert with_topology(told, {}, None) == told | {"topology": None}
    assert json.loads(encode(with_topology(told, places, "HTTP 403")))["topology"] == "HTTP 403"


def test_report_has_each_function_with_what_a_plan_needs_also_one_that_is_no_rail() -> None:
    infiniband, other = NODE.pfs
    ethernet = a_pf(address="0000:99:00.0", rdma=None, class_code=0x020000, totalvfs=0, driver=None, numa_node=-1)
    alone = a_vf("0000:04:00.1", pf=None)
    node = Inventory((infiniband, other, ethernet), (alone,), rail_link_layers=frozenset({"InfiniBand"}))
    ports = {infiniband.address: PfPort("400", (0xFFFF, 0x8001))}

    told = json.loads(encode(with_functions(report(node, {}, [], 0, []), node, ports)))

    assert told["pfs"] == [
        {
            "address": "0000:03:00.0",
            "rail": 0,
            "model": "15b3:1021",
            "linkType": "infiniband",
            "numaNode": 0,
            "driver": "mlx5_core",
            "fault": None,
            "totalvfs": 16,
            "numvfs": 2,
            "netdev": "ibs5",
            "rdma": "mlx5_0",
            "port": "4: ACTIVE",
            "rate": "400",
            "pkeys": ["0xffff", "0x8001"],
        },
        told["pfs"][0] | {"address": "0000:83:00.0", "rail": 2, "rate": None, "pkeys": None},  # its port did not answer
        told["pfs"][0]
        | {"address": "0000:99:00.0", "rail": None, "linkType": "ether", "numaNode": -1, "driver": None}
        | {"totalvfs": 0, "numvfs": 0, "rdma": None, "port": None, "rate": None, "pkeys": None},
    ]
    (lone,) = told["loneVfs"]
    assert (lone["address"], lone["rail"], lone["model"], lone["linkType"]) == (
        "0000:04:00.1",
        1,
        "15b3:101e",
        "infiniband",
    )


def a_gid(index: int, address: str) -> Gid:
    return Gid(index, IPv6Address(address), 2)


def test_node_with_roce_has_flow_control_of_cards_and_gids_of_pods() -> None:
    pf, other, vf = (PciAddress.parse(text) for text in ("0000:03:00.0", "0000:83:00.0", "0000:03:00.1"))
    ports = {
        pf: RocePort((a_gid(1, "fe80::1"),), "Global tclass=106"),
        other: RocePort(()),
        vf: RocePort((a_gid(1, "fe80::2"), a_gid(3, "::ffff:10.58.0.1"))),
    }
    facts = RoceFacts(
        ports, {pf: FlowControl((3,), by_dscp=True), other: None}, {PciAddress.parse("0000:04:00.1"): "it hangs"}
    )
    told = report(NODE, OFFERED, [(a_record(an_attachment()), 1)], 0, [])

    found = with_roce(told, NODE, facts)

    mtu = {"mtu": 4092, "rdmaMtu": 2048}
    assert found["roce"] == [
        {
            "rail": 0,
            "address": str(pf),
            **mtu,
            "losslessPriorities": [3],
            "priorityBy": "DSCP",
            "trafficClass": "Global tclass=106",
        },
        {"rail": 1, "address": str(other), **mtu, "losslessPriorities": None, "priorityBy": None, "trafficClass": None},
    ]
    assert found["roceUnread"] == [{"address": "0000:04:00.1", "why": "it hangs"}]
    (rail,) = found["sandboxes"][0]["rails"]
    assert rail == {**told["sandboxes"][0]["rails"][0], "gid": {"index": 3, "address": "10.58.0.1"}}


def test_node_without_roce_has_nothing_more() -> None:
    told = report(NODE, OFFERED, [(a_record(an_attachment()), 1)], 0, [])

    assert with_roce(told, NODE, RoceFacts()) is told


def test_sandbox_that_has_lost_a_rail_is_lost_and_others_are_not() -> None:
    lost, other = a_record(an_attachment(), stage="attached"), a_record(container_id="d00d", stage="attached")
    told = report(NODE, {}, [(lost, 1.0), (other, 1.0)], 0, [])

    told = with_lost(told, {RecordedRail(lost.key, lost.attachments[0].vf, "net1"): "is on the node"})

    assert [sandbox["stage"] for sandbox in told["sandboxes"]] == ["lost", "attached"]
    assert told["sandboxes"][0]["rails"][0]["lost"] == "is on the node"
