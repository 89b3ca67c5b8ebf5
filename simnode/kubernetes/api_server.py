"""A Kubernetes API server with pods, their events and nodes in memory, over real TLS; a test can make it hang, refuse or fail.

It has only the part of the API that the daemon uses: patches of `pods/status`, of nodes and of `nodes/status`, events, ResourceClaims to read and
their status, and ResourceSlices. Its answers are those that
kube-apiserver 1.20 gave, and `tests/control_plane/test_gated_pods.py` shows the 422 of 1.37: a patch with another UID and a JSON patch whose test
fails are unprocessable, and an object that exists already is a conflict.
"""

import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from simnode.kubernetes import dra_objects

_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=simnode "
    "-addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
)
_SECONDS = 60.0
_DRA = ["apis", "resource.k8s.io", "v1"]


class Received(NamedTuple):
    """One received request."""

    method: str
    path: str
    content_type: str
    token: str
    body: Any


class Reply(NamedTuple):
    """One answer; `text` is the message of a failure, `found` is the object that is answered where Railnet reads it."""

    status: int
    text: str = ""
    headers: Mapping[str, str] = {}
    found: Mapping[str, Any] | None = None


@dataclass
class _Failed(Exception):
    reply: Reply


class ApiServer:
    """A server on a port of the loopback, which writes the credentials that a pod would have; a context manager.

    Attributes:
        token: the only token that is accepted.
        received: all writes so far, including those without an answer yet.
        pods: the pods by namespace and name.
        events: the events by namespace and name.
        nodes: the nodes by namespace, which is empty, and name.
        claims: the ResourceClaims by namespace and name.
        slices: the ResourceSlices by name.
        interfere: returns an answer for a request, or None for the server's own answer; it may wait.
    """

    def __init__(self, folder: Path) -> None:
        """Write the credentials to a folder: token and ca.crt, as kubelet mounts them."""
        self._folder = folder
        self.token = "a-token"  # noqa: S105 - only this simulated server accepts it
        self.received: list[Received] = []
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.nodes: dict[tuple[str, str], dict[str, Any]] = {}
        self.claims: dict[tuple[str, str], dict[str, Any]] = {}
        self.slices: dict[str, dict[str, Any]] = {}
        self.interfere: Callable[[Received], Reply | None] = lambda _: None
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        key, certificate = self._folder / "key", self._folder / "ca.crt"
        command = _CERTIFICATE.format(key=key, certificate=certificate)
        subprocess.run(command.split(), check=True, capture_output=True)
        self.write_token()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = _Listening(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that kubelet sets in each container."""
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._server.server_address[1])}

    def write_token(self) -> None:
        """Write the current token where pods read it."""
        (self._folder / "token").write_text(self.token)

    def add_pod(self, namespace: str, name: str, uid: str, annotations: Mapping[str, str] | None = None) -> None:
        """Add a pod."""
        self.pods[namespace, name] = {"metadata": {"uid": uid, "annotations": dict(annotations or {})}}

    def annotations(self, namespace: str, name: str) -> dict[str, str]:
        """Return a pod's annotations."""
        found: dict[str, str] = self.pods[namespace, name]["metadata"]["annotations"]
        return found

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition is true; each request and each answer calls the condition again.

        Raises:
            TimeoutError: the condition did not become true in time.
        """
        with self._changed:
            if not self._changed.wait_for(condition, _SECONDS):
                raise TimeoutError(f"the condition is false after {_SECONDS} s; the requests so far: {self.received}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = (
                True  # as Go's servers: a body does not wait until the client acknowledges the headers
            )

            def log_message(self, *_arguments: object) -> None:
                pass

            def _serve(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.loads(content) if content else None
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                received = Received(self.command, self.path, self.headers.get("Content-Type", ""), token, body)
                reply = server._reply(received)
                status = {"kind": "Status", "code": reply.status, "message": reply.text}
                answer = json.dumps(status if reply.found is None else reply.found).encode()
                self.send_response(reply.status)
                self.send_header("Content-Type", "application/json")
                for header, value in {**reply.headers, "Content-Length": str(len(answer))}.items():
                    self.send_header(header, value)
                self.end_headers()
                self.wfile.write(answer)
                server._notify()

            do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the names of http.server

        return Handler

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _reply(self, received: Received) -> Reply:
        with self._changed:
            self.received.append(received)
            self._changed.notify_all()
        interference = self.interfere(received)
        if interference is not None:
            return interference
        try:
            with self._changed:
                return Reply(HTTPStatus.OK, found=self._do(received))
        except _Failed as failed:
            return failed.reply

    def _do(self, received: Received) -> Mapping[str, Any] | None:
        if received.token != self.token:
            _fail(HTTPStatus.UNAUTHORIZED, "Unauthorized")
        parts = received.path.partition("?")[0].strip("/").split("/")
        if parts[:3] == ["api", "v1", "nodes"] and parts[4:] in ([], ["status"]):
            return self._do_node(("", parts[3]), received)
        if parts[:3] == _DRA:
            return self._do_dra(received, parts[3:])
        if parts[:3] != ["api", "v1", "namespaces"]:
            _fail(HTTPStatus.NOT_FOUND, f"there is no {received.path}")
        namespace, kind = parts[3], parts[4]
        match received.method, kind, len(parts):
            case "PATCH", "pods", 7 if parts[6] == "status":
                self._patch(self.pods, (namespace, parts[5]), received)
            case "POST", "events", 5:
                self._create_event(namespace, received.body)
            case "PATCH", "events", 6:
                self._patch(self.events, (namespace, parts[5]), received)
            case _:
                _fail(HTTPStatus.METHOD_NOT_ALLOWED, f"{received.method} {received.path}")
        return None

    def _do_dra(self, received: Received, parts: list[str]) -> Mapping[str, Any]:
        """Serve ResourceSlices, and ResourceClaims: to read, and their status to write."""
        try:
            if parts[0] == "resourceslices":
                return dra_objects.slices_after(self.slices, received.method, parts[1:], received.body)
            return dra_objects.claim_after(self.claims, received.method, parts[1:], received.body)
        except dra_objects.Refused as refused:
            _fail(refused.status, str(refused))

    def _do_node(self, key: tuple[str, str], received: Received) -> Mapping[str, Any]:
        """Return a node, after a patch, if this is one: it has another version then if it has changed."""
        if received.method != "PATCH":
            return self._get(self.nodes, key)
        before = json.dumps(self.nodes.get(key))
        self._patch(self.nodes, key, received)
        if before != json.dumps(self.nodes[key]):
            version = int(self.nodes[key]["metadata"].get("resourceVersion", "0"))
            self.nodes[key]["metadata"]["resourceVersion"] = str(version + 1)
        return self._get(self.nodes, key)

    def _create_event(self, namespace: str, body: dict[str, Any]) -> None:
        key = namespace, body["metadata"]["name"]
        if key in self.events:
            _fail(HTTPStatus.CONFLICT, f'events "{key[1]}" already exists')
        self.events[key] = body

    @staticmethod
    def _get(objects: dict[tuple[str, str], dict[str, Any]], key: tuple[str, str]) -> Mapping[str, Any]:
        if key not in objects:
            _fail(HTTPStatus.NOT_FOUND, f'"{key[1]}" not found')
        return json.loads(json.dumps(objects[key]))  # type: ignore[no-any-return]

    @staticmethod
    def _patch(objects: dict[tuple[str, str], dict[str, Any]], key: tuple[str, str], received: Received) -> None:
        if key not in objects:
            _fail(HTTPStatus.NOT_FOUND, f'"{key[1]}" not found')
        match received.content_type:
            case "application/merge-patch+json":
                _merge(objects[key], received.body)
            case "application/strategic-merge-patch+json":
                _merge_conditions(objects[key], received.body)
            case "application/json-patch+json":
                _apply(objects[key], received.body)
            case other:
                _fail(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, other)


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with five, as by default, a sixth client at once waits a second: its SYN is dropped

    def handle_error(self, request: object, client_address: object) -> None:
        """Report nothing: a client may disconnect at any moment."""


def _fail(status: int, text: str) -> NoReturn:
    raise _Failed(Reply(status, text))


def _merge(found: dict[str, Any], patch: dict[str, Any]) -> None:
    uid = patch.get("metadata", {}).get("uid")
    if uid is not None and uid != found["metadata"]["uid"]:
        _fail(HTTPStatus.UNPROCESSABLE_ENTITY, f'metadata.uid: Invalid value: "{uid}": field is immutable')
    version = patch.get("metadata", {}).get("resourceVersion")
    if version is not None and version != found["metadata"].get("resourceVersion"):
        _fail(HTTPStatus.CONFLICT, "the object has been modified; please apply your changes to the latest version")
    _merge_into(found, patch)


def _merge_conditions(found: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a strategic merge patch that has only conditions: each replaces, or with `$patch: delete` removes, the one of its type."""
    if not patch:
        return
    if patch.keys() != {"status"} or patch["status"].keys() != {"conditions"}:
        _fail(HTTPStatus.BAD_REQUEST, "this server merges nothing but conditions strategically")
    conditions = found.setdefault("status", {}).setdefault("conditions", [])
    for one in patch["status"]["conditions"]:
        others = [old for old in conditions if old["type"] != one["type"]]
        conditions[:] = others if one.get("$patch") == "delete" else [*others, one]


def _merge_into(found: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a merge patch (RFC 7396)."""
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge_into(found[key], value)
        elif value is None:
            found.pop(key, None)
        else:
            found[key] = value


def _apply(found: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    """Apply a JSON patch (RFC 6902) that has only the operations test and add."""
    for step in steps:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        parent = found
        for part in path:
            parent = parent[part]
        if step["op"] == "add":
            parent[last] = step["value"]
        elif parent.get(last) != step["value"]:
            _fail(HTTPStatus.UNPROCESSABLE_ENTITY, f"testing value {step['path']} failed: test failed")
