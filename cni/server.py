"""The socket on which executables ask: one task per request, from REQUEST to DONE."""

import asyncio
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from cni.attachment.attachments import Attachments
from cni.connection import ExecutableConnection, ExecutableGone, Queried
from cni.delegate_slots import DelegateSlots
from cni.errors import as_cni_error
from cni.events import Attached, Observer, Refused, ignore
from cni.host.environment import ADD, CHECK, DEL, GC
from cni.host.errors import ENVIRONMENT, TRY_AGAIN, CniError, DelegateError
from cni.host.frames import FrameError
from cni.operation import Operation, Operations, Unfinished
from cni.pod_devices import PodDevices
from cni.request import Request, parse
from cni.timing import told
from cni.verbs.add import add
from cni.verbs.check import check
from cni.verbs.delete import delete
from cni.verbs.gc import Collectors, collect
from vf.errors import RailnetError

_log = logging.getLogger(__name__)
_BACKLOG = 512
_BREATH_SECONDS = 0.1
_VERBS = (ADD, CHECK, DEL, GC)


class Limits(NamedTuple):
    """Seconds: for one delegate, and for a request in all."""

    delegate: float
    add: float


class Meter(Protocol):
    """Whoever counts requests and their time, in seconds; neither blocks nor raises."""

    def served(self, verb: str, code: int | None, seconds: float) -> None:
        """Hear of a request that has ended, with 0 or the error's code; None where nobody waited for the answer any more."""

    def stage(self, verb: str, name: str, seconds: float) -> None:
        """Hear of one stage of a request."""


class _NoMeter:
    def served(self, verb: str, code: int | None, seconds: float) -> None:
        """Count nothing."""

    def stage(self, verb: str, name: str, seconds: float) -> None:
        """Count nothing."""


_NO_METER = _NoMeter()


