"""Keep one part of this node's object in the API server as it should be: its labels, its condition, or its taint.

A part (`NodePart`) knows what it should be. This loop decides for every part when it is looked at, when it is written, and what a failure
costs. Each part has a loop of its own, and a thread sends each request: a request that hangs or is refused holds up no other part.

| what happens | what the loop does |
|---|---|
| the rails change | it looks at once, even while a request waits; it writes when the part says so, after the pause since the last try |
| nothing changes | it looks every ten seconds, and when the part says so |
| any failure: 404, 409 again and again, 5xx, a hang of ten seconds, no token | it logs each text once, and tries again after a pause that doubles |
| 403 | it does the same, and names the value of the chart that gives the right |
| a Retry-After | the pause is at least as long |

Nothing of a pod waits for this, and no failure of it makes the node unready.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple, Protocol

from railnet.apiserver.client import RequestFailed
from railnet.apiserver.request import JsonObject, Request
from railnet.apiserver.service_account import NotInCluster
from railnet.backoff import Backoff
from railnet.daemon.network_status_and_events import api_server_of_daemon, name_of_node
from railnet.fabric.rails_condition import Moment
from railnet.vf.inventory import Inventory
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
# Pools choose VFs by more facts than those that wake the loop.
_IDLE_SECONDS = 10.0
_FAILURES = (RequestFailed, OSError, ValueError)


def moment() -> Moment:
    """Return this moment."""
    return Moment(time.monotonic(), datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class ApiServerOfNode:
    """The API server, and the node's name in it. `send` blocks, and raises RequestFailed."""

    send: Callable[[Request], JsonObject]
    node: str

    async def answer(self, request: Request) -> JsonObject:
        """Send a request by a thread, and return the answer.

        Raises:
            RequestFailed, OSError, ValueError: as `ApiServer.send`.
        """
        return await asyncio.to_thread(self.send, request)


class PartPauses(NamedTuple):
    """Seconds: at least between the beginnings of two tries; and after failures."""

    quiet: float
    after_failures: Backoff


class NodePart(Protocol):
    """A part of the node's object: what it should be, and from when on it is written. All seconds are those of `Moment`."""

    @property
    def name(self) -> str:
        """The name of the part in messages."""

    @property
    def value(self) -> str:
        """The value of the chart that gives the right to write the part."""

    @property
    def pauses(self) -> PartPauses:
        """The pauses between two tries."""

    def look(self) -> None:
        """Look at the VF table."""

    def next_look(self) -> float:
        """Return the second at which a look may show something else though the table stays as it is; infinity if it never does."""

    def due(self) -> float:
        """Return the second from which on the part is to be written; infinity if it is as it should be."""

    async def write(self, cluster: ApiServerOfNode) -> None:
        """Write what is due.

        Raises:
            RequestFailed, OSError, ValueError: as `ApiServer.send`. It is due as before, and is tried again.
        """

    async def remove(self, cluster: ApiServerOfNode) -> None:
        """Take the part from a node that Railnet leaves.

        Raises:
            RequestFailed, OSError, ValueError: as `write`.
        """


class NodeObjectLoop:
    """Keeps one part.

    Attributes:
        trouble: why the API server does not have the part; None if it has it, or none was written yet.
        gone: set when a node that Railnet leaves does not have the part.
    """

    def __init__(
        self,
        part: NodePart,
        table: VfTable,
        follower: "NodeObjectLoop | None" = None,
        clock: Callable[[], Moment] = moment,
    ) -> None:
        """Have done nothing yet; `follower` keeps a part that may be due after this one was written."""
        self.part = part
        self._table, self._follower, self._clock = table, follower, clock
        self._changed = asyncio.Event()
        self._seen: object = None
        self._not_before = 0.0
        self._failures = 0
        self.trouble: str | None = None
        self.gone = asyncio.Event()

    async def run(self, *, leaving: bool) -> None:
        """Keep the part until cancelled, or take it from a node that Railnet leaves; return if the daemon is not in a cluster."""
        try:
            api_server = api_server_of_daemon()
        except NotInCluster as error:
            _log.info("%s: the node gets none: %s", self.part.name, error)
            self.gone.set()
            return
        cluster = ApiServerOfNode(api_server.send, name_of_node())
        await (self.leave(cluster) if leaving else self.serve(cluster))

    async def serve(self, cluster: ApiServerOfNode) -> None:
        """Keep the part until cancelled."""
        stop = self._table.observe(self._note)
        try:
            while True:
                self._changed.clear()
                wait = await self.step(cluster) - self._clock().seconds
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(max(wait, 0.0), _IDLE_SECONDS))
                # Before Python 3.12 wait_for takes a cancellation that comes with the change for the change.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError
        finally:
            stop()

    async def leave(self, cluster: ApiServerOfNode) -> None:
        """Take the part from the node, again and again until it is gone."""
        while not await self._done(self.part.remove(cluster)):  # noqa: ASYNC110 - nothing reports that a request would succeed
            await asyncio.sleep(self._not_before - self._clock().seconds)
        self.gone.set()

    async def step(self, cluster: ApiServerOfNode) -> float:
        """Look, and write what is due; return the second at which something may be due again though the rails stay as they are."""
        self._look()
        if self._due() <= self._clock().seconds and await self._done(self.part.write(cluster)) and self._follower:
            self._follower.wake()
        return min(self._due(), self.part.next_look())

    def wake(self) -> None:
        """Have `serve` look at once."""
        self._changed.set()

    def _note(self) -> None:
        """Look as soon as the table has changed: a port that is back before the loop runs was lost all the same."""
        if _facts(self._table.inventory) != self._seen:
            self._look()
            self.wake()

    def _look(self) -> None:
        self._seen = _facts(self._table.inventory)
        self.part.look()

    def _due(self) -> float:
        return max(self.part.due(), self._not_before)

    async def _done(self, work: Awaitable[None]) -> bool:
        """Do work by requests; return whether it succeeded. The pause after a failure begins when the work has ended."""
        self._not_before = self._clock().seconds + self.part.pauses.quiet
        try:
            await work
        except _FAILURES as error:
            pause = self._failed(error)
            self._not_before = max(self._not_before, self._clock().seconds + pause)
            return False
        self.trouble, self._failures = None, 0
        return True

    def _failed(self, error: Exception) -> float:
        """Report a failure, unless it is the one that was reported last; return the seconds until the next try."""
        refusal = error if isinstance(error, RequestFailed) else None
        remedy = (
            f"; set {self.part.value}=true of the chart" if refusal and refusal.status == HTTPStatus.FORBIDDEN else ""
        )
        trouble = f"{self.part.name}: {error}{remedy}; it is tried again"
        if trouble != self.trouble:
            _log.warning("%s", trouble)
        self.trouble = trouble
        self._failures += 1
        pause = self.part.pauses.after_failures.pause(self._failures, random.random())  # noqa: S311 - no secret
        return max(pause, refusal.retry_after if refusal else 0.0)


def _facts(inventory: Inventory) -> object:
    """Return what decides about rails and their ports: equal for two inventories that differ in other facts alone."""
    pfs = [(pf.address, pf.rdma, pf.carrier, pf.fault, len(pf.vfs)) for pf in inventory.pfs]
    lone = [(vf.address, vf.rdma and vf.rdma.port, vf.fault) for vf in inventory.lone_vfs]
    return pfs, lone, inventory.numbers
