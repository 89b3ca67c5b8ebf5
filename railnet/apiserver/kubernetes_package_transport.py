"""The transport of the webhook and of the controllers, by the `kubernetes` package: it keeps connections, and threads may share it.

The package's generated models are not used: on the way back they would drop what a newer API server has in an object.
"""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from copy import copy
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from railnet.apiserver.client import Answer, Stream
from railnet.apiserver.cluster_name import ClusterName
from railnet.apiserver.pod_exec import ExecutedCommand
from railnet.apiserver.request import Request
from railnet.apiserver.service_account import ServiceAccount
from railnet.apiserver.tls import trusting

if TYPE_CHECKING:
    from websocket import WebSocket

_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 7.0
# A watch that is silent for longer is dead: the API server sends a bookmark about once a minute
# (k8s.io/apiserver/pkg/storage/cacher: defaultBookmarkFrequency).
_SILENCE_SECONDS = 150.0
_PIECE_BYTES = 64 << 10
# What is kept open: the controllers' workers and watches. The package's default is five for each processor, and each request beyond would
# begin a connection of its own.
_CONNECTIONS = 72
# Standard output, standard error, and how the command ended (kubernetes.io/docs/reference, "v4.channel.k8s.io").
_CHANNELS = (1, 2, 3)
_MOST_WRITTEN_BYTES = 4 << 20  # by one command, to all channels; the probe of `railnet validate` writes a few KiB