class Server:
    """Serves ADD, CHECK, DEL and GC on `path`, a socket of mode 0600 for root alone.

    `observe` is told what came of an ADD with rails, after the runtime. `places` bounds the delegates that work at once.
    `report` gives what a QUERY is answered.
    """

    def __init__(  # noqa: PLR0913 - composed once
        self,
        assignment: PodDevices,
        rails: Attachments,
        collectors: Collectors,
        root: Path,
        limits: Limits,
        observe: Observer = ignore,
        *,
        places: DelegateSlots | None = None,
        meter: Meter = _NO_METER,
        report: Callable[[], bytes] = bytes,
    ) -> None:
        self._assignment = assignment
        self._observe = observe
        self._rails = rails
        self._collectors = collectors
        self._root = root
        self._limits = limits
        self._places = places or DelegateSlots()
        self._meter = meter
        self._report = report
        self._operations = Operations()
        self._requests: set[asyncio.Task[None]] = set()

    async def serve(self, path: Path, ready: Callable[[], Awaitable[None]]) -> None:
        """Listen until cancelled, then let running requests finish. `ready` is awaited when executables can connect."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listening:
                _listen(listening, path)
                await ready()
                await self._accept(listening)
        finally:
            _unlink(path)
            if self._requests:
                await asyncio.wait(self._requests)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:  # EMFILE, ENOMEM: requests that end make room
                _log.error("no connection can be taken: %s", error)
                await asyncio.sleep(_BREATH_SECONDS)
                continue
            if _peer_uid(accepted) != 0:  # whatever the socket's mode has become
                _log.warning("a connection of user %d is dropped: only root may ask", _peer_uid(accepted))
                accepted.close()
                continue
            task = asyncio.create_task(
                self._connection(ExecutableConnection(accepted, self._limits.delegate, self._places))
            )
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    async def _connection(self, connection: ExecutableConnection) -> None:
        try:
            raw_environment, stdin = await connection.request()
            # What is undone at the end of the time is undone after it, by delegates with a limit of their own.
            await connection.shake(self._limits.add + self._limits.delegate)
            await self._request(raw_environment, stdin, connection)
        except Queried:
            await self._told(connection)
        except FrameError as error:
            _log.warning("refused: %s", error)
            with suppress(ExecutableGone):
                await connection.done(
                    1, CniError(TRY_AGAIN, f"Railnet's daemon cannot read the request: {error}").stdout()
                )
        except (ExecutableGone, OSError) as error:
            # Before GO nothing has happened; after it the request undid what it had done. The runtime knows no answer.
            _log.warning("a request ended early: %r", error)
        finally:
            connection.close()

    async def _told(self, connection: ExecutableConnection) -> None:
        try:
            await connection.answer(self._report())
        except ExecutableGone:
            pass  # nobody waits for it any more
        except Exception as error:  # noqa: BLE001 - whoever asks sees the connection end, and why stands here
            _log.error("a query cannot be answered: %r", error)

    async def _request(
        self, raw_environment: dict[bytes, bytes], stdin: bytes, connection: ExecutableConnection
    ) -> None:
        started, verb = time.monotonic(), _verb(raw_environment)
        code: int | None = None
        request = None
        operation = Operation(self._limits.add)
        connection.when_gone(partial(operation.interrupt, ExecutableGone("the executable is gone")))
        try:
            with told(partial(self._meter.stage, verb)):
                request = parse(raw_environment, stdin, connection.netns_fd)
                attached = await self._operate(request, connection, operation)
            code = 0
        except (ExecutableGone, FrameError):
            raise
        except Exception as error:  # noqa: BLE001 - the runtime is told, whatever it was
            failure = as_cni_error(error)
            code = failure.code
            _log.warning(
                "%s failed with code %d: %s %s", _named(raw_environment), failure.code, failure, failure.details
            )
            if not isinstance(error, Unfinished):
                await connection.done(1, failure.stdout("1.0.0" if request is None else request.conf.version))
            if request is not None and await self._lacks_rails(request, failure):
                self._observe(Refused(request.pod, failure))
        else:
            _log.info("%s took %.1f ms", _named(raw_environment), (time.monotonic() - started) * 1000)
            if attached is not None:
                self._observe(attached)
        finally:
            self._meter.served(verb, code, time.monotonic() - started)

    async def _operate(
        self, request: Request, connection: ExecutableConnection, operation: Operation
    ) -> Attached | None:
        """Do what is asked, when it is this sandbox's turn, and answer it; gives what an ADD attached."""
        key, command = request.environment.key, request.environment.command
        with self._operations.entered(key, command, operation):
            async with self._turn(key, operation):
                try:
                    stdout = await operation.outcome(self._verb(request, connection), self._limits.delegate)
                except Unfinished as unfinished:
                    await self._answer_early(request, connection, operation, unfinished)
                    raise
                return await self._answer(request, connection, stdout)

    @asynccontextmanager
    async def _turn(self, key: str, operation: Operation) -> AsyncIterator[None]:
        """Have this sandbox's turn until the end of the block; who is interrupted before it comes waits no longer."""
        turns = self._rails.one_at_a_time
        async with AsyncExitStack() as stack:
            turn = stack.enter_async_context(turns.held(key))
            # Nearly always it is free, and comes at once: a task for it would be for nothing.
            await (operation.outcome(turn, self._limits.delegate) if turns.is_held(key) else turn)
            yield

    async def _answer_early(
        self, request: Request, connection: ExecutableConnection, operation: Operation, unfinished: Unfinished
    ) -> None:
        """Have the runtime know now, and the next request of this sandbox wait until the kernel has let this one go."""
        with suppress(ExecutableGone):
            await connection.done_early(1, unfinished.stdout(request.conf.version))
        _log.error("%s: %s", request.environment.key, unfinished)
        await operation.ended()

    async def _lacks_rails(self, request: Request, failure: CniError) -> bool:
        """Tell whether this failure was an ADD of a pod with rails, and not its primary's, which says it itself."""
        if request.environment.command != ADD or isinstance(failure, DelegateError):
            return False
        try:
            return bool(await self._assignment.vfs(request))
        except RailnetError:
            return True  # kubelet names devices, and they are none
        except CniError:
            return False  # nobody can tell

    async def _verb(self, request: Request, connection: ExecutableConnection) -> bytes:
        """Do what is asked; gives what the executable prints."""
        match request.environment.command:
            case "ADD":
                return await add(request, connection, self._assignment, self._rails, self._root)
            case "CHECK":
                return await check(request, connection, self._assignment, self._rails, self._root)
            case "GC":
                return await collect(request, connection, self._collectors, self._root, self._limits.add)
            case "DEL":
                return await delete(request, connection, self._rails, self._root)
            case other:  # STATUS and VERSION are of no sandbox, and the executable answers them alone
                raise CniError(ENVIRONMENT, f"Railnet's daemon serves {', '.join(_VERBS)}, and not {other}")

    async def _answer(self, request: Request, connection: ExecutableConnection, stdout: bytes) -> Attached | None:
        record = self._rails.record(request.environment.key) if request.environment.command == ADD else None
        try:
            await connection.done(0, stdout)
        except ExecutableGone:
            # The runtime takes the ADD for failed, so its rails must not stay.
            if record is not None:
                await self._rails.take_back(record)
            raise
        return None if record is None else Attached(record, stdout, request.static)


def _peer_uid(connection: socket.socket) -> int:
    """Give who made a connection: struct ucred is pid, uid, gid, 32 bits each (include/linux/socket.h)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def _listen(listening: socket.socket, path: Path) -> None:
    """Bind under a temporary name, listen, then rename: who finds the socket finds it serving.

    One name for all daemons, since one at a time serves: what one that died in between has left, the next takes away.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.unlink(missing_ok=True)
    listening.bind(str(temporary))
    temporary.chmod(0o600)
    listening.listen(_BACKLOG)
    temporary.rename(path)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def _verb(raw_environment: dict[bytes, bytes]) -> str:
    """Name the verb for the meter; what is none has one name."""
    verb = raw_environment.get(b"CNI_COMMAND", b"").decode(errors="replace")
    return verb if verb in _VERBS else "unknown"


def _named(raw_environment: dict[bytes, bytes]) -> str:
    command, container_id, arguments = (
        raw_environment.get(name, b"?").decode(errors="replace")
        for name in (b"CNI_COMMAND", b"CNI_CONTAINERID", b"CNI_ARGS")
    )
    if not container_id:
        return command
    pod = dict(pair.split("=", 1) for pair in arguments.split(";") if "=" in pair)
    return f"{command} {container_id[:12]} of pod {pod.get('K8S_POD_NAMESPACE', '?')}/{pod.get('K8S_POD_NAME', '?')}"
