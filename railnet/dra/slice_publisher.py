"""Keeps this node's ResourceSlices in the API server as its devices are. `railnet.dra.resource_slices` decides what is written.

| what happens | what the publisher does |
|---|---|
| the VF table, or why the node serves no pods, changes | it computes the devices a second later; if they differ, it lists and writes |
| kubelet registers the driver | it lists at once and twice more: a kubelet that starts deletes all slices of its node |
| nothing | it computes the devices every ten seconds, and lists every ten minutes |
| a flood of changes | one round of writes in five seconds |
| any failure: 409, 5xx, a hang, an answer that is none, no token | it logs each text once, and tries again after a pause that doubles |
| 404 of all slices, 403 | it does the same, and says what to change |
| an answer without the taints that were sent | it leaves unhealthy devices out until the next registration |

Nothing of a pod waits for this, and no failure of it makes the node unready: the slices stay as they are.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

from railnet.apiserver.client import Absent, ApiServer, Conflict, RequestFailed
from railnet.apiserver.node_labels import metadata_of
from railnet.apiserver.request import JsonObject, Request, Verb, get
from railnet.backoff import Backoff
from railnet.dra.api_thread import ApiThread
from railnet.dra.devices import DraDevice
from railnet.dra.resource_slices import (
    API_VERSION,
    ExistingSlice,
    NodeIdentity,
    deletions,
    existing_slice,
    generation,
    is_own,
    lost_taints,
    own_slices,
    slice_object,
    writes,
)
from railnet.errors import RailnetError

_log = logging.getLogger(__name__)
_NO_API = f"the API server does not serve {API_VERSION}, which Kubernetes has since 1.34: set offer: device-plugin"
_NO_RIGHT = "set offer: dra in the values of the chart, which gives the rights"
# What a request raises; and an answer that is not the object that was asked for.
_FAILURES = (RequestFailed, RailnetError, OSError, ValueError, KeyError, TypeError, AttributeError)


class PublisherPauses(NamedTuple):
    """Seconds.

    Attributes:
        settle: after a change, for those that come with it.
        between: at least between the beginnings of two rounds.
        look: at most between two computations of the devices.
        resync: between two lists while nothing happens.
        after_registration: until each list after a registration.
        after_failures: until the next round.
    """

    settle: float = 1.0
    between: float = 5.0
    look: float = 10.0
    resync: float = 600.0
    after_registration: tuple[float, ...] = (0.0, 10.0, 40.0)
    after_failures: Backoff = Backoff(5.0, 300.0)


_PAUSES = PublisherPauses()


class SlicePublisher:
    """Publishes the devices of one node.

    Attributes:
        devices: those that were computed last; None before the first time.
        gone: set when slices that are to be removed are.
    """

    def __init__(
        self,
        compute: Callable[[], Awaitable[tuple[DraDevice, ...]]],
        pauses: PublisherPauses = _PAUSES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Have written nothing yet; `compute` returns the devices as they are now, and raises RailnetError, OSError, ValueError."""
        self._compute, self._pauses, self._clock = compute, pauses, clock
        self._woken = asyncio.Event()
        self._observers: list[Callable[[], None]] = []
        self._written: tuple[DraDevice, ...] | None = None
        self._lists_due: list[float] = []
        self._not_before = 0.0
        self._failures = 0
        self._keeps_taints = True
        self._generation = 0
        self.devices: tuple[DraDevice, ...] | None = None
        self._troubles: dict[str, str] = {}
        self.gone = asyncio.Event()

    @property
    def trouble(self) -> str | None:
        """Why the API server does not have the devices; None if it has them, or none were written yet."""
        return "; ".join(self._troubles.values()) or None

    def registered(self) -> None:
        """List again: kubelet has registered the driver, and may have deleted its slices."""
        now = self._clock()
        self._lists_due = [now + pause for pause in self._pauses.after_registration]
        self._keeps_taints = True
        self._woken.set()

    def changed(self) -> None:
        """Compute the devices again."""
        self._woken.set()

    def observe(self, observer: Callable[[], None]) -> Callable[[], None]:
        """Call `observer` after each change of `devices`, until the returned function is called."""
        self._observers.append(observer)
        return lambda: self._observers.remove(observer)

    async def serve(self, api: ApiServer, node: str) -> None:
        """Publish until cancelled; `node` is the node's name in the cluster."""
        thread = ApiThread(api)
        while True:
            self._woken.clear()
            pause = await self.step(thread, node)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            if self._woken.is_set():
                await asyncio.sleep(self._pauses.settle)

    async def remove(self, api: ApiServer, node: str) -> None:
        """Delete the node's slices, again and again until none is left.

        If the API server has none, or gives this node no right to them, there is nothing to do.
        """
        thread = ApiThread(api)
        while not await self._removed(thread, node):  # noqa: ASYNC110 - nothing reports that a request would succeed
            await asyncio.sleep(max(self._not_before - self._clock(), 0.0))
        self.gone.set()

    async def step(self, api: ApiThread, node: str) -> float:
        """Compute the devices, and write what is due; return the seconds until the next look."""
        try:
            devices = await self._compute()
        except (RailnetError, OSError, ValueError) as error:
            self._tell("devices", f"the devices of this node are not known: {error}")
            return self._pauses.look
        self._troubles.pop("devices", None)
        self._take(devices)
        if self._is_due(devices) and self._clock() >= self._not_before:
            await self._round(api, node, devices)
        return self._pause(devices)

    def _take(self, devices: tuple[DraDevice, ...]) -> None:
        if devices != self.devices:
            self.devices = devices
            for observer in tuple(self._observers):
                observer()

    def _is_due(self, devices: tuple[DraDevice, ...]) -> bool:
        return devices != self._written or any(moment <= self._clock() for moment in self._lists_due)

    def _pause(self, devices: tuple[DraDevice, ...]) -> float:
        now = self._clock()
        due = min(self._lists_due, default=now) if devices == self._written else now
        return min(max(due, self._not_before, now) - now, self._pauses.look)

    async def _round(self, api: ApiThread, node: str, devices: tuple[DraDevice, ...]) -> None:
        began = self._clock()
        self._not_before = began + self._pauses.between
        try:
            await self._write(api, node, devices)
        except _FAILURES as error:
            self._written = None
            self._failed(error)
            return
        self._succeeded()
        self._written = devices
        self._lists_due = [moment for moment in self._lists_due if moment > began] or [began + self._pauses.resync]

    async def _write(self, api: ApiThread, node: str, devices: Sequence[DraDevice]) -> None:
        identity = NodeIdentity(node, str((await api.send(metadata_of(node)))["metadata"]["uid"]))
        existing = await _existing(api, node)
        kept = devices if self._keeps_taints else [device for device in devices if device.reason is None]
        requests = writes(existing, kept, identity, self._generation)
        self._generation = max(self._generation, *(known.generation for known in existing), *map(generation, requests))
        for request in requests:
            answer = await _sent(api, request, node)
            if self._keeps_taints and lost_taints(request, answer):
                self._keeps_taints = False
                _log.warning(
                    "the API server drops the taints of devices (Kubernetes has them since 1.36), so unhealthy devices are left out"
                )
                await self._write(api, node, devices)
                return
        if requests:
            _log.info("ResourceSlices: %d devices, %d writes", len(kept), len(requests))

    async def _removed(self, api: ApiThread, node: str) -> bool:
        self._not_before = self._clock() + self._pauses.between
        try:
            for request in deletions(await _existing(api, node)):
                await _sent(api, request, node)
        except Absent:
            return True
        except _FAILURES as error:
            if isinstance(error, RequestFailed) and error.status == HTTPStatus.FORBIDDEN:
                _log.debug("%s", error)
                return True
            self._failed(error)
            return False
        self._succeeded()
        return True

    def _succeeded(self) -> None:
        self._troubles.pop("slices", None)
        self._failures = 0

    def _failed(self, error: Exception) -> None:
        refusal = error if isinstance(error, RequestFailed) else None
        remedy = f"; {_NO_RIGHT}" if refusal is not None and refusal.status == HTTPStatus.FORBIDDEN else ""
        expected = isinstance(error, RequestFailed | RailnetError | OSError | ValueError)
        self._tell(
            "slices",
            (str(error) if expected else f"the API server sent another object than was asked for: {error!r}") + remedy,
        )
        self._failures += 1
        pause = self._pauses.after_failures.pause(self._failures, random.random())  # noqa: S311 - no secret
        at_least = 0.0 if refusal is None else refusal.retry_after
        self._not_before = max(self._not_before, self._clock() + max(pause, at_least))

    def _tell(self, about: str, why: str) -> None:
        trouble = f"ResourceSlices: {why}; it is tried again"
        if trouble != self._troubles.get(about):
            _log.warning("%s", trouble)
        self._troubles[about] = trouble


async def _existing(api: ApiThread, node: str) -> list[ExistingSlice]:
    try:
        documents = await api.all_of(own_slices(node))
    except Absent as error:
        raise Absent(f"{error}: {_NO_API}", error.status, error.retry_after) from None
    return [existing_slice(document, node) for document in documents]


async def _sent(api: ApiThread, request: Request, node: str) -> JsonObject:
    """Send a write. A slice that is to be deleted and is gone is deleted."""
    try:
        return await api.send(request)
    except Absent:
        if request.verb is not Verb.DELETE:
            raise
        return {}
    except Conflict:
        if request.verb is Verb.CREATE:
            await _refuse_a_foreign_slice(api, request, node)
        raise


async def _refuse_a_foreign_slice(api: ApiThread, request: Request, node: str) -> None:
    name = str(request.about).rpartition("/")[2]
    if not is_own(await api.send(get(slice_object(name))), node):
        raise RequestFailed(
            f"cannot {request}: another program has made a ResourceSlice of this name, which is not this node's; delete it"
        )
