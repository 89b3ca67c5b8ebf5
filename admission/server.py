"""HTTPS for the API server: POST /pods and /pods/net1, one review each.

Nothing of a body is logged, whatever happens. What a client can make this server hold or wait for is bounded here.
"""

import asyncio
import logging
import time
import traceback
from asyncio import constants
from asyncio.sslproto import SSLProtocol
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from http import HTTPStatus
from typing import Protocol

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from admission.policy import Policy
from admission.review import MAX_BYTES, Reviewed, Unreadable, review
from admission.tls import Shown

_log = logging.getLogger(__name__)
# By path, what the label of the pod's namespace says: the webhook configuration has an entry for each.
PATHS: Mapping[str, bool | None] = {"/pods": None, "/pods/net1": True}
_PATIENCE_SECONDS = 10.0  # for a handshake, for the first request, and for each body; a webhook's timeout is ten, too
_REST_SECONDS = 2.0  # for the rest of a body that has a place, which others wait for
_IDLE_SECONDS = 120.0  # client-go closes idle connections after 90, and it should be first
_LINGER_SECONDS = 2.0  # for a client that still sends what has been refused
_MOMENT_SECONDS = 0.1  # for an answer that is being written
# Pods have some KiB. What is larger is held by four at a time, so that a container of 256 MiB has room for the largest, and for
# clients that send the most that needs no place, and then nothing: each holds that, and what is read ahead of it.
_LARGE_BYTES, _LARGE_PLACES = 64 << 10, 4
_AHEAD_BYTES = 16 << 10
# Of those that have shaken hands: some 70 KiB each where it is idle, 290 in the middle of a body that pauses. An API server has
# some hundred requests in flight at most (--max-mutating-requests-inflight), keeps few connections, and there are two of us.
_MOST_CONNECTIONS = 500
_BACKLOG = 512
# asyncio reads each TLS connection into a buffer of its own, of 256 KiB: 300 that say nothing held 85 MiB, and now hold 20. An
# API server makes one for each pod that it asks about at the same time, as HTTP/1.1 does. A TLS record has 16 KiB at most.
SSLProtocol.max_size = 32 << 10
# In KiB: how much a connection that is not read from may hold undeciphered; 256 otherwise.
constants.FLOW_CONTROL_HIGH_WATER_SSL_READ = 32  # type: ignore[misc]  # final, it says; read for each connection


class Meter(Protocol):
    """Who counts."""

    def reviewed(self, outcome: str, operator: str, seconds: float) -> None:
        """Count a request: `outcome` is a review's, `unreadable`, or `failed`."""


class Refused(Exception):
    """This request gets no review."""

    def __init__(self, status: HTTPStatus, words: str, *, close: bool = False) -> None:
        """Say so by a status and words; `close` if nothing more can be read from the connection."""
        super().__init__(words)
        self.status, self.close = status, close


