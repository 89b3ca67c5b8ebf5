"""The transport of the webhook, by the `kubernetes` package: it keeps connections, and threads may share it.

The package's generated models are not used: on the way back they would drop what a newer API server has in an object.
"""

import threading
from collections.abc import Mapping

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from apiserver.client import Answer
from apiserver.request import Request
from apiserver.service_account import ServiceAccount
from apiserver.tls import trusting

_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 7.0


class KubernetesTransport:
    """Sends through a pool of connections, and makes another pool when `ca.crt` has been replaced."""

    def __init__(
        self, account: ServiceAccount, connect: float = _CONNECT_SECONDS, answer: float = _ANSWER_SECONDS
    ) -> None:
        """Reach the API server of an account; the seconds are to connect, to send, and for the whole answer."""
        self._account, self._seconds = account, (connect, answer)
        self._lock = threading.Lock()
        self._trusted = b""
        self._client: ApiClient | None = None

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        """Send a request and return the answer."""
        client = self._current()
        url = client.configuration.host + request.path
        try:
            rest = client.call_api(request.method, url, dict(headers), request.body, _request_timeout=self._seconds)
            return _answer(rest.response, most_bytes)
        except (urllib3.exceptions.HTTPError, ApiException) as error:
            raise OSError(f"{type(error).__name__}: {error!s:.200}") from None

    def _current(self) -> ApiClient:
        authority = self._account.authority.read_bytes()
        with self._lock:
            if self._client is None or authority != self._trusted:
                client = self._new()
                if self._client is not None:
                    self._client.close()  # type: ignore[no-untyped-call]
                self._client, self._trusted = client, authority
            return self._client

    def _new(self) -> ApiClient:
        host = self._account.host
        configuration = Configuration()
        configuration.host = f"https://{f'[{host}]' if ':' in host else host}:{self._account.port}"
        configuration.retries = False  # the caller decides whether a request is sent again
        client = ApiClient(configuration)
        # The package's configuration has no field for an SSLContext; urllib3's pool has.
        client.rest_client.pool_manager.connection_pool_kw["ssl_context"] = trusting(self._account.authority)
        return client


def _answer(response: urllib3.HTTPResponse, most_bytes: int) -> Answer:
    found = response.headers
    try:
        # Not decoded: no other encoding is asked for, and a few bytes of gzip may be gigabytes.
        body = response.read(most_bytes, decode_content=False)
        return Answer(response.status, found.get("Content-Type", ""), found.get("Retry-After", ""), body)
    finally:
        response.close()  # a connection whose answer was read whole has gone back to the pool, and stays open
