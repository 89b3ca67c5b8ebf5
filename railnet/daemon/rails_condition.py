"""Keep the condition `RailnetRails` of this node, and the taint that follows it, if `publish.railsCondition` asks for it.

The VF table reports each change of a port; `railnet.fabric.rails_condition` decides what is said and when (docs/decisions/0067). Nothing of a pod
waits for this, and no failure of it makes the node unready.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple

from cni.events import Observer, RailChanged
from deviceplugin.health import port_reason
from deviceplugin.pools import assign
from railnet.apiserver import node_status
from railnet.apiserver.client import Conflict, RequestFailed
from railnet.apiserver.node_status import NodeState
from railnet.apiserver.service_account import NotInCluster
from railnet.backoff import Backoff
from railnet.configuration import Configuration
from railnet.daemon.apiserver_messages import api_server_of_daemon, name_of_node
from railnet.daemon.topology_labels import ApiServerOfNode, labelled_rails
from railnet.fabric import rails_condition
from railnet.fabric.rails_condition import LIMITS, TAINT, TYPE, Condition, Histories, Moment, Status, Written
from railnet.vf.inventory import Inventory, Rail
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record, SandboxPod
from railnet.vf.table import VfTable

_log = logging.getLogger(__name__)
_OVERLAY, _TAINT_OVERLAY = "overlays/rails-condition", "overlays/rails-condition-taint"
# The longest is a heartbeat's time, so that a missing right costs no more requests than a condition.
_BACKOFF = Backoff(first_seconds=15.0, longest_seconds=300.0)
_MOST_TRIES = 3  # for the taints of a node that other programs change at the same moment
_IDLE_SECONDS = 10.0  # a rail may come or go without a change of a port, such as with the VFs of a PF
_NEVER = float("inf")
_FAILURES = (RequestFailed, OSError, ValueError)
_STATUSES: Mapping[str, Status] = {"True": "True", "False": "False", "Unknown": "Unknown"}


def moment() -> Moment:
    """Return this moment."""
    return Moment(time.monotonic(), datetime.now(UTC))


class FoundCondition(NamedTuple):
    """The condition that the API server had when this daemon looked first, and the second of that look; a status other than the three counts as none."""

    condition: Condition | None
    since: datetime | None
    seconds: float


class RailsCondition:
    """Remembers what was seen of the rails, and what the API server has of it.

    Attributes:
        gone: set when a node that Railnet leaves has neither condition nor taint.
    """

    def __init__(
        self,
        configuration: Configuration,
        table: VfTable,
        observe: Observer,
        records: Callable[[], Iterable[Record]],
        clock: Callable[[], Moment] = moment,
    ) -> None:
        """Have seen nothing yet; `observe` is told of each rail that is lost or back, `records` returns the journal's."""
        self._configuration, self._table, self._clock = configuration, table, clock
        self._observe, self._records = observe, records
        self._changed = asyncio.Event()
        self._ports: object = None
        self._rails: Histories = {}
        self._told: Histories = {}
        self._unsettled: str | None = None
        self._found: FoundCondition | None = None
        self._written: Written | None = None
        self._since: datetime | None = None
        self._not_before = 0.0
        self._taint_due = _NEVER
        self._failures: Counter[str] = Counter()
        self._troubles: dict[str, str] = {}
        self.gone = asyncio.Event()

    @property
    def trouble(self) -> str | None:
        """Return why the API server does not have the condition, or the taint; None if it has both, or none was written yet."""
        return "; ".join(self._troubles.values()) or None

    async def serve(self, cluster: ApiServerOfNode) -> None:
        """Watch the rails and keep the condition, until cancelled."""
        stop = self._table.observe(self._note)
        try:
            while True:
                self._changed.clear()
                wait = await self.step(cluster) - self._clock().seconds
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(max(wait, 0.0), _IDLE_SECONDS))
        finally:
            stop()

    async def leave(self, cluster: ApiServerOfNode) -> None:
        """Take condition and taint from the node, again and again until it is done."""
        while True:
            pause = await self._remove(cluster)
            if pause is None:
                self.gone.set()
                return
            await asyncio.sleep(pause)

    async def step(self, cluster: ApiServerOfNode) -> float:
        """Look at the ports, and write what is due; return the second at which something may be due again if no port changes."""
        self._look()
        self._tell()
        if self._due() <= self._clock().seconds:
            await self._write(cluster)
        return min(self._due(), rails_condition.next_judgement(self._rails, self._status, self._clock()))

    def _note(self) -> None:
        """Look as soon as the table has changed: a port that is back before the loop runs was lost all the same."""
        if _ports(self._table.inventory) != self._ports:
            self._look()
            self._changed.set()

    def _look(self) -> None:
        inventory = self._table.inventory
        self._ports, self._unsettled = _ports(inventory), inventory.unsettled
        ports = reasons(self._configuration, inventory)
        if ports is not None:
            self._rails = rails_condition.seen(self._rails, ports, self._clock())

    def _tell(self) -> None:
        before, self._told = self._told, self._rails
        for rail_news in rails_condition.news(before, self._rails):
            pods = _pods(self._records(), rail_news.rail)
            _log.log(
                logging.WARNING if rail_news.warning else logging.INFO,
                "%s; pods that have it: %d",
                rail_news.text,
                len(pods),
            )
            self._observe(RailChanged(rail_news.reason, rail_news.text, rail_news.warning, pods))

    @property
    def _status(self) -> Status | None:
        """The status that the API server has; None if it has none, or it was not looked at yet."""
        there = self._there
        return None if there is None else there.status

    @property
    def _there(self) -> Condition | None:
        """The condition that the API server has."""
        if self._written is not None:
            return self._written.condition
        return None if self._found is None else self._found.condition

    def _wanted(self) -> Condition | None:
        if self._unsettled is not None:
            return rails_condition.unknown(self._unsettled)
        return rails_condition.condition(self._rails, self._status, self._clock())

    def _due(self) -> float:
        return max(min(self._first_due(), self._taint_due), self._not_before)

    def _first_due(self) -> float:
        if self._found is None:
            return 0.0
        wanted = self._wanted()
        if wanted is None and self._written is None and self._found.condition is not None:
            # A port that is lost now and then: what an earlier daemon said stays, and this daemon's heartbeat says that it lives.
            return self._found.seconds + LIMITS.heartbeat
        return rails_condition.next_write(wanted, self._written)

    async def _write(self, cluster: ApiServerOfNode) -> None:
        began = self._clock().seconds
        self._not_before = began + LIMITS.quiet
        try:
            state = await self._write_condition(cluster)
        except _FAILURES as error:
            self._not_before = began + max(LIMITS.quiet, self._failed(TYPE, error, _OVERLAY))
            return
        self._succeeded(TYPE)
        if state is not None:
            await self._write_taint(cluster, state)

    async def _write_condition(self, cluster: ApiServerOfNode) -> NodeState | None:
        """Write what is wanted, or once more what is there; return the node as it is then, None if nothing was written."""
        if self._found is None:
            self._found = _found(await _looked_at(cluster), self._clock())
        condition, now = self._wanted(), self._clock()
        if condition is None and min(self._first_due(), self._taint_due) <= now.seconds:
            condition = self._there
        if condition is None:
            return None
        since = self._since_when(condition.status) or now.time
        request = node_status.set_condition(
            cluster.node,
            TYPE,
            status=condition.status,
            reason=condition.reason,
            message=condition.message,
            since=since,
            now=now.time,
        )
        answer = await asyncio.to_thread(cluster.send, request)
        if condition.status != self._status:
            _log.info("condition %s of this node is %s: %s", TYPE, condition.status, condition.message)
        self._written, self._since = Written(condition, now.seconds), since
        return node_status.parse(answer, TYPE)

    def _since_when(self, status: Status) -> datetime | None:
        """Return since when the API server has this status; None if it has another one."""
        if status != self._status:
            return None
        return self._since if self._written is not None or self._found is None else self._found.since

    async def _write_taint(self, cluster: ApiServerOfNode, state: NodeState) -> None:
        """Set or remove the taint where it is not as the condition says; while that is Unknown the taint stays as it is."""
        self._taint_due = _NEVER
        if self._status == "Unknown":
            return
        wanted = self._status == "False" and self._configuration.publish.rails_taint
        try:
            await _set_taint(cluster, state, wanted=wanted)
        except _FAILURES as error:
            self._taint_due = self._clock().seconds + self._failed(TAINT, error, _TAINT_OVERLAY)
        else:
            self._succeeded(TAINT)

    async def _remove(self, cluster: ApiServerOfNode) -> float | None:
        """Take condition and taint from the node; return the seconds until the next try, None if it is done."""
        try:
            state = await _looked_at(cluster)
            if state.condition is not None:
                answer = await asyncio.to_thread(cluster.send, node_status.remove_condition(cluster.node, TYPE))
                state = node_status.parse(answer, TYPE)
            await _set_taint(cluster, state, wanted=False)
        except _FAILURES as error:
            return self._failed(TYPE, error, _OVERLAY)
        return None

    def _failed(self, what: str, error: Exception, overlay: str) -> float:
        """Report a failure, unless it is the one that was reported last; return the seconds until the next try."""
        forbidden = isinstance(error, RequestFailed) and error.status == HTTPStatus.FORBIDDEN
        trouble = f"{what}: {error}{f'; apply {overlay}' if forbidden else ''}; it is tried again"
        if trouble != self._troubles.get(what):
            _log.warning("%s", trouble)
        self._troubles[what] = trouble
        self._failures[what] += 1
        pause = _BACKOFF.pause(self._failures[what], random.random())  # noqa: S311 - no secret
        return max(pause, error.retry_after if isinstance(error, RequestFailed) else 0.0)

    def _succeeded(self, what: str) -> None:
        self._troubles.pop(what, None)
        self._failures.pop(what, None)