class _TurnedAway(asyncio.Protocol):
    """A connection too many: it ends when it begins."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.abort()  # type: ignore[attr-defined]  # a stream's has it


class Server:
    """Serves until it is closed.

    Attributes:
        port: the one it listens on; 0 before it does.
    """

    def __init__(self, policy: Policy, meter: Meter, shown: Shown) -> None:
        """Answer by a policy, count by a meter, and show a certificate."""
        self._policy, self._meter, self._shown = policy, meter, shown
        self.port = 0
        self._leaving = False
        self._silent: set[RequestHandler] = set()  # connections on which there was no request yet
        self._large = asyncio.Semaphore(_LARGE_PLACES)
        self._busy: set[RequestHandler] = set()  # connections on which there is one
        self._rests = asyncio.Event()
        self._rests.set()
        self._http: web.Server
        self._listener: asyncio.Server | None = None

    @property
    def accepts(self) -> bool:
        """Whether it takes connections."""
        return self._listener is not None and self._listener.is_serving() and not self._leaving

    async def listen(self, port: int, host: str | None = None) -> None:
        """Begin to serve, on all addresses where nothing else is said.

        Raises:
            OSError: the port is taken.
        """
        # What is compressed is not decompressed: a few bytes may stand for any number.
        self._http = web.Server(
            self._answer,
            access_log=None,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,
            read_bufsize=_AHEAD_BYTES,
            logger=_http_log(),
        )
        self._listener = await asyncio.get_running_loop().create_server(
            self._connection,
            host,
            port,
            ssl=self._shown.context,
            ssl_handshake_timeout=_PATIENCE_SECONDS,
            ssl_shutdown_timeout=_LINGER_SECONDS,
            backlog=_BACKLOG,
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    def leave(self) -> None:
        """Send clients elsewhere: connections that are idle end now, and each other one with its next answer."""
        self._leaving = True
        for connection in self._http.connections:
            if connection not in self._busy:
                connection.force_close()

    async def close(self, seconds: float) -> None:
        """Take no more connections, and end those that are there when they have their answer, at most after a while."""
        if self._listener is None:
            return
        self._listener.close()
        self.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rests.wait()
        await self._http.shutdown(_MOMENT_SECONDS)

    def _connection(self) -> asyncio.Protocol:
        if len(self._http.connections) >= _MOST_CONNECTIONS:
            return _TurnedAway()
        connection = self._http()
        self._silent.add(connection)
        asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, self._hurry, connection)
        return connection

    def _hurry(self, connection: RequestHandler) -> None:
        if connection in self._silent:
            self._silent.remove(connection)
            connection.force_close()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._silent.discard(request.protocol)
        self._busy.add(request.protocol)
        self._rests.clear()
        try:
            return await self._counted(request)
        finally:
            self._busy.discard(request.protocol)
            if not self._busy:
                self._rests.set()

    async def _counted(self, request: web.BaseRequest) -> web.Response:
        began = time.perf_counter()
        outcome, operator = "failed", ""
        try:
            reviewed = await self._review(request)
            outcome, operator = reviewed.outcome, reviewed.operator
            response = web.Response(body=reviewed.body, content_type="application/json")
        except Refused as refused:
            outcome = "unreadable"
            response = web.Response(status=refused.status, text=f"{refused}\n")
            if refused.close:
                response.force_close()
        except Exception as error:  # noqa: BLE001 - one odd pod must not end the server for all others
            _log.error("a review failed, and its pod is not let in: %s", _without_values(error))
            response = web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="the review failed; see the log\n")
        self._meter.reviewed(outcome, operator, time.perf_counter() - began)
        response.headers["Server"] = "railnet"
        if self._leaving:
            response.force_close()
        return response

    async def _review(self, request: web.BaseRequest) -> Reviewed:
        if request.path not in PATHS:
            raise Refused(HTTPStatus.NOT_FOUND, f"there are {' and '.join(PATHS)}")
        if request.method != "POST":
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "only POST is answered")
        if request.content_type != "application/json":
            raise Refused(HTTPStatus.BAD_REQUEST, "the content type is not application/json")
        async with AsyncExitStack() as place:
            body = await self._body(request, place)
            try:
                reviewed = review(body, self._policy, PATHS[request.path])
            except Unreadable as error:
                raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        if reviewed.outcome == "denied":
            # As a literal: what stands in a pod is not checked yet, and may be a line of its own.
            _log.info("denied a pod of namespace %.63r: %r", reviewed.namespace, reviewed.why)
        return reviewed

    async def _body(self, request: web.BaseRequest, place: AsyncExitStack) -> bytes:
        """Read a body; a large one waits for a place, which is free again when the stack ends."""
        if (request.content_length or 0) > MAX_BYTES:
            raise _too_large()
        parts, size = [], 0
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS) as limit:
                async for part in request.content.iter_any():
                    if size <= _LARGE_BYTES < size + len(part):
                        await place.enter_async_context(self._large)
                        limit.reschedule(asyncio.get_running_loop().time() + _REST_SECONDS)
                    parts.append(part)
                    size += len(part)
                    if size > MAX_BYTES:
                        raise _too_large()
        except TimeoutError:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time", close=True) from None
        except (web.RequestPayloadError, OSError) as error:  # or the client has gone away
            words = f"the body cannot be read: {type(error).__name__}"
            raise Refused(HTTPStatus.BAD_REQUEST, words, close=True) from None
        return b"".join(parts)


def _too_large() -> Refused:
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{MAX_BYTES} bytes is the most that is read", close=True)


class _WithoutValues(logging.Filter):
    """Keeps of what aiohttp says the sentence and the kind of the error, whose own words may quote what a client sent."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[0] is not None:
            record.msg, record.args = f"{record.getMessage()}: {record.exc_info[0].__name__}", ()
            record.exc_info = None
        return True


def _http_log() -> logging.Logger:
    log = logging.getLogger(f"{__name__}.http")
    if not log.filters:
        log.addFilter(_WithoutValues())
    return log


def _without_values(error: Exception) -> str:
    """Tell where and what kind, but not the message, in which there may be something of the pod."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{type(error).__name__}\n{frames}"
