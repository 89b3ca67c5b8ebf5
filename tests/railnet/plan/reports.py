"""What nodes report, in the form of `railnet status -o json`: whole nodes of the kinds that clusters have."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from railnet.plan.cluster_reading import Reading
from railnet.plan.node_facts import KnownNode, SeenNode, UnseenNode, node_of
from railnet.plan.planning import plan
from railnet.plan.proposal import Proposal
from railnet.plan.running_configuration import running

CX7, CX6, CX6_VF = "15b3:1021", "15b3:101b", "15b3:101c"
COMPUTE = tuple(f"0000:{bus:02x}:00.0" for bus in (0x1A, 0x3C, 0x4D, 0x5E, 0x9C, 0xBC, 0xCC, 0xDC))
STORAGE = ("0000:29:00.0", "0000:aa:00.0")
FOUR = tuple(f"0000:{bus:02x}:00.0" for bus in (0x21, 0x41, 0x81, 0xA1))
Report = dict[str, Any]


def pf(address: str, **changes: Any) -> Report:
    """Return what a node reports of a PF; the defaults are a ConnectX-7 at 400 Gb/s without VFs."""
    return {
        "address": address,
        "rail": None,
        "model": CX7,
        "linkType": "infiniband",
        "numaNode": 0 if int(address[5:7], 16) < 0x80 else 1,
        "driver": "mlx5_core",
        "fault": None,
        "totalvfs": 16,
        "numvfs": 0,
        "netdev": "ibs5",
        "rdma": "mlx5_0",
        "port": "4: ACTIVE",
        "rate": "400",
        "pkeys": ["0xffff"],
        **changes,
    }


def lone(address: str, **changes: Any) -> Report:
    facts = {"address": address, "rail": None, "model": "15b3:101e", "linkType": "infiniband", "numaNode": 0}
    return {**facts, "driver": "mlx5_core", "fault": None, **changes}


def report(*pfs: Report, rails: Sequence[str] | None = None, lone_vfs: Sequence[Report] = ()) -> Report:
    """Return the report of a node whose rails are these addresses: by default all its InfiniBand cards, in PCI order."""
    cards = (*pfs, *lone_vfs)
    if rails is None:
        rails = sorted(card["address"] for card in cards if card["linkType"] == "infiniband")
    numbers = {address: number for number, address in enumerate(rails)}
    for card in cards:
        card["rail"] = numbers.get(card["address"])
    listed = [
        {"rail": number, "address": address, "netdev": None, "rdma": None, "port": None, "vfs": 0}
        for address, number in numbers.items()
    ]
    return {"version": "0.6.0", "rails": listed, "pfs": list(pfs), "loneVfs": list(lone_vfs)}


def eight(*, without: Iterable[str] = (), rails: Sequence[str] | None = None, **changes: Any) -> Report:
    """Return a node of eight rails at 400 Gb/s with two storage HCAs at 200 Gb/s, which are rails until a configuration says otherwise."""
    cards = [pf(address, **changes) for address in COMPUTE] + [
        pf(address, model=CX6, rate="200") for address in STORAGE
    ]
    return report(*(card for card in cards if card["address"] not in set(without)), rails=rails)


def four(**changes: Any) -> Report:
    """Return a node of four rails at 200 Gb/s."""
    return report(*(pf(address, **{"model": CX6, "rate": "200", **changes}) for address in FOUR))


def older(*addresses: str) -> Report:
    """Return the report of a daemon of 0.5."""
    rails = [
        {"rail": number, "address": address, "netdev": "ibs5", "rdma": "mlx5_0", "port": "4: ACTIVE", "vfs": 8}
        for number, address in enumerate(addresses)
    ]
    return {"version": "0.5.1", "rails": rails}


def seen(name: str, told: object, gpus: int | None = 8, **labels: str) -> SeenNode:
    return node_of(
        KnownNode(name, {key.replace("__", "/"): text for key, text in labels.items()}, gpus),
        json.loads(json.dumps(told)),
    )


def planned(
    *nodes: SeenNode,
    unseen: Iterable[UnseenNode] = (),
    texts: Mapping[str, str] | None = None,
    vfs: int | None = None,
    unasked: Mapping[str, Mapping[str, str]] | None = None,
    labels: Mapping[str, tuple[str, str]] | None = None,
) -> Proposal:
    """Return the proposal for nodes; `texts` and `labels` are of the groups that run."""
    return plan(Reading(nodes, tuple(unseen), running(texts or {}, (), labels), unasked), vfs)


def slices(rails: int) -> Report:
    """Return the networks of nodes with so many rails."""
    return {"default": {"ipam": {"type": "slice", "range": "10.56.0.0/16", "rails": rails}}}
