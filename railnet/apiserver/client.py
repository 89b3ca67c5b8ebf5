"""The one client of the API server: sends a request through a transport, and returns a JSON object or raises a named failure.

The client decides what all programs have in common: the headers, the token of each request, how long an answer may be, and
which failure an answer is. The transport decides how bytes reach the API server.
"""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any, NamedTuple, NoReturn, Protocol

from railnet.apiserver.answer_json import parsed
from railnet.apiserver.request import JSON, JsonObject, Request, Verb

# The API server takes objects of 3 MiB (k8s.io/apiserver MaxRequestBodyBytes), and writes six bytes for each `<` of them (encoding/json, HTML
# escapes). A list that cannot be read, because of one object that is too large, would end the work for all others.
_MAX_ANSWER_BYTES = 20 << 20
_MAX_MESSAGE = 1000
_MAX_CONTENT_TYPE = 80
_LONGEST_RETRY_AFTER_SECONDS = 300.0  # API servers ask for a second to a minute; a proxy may ask for anything
# 401: the token may just have been replaced. The others: the API server, or a webhook of it, is overloaded or unavailable.
_TEMPORARY = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class Answer(NamedTuple):
    """An HTTP answer as a transport received it: `content_type` and `retry_after` are headers, empty if absent."""

    status: int
    content_type: str
    retry_after: str
    body: bytes


class Transport(Protocol):
    """Carries one request to the API server and its answer back."""

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        """Send a request and return the answer, with at most `most_bytes` of its body. Blocks, for a bounded time.

        Raises:
            OSError: there is no answer, or the API server cannot be trusted.
        """


class Stream(NamedTuple):
    """An answer whose body comes piece by piece. `answer` has no body, unless it is a failure."""

    answer: Answer
    pieces: Iterator[bytes]


