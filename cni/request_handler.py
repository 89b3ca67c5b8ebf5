"""Serve one request: wait for its sandbox's turn, run its verb, answer, count the request and report its event.

Here are all ways in which a request ends. `cni.verbs` does the work of each verb; `cni.connection` sends and receives frames.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol

from cni.connection import ExecutableConnection, ExecutableGone
from cni.daemon_exhaustion import HandedBack
from cni.error_translation import as_cni_error
from cni.host.environment import ADD, CHECK, DEL, GC
from cni.host.errors import ENVIRONMENT, CniError, DelegateError
from cni.host.frames import FrameError
from cni.rail_observers import AddRefused, Observer, RailsAttached
from cni.request import CniRequest, parse
from cni.request_cancellation import Operation, Operations, Unfinished
from cni.timing import reported_to
from cni.verbs.add import add
from cni.verbs.check import check
from cni.verbs.delete import delete
from cni.verbs.gc import collect
from cni.verbs.verb_dependencies import Parts
from railnet.errors import RailnetError
from railnet.vf.record import Record

_log = logging.getLogger(__name__)

_HANGS = (
    "sandbox %s: the kernel has not moved its rails back for %g s, and its VFs stay in use until it has; "
    "does `dmesg` on this node show hung tasks?"
)

Verb = Callable[[CniRequest, ExecutableConnection, Parts], Coroutine[Any, Any, bytes]]
# STATUS and VERSION concern no sandbox, and the executable answers them alone.
_VERBS: Mapping[str, Verb] = {ADD: add, CHECK: check, DEL: delete, GC: collect}


class RequestMetrics(Protocol):
    """Counts requests and their seconds. No method blocks or raises."""

    def served(self, verb: str, code: int | None, seconds: float) -> None:
        """Count a request that has ended: with code 0, with an error's code, or with None if its executable went away."""

    def stage(self, verb: str, name: str, seconds: float) -> None:
        """Count one stage of a request."""


