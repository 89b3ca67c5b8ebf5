"""Label this node with the leaf switches of its rails, if `publish.topologyLabels` asks for it.

Each port is asked for its neighbour (`railnet.kernel.umad`), the node's labels are looked at, and what differs is changed
(`railnet.fabric.topology_labels` decides). Nothing of a pod waits for this, and no failure of it makes the node unready.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from errno import EACCES, ENOENT, EPERM, ETIMEDOUT
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from deviceplugin.pools import assign
from railnet.apiserver import node_labels
from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import JsonObject, Request
from railnet.apiserver.service_account import NotInCluster
from railnet.backoff import Backoff
from railnet.configuration import Configuration
from railnet.daemon.apiserver_messages import api_server_of_daemon, name_of_node
from railnet.fabric import topology_labels
from railnet.fabric.neighbour import Neighbour
from railnet.fabric.topology_labels import Leaf, RailPlace
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import BoundedReads, DoesNotAnswer
from railnet.kernel.umad import query
from railnet.kernel.umad.node_info import BadAnswer
from railnet.vf.inventory import DeviceNode, Inventory, PhysicalFunction, Rail, RdmaDevice
from railnet.vf.pci_address import PciAddress
from railnet.vf.table import VfTable

_log = logging.getLogger(__name__)
_OVERLAY = "apply overlays/topology-labels"
# More than the kernel and `railnet.kernel.umad.query` take to give up: what takes longer hangs.
_HANGS_SECONDS = 10.0
_Ask = Callable[[Path, DeviceNode], Neighbour]


class LookPauses(NamedTuple):
    """Seconds: at least between two looks; until the first look after a failure, which then doubles; between looks when all is well."""

    quiet: float = 2.0
    again: float = 15.0
    resync: float = 600.0


_PAUSES = LookPauses()


@dataclass(frozen=True, slots=True)
class ApiServerOfNode:
    """The API server, and the node's name in it. `send` blocks, and raises RequestFailed."""

    send: Callable[[Request], JsonObject]
    node: str


