"""The HTTPS server that the API server calls: POST to one of `PATHS`, also to /services in host-network mode, and to /gangs and /gangs/jobs where gangs are on.

Each request is one review.

It never logs a part of a body. It limits the memory and the time that a request can take; `railnet.admission.server.connections` limits connections.
"""

import asyncio
import logging
import time
import traceback
from asyncio import constants
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from http import HTTPStatus
from typing import NamedTuple, Protocol

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from railnet.admission.decision import ClaimedVfs
from railnet.admission.gang import gang_review, job_review
from railnet.admission.gang.engine_choice import GATES, ChosenEngine
from railnet.admission.host_network import service_review
from railnet.admission.host_network.host_port_allocator import HostPorts
from railnet.admission.review import MAX_BYTES, Reviewed, UnreadableReview, review
from railnet.admission.review_configuration import Policy
from railnet.admission.server.connections import Connections
from railnet.admission.tls import Shown

_log = logging.getLogger(__name__)


class NamespaceLabels(NamedTuple):
    """The labels `railnet.io/net1` and `railnet.io/sticky` of a pod's namespace, as `railnet.admission.review_configuration.Namespace` has them."""

    net1: bool | None
    sticky: bool


# The labels of the pod's namespace, by path: the webhook configuration has an entry for each value (`railnet.admission.webhook_scope`).
PATHS: Mapping[str, NamespaceLabels] = {
    "/pods": NamespaceLabels(None, sticky=False),
    "/pods/net1": NamespaceLabels(True, sticky=False),
    "/pods/sticky": NamespaceLabels(None, sticky=True),
    "/pods/net1/sticky": NamespaceLabels(True, sticky=True),
}
SERVICES, GANGS, GANG_JOBS = "/services", "/gangs", "/gangs/jobs"
_POD_SECONDS = 2.0  # until the pod of a new Service is seen: its operator has made it just before
_REQUEST_SECONDS = 10.0  # for a handshake, the first request, and each body; a webhook's timeout is at most 10 s, too
_LARGE_BODY_SECONDS = 2.0  # for the rest of a body that holds a place for large bodies; other bodies wait for the place
_IDLE_SECONDS = 120.0  # client-go closes idle connections after 90 s; the client should be the first to close
_LINGER_SECONDS = 2.0  # for a client that still sends a body that has been refused
_LAST_ANSWER_SECONDS = 0.1  # for an answer that is being written when the server closes
# A pod has a few KiB. Only four larger bodies are in memory at a time, so that a container of 256 MiB has room for four of the largest,
# and for all clients that pause in a body just below the limit: each holds these bytes, and the bytes that are read ahead.
_LARGE_BYTES, _LARGE_PLACES = 64 << 10, 4
_READ_AHEAD_BYTES = 16 << 10
# These two lines change asyncio's internals, because asyncio has no option for them. asyncio reads each TLS connection into a buffer of
# 256 KiB; a TLS record has 16 KiB at most. The API server speaks HTTP/1.1, so it opens a connection for each pod under review at the same
# time. Measured: 300 idle connections hold 17 MiB with these lines and 82 MiB without; 300 connections in the middle of a body hold 48 and
# 127 MiB. If a new Python ignores the first line, tests/railnet/admission/server/test_server.py::test_connection_that_is_kept_holds_little fails; if it
# ignores the second, test_connection_that_is_not_read_holds_little fails.
SSLProtocol.max_size = 32 << 10
# In KiB: how many encrypted bytes a connection may hold while the server does not read it. asyncio's value is 256.
constants.FLOW_CONTROL_HIGH_WATER_SSL_READ = 32  # type: ignore[misc]  # declared final, but asyncio reads it for each connection


class ReviewMeter(Protocol):
    """The metrics that the server updates."""

    def reviewed(self, outcome: str, operator: str, seconds: float) -> None:
        """Count a request: `outcome` is a review's outcome, `unreadable`, or `failed`."""