class RequestHandler:
    """Serves the requests of all connections; those of one sandbox one after another."""

    def __init__(
        self,
        parts: Parts,
        observe: Observer,
        metrics: RequestMetrics,
        note_request: Callable[[CniRequest], None] = lambda _: None,
    ) -> None:
        """Report to `observe` what became of an ADD with rails, after the runtime has its answer, and to `note_request` each request that can be read."""
        self._parts = parts
        self._observe = observe
        self._note_request = note_request
        self._metrics = metrics
        self._operations = Operations()

    async def serve(self, raw_environment: dict[bytes, bytes], stdin: bytes, connection: ExecutableConnection) -> None:
        """Serve one request after GO, until the executable has the answer.

        Raises:
            ExecutableGone: the executable has ended; what an ADD did is undone. FrameError: it broke the protocol.
        """
        began, verb, request = time.monotonic(), _verb_label(raw_environment), None
        code: int | None = None
        operation = Operation(self._parts.limits)
        connection.when_gone(partial(operation.interrupt, ExecutableGone("the executable is gone")))
        try:
            with reported_to(partial(self._metrics.stage, verb)):
                request = parse(raw_environment, stdin, connection.netns_fd)
                attached = await self._perform(request, connection, operation)
            code = 0
        except (ExecutableGone, FrameError):
            raise
        except HandedBack as why:
            # Without an answer: the executable takes this daemon for lost and serves the request alone.
            _log.warning("%s is left to its executable: %s", _title(raw_environment), why)
        except Exception as error:  # noqa: BLE001 - the runtime gets every error as a CNI error
            failure = as_cni_error(error)
            code = failure.code
            _log.warning("%s failed with code %d: %s %s", _title(raw_environment), code, failure, failure.details)
            if not isinstance(error, Unfinished):  # else `_perform` has sent the answer already
                await connection.done(1, failure.stdout("1.0.0" if request is None else request.conf.version))
            if request is not None and await self._lacks_rails(request, failure):
                self._observe(AddRefused(request.pod, failure))
        else:
            _log.info("%s took %.1f ms", _title(raw_environment), (connection.ended() - began) * 1000)
            if attached is not None:
                self._observe(attached)
        finally:
            self._metrics.served(verb, code, connection.ended() - began)

    async def _perform(
        self, request: CniRequest, connection: ExecutableConnection, operation: Operation
    ) -> RailsAttached | None:
        """Run the verb when it is this sandbox's turn, and answer. Return what an ADD attached.

        Raises:
            Unfinished: the runtime has its answer, and by now the work has ended. Exception: as the verb.
        """
        self._note_request(request)
        verb = _VERBS.get(request.environment.command)
        if verb is None:
            raise CniError(
                ENVIRONMENT, f"Railnet's daemon serves {', '.join(_VERBS)}, and not {request.environment.command}"
            )
        async with self._turn(request, operation):
            try:
                stdout = await operation.run(verb(request, connection, self._parts))
            except Unfinished as unfinished:
                # The runtime is answered now. The sandbox's next request waits until the kernel has let this one go.
                with suppress(ExecutableGone):
                    await connection.done_early(1, unfinished.stdout(request.conf.version))
                _log.error("%s: %s", request.environment.key, unfinished)
                await operation.ended()
                raise
            return await self._answer(request, connection, stdout)

    @asynccontextmanager
    async def _turn(self, request: CniRequest, operation: Operation) -> AsyncIterator[None]:
        """Hold the sandbox's lock until the end of the block; an operation that is interrupted stops waiting for it."""
        key, locks = request.environment.key, self._parts.sandboxes
        with self._operations.entered(key, request.environment.command, operation):
            turn = locks.take(key)
            # The lock is nearly always free and comes at once: then a task to wait for it would be waste.
            await (operation.run(turn) if locks.is_held(key) else turn)
            try:
                yield
            finally:
                locks.give_back(key)

    async def _answer(
        self, request: CniRequest, connection: ExecutableConnection, stdout: bytes
    ) -> RailsAttached | None:
        attachments = self._parts.attachments
        record, command = attachments.record(request.environment.key), request.environment.command
        if record is not None and command == DEL:
            await self._answer_and_detach(record, connection, stdout)
            return None
        try:
            await connection.done(0, stdout)
        except ExecutableGone:
            # The runtime takes this ADD for failed, so its rails must not stay.
            if record is not None and command == ADD:
                await attachments.take_back(record)
            raise
        return None if record is None or command != ADD else RailsAttached(record, stdout, request.static)

    async def _answer_and_detach(self, record: Record, connection: ExecutableConnection, stdout: bytes) -> None:
        """Answer a DEL whose rails are still in the sandbox, and then take them back, in the sandbox's turn.

        The connection's descriptor keeps the namespace, which the runtime removes meanwhile. If a crash or the kernel ends this early,
        the record is the sweep's.
        """
        seconds = sum(self._parts.limits)
        late = asyncio.get_running_loop().call_later(seconds, _log.error, _HANGS, record.key, seconds)
        try:
            await connection.done_early(0, stdout)
        finally:  # without its executable, too: the pod's network is down
            try:
                await self._parts.attachments.detach_and_forget(record, connection.netns_fd)
            except (OSError, RailnetError) as error:
                _log.error("sandbox %s: its rails are not back: %s; the next sweep tries again", record.key, error)
            finally:
                late.cancel()

    async def _lacks_rails(self, request: CniRequest, failure: CniError) -> bool:
        """Return whether this failure leaves a pod without its rails: not if the primary failed, which reports that itself."""
        if request.environment.command != ADD or isinstance(failure, DelegateError):
            return False
        try:
            return bool(await self._parts.devices.vfs(request.pod))
        except RailnetError:
            return True  # kubelet names devices of ours that are no VFs
        except CniError:
            return False  # neither the checkpoint nor kubelet answers


def _verb_label(raw_environment: dict[bytes, bytes]) -> str:
    """Name the verb for the metrics; all that are none have one name."""
    verb = raw_environment.get(b"CNI_COMMAND", b"").decode(errors="replace")
    return verb if verb in _VERBS else "unknown"


def _title(raw_environment: dict[bytes, bytes]) -> str:
    """Name a request for the log, as far as its environment can be read."""
    command, container_id, arguments = (
        raw_environment.get(name, b"?").decode(errors="replace")
        for name in (b"CNI_COMMAND", b"CNI_CONTAINERID", b"CNI_ARGS")
    )
    if not container_id:
        return command
    pod = dict(pair.split("=", 1) for pair in arguments.split(";") if "=" in pair)
    return f"{command} {container_id[:12]} of pod {pod.get('K8S_POD_NAMESPACE', '?')}/{pod.get('K8S_POD_NAME', '?')}"
