"""The labels of this node with the leaf switches of its rails, if `publish.topologyLabels` asks for it.

Each port is asked for its neighbour (`railnet.kernel.umad`), the node's labels are looked at, and what differs is changed:
`railnet.fabric.topology_labels` decides that, and `railnet.daemon.node_object.loop` when it is done.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from errno import EACCES, ENOENT, EPERM, ETIMEDOUT
from functools import partial
from pathlib import Path
from typing import NamedTuple

from deviceplugin.pool_selection import assign
from railnet.apiserver import node_labels
from railnet.backoff import Backoff
from railnet.configuration import Configuration
from railnet.daemon.node_object.loop import ApiServerOfNode, PartPauses, moment
from railnet.fabric import topology_labels
from railnet.fabric.neighbour import Neighbour
from railnet.fabric.rails_condition import Moment
from railnet.fabric.topology_labels import Leaf, RailPlace
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import BoundedReads, DoesNotAnswer
from railnet.kernel.umad import query
from railnet.kernel.umad.node_info import BadAnswer
from railnet.vf import provision
from railnet.vf.inventory import DeviceNode, Inventory, PhysicalFunction, Rail, RdmaDevice
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_VALUE = "topologyLabels.enabled"
_NEVER = float("inf")
# More than the kernel and `railnet.kernel.umad.query` take to give up: what takes longer hangs.
_HANGS_SECONDS = 10.0
_Ask = Callable[[Path, DeviceNode], Neighbour]


class LookPauses(NamedTuple):
    """Seconds: at least between two looks; until the first look after a failure, which then doubles; between looks when all is well."""

    quiet: float = 2.0
    again: float = 15.0
    resync: float = 600.0


_PAUSES = LookPauses()


class TopologyLabels:
    """Knows the node's place in the fabric. It is a `NodePart`.

    A port is asked at once, after its rail's card or port has changed, and every ten minutes. If nothing of the rails is different, no
    port is asked.

    Attributes:
        places: what is known of each rail, by its number.
    """

    name, value = "topology labels", _VALUE

    def __init__(
        self,
        configuration: Configuration,
        table: VfTable,
        sysfs: Sysfs,
        ask: _Ask = query.neighbour,
        pauses: LookPauses = _PAUSES,
        clock: Callable[[], Moment] = moment,
    ) -> None:
        """Know nothing yet; `ask` asks the neighbour of a PF's port, and may block."""
        self._configuration, self._table, self._sysfs = configuration, table, sysfs
        self._ask, self._clock, self._resync = ask, clock, pauses.resync
        self._backoff = Backoff(pauses.again, pauses.resync)
        self.pauses = PartPauses(pauses.quiet, self._backoff)
        # Of its own: a port that does not answer here takes no VF from kubelet.
        self._reads = BoundedReads(_HANGS_SECONDS)
        self._rails: Mapping[int, Rail] | None = None
        self._labelled: object = None
        self._again = _NEVER
        self._failures = 0
        self._said: frozenset[str] = frozenset()
        self.places: Mapping[int, RailPlace] = {}

    @property
    def hung(self) -> Counter[str]:
        """The number of threads that wait for a question that does not return, by card; at most one for each."""
        return self._reads.hung

    def look(self) -> None:
        """Note the rails."""
        self._rails = labelled_rails(self._configuration, self._table.inventory)

    def next_look(self) -> float:
        """Return infinity: rails differ only if the table does."""
        return _NEVER

    def due(self) -> float:
        """Return 0 if a port is another than when the node was labelled, else the second of the next question."""
        if self._rails is None:
            return _NEVER
        return self._again if _ports(self._rails) == self._labelled else 0.0

    async def write(self, cluster: ApiServerOfNode) -> None:
        """Ask the ports, look at the labels, and change those that differ."""
        rails, now = self._rails or {}, self._clock().seconds
        await self._ask_ports(rails)
        await self._change(cluster, self.places)
        ports = _ports(rails)
        is_known = all(place.reason is None or place.lasting for place in self.places.values())
        self._failures = 0 if is_known else 1 + (self._failures if ports == self._labelled else 0)
        jitter = random.random()  # noqa: S311 - no secret
        self._labelled = ports
        self._again = now + (self._resync if is_known else self._backoff.pause(self._failures, jitter))

    async def remove(self, cluster: ApiServerOfNode) -> None:
        """Remove the labels; no port is asked."""
        await self._change(cluster, {})

    async def _ask_ports(self, rails: Mapping[int, Rail]) -> None:
        places = await asyncio.gather(*map(self._place, rails.values()))
        self.places = dict(zip(rails, places, strict=True))
        reasons = {f"rail {number}: {place.reason}" for number, place in self.places.items() if place.reason}
        for reason in sorted(reasons - self._said):
            _log.warning("the leaf switch is not known: %s", reason)
        self._said = frozenset(reasons)

    async def _change(self, cluster: ApiServerOfNode, places: Mapping[int, RailPlace]) -> None:
        present_labels = node_labels.parse(await cluster.answer(node_labels.look(cluster.node)))
        if labels := topology_labels.changes(present_labels, places):
            await cluster.answer(node_labels.change(cluster.node, labels))
            _log.info("labels of this node: %s", _words(labels))

    async def _place(self, rail: Rail) -> RailPlace:
        pf = rail.pf
        if pf is None:
            return _without_pf(rail)
        device = _askable(pf)
        if isinstance(device, RailPlace):
            return device
        work = partial(self._asked, pf, device)
        try:
            return await self._reads.read(pf.address, pf.address, work)
        except DoesNotAnswer:
            reason = f"{device.name} has not answered for {_HANGS_SECONDS:g} s, as with dead firmware: look in dmesg"
        except OSError as error:
            reason = str(error)
        return RailPlace(reason=reason)

    def _asked(self, pf: PhysicalFunction, device: DeviceNode) -> RailPlace:
        """Ask, in a thread."""
        rate = self._sysfs.rate(pf.address) if _is_active(pf.rdma) else None
        try:
            return _of_neighbour(self._ask(self._configuration.host.root, device))._replace(rate=rate)
        except OSError as error:
            reason = _why_not(device, error)
        except BadAnswer as error:
            reason = f"the answer to {device.name} cannot be used: {error}; look at the switch's firmware"
        return RailPlace(rate=rate, reason=reason)


