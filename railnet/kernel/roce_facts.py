"""Reads what decides how well RoCE works, on every port of the node that is one. A node without RoCE costs nothing."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from railnet.fabric.roce import FlowControl, RocePort
from railnet.kernel.netlink import dcb
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.inventory import Inventory, PhysicalFunction, Rail, VirtualFunction
from railnet.vf.pci_address import PciAddress


@dataclass(frozen=True, slots=True)
class RoceFacts:
    """The RoCE ports of PFs and VFs; the flow control of PFs, None where the driver tells nothing; and why others were not read."""

    ports: Mapping[PciAddress, RocePort] = field(default_factory=dict)
    flow_control: Mapping[PciAddress, FlowControl | None] = field(default_factory=dict)
    unread: Mapping[PciAddress, str] = field(default_factory=dict)


def cards(inventory: Inventory) -> list[Rail]:
    """Return the cards with a RoCE port."""
    return [rail for _, rail in inventory.all_rails() if _functions(rail)]


async def read(sysfs: Sysfs, inventory: Inventory) -> RoceFacts:
    """Read all cards at once, each with the time limit of `sysfs.reads`. A port without an RDMA device is left out."""
    rails = cards(inventory)
    ports: dict[PciAddress, RocePort] = {}
    flow_control: dict[PciAddress, FlowControl | None] = {}
    unread: dict[PciAddress, str] = {}
    for rail, (outcomes, flow) in zip(
        rails, await asyncio.gather(*(_read(sysfs, rail) for rail in rails)), strict=True
    ):
        for address, outcome in outcomes.items():
            if isinstance(outcome, RocePort):
                ports[address] = outcome
            elif isinstance(outcome, Exception):
                unread[address] = str(outcome)
        if isinstance(flow, OSError):
            unread.setdefault(rail.address, str(flow))
        elif rail.address in ports:
            flow_control[rail.address] = flow
    return RoceFacts(ports, flow_control, unread)


async def _read(
    sysfs: Sysfs, rail: Rail
) -> tuple[dict[PciAddress, RocePort | Exception | None], FlowControl | OSError | None]:
    functions = [function.address for function in _functions(rail)]
    outcomes = await sysfs.reads.read_each(rail.address, functions, sysfs.roce_port)
    if rail.pf is None or rail.pf.netdev is None or isinstance(outcomes.get(rail.address), Exception):
        return outcomes, None
    try:
        return outcomes, await sysfs.reads.read(
            rail.address, rail.address, partial(dcb.flow_control, rail.pf.netdev.name)
        )
    except OSError as error:
        return outcomes, error


def _functions(rail: Rail) -> list[PhysicalFunction | VirtualFunction]:
    functions: list[PhysicalFunction | VirtualFunction] = [*(() if rail.pf is None else (rail.pf,)), *rail.vfs]
    return [
        function
        for function in functions
        if function.rdma is not None and function.fault is None and function.link_layer == "Ethernet"
    ]