class StreamingTransport(Transport, Protocol):
    """A transport that can also carry a watch."""

    def stream(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> AbstractContextManager[Stream]:
        """Send a request; its answer's body can be read in the block. A failure has at most `most_bytes` of its body.

        Raises:
            OSError: as `exchange`; also raised by `pieces`, which waits for the next piece for a bounded time.
        """


class RequestFailed(Exception):
    """The API server did not do what a request asks. `str()` is complete: it names the request, and the cause.

    Attributes:
        status: the status of HTTP; 0 if no answer came that can be used.
        retry_after: the seconds that the API server asks to wait before the next request, at most 300; 0 if it asks for none.
    """

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        """Describe a failure."""
        super().__init__(message)
        self.status, self.retry_after = status, retry_after

    @property
    def temporary(self) -> bool:
        """True if the same request may succeed later."""
        return not self.status or self.status in _TEMPORARY or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


class NoAnswer(RequestFailed):
    """No answer came: the API server cannot be reached, or cannot be trusted."""


class Absent(RequestFailed):
    """The object does not exist."""


class Expired(RequestFailed):
    """The `resourceVersion`, or a page of a list, is too old (410): list the objects again."""


class TooLarge(RequestFailed):
    """The answer is longer than this client reads."""

    @property
    def temporary(self) -> bool:
        """False: the answer to the same request is as long, for as long as the object is."""
        return False


class Conflict(RequestFailed):
    """The object is not as the request assumes: it exists already, has changed, or is another one of the same name."""


class ApiServer:
    """Sends requests with the rights of one service account. Threads may share it if they may share the transport."""

    def __init__(self, transport: Transport, token: Callable[[], str], name: str) -> None:
        """Send through a transport.

        Args:
            transport: carries each request.
            token: reads the token; called for each request, because kubelet replaces the token about every hour. Empty if the
                transport's certificate names the user.
            name: the name of the service account, which is the program's as well: User-Agent, and messages.
        """
        self._transport, self._token, self._name = transport, token, name

    def send(self, request: Request) -> JsonObject:
        """Send a request and return the object of the answer. Blocks: not for an event loop's thread.

        Raises:
            Absent: the object does not exist.
            Conflict: the object is not as the request assumes.
            RequestFailed: the request was not done for another reason, or there is no answer that can be used.
        """
        try:
            answer = self._transport.exchange(request, self._headers(request), _most_bytes(request) + 1)
        except OSError as error:
            raise _no_answer(request, error) from None
        self._check(request, answer)
        return _object(request, answer)

    def _check(self, request: Request, answer: Answer) -> None:
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            self._fail(request, answer)

    def _headers(self, request: Request) -> dict[str, str]:
        token = self._token()
        return {
            **({"Authorization": f"Bearer {token}"} if token else {}),
            "Accept": request.accept,
            "User-Agent": self._name,
            **({} if request.body is None else {"Content-Type": request.content_type}),
        }

    def _fail(self, request: Request, answer: Answer) -> NoReturn:
        cause, status, seconds = message(answer.body), answer.status, _seconds(answer.retry_after)
        if status == HTTPStatus.NOT_FOUND:
            raise Absent(f"cannot {request}: {cause}", status, seconds)
        if status == HTTPStatus.GONE:
            raise Expired(f"cannot {request}: {cause}", status, seconds)
        if _conflicts(request, status):
            raise Conflict(f"cannot {request}: {cause}", status, seconds)
        if status == HTTPStatus.FORBIDDEN:
            cause = f"{self._forbidden(request)}: {cause}"
        raise RequestFailed(f"cannot {request}: HTTP {status}: {cause}", status, seconds)

    def _forbidden(self, request: Request) -> str:
        return (
            f"the service account {self._name} lacks the right '{request.verb.right}' on {request.about}, or a policy "
            "forbids the request; apply Railnet's Role and ClusterRole, or change the policy"
        )


class StreamingApiServer(ApiServer):
    """The client of a program that also watches."""

    def __init__(self, transport: StreamingTransport, token: Callable[[], str], name: str) -> None:
        """Send through a transport; as `ApiServer`."""
        super().__init__(transport, token, name)
        self._streaming = transport

    def lines(self, request: Request, accepted: Callable[[], object] = lambda: None) -> Generator[bytes]:
        """Send a request and yield each line of its answer, without the line's end, as it comes.

        Of a watch, the bytes after the last line's end are dropped: the connection ended in the middle of a change. A log's last line may
        have no end: it is yielded when the answer has ended. The connection is closed when the iterator is closed: a consumer that
        stops early closes it.

        Args:
            request: the request.
            accepted: called when the API server has accepted the request; the first line may come much later.

        Raises:
            RequestFailed: as `send`.
            TooLarge: a line is longer than this client reads.
        """
        try:
            with self._streaming.stream(request, self._headers(request), _MAX_ANSWER_BYTES) as (answer, pieces):
                self._check(request, answer)
                if request.accept == JSON:  # a log is text
                    _check_is_json(request, answer)
                accepted()
                yield from _lines(request, pieces)
        except OSError as error:
            raise _no_answer(request, error) from None


class UserApiServer(StreamingApiServer):
    """The client of a command that a person runs with rights of their own."""

    def _forbidden(self, request: Request) -> str:
        return (
            f"you lack the right '{request.verb.right}' on {request.about}, or a policy or a quota forbids the request; ask an "
            "administrator of the cluster"
        )


def _conflicts(request: Request, status: int) -> bool:
    # A patch whose precondition fails is unprocessable (kube-apiserver 1.37): a JSON patch's `test`, a UID.
    return status == HTTPStatus.CONFLICT or (status == HTTPStatus.UNPROCESSABLE_ENTITY and request.verb is Verb.PATCH)


def _object(request: Request, answer: Answer) -> JsonObject:
    if len(answer.body) > _most_bytes(request):
        raise _too_large(request)
    _check_is_json(request, answer)
    document = _json(answer.body)
    if not isinstance(document, dict):
        raise RequestFailed(f"cannot {request}: the answer is not a JSON object")
    return document


def _check_is_json(request: Request, answer: Answer) -> None:
    if answer.content_type.partition(";")[0].strip().lower() != "application/json":
        raise RequestFailed(
            f"cannot {request}: the answer is {answer.content_type[:_MAX_CONTENT_TYPE]!r}, not application/json; check that "
            "the server of the kubeconfig, or in a pod KUBERNETES_SERVICE_HOST, is the API server, and no proxy stands before it"
        )


def _no_answer(request: Request, error: OSError) -> NoAnswer:
    kind = "" if type(error) is OSError else f"{type(error).__name__}: "
    return NoAnswer(f"cannot {request}: {kind}{error!s:.400}")


def _most_bytes(request: Request) -> int:
    return min(request.most_bytes or _MAX_ANSWER_BYTES, _MAX_ANSWER_BYTES)


def _too_large(request: Request) -> TooLarge:
    return TooLarge(f"cannot {request}: the answer has more than {_most_bytes(request)} bytes")


def _lines(request: Request, pieces: Iterator[bytes]) -> Iterator[bytes]:
    partial_line = bytearray()
    for piece in pieces:
        first, *others = piece.split(b"\n")
        partial_line += first
        for other in others:
            line, partial_line = bytes(partial_line), bytearray(other)
            yield line
        if len(partial_line) > _MAX_ANSWER_BYTES:
            raise _too_large(request)
    if partial_line and request.accept != JSON:
        yield bytes(partial_line)


def message(body: bytes) -> str:
    """Return what a failure's `metav1.Status` says; another program's answer is quoted as it is."""
    status = _json(body)
    if isinstance(status, dict) and status.get("message"):
        return str(status["message"])[:_MAX_MESSAGE]
    return body[: 4 * _MAX_MESSAGE].decode(errors="replace").strip()[:_MAX_MESSAGE] or "the API server does not say why"


def _json(body: bytes) -> Any:
    try:
        return parsed(body)
    except (ValueError, RecursionError):
        return None


def _seconds(retry_after: str) -> float:
    """Read a Retry-After of seconds, the only form that API servers use."""
    if not (retry_after.isascii() and retry_after.isdecimal()):
        return 0.0
    return min(float(retry_after), _LONGEST_RETRY_AFTER_SECONDS)