def labelled_rails(configuration: Configuration, inventory: Inventory) -> dict[int, Rail] | None:
    """Return the rails that pods can have, by number; None while the numbers are not known.

    A PF without VFs of a pool, such as the card of a storage network, says nothing about where training pods run (topograph#488).
    """
    if inventory.unsettled is not None:
        return None
    offered = {vf.address for vfs in assign(configuration.pools, inventory).values() for vf in vfs}
    provisioned = {entry.pf for entry in provision.selected(configuration.provision, inventory)[0]}
    return {
        number: rail
        for number, rail in enumerate(inventory.rails)
        if rail.address in provisioned or _is_absent(rail) or any(vf.address in offered for vf in rail.vfs)
    }


def _is_absent(rail: Rail) -> bool:
    return rail.pf is None and not rail.vfs


def _ports(rails: Mapping[int, Rail]) -> dict[int, tuple[PciAddress, RdmaDevice | None]]:
    return {number: (rail.address, None if rail.pf is None else rail.pf.rdma) for number, rail in rails.items()}


def _without_pf(rail: Rail) -> RailPlace:
    if _is_absent(rail):
        return RailPlace(reason=rail.reason or "its card is missing", absent=True)
    why = "its PF is not on this node, as in a virtual machine: use the topology labels of the cloud"
    return RailPlace(reason=why, lasting=True)


def _askable(pf: PhysicalFunction) -> DeviceNode | RailPlace:
    """Return the device by which the PF's neighbour can be asked, or why it cannot."""
    if pf.link_layer != "InfiniBand":
        why = "an Ethernet port has no subnet management: use another key as the topology"
        return RailPlace(reason=why, lasting=True)
    if pf.rdma is None or pf.rdma.port is None:
        return RailPlace(reason=f"PF {pf.address} shows no RDMA port")
    if not pf.rdma.port.phys_state.endswith("LinkUp"):
        return RailPlace(reason=f"the link of {pf.rdma.name} is not up ({pf.rdma.port.phys_state})")
    if pf.rdma.umad is None:
        return RailPlace(reason=f"{pf.rdma.name} has no umad device: load the kernel's module ib_umad")
    return pf.rdma.umad


def _is_active(rdma: RdmaDevice | None) -> bool:
    return rdma is not None and rdma.port is not None and rdma.port.state.endswith(" ACTIVE")


def _of_neighbour(neighbour: Neighbour) -> RailPlace:
    if neighbour.kind == "switch":
        return RailPlace(Leaf(neighbour.node_guid, neighbour.port))
    why = f"the cable leads to a {neighbour.kind} ({neighbour.node_guid.quads}), not to a switch"
    return RailPlace(reason=why, lasting=True)


def _why_not(device: DeviceNode, error: OSError) -> str:
    match error.errno:
        case number if number in (EPERM, EACCES):
            why = f"this container may not use the device: set {_VALUE}=true of the chart"
        case number if number == ENOENT:
            why = "the host has no such device node: load the kernel's module ib_umad"
        case number if number == ETIMEDOUT:
            why = "the port's neighbour does not answer; it does not if the fabric protects reading by an M_Key"
        case _:
            why = "it is asked again"
    return f"/dev/infiniband/{device.name}: {error.strerror}: {why}"


def _words(labels: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key} is removed" if value is None else f"{key}={value}" for key, value in labels.items())
