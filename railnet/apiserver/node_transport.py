"""The node daemon's transport: the standard library, and a connection for each request, because requests are rare."""

import http.client
import json
import ssl
from collections.abc import Mapping

from railnet.apiserver.client import Answer
from railnet.apiserver.request import Request
from railnet.apiserver.service_account import ServiceAccount
from railnet.apiserver.tls import trusting

_SECONDS = 10.0


class NodeTransport:
    """Connects anew for each request, so a replaced `ca.crt` is trusted from the next request on. Threads may share it."""

    def __init__(self, account: ServiceAccount, seconds: float = _SECONDS) -> None:
        """Reach the API server of an account; `seconds` is the time to connect, and then the time for all of the rest."""
        self._account, self._seconds = account, seconds
        self._trusted: tuple[bytes, ssl.SSLContext] | None = None

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        """Send a request and return the answer."""
        account = self._account
        context = self._context()
        connection = http.client.HTTPSConnection(account.host, account.port, timeout=self._seconds, context=context)
        body = None if request.body is None else json.dumps(request.body).encode()
        try:
            connection.request(request.method, request.path, body, dict(headers))
            response = connection.getresponse()
            fields = response.headers
            content_type, retry_after = fields.get("Content-Type", ""), fields.get("Retry-After", "")
            return Answer(response.status, content_type, retry_after, response.read(most_bytes))
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error!s:.200}") from None
        finally:
            connection.close()

    def _context(self) -> ssl.SSLContext:
        """Return what trusts `ca.crt` as it is now. To make that takes an eighth of a message's processor time, and the file seldom changes."""
        certificates = self._account.authority.read_bytes()
        trusted = self._trusted
        if trusted is None or trusted[0] != certificates:
            self._trusted = trusted = certificates, trusting(self._account.authority)
        return trusted[1]
