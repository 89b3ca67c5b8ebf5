"""The condition `RailnetRails` of this node, and the taint that follows it, if `publish.railsCondition` asks for it.

`railnet.fabric.rails_condition` decides what is said and when (docs/decisions/0067), `railnet.daemon.node_object.loop` writes it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from cni.rail_observers import Observer, RailChanged
from deviceplugin.health import port_reason
from deviceplugin.pool_selection import assign
from railnet.apiserver import node_status
from railnet.apiserver.client import Conflict
from railnet.apiserver.node_status import NodeState
from railnet.backoff import Backoff
from railnet.configuration import Configuration
from railnet.daemon.node_object.loop import ApiServerOfNode, PartPauses, moment
from railnet.daemon.node_object.topology_labels import labelled_rails
from railnet.fabric import rails_condition
from railnet.fabric.port_counter_thresholds import PortState
from railnet.fabric.rails_condition import LIMITS, TAINT, TYPE, Condition, Errors, Histories, Moment, Status, Written
from railnet.vf.inventory import Inventory, Rail
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record, SandboxPod
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
# The longest is a heartbeat's time, so that a missing right costs no more requests than a condition.
_BACKOFF = Backoff(first_seconds=15.0, longest_seconds=300.0)
_MOST_TRIES = 3  # for the taints of a node that other programs change at the same moment
_NEVER = float("inf")
_STATUSES: Mapping[str, Status] = {"True": "True", "False": "False", "Unknown": "Unknown"}


class FoundCondition(NamedTuple):
    """The condition that the API server had when this daemon looked first, and the second of that look; a status other than the three counts as none."""

    condition: Condition | None
    since: datetime | None
    seconds: float


class RailsCondition:
    """Remembers what was seen of the rails, and what the API server has of it. It is a `NodePart`.

    Attributes:
        answer: the node, as the answer to the last write of the condition shows it; None if it was not written yet.
    """

    name, value = TYPE, "railsCondition.enabled"
    pauses = PartPauses(LIMITS.quiet, _BACKOFF)

    def __init__(
        self,
        configuration: Configuration,
        table: VfTable,
        observe: Observer,
        records: Callable[[], Iterable[Record]],
        clock: Callable[[], Moment] = moment,
        errors: Callable[[], Errors] = dict,
    ) -> None:
        """Have seen nothing yet; `observe` is told of each rail that is lost or back, `records` returns the journal's.

        `errors` returns what is wrong with rails that are ACTIVE.
        """
        self._configuration, self._table, self._clock = configuration, table, clock
        self._observe, self._records, self._errors = observe, records, errors
        self._rails: Histories = {}
        self._unsettled: str | None = None
        self._found: FoundCondition | None = None
        self._written: Written | None = None
        self._since: datetime | None = None
        self.answer: NodeState | None = None

    def look(self) -> None:
        """Judge the ports, and tell of rails that are lost or back."""
        inventory, before = self._table.inventory, self._rails
        self._unsettled = inventory.unsettled
        ports = reasons(self._configuration, inventory)
        if ports is not None:
            self._rails = rails_condition.seen(before, ports, self._clock())
            self._tell(before)

    def next_look(self) -> float:
        """Return the second at which a port counts as lost, or as back, if no port changes."""
        return rails_condition.next_judgement(self._rails, self.status, self._clock())

    def due(self) -> float:
        """Return the second of the next write: of a change, or of the heartbeat."""
        if self._found is None:
            return 0.0
        wanted = self._wanted()
        if wanted is None and self._written is None and self._found.condition is not None:
            # A port that is lost now and then: what an earlier daemon said stays, and this daemon's heartbeat says that it lives.
            return self._found.seconds + LIMITS.heartbeat
        return rails_condition.next_write(wanted, self._written)

    async def write(self, cluster: ApiServerOfNode) -> None:
        """Write what is wanted, or once more what is there."""
        if self._found is None:
            self._found = _found(await _looked_at(cluster), self._clock())
        condition, now = self._wanted(), self._clock()
        if condition is None and self.due() <= now.seconds:
            condition = self._there
        if condition is None:
            return
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
        answer = await cluster.answer(request)
        if condition.status != self.status:
            _log.info("condition %s of this node is %s: %s", TYPE, condition.status, condition.message)
        self._written, self._since = Written(condition, now.seconds), since
        self.answer = node_status.parse(answer, TYPE)

    async def remove(self, cluster: ApiServerOfNode) -> None:
        """Remove the condition, if the node has it."""
        if (await _looked_at(cluster)).condition is not None:
            await cluster.answer(node_status.remove_condition(cluster.node, TYPE))

    def _tell(self, before: Histories) -> None:
        for rail_news in rails_condition.news(before, self._rails):
            pods = pods_of(self._records(), rail_news.rail)
            _log.log(
                logging.WARNING if rail_news.warning else logging.INFO,
                "%s; pods that have it: %d",
                rail_news.text,
                len(pods),
            )
            self._observe(RailChanged(rail_news.reason, rail_news.text, rail_news.warning, pods))

    def port_state(self, rail: int) -> PortState:
        """Return what is known of a rail's port: an error that it counts while the link is lost, or trains, is the loss."""
        history = self._rails.get(rail)
        if history is None or history.trouble is not None:
            return PortState(None, history is not None and history.incident is not None)
        return PortState(history.changed.seconds, history.incident is not None)

    @property
    def status(self) -> Status | None:
        """Return the status that the API server has; None if it has none, or it was not looked at yet."""
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
        return rails_condition.condition(self._rails, self.status, self._clock(), errors=self._errors())

    def _since_when(self, status: Status) -> datetime | None:
        """Return since when the API server has this status; None if it has another one."""
        if status != self.status:
            return None
        return self._since if self._written is not None or self._found is None else self._found.since