async def keeping(condition: RailsCondition, *, leaving: bool) -> None:
    """Keep the condition until cancelled, or take it from a node that Railnet leaves; return if the daemon is not in a cluster."""
    try:
        api_server = api_server_of_daemon()
    except NotInCluster as error:
        _log.info("the node gets no condition %s: %s", TYPE, error)
        condition.gone.set()
        return
    cluster = ApiServerOfNode(api_server.send, name_of_node())
    await (condition.leave(cluster) if leaving else condition.serve(cluster))


def reasons(configuration: Configuration, inventory: Inventory) -> dict[int, str | None] | None:
    """Return why the port of each rail that pods can have is not ACTIVE, None if it is; None while the rails' numbers are not known."""
    rails = labelled_rails(configuration, inventory)
    if rails is None:
        return None
    offered = assign(configuration.pools, inventory)
    rdma = {vf.address for pool in configuration.pools if pool.rdma for vf in offered[pool.resource]}
    return {number: port_reason(rail, rdma=_needs_rdma(rail, rdma)) for number, rail in rails.items()}


def _needs_rdma(rail: Rail, rdma: Collection[PciAddress]) -> bool:
    fabric = rail.pf is not None and rail.pf.link_layer == "InfiniBand"
    return fabric or any(vf.address in rdma for vf in rail.vfs)


