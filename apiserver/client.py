"""The API server as a container of the cluster reaches it: HTTPS with the token of its service account.

Source: kubernetes.io/docs/tasks/run-application/access-api-from-pod, "Directly accessing the REST API".
"""

import http.client
import json
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

CREDENTIALS = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_SECONDS = 10.0
_MAX_ANSWER = 1 << 16  # only what is said of a failure is read …
_MAX_MESSAGE = 1000  # … and so many characters of it are told
_MAX_PORT = 0xFFFF
_MAX_NAME = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Request(NamedTuple):
    """One request; `path` begins with a slash, `content_type` is of the body, which is JSON in any case."""

    method: str
    path: str
    content_type: str
    body: bytes


class Answer(NamedTuple):
    """An answer's status, what a failure's `metav1.Status` says, and the seconds to wait that it asks for, if it does."""

    status: int
    message: str = ""
    retry_after: float | None = None


def path(*segments: str) -> str:
    """Join names to a path below /api/v1; the runtime told them, and the request has the daemon's rights.

    Raises:
        ValueError: one is no name of an object (DNS subdomain, RFC 1123).
    """
    for segment in segments:
        if len(segment) > _MAX_NAME or _NAME.fullmatch(segment) is None:
            raise ValueError(f"{segment!r:.80} cannot be the name of an API object")
    return "/api/v1/" + "/".join(segments)


class ApiServer:
    """Sends requests one by one, each on a connection of its own: they are few, and far between."""

    def __init__(self, host: str, port: int, credentials: Path = CREDENTIALS, seconds: float = _SECONDS) -> None:
        """Use the `token` and `ca.crt` in a folder; `seconds` is what it may take to answer."""
        self._host, self._port, self._credentials, self._seconds = host, port, credentials, seconds

    @classmethod
    def of_cluster(cls, environ: Mapping[str, str], credentials: Path = CREDENTIALS) -> Self | None:
        """Find the API server by what kubelet gives every container; None outside of a cluster, or without a token."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "")
        number = int(port[:9]) if port.isdecimal() else 0
        if not host or not 0 < number <= _MAX_PORT or not (credentials / "token").exists():
            return None
        return cls(host, number, credentials)

    def send(self, request: Request) -> Answer:
        """Send and wait for the answer. Blocks: not for an event loop's thread.

        Raises:
            OSError: there is no answer, or no credentials.
        """
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=self._seconds, context=self._trust())
        try:
            connection.request(request.method, request.path, request.body, self._headers(request))
            return _answer(connection.getresponse())
        except (http.client.HTTPException, ValueError) as error:  # ValueError: the token is none
            raise OSError(f"{type(error).__name__}: {error!s:.200}") from None
        finally:
            connection.close()

    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._credentials / "ca.crt"))
        # Cluster authorities made by hand lack what RFC 5280 asks of them; no client of the cluster insists on it.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    def _headers(self, request: Request) -> dict[str, str]:
        token = (self._credentials / "token").read_text().strip()  # each time: kubelet replaces it about every hour
        return {
            "Authorization": f"Bearer {token}",
            "Content-Type": request.content_type,
            "Accept": "application/json",
            "User-Agent": "railnet",
        }


def _answer(response: http.client.HTTPResponse) -> Answer:
    if response.status < http.client.BAD_REQUEST:
        return Answer(response.status)
    seconds = response.headers.get("Retry-After", "")
    return Answer(response.status, _message(response), float(seconds) if seconds.isdecimal() else None)


def _message(response: http.client.HTTPResponse) -> str:
    text = response.read(_MAX_ANSWER).decode(errors="replace")
    try:
        return str(json.loads(text)["message"])[:_MAX_MESSAGE]
    except (ValueError, KeyError, TypeError, RecursionError):
        return text.strip()[:_MAX_MESSAGE] or response.reason
