"""A client of the API server by HTTP, with a token: it returns answers with their warnings."""

import contextlib
import http.client
import json
import re
import socket
import ssl
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

_SECONDS = 60.0
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
    """A client with a connection of its own, for one thread; its user is the administrator, unless a request has another token."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self.kubeconfig = kubeconfig
        self.host: str = cluster["server"].removeprefix("https://")
        self.authority = Path(cluster["certificate-authority"])
        self._token: str = config["users"][0]["user"]["token"]
        self._connection: http.client.HTTPSConnection | None = None
        self._used_at = 0.0

    def another(self) -> Self:
        """Return the same client with another connection, for another thread."""
        return type(self)(self.kubeconfig)

    def get(self, path: str, token: str = "") -> ApiAnswer:
        return self.send("GET", path, token=token)

    def create(self, path: str, body: JsonObject, token: str = "") -> ApiAnswer:
        return self.send("POST", path, body, token)

    def merge(self, path: str, body: JsonObject, token: str = "") -> ApiAnswer:
        return self.send("PATCH", path, body, token, "application/merge-patch+json")

    def delete(self, path: str) -> ApiAnswer:
        return self.send("DELETE", path)

    def items(self, path: str) -> list[JsonObject]:
        """Return the objects of a list; none if the API server does not have it."""
        found: list[JsonObject] = self.get(path).object.get("items") or []
        return found

    def send(
        self,
        method: str,
        path: str,
        body: JsonObject | list[JsonObject] | None = None,
        token: str = "",
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> ApiAnswer:
        headers = {"Content-Type": content_type, "Accept": accept}
        response = self.request(method, path, None if body is None else json.dumps(body).encode(), headers, token)
        warnings = re.findall(r'299 - "((?:[^"\\]|\\.)*)"', ", ".join(response.headers.get_all("Warning", [])))
        return ApiAnswer(response.status, json.loads(response.read()), warnings)

    def text(self, path: str) -> str:
        """Return a body that is not JSON, such as `/metrics`."""
        return self.request("GET", path).read().decode()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """End the answer that another thread waits for."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None, token: str = ""
    ) -> http.client.HTTPResponse:
        """Send by one kept connection, since a thousand handshakes would take longer than the requests; the body is unread."""
        if time.monotonic() - self._used_at > _IDLE_SECONDS:
            self.close()
        self._used_at = time.monotonic()
        try:
            self._connection = self._connection or self._connect()
            authorization = {"Authorization": f"Bearer {token or self._token}"}
            self._connection.request(method, path, body, {**(headers or {}), **authorization})
            return self._connection.getresponse()
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def _connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection(self.host, timeout=_SECONDS, context=context)
