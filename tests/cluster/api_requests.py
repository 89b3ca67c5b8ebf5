"""Requests to the API server for which kubectl has no command, or would be too slow."""

import http.client
import json
import ssl
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.cluster.control_plane import ADMIN

_SECONDS = 120.0  # of an answer, also on a machine that stands still for a while


class Answer(NamedTuple):
    """What the API server answered."""

    status: int
    document: dict[str, Any]


class ApiRequests:
    """The cluster's administrator, on one connection that is kept: a context manager, for one thread."""

    def __init__(self) -> None:
        config = json.loads(ADMIN.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._headers = {"Authorization": f"Bearer {user['token']}"}
        self._connection = http.client.HTTPSConnection(
            cluster["server"].removeprefix("https://"),
            timeout=_SECONDS,
            context=ssl.create_default_context(cafile=cluster["certificate-authority"]),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str) -> dict[str, Any]:
        """Return an object.

        Raises:
            LookupError: the API server does not have it, or refused the request.
        """
        answer = self._send("GET", path, None, "application/json")
        if answer.status != http.client.OK:
            raise LookupError(str(answer.document))
        return answer.document

    def create(self, pod: dict[str, Any], *, dry_run: bool = False) -> Answer:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods" + "?dryRun=All" * dry_run
        return self._send("POST", path, pod, "application/json")

    def merge_status(self, node: str, status: dict[str, Any]) -> None:
        """Change what a node says of itself, as `merge` does."""
        self.merge(f"/api/v1/nodes/{node}/status", {"status": status})

    def merge(self, path: str, changes: dict[str, Any]) -> None:
        """Change an object, as RFC 7396 has it.

        Raises:
            RuntimeError: it was refused.
        """
        answer = self._send("PATCH", path, changes, "application/merge-patch+json")
        if answer.status != http.client.OK:
            raise RuntimeError(str(answer.document))

    def _send(self, method: str, path: str, body: dict[str, Any] | None, content_type: str) -> Answer:
        headers = {**self._headers, "Content-Type": content_type}
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = self._connection.getresponse()
        return Answer(response.status, json.loads(response.read()))