class RequestRefused(Exception):
    """The request gets no review, but an HTTP error."""

    def __init__(self, status: HTTPStatus, words: str, *, close: bool = False) -> None:
        """Answer by a status and words; `close` if nothing more can be read from the connection."""
        super().__init__(words)
        self.status, self.close = status, close


class WebhookServer:
    """The HTTPS server; it serves from `listen` until `close`."""

    def __init__(  # noqa: PLR0913 - the features of one server
        self,
        policy: Policy,
        meter: ReviewMeter,
        shown: Shown,
        host_ports: HostPorts | None = None,
        *,
        gangs: bool = False,
        gang_engine: Callable[[], ChosenEngine] = lambda: GATES,
        claimed: ClaimedVfs | None = None,
    ) -> None:
        """Review by a policy, count by a meter, and present the certificate of `shown`.

        `host_ports` is None if host-network mode is switched off: then there are no reviews of Services. `gangs` says whether there are
        reviews of gangs, and `gang_engine` returns the engine for new pods. `claimed` returns how many VFs a pod asks for by claims; None where
        claims are not watched.
        """
        self._policy, self._meter, self._shown, self._host_ports, self._gangs = policy, meter, shown, host_ports, gangs
        self._gang_engine, self._claimed = gang_engine, claimed
        self._leaving = False
        self._large = asyncio.Semaphore(_LARGE_PLACES)
        self._busy: set[RequestHandler] = set()  # connections with a request that is not answered yet
        self._all_idle = asyncio.Event()
        self._all_idle.set()
        self._http: web.Server
        self._connections: Connections | None = None

    @property
    def port(self) -> int:
        """The port it listens on; 0 before `listen`."""
        return 0 if self._connections is None else self._connections.port

    @property
    def accepts(self) -> bool:
        """True if the server takes connections and is not leaving."""
        return self._connections is not None and self._connections.accepts and not self._leaving

    async def listen(self, port: int, host: str | None = None) -> None:
        """Begin to serve; without `host`, on all addresses.

        Raises:
            OSError: the port is taken.
        """
        # Compressed bodies stay compressed, and are refused: a few compressed bytes may become any number of bytes.
        self._http = web.Server(
            self._answer,
            access_log=None,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,
            read_bufsize=_READ_AHEAD_BYTES,
            logger=_http_log(),
        )
        connections = Connections(self._shown, self._http, _REQUEST_SECONDS)
        connections.listen(host, port)
        self._connections = connections

    def leave(self) -> None:
        """Make clients connect to another replica: close idle connections now, and each other connection with its next answer."""
        self._leaving = True
        for connection in self._http.connections:
            if connection not in self._busy:
                connection.force_close()

    async def close(self, seconds: float) -> None:
        """Take no more connections; close each open one after its answer, and all of them after `seconds`."""
        if self._connections is None:
            return
        self._connections.refuse()
        self.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._all_idle.wait()
        await self._http.shutdown(_LAST_ANSWER_SECONDS)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._busy.add(request.protocol)
        self._all_idle.clear()
        connections, size, reviewed = self._connections, 0, False
        if connections is not None:
            connections.began(request.protocol)
        try:
            response = await self._counted(request)
            size, reviewed = response.content_length or 0, response.status == HTTPStatus.OK
            return response
        finally:
            if connections is not None:
                connections.answered(request.protocol, size, reviewed=reviewed)
            self._busy.discard(request.protocol)
            if not self._busy:
                self._all_idle.set()

    async def _counted(self, request: web.BaseRequest) -> web.Response:
        began = time.perf_counter()
        outcome, operator = "failed", ""
        try:
            reviewed = await self._review(request)
            outcome, operator = reviewed.outcome, reviewed.operator
            response = web.Response(body=reviewed.body, content_type="application/json")
        except RequestRefused as refused:
            outcome = "unreadable"
            response = web.Response(status=refused.status, text=f"{refused}\n")
            if refused.close:
                response.force_close()
        except Exception as error:  # noqa: BLE001 - one pod that fails must not end the server for all others
            _log.error(
                "a review failed, and the API server refuses the pod; report this error: %s", _without_values(error)
            )
            response = web.Response(
                status=HTTPStatus.INTERNAL_SERVER_ERROR,
                text="the review failed by an error of Railnet; see the log of railnet-admission\n",
            )
        self._meter.reviewed(outcome, operator, time.perf_counter() - began)
        response.headers["Server"] = "railnet"
        if self._leaving:
            response.force_close()
        return response

    async def _review(self, request: web.BaseRequest) -> Reviewed:
        paths = self._paths()
        if request.path not in paths:
            raise RequestRefused(HTTPStatus.NOT_FOUND, f"there is no such path; reviews go to {' or '.join(paths)}")
        if request.method != "POST":
            raise RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "the method is not POST; send a review by POST")
        if request.content_type != "application/json":
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, "the content type is not application/json; send a review as JSON"
            )
        async with AsyncExitStack() as place:
            body = await self._body(request, place)
            try:
                reviewed = await self._reviewed(request.path, body)
            except UnreadableReview as error:
                raise RequestRefused(HTTPStatus.BAD_REQUEST, str(error)) from None
        if reviewed.outcome == "denied":
            # As a literal: the names in a pod are not checked yet, and may contain a line break.
            kind = "Service" if request.path == SERVICES else "pod"
            _log.info("denied a %s of namespace %.63r: %r", kind, reviewed.namespace, reviewed.reason)
        return reviewed

    def _paths(self) -> tuple[str, ...]:
        services = () if self._host_ports is None else (SERVICES,)
        return (*PATHS, *services, *((GANGS, GANG_JOBS) if self._gangs else ()))

    async def _reviewed(self, path: str, body: bytes) -> Reviewed:
        ports = self._host_ports
        if path == GANGS:
            return gang_review.review(body, self._gang_engine())
        if path == GANG_JOBS:
            return job_review.review(body)
        if ports is None or path != SERVICES:
            net1, sticky = PATHS[path]
            free_port = None if ports is None else ports.free_port
            reviewed = review(body, self._policy, net1, free_port, self._claimed, sticky=sticky)
            if ports is not None and reviewed.host_port:
                ports.give(reviewed.host_port, reviewed.namespace)
            return reviewed
        asked = service_review.asked(body)
        return service_review.answered(asked, None if asked.pod is None else await ports.pod(asked.pod, _POD_SECONDS))

    async def _body(self, request: web.BaseRequest, place: AsyncExitStack) -> bytes:
        """Read a body. A large body waits for a place, and keeps it until the stack is closed."""
        if (request.content_length or 0) > MAX_BYTES:
            raise _too_large()
        parts, size = [], 0
        try:
            async with asyncio.timeout(_REQUEST_SECONDS) as limit:
                async for part in request.content.iter_any():
                    if size <= _LARGE_BYTES < size + len(part):
                        await place.enter_async_context(self._large)
                        limit.reschedule(asyncio.get_running_loop().time() + _LARGE_BODY_SECONDS)
                    parts.append(part)
                    size += len(part)
                    if size > MAX_BYTES:
                        raise _too_large()
        except TimeoutError:
            raise RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time", close=True) from None
        except (web.RequestPayloadError, OSError) as error:  # OSError: the client has closed the connection
            words = f"the body cannot be read: {type(error).__name__}"
            raise RequestRefused(HTTPStatus.BAD_REQUEST, words, close=True) from None
        return b"".join(parts)


def _too_large() -> RequestRefused:
    words = f"the body is too large; at most {MAX_BYTES} bytes are read"
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, words, close=True)


class _WithoutValues(logging.Filter):
    """Reduces aiohttp's records to the message and the type of the error; the error's text may quote a client's bytes."""

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
    """Return the error's type and traceback without its message, which may quote the pod."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{type(error).__name__}\n{frames}"
