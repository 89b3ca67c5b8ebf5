"""Composes the daemon's answer to `railnet status`: all it knows of its node at one moment, as JSON. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from deviceplugin.devices import OfferedVf
from railnet import VERSION
from railnet.fabric.port_rate_and_partitions import PfPort
from railnet.fabric.roce import rdma_mtu, routable
from railnet.fabric.topology_labels import RailPlace
from railnet.kernel.roce_facts import RoceFacts
from railnet.vf.inventory import Inventory, PhysicalFunction, Rail, VirtualFunction
from railnet.vf.lost_rails import LostRails
from railnet.vf.pci_address import PciAddress
from railnet.vf.pf_selector import digits, link_type
from railnet.vf.record import Record


def report(
    inventory: Inventory,
    offered: Mapping[str, Iterable[tuple[OfferedVf, bool]]],
    records: Iterable[tuple[Record, float]],
    waiting: int,
    reasons: Iterable[str],
    quarantined: Iterable[str] = (),
) -> dict[str, Any]:
    """Gather it.

    Args:
        inventory: the node's rails.
        offered: the VFs of each pool, by resource, and whether a sandbox has them.
        records: the journal's, each with the seconds since it was last written, or read at start.
        waiting: how many delegates wait for a place.
        reasons: why the node is not served, none if it is (/readyz).
        quarantined: paths of the records that are not believed.
    """
    return {
        "version": VERSION,
        "reasons": list(reasons),
        "queue": waiting,
        "rails": [_rail(number, rail, inventory.unsettled) for number, rail in inventory.all_rails()],
        "vfs": [_vf(resource, *each) for resource, offers in offered.items() for each in offers],
        "sandboxes": [_sandbox(record, seconds) for record, seconds in records],
        "quarantine": list(quarantined),
    }


def with_topology(told: dict[str, Any], places: Mapping[int, RailPlace], trouble: str | None) -> dict[str, Any]:
    """Return the same with the leaf switch of each rail, or the reason why it is not known; `trouble` is about the labels."""
    rails = [rail | _leaf(places.get(rail["rail"])) for rail in told["rails"]]
    return told | {"rails": rails, "topology": trouble}


def with_lost(told: dict[str, Any], lost: LostRails) -> dict[str, Any]:
    """Return the same with the reason of each rail that its pod has lost; the stage of such a sandbox is `lost`."""
    reasons = {(rail.key, str(rail.vf)): why for rail, why in lost.items()}
    sandboxes = []
    for sandbox in told["sandboxes"]:
        key = f"{sandbox['id']}@{sandbox['ifname']}"
        rails = [rail | _lost(reasons.get((key, rail["vf"]))) for rail in sandbox["rails"]]
        is_lost = any("lost" in rail for rail in rails)
        sandboxes.append(sandbox | {"rails": rails} | ({"stage": "lost"} if is_lost else {}))
    return told | {"sandboxes": sandboxes}


def _lost(why: str | None) -> dict[str, str]:
    return {} if why is None else {"lost": why}


def with_roce(told: dict[str, Any], inventory: Inventory, roce: RoceFacts) -> dict[str, Any]:
    """Return the same with what decides how well RoCE works, for PFs by rail, and the GID that other subnets reach of each VF in a pod.

    A node without RoCE gets nothing more.
    """
    if not roce.ports and not roce.unread:
        return told
    cards = [_roce(number, rail, roce) for number, rail in inventory.all_rails() if rail.address in roce.ports]
    unread = [{"address": str(address), "why": why} for address, why in roce.unread.items()]
    sandboxes = [
        sandbox | {"rails": [rail | _gid(rail["vf"], roce) for rail in sandbox["rails"]]}
        for sandbox in told["sandboxes"]
    ]
    return told | {"sandboxes": sandboxes, "roce": cards, "roceUnread": unread}


def _roce(number: int | None, rail: Rail, roce: RoceFacts) -> dict[str, Any]:
    flow = roce.flow_control.get(rail.address)
    mtu = None if rail.pf is None or rail.pf.netdev is None else rail.pf.netdev.mtu
    return {
        "rail": number,
        "address": str(rail.address),
        "mtu": mtu,
        "rdmaMtu": None if mtu is None else rdma_mtu(mtu),
        "losslessPriorities": None if flow is None else list(flow.priorities),
        "priorityBy": None if flow is None else "DSCP" if flow.by_dscp else "PCP",
        "trafficClass": roce.ports[rail.address].traffic_class,
    }


def with_functions(told: dict[str, Any], inventory: Inventory, ports: Mapping[PciAddress, PfPort]) -> dict[str, Any]:
    """Return the same with every PF and every VF without a PF, also those that are no rail: what `railnet plan` makes a proposal of.

    Args:
        told: the report.
        inventory: the node's functions.
        ports: what is known of PFs' ports; a PF that is left out did not answer.
    """
    rails = {rail.address: number for number, rail in inventory.all_rails()}
    pfs = [_function(pf, rails.get(pf.address)) | _pf(pf, ports.get(pf.address, PfPort())) for pf in inventory.pfs]
    lone_vfs = [_function(vf, rails.get(vf.address)) for vf in inventory.lone_vfs]
    return told | {"pfs": pfs, "loneVfs": lone_vfs}


def _function(function: PhysicalFunction | VirtualFunction, rail: int | None) -> dict[str, Any]:
    return {
        "address": str(function.address),
        "rail": rail,
        "model": f"{digits(function.vendor)}:{digits(function.device)}",
        "linkType": link_type(function.link_layer),
        "numaNode": function.numa_node,
        "driver": function.driver,
        "fault": function.fault,
    }


def _pf(pf: PhysicalFunction, port: PfPort) -> dict[str, Any]:
    return {
        "totalvfs": pf.totalvfs,
        "numvfs": pf.numvfs,
        "netdev": None if pf.netdev is None else pf.netdev.name,
        "rdma": None if pf.rdma is None else pf.rdma.name,
        "port": _port(pf),
        "rate": port.rate,
        "pkeys": None if port.pkeys is None else [f"0x{pkey:04x}" for pkey in port.pkeys],
    }


def _gid(vf: str, roce: RoceFacts) -> dict[str, Any]:
    port = roce.ports.get(PciAddress.parse(vf))
    gid = None if port is None else routable(port.gids)
    return {} if gid is None else {"gid": {"index": gid.index, "address": str(gid.ip)}}


def _leaf(place: RailPlace | None) -> dict[str, Any]:
    if place is None:  # the labels are off, or the rail has no VF of a pool
        return {}
    return {"leaf": None if place.leaf is None else str(place.leaf), "leafReason": place.reason, "rate": place.rate}


def encode(told: dict[str, Any]) -> bytes:
    """Spell it as ANSWER carries it."""
    return json.dumps(told, separators=(",", ":")).encode()


def _rail(number: int | None, rail: Rail, unsettled: str | None) -> dict[str, Any]:
    pf = rail.pf
    rdma = None if pf is None else pf.rdma
    return {
        "rail": number,
        "address": str(rail.address),
        "netdev": None if pf is None or pf.netdev is None else pf.netdev.name,
        "rdma": None if rdma is None else rdma.name,
        "port": None if pf is None else _port(pf),
        "ports": [] if rdma is None else list(rdma.data_ports),
        "vfs": len(rail.vfs),
        "fault": None if pf is None else pf.fault,
        "reason": rail.reason or unsettled,
    }


def _port(pf: PhysicalFunction) -> str | None:
    """Return the state of a PF's RDMA port; of a PF without RDMA its carrier, in the words of `ip link`."""
    if pf.rdma is not None:
        return None if pf.rdma.port is None else pf.rdma.port.state
    return None if pf.carrier is None else "UP" if pf.carrier else "NO-CARRIER"


def _vf(resource: str, offer: OfferedVf, owned: bool) -> dict[str, Any]:
    return {
        "vf": offer.id,
        "card": str(offer.card),
        "rail": offer.rail,
        "resource": resource,
        "state": offer.state(owned=owned),
        "reason": offer.reason,
    }


def _sandbox(record: Record, seconds: float) -> dict[str, Any]:
    return {
        "id": record.container_id,
        "ifname": record.ifname,
        "pod": record.pod._asdict(),
        "network": record.network,
        "stage": record.stage,
        "seconds": round(seconds, 1),
        "rails": [
            {
                "ifname": attachment.ifname,
                "vf": str(attachment.vf),
                "rail": attachment.rail,
                "addresses": [str(address) for address in attachment.addresses],
                "guid": None if attachment.guid is None else str(attachment.guid),
            }
            for attachment in record.attachments
        ],
    }