class RailsTaint:
    """Follows the condition after each write of it: there while it is False, gone while it is True. It is a `NodePart`.

    While the condition is Unknown the taint stays as it is.
    """

    name, value = TAINT, "railsCondition.taint"
    pauses = PartPauses(0.0, _BACKOFF)

    def __init__(self, condition: RailsCondition, *, on: bool) -> None:
        """Follow a condition. If the taint is not `on`, it is removed where an earlier daemon has set it."""
        self._condition, self._on = condition, on
        self._followed: NodeState | None = None

    def look(self) -> None:
        """Do nothing: the condition looks."""

    def next_look(self) -> float:
        """Return infinity: the loop of the condition wakes the loop of the taint."""
        return _NEVER

    def due(self) -> float:
        """Return 0 if the taint has not followed the last write of the condition yet."""
        return _NEVER if self._condition.answer is self._followed else 0.0

    async def write(self, cluster: ApiServerOfNode) -> None:
        """Set or remove the taint if the node, as the condition's write has shown it, is otherwise.

        Raises:
            Conflict: the node changed again and again. RequestFailed, OSError, ValueError: as `ApiServer.send`.
        """
        answer, status = self._condition.answer, self._condition.status
        if answer is not None and status != "Unknown":
            await _set_taint(cluster, answer, wanted=self._on and status == "False")
        self._followed = answer

    async def remove(self, cluster: ApiServerOfNode) -> None:
        """Remove the taint, if the node has it."""
        await _set_taint(cluster, await _looked_at(cluster), wanted=False)


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


def pods_of(records: Iterable[Record], rail: int) -> tuple[SandboxPod, ...]:
    """Return the pods that have a rail."""
    return tuple({record.pod: None for record in records if any(has.rail == rail for has in record.attachments)})


def _found(state: NodeState, now: Moment) -> FoundCondition:
    condition = state.condition
    status = None if condition is None else _STATUSES.get(condition.status)
    if condition is None or status is None:
        return FoundCondition(None, None, now.seconds)
    return FoundCondition(Condition(status, condition.reason, condition.message), condition.since, now.seconds)


async def _looked_at(cluster: ApiServerOfNode) -> NodeState:
    return node_status.parse(await cluster.answer(node_status.look(cluster.node)), TYPE)


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
            await cluster.answer(node_status.set_taints(cluster.node, changed, state.version))
        except Conflict:
            if tries == _MOST_TRIES:
                raise
            state = await _looked_at(cluster)
        else:
            _log.info("taint %s of this node is %s", TAINT, "set" if wanted else "removed")
            return
