"""A client of the API server by HTTP, with a token: it returns answers with their warnings."""

import http.client
import json
import re
import ssl
import time
from pathlib import Path
from typing import Any, NamedTuple

_SECONDS = 30.0
_IDLE_SECONDS = (
    60.0  # the API server closes connections that were idle for 90 s (k8s.io/apiserver/pkg/server/secure_serving.go)
)
JsonObject = dict[str, Any]


class ApiAnswer(NamedTuple):
    """An answer of the API server; `message` is empty if it is not a failure."""

    status: int
    object: JsonObject
    warnings: list[str]

    @property
    def text(self) -> str:
        return json.dumps(self.object)

    @property
    def message(self) -> str:
        return str(self.object.get("message", ""))


class Api:
    """A client of the API server at a port of the loopback."""

    def __init__(self, port: int, authority: Path) -> None:
        self.authority = authority
        self.port = port
        self._connection: http.client.HTTPSConnection | None = None
        self._used_at = 0.0

    def get(self, path: str, token: str = "admin") -> ApiAnswer:  # noqa: S107 - tests/genericapiserver/server/callers.go
        return self.send("GET", path, token=token)

    def create(self, path: str, body: JsonObject, token: str = "admin") -> ApiAnswer:  # noqa: S107
        return self.send("POST", path, body, token)

    def merge(self, path: str, body: JsonObject, token: str = "admin") -> ApiAnswer:  # noqa: S107
        return self.send("PATCH", path, body, token, "application/merge-patch+json")

    def send(
        self,
        method: str,
        path: str,
        body: JsonObject | list[JsonObject] | None = None,
        token: str = "admin",  # noqa: S107
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> ApiAnswer:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": content_type, "Accept": accept}
        response = self._send(method, path, None if body is None else json.dumps(body).encode(), headers)
        warnings = re.findall(r'299 - "((?:[^"\\]|\\.)*)"', ", ".join(response.headers.get_all("Warning", [])))
        return ApiAnswer(response.status, json.loads(response.read()), warnings)

    def text(self, path: str) -> str:
        """Return a body that is not JSON, such as `/metrics`."""
        return self._send("GET", path, None, {"Authorization": "Bearer admin"}).read().decode()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> http.client.HTTPResponse:
        """Send by one kept connection, since a thousand handshakes would take longer than the requests."""
        if time.monotonic() - self._used_at > _IDLE_SECONDS:
            self.close()
        self._used_at = time.monotonic()
        try:
            self._connection = self._connection or self._connect()
            self._connection.request(method, path, body, headers)
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def _connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=_SECONDS, context=context)