class PooledTransport(ABC):
    """Sends through the pool of connections of an `ApiClient`; which client that is, the heir says.

    Attributes:
        cluster: which one it reaches.
    """

    cluster: ClusterName

    def __init__(
        self, connect: float = _CONNECT_SECONDS, answer: float = _ANSWER_SECONDS, silence: float = _SILENCE_SECONDS
    ) -> None:
        """Begin without a connection.

        Args:
            connect: the seconds to connect, and again to send.
            answer: the seconds for the whole of an answer.
            silence: the seconds for the head of a stream, and then for each of its lines.
        """
        self._seconds, self._silence = (connect, answer), silence

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        """Send a request and return the answer."""
        return _answer(self._call(request, headers, self._seconds), most_bytes)

    @contextmanager
    def stream(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Iterator[Stream]:
        """Send a request; its answer's body can be read in the block."""
        response = self._call(request, headers, (self._seconds[0], self._silence))
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            yield Stream(_answer(response, most_bytes), iter(()))
            return
        try:
            yield Stream(_head(response), _pieces(response, self._silence))
        finally:
            response.close()

    def execute(self, request: Request, headers: Mapping[str, str], seconds: float) -> ExecutedCommand:
        """Run a command in a container, over a WebSocket of its own: some seconds to begin it, and as many until it has ended."""
        # `requests` and others are loaded with it, which no other request needs.
        from kubernetes.stream import ws_client  # noqa: PLC0415
        from websocket import WebSocketBadStatusException, WebSocketException  # noqa: PLC0415 - as above

        configuration = self._of_websockets(self._current().configuration)
        url = "ws" + configuration.host.removeprefix("http") + request.path
        authorization = {key.lower(): value for key, value in headers.items() if key == "Authorization"}
        new: Any = ws_client.WSClient
        try:
            connection = _begun(lambda: new(configuration, url, authorization, capture_all=False), seconds)
        except WebSocketBadStatusException as error:
            return ExecutedCommand("", "", "", Answer(error.status_code, "", "", error.resp_body or b""))
        except (WebSocketException, ValueError) as error:
            raise _no_answer(error) from None
        try:
            written = _written(connection.sock, seconds)
        except WebSocketException as error:
            raise _no_answer(error) from None
        finally:
            connection.close(timeout=0)  # the other end's farewell is not awaited: it may never come
            connection.sock.shutdown()  # `close` leaves a socket open whose other end was the first to close
        out, stderr, status = (written[channel].decode(errors="replace") for channel in _CHANNELS)
        failure, code = _why_failed(status)
        return ExecutedCommand(out, stderr, failure, None, code)

    def _of_websockets(self, configuration: Configuration) -> Configuration:
        """Return the configuration by which a WebSocket is made: it knows no SSLContext."""
        return configuration

    @abstractmethod
    def _current(self) -> ApiClient:
        """Return the client of the next request.

        Raises:
            OSError: no request can be sent.
        """

    def _call(self, request: Request, headers: Mapping[str, str], seconds: tuple[float, float]) -> urllib3.HTTPResponse:
        client = self._current()
        url = client.configuration.host + request.path
        try:
            rest = client.call_api(request.method, url, dict(headers), request.body, _request_timeout=seconds)
        except (urllib3.exceptions.HTTPError, ApiException) as error:
            raise _no_answer(error) from None
        response: urllib3.HTTPResponse = rest.response
        return response


class KubernetesTransport(PooledTransport):
    """Reaches the API server of a service account, and makes another pool when `ca.crt` has been replaced."""

    def __init__(
        self,
        account: ServiceAccount,
        connect: float = _CONNECT_SECONDS,
        answer: float = _ANSWER_SECONDS,
        silence: float = _SILENCE_SECONDS,
    ) -> None:
        """Reach the API server of an account; the seconds are as `PooledTransport`'s."""
        super().__init__(connect, answer, silence)
        self._account = account
        self.cluster = ClusterName(f"{account.host}:{account.port}")
        self._lock = threading.Lock()
        self._trusted = b""
        self._client: ApiClient | None = None

    def _current(self) -> ApiClient:
        authority = self._account.read_authority()
        with self._lock:
            if self._client is None or authority != self._trusted:
                client = self._new()
                if self._client is not None:
                    self._client.close()  # type: ignore[no-untyped-call]
                self._client, self._trusted = client, authority
            return self._client

    def _of_websockets(self, configuration: Configuration) -> Configuration:
        websocket_configuration = copy(configuration)
        websocket_configuration.ssl_ca_cert = str(self._account.authority)
        return websocket_configuration

    def _new(self) -> ApiClient:
        host = self._account.host
        configuration = Configuration()
        configuration.host = f"https://{f'[{host}]' if ':' in host else host}:{self._account.port}"
        configuration.retries = False  # the caller decides whether a request is sent again
        configuration.connection_pool_maxsize = _CONNECTIONS
        client = ApiClient(configuration)
        # The package's configuration has no field for an SSLContext; urllib3's pool has.
        client.rest_client.pool_manager.connection_pool_kw["ssl_context"] = trusting(self._account.authority)
        return client


def _begun(begin: Callable[[], Any], seconds: float) -> Any:
    """Return the connection that `begin` makes. The package has no time limit for it, so a thread waits, which no program waits for.

    Raises:
        TimeoutError: there is no connection after some seconds. One that is made later is closed.
    """
    future = Future[Any]()

    def run() -> None:
        try:
            future.set_result(begin())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
            future.set_exception(error)

    threading.Thread(target=run, name="exec", daemon=True).start()
    if wait((future,), seconds).done:
        return future.result()
    future.add_done_callback(lambda late: None if late.exception() else late.result().close())
    raise TimeoutError(f"the API server has not begun the command after {seconds:g} s")


def _written(sock: "WebSocket", seconds: float) -> dict[int, bytearray]:
    """Return what a command wrote, by channel, when the other end has closed the connection.

    The package's own reader keeps whatever comes, and reads on for as long as something does: a pod could fill this machine's memory.

    Raises:
        TimeoutError: the command has not ended in time.
        OSError: the command wrote too much.
        WebSocketException: the connection broke.
    """
    from websocket import ABNF, WebSocketTimeoutException  # noqa: PLC0415 - as above

    ends = time.monotonic() + seconds
    written = {channel: bytearray() for channel in range(256)}
    while (left := ends - time.monotonic()) > 0:
        sock.settimeout(left)  # a frame may stop in its middle
        try:
            code, frame = sock.recv_data_frame(control_frame=True)
        except WebSocketTimeoutException:
            break
        if code == ABNF.OPCODE_CLOSE:
            return written
        if code in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and frame.data:
            written[frame.data[0]] += frame.data[1:]
            if sum(map(len, written.values())) > _MOST_WRITTEN_BYTES:
                raise OSError(f"the command wrote more than {_MOST_WRITTEN_BYTES >> 20} MiB")
    raise TimeoutError(f"the command has not ended after {seconds:g} s")


def _why_failed(status: str) -> tuple[str, int]:
    """Read the `metav1.Status` that ends a command: why it has failed, empty if it has succeeded; and the status of HTTP, 0 without one.

    Raises:
        OSError: it is no status, so nothing is known of the command.
    """
    try:
        document = json.loads(status)
        if document["status"] == "Success":
            return "", 0
        code = document.get("code")
        return str(document.get("message") or status), code if type(code) is int else 0
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise OSError("the connection ended before the command did") from None


def _answer(response: urllib3.HTTPResponse, most_bytes: int) -> Answer:
    try:
        # Not decoded: no other encoding is asked for, and a few bytes of gzip may be gigabytes.
        return _head(response)._replace(body=response.read(most_bytes, decode_content=False))
    except urllib3.exceptions.HTTPError as error:
        raise _no_answer(error) from None
    finally:
        response.close()  # a connection whose answer was read whole has gone back to the pool, and stays open


def _head(response: urllib3.HTTPResponse) -> Answer:
    headers = response.headers
    return Answer(response.status, headers.get("Content-Type", ""), headers.get("Retry-After", ""), b"")


def _pieces(response: urllib3.HTTPResponse, seconds: float) -> Iterator[bytes]:
    try:
        while piece := response.read1(_PIECE_BYTES, decode_content=False):
            yield piece
            if b"\n" in piece:  # a line that comes byte by byte has no more time than one that comes at once
                _begin_again(response, seconds)
    except urllib3.exceptions.HTTPError as error:
        raise _no_answer(error) from None


def _begin_again(response: urllib3.HTTPResponse, seconds: float) -> None:
    """Give the next line its time: the timeout of a `tls` socket is for everything until it is set again."""
    connection = response.connection
    if (
        connection is not None and connection.sock is not None
    ):  # None: the answer said `Connection: close`; its time is for all lines
        connection.sock.settimeout(seconds)


def _no_answer(error: Exception) -> OSError:
    return OSError(f"{type(error).__name__}: {error!s:.200}")