class Topology:
    """Knows the node's place in the fabric.

    Attributes:
        places: what is known of each rail, by its number.
        trouble: why the node does not have its labels; None if it has them, or none were written yet.
        changed: to be set after each look at the node's VFs.
        labelled: set when the node has had the labels that it should have.
    """

    def __init__(self, configuration: Configuration, table: VfTable, sysfs: Sysfs, ask: _Ask = query.neighbour) -> None:
        """Know nothing yet; `ask` asks the neighbour of a PF's port, and may block."""
        self._configuration, self._table, self._sysfs, self._ask = configuration, table, sysfs, ask
        self.changed, self.labelled = asyncio.Event(), asyncio.Event()
        # Of its own: a port that does not answer here takes no VF from kubelet.
        self._reads = BoundedReads(_HANGS_SECONDS)
        self._said: frozenset[str] = frozenset()
        self._retry_after = 0.0
        self.places: Mapping[int, RailPlace] = {}
        self.trouble: str | None = None

    @property
    def hung(self) -> Counter[str]:
        """The number of threads that wait for a question that does not return, by card; at most one for each."""
        return self._reads.hung

    async def serve(self, cluster: ApiServerOfNode, *, leaving: bool = False, pauses: LookPauses = _PAUSES) -> None:
        """Label the node at once, after a rail's card or port has changed, and every ten minutes, until cancelled.

        If nothing of the rails is different after `changed`, no port is asked. If Railnet is `leaving` the node, the labels are removed.
        """
        loop = asyncio.get_running_loop()
        backoff = Backoff(pauses.again, pauses.resync)
        seen, due, failures = None, loop.time(), 0
        while True:
            rails = {} if leaving else labelled_rails(self._configuration, self._table.inventory)
            ports = None if rails is None else {number: _port(rail) for number, rail in rails.items()}
            if rails is not None and (ports != seen or loop.time() >= due):
                failures = 0 if ports != seen else failures
                seen = ports
                await self._look(rails)
                well = await self._label(cluster) and self._known
                if well:
                    failures, pause = 0, pauses.resync
                else:
                    failures += 1
                    pause = max(backoff.pause(failures, random.random()), self._retry_after)  # noqa: S311 - no secret
                due = loop.time() + pause
                await asyncio.sleep(pauses.quiet)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), max(pauses.quiet, due - loop.time()))
            self.changed.clear()

    @property
    def _known(self) -> bool:
        return all(place.reason is None or place.lasting for place in self.places.values())

    async def _look(self, rails: Mapping[int, Rail]) -> None:
        places = await asyncio.gather(*map(self._place, rails.values()))
        self.places = dict(zip(rails, places, strict=True))
        reasons = {f"rail {number}: {place.reason}" for number, place in self.places.items() if place.reason}
        for reason in sorted(reasons - self._said):
            _log.warning("the leaf switch is not known: %s", reason)
        self._said = frozenset(reasons)

    async def _label(self, cluster: ApiServerOfNode) -> bool:
        try:
            look = node_labels.look(cluster.node)
            present_labels = node_labels.parse(await asyncio.to_thread(cluster.send, look))
            if labels := topology_labels.changes(present_labels, self.places):
                await asyncio.to_thread(cluster.send, node_labels.change(cluster.node, labels))
                _log.info("labels of this node: %s", _words(labels))
        except (RequestFailed, OSError, ValueError) as error:
            self._fail(error)
            return False
        self.trouble, self._retry_after = None, 0.0
        self.labelled.set()
        return True

    def _fail(self, error: Exception) -> None:
        forbidden = isinstance(error, RequestFailed) and error.status == HTTPStatus.FORBIDDEN
        trouble = f"topology labels: {error}{f'; {_OVERLAY}' if forbidden else ''}; it is tried again"
        if trouble != self.trouble:
            _log.warning("%s", trouble)
        self.trouble = trouble
        self._retry_after = error.retry_after if isinstance(error, RequestFailed) else 0.0

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


async def labelling(topology: Topology, *, leaving: bool) -> None:
    """Label the node, or remove the labels, until cancelled; return if the daemon is not in a cluster."""
    try:
        api_server = api_server_of_daemon()
    except NotInCluster as error:
        _log.info("the node gets no topology labels: %s", error)
        topology.labelled.set()
        return
    await topology.serve(ApiServerOfNode(api_server.send, name_of_node()), leaving=leaving)


def labelled_rails(configuration: Configuration, inventory: Inventory) -> dict[int, Rail] | None:
    """Return the rails that pods can have, by number; None while the numbers are not known.

    A PF without VFs of a pool, such as the card of a storage network, says nothing about where training pods run (topograph#488).
    """
    if inventory.unsettled is not None:
        return None
    offered = {vf.address for vfs in assign(configuration.pools, inventory).values() for vf in vfs}
    provisioned = {provision.pf for provision in configuration.provision}
    return {
        number: rail
        for number, rail in enumerate(inventory.rails)
        if rail.address in provisioned or _is_absent(rail) or any(vf.address in offered for vf in rail.vfs)
    }


def _is_absent(rail: Rail) -> bool:
    return rail.pf is None and not rail.vfs


def _port(rail: Rail) -> tuple[PciAddress, RdmaDevice | None]:
    return rail.address, None if rail.pf is None else rail.pf.rdma


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
            why = f"this container may not use the device: {_OVERLAY}"
        case number if number == ENOENT:
            why = "the host has no such device node: load the kernel's module ib_umad"
        case number if number == ETIMEDOUT:
            why = "the port's neighbour does not answer; it does not if the fabric protects reading by an M_Key"
        case _:
            why = "it is asked again"
    return f"/dev/infiniband/{device.name}: {error.strerror}: {why}"


def _words(labels: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key} is removed" if value is None else f"{key}={value}" for key, value in labels.items())