def _ports(inventory: Inventory) -> object:
    """Return what decides about the ports: equal for two inventories that differ in other facts alone."""
    pfs = [(pf.address, pf.rdma and (pf.rdma.name, pf.rdma.port), pf.carrier, pf.fault) for pf in inventory.pfs]
    lone = [(vf.address, vf.rdma and vf.rdma.port, vf.fault) for vf in inventory.lone_vfs]
    return pfs, lone, inventory.numbers


def _pods(records: Iterable[Record], rail: int) -> tuple[SandboxPod, ...]:
    return tuple({record.pod: None for record in records if any(has.rail == rail for has in record.attachments)})


def _found(state: NodeState, now: Moment) -> FoundCondition:
    condition = state.condition
    status = None if condition is None else _STATUSES.get(condition.status)
    if condition is None or status is None:
        return FoundCondition(None, None, now.seconds)
    return FoundCondition(Condition(status, condition.reason, condition.message), condition.since, now.seconds)


async def _looked_at(cluster: ApiServerOfNode) -> NodeState:
    return node_status.parse(await asyncio.to_thread(cluster.send, node_status.look(cluster.node)), TYPE)


async def _set_taint(cluster: ApiServerOfNode, state: NodeState, *, wanted: bool) -> None:
    """Set or remove the taint of a node that was just looked at; if the node changes meanwhile, look again.

    Raises:
        Conflict: the node changed again and again. RequestFailed, OSError, ValueError: as `ApiServer.send`.
    """
    for tries in range(1, _MOST_TRIES + 1):
        changed = rails_condition.taints(state.taints, wanted=wanted)
        if changed is None:
            return
        try:
            await asyncio.to_thread(cluster.send, node_status.set_taints(cluster.node, changed, state.version))
        except Conflict:
            if tries == _MOST_TRIES:
                raise
            state = await _looked_at(cluster)
        else:
            _log.info("taint %s of this node is %s", TAINT, "set" if wanted else "removed")
            return
