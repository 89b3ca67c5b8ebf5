"""A fake API server, over real TLS, with one Secret and one webhook configuration: the part that the certificates' keeper uses.

It checks resourceVersions as kube-apiserver does: a PUT with another version is a conflict, a JSON Patch with a failing test is
unprocessable, and a POST of an existing object is a conflict.
"""

import base64
import copy
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509

from railnet.admission.certificates import authority, secret_content
from railnet.admission.certificates.cluster_objects import NAME, SECRET
from railnet.admission.certificates.secret_content import Kept

NAMESPACE = "railnet"
NAMES = (f"{NAME}.{NAMESPACE}.svc", NAME)
_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
_SECRET = f"{_SECRETS}/{SECRET}"
_WEBHOOKS = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{NAME}"
_TOKEN = "a-token"  # noqa: S105 - it gives access to this fake only

JsonObject = dict[str, Any]


class Refusal(Exception):
    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class FakeApiServer:
    """The objects, and the requests so far; the objects change under `lock` only.

    Attributes:
        secret, webhooks: the objects; None if missing.
        requests: all requests so far, as "GET secrets".
        trusted_since: each bundle that the first webhook got, with the monotonic time in seconds.
        interfere: called with each request before it is handled; it may raise Refusal, or change the objects.
    """

    def __init__(self) -> None:
        self.secret: JsonObject | None = None
        self.webhooks: JsonObject | None = None
        self.requests: list[str] = []
        self.trusted_since: list[tuple[float, bytes]] = []
        self.interfere: Callable[[str, str], None] = lambda method, kind: None
        self.lock = threading.RLock()
        self._version = 0

    def add_webhooks(self, *bundles: str | None) -> None:
        """Create the webhook configuration, with an entry for each bundle."""
        self.webhooks = self._changed(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": NAME, "labels": {"another": "owner"}},
                "webhooks": [
                    {
                        "name": f"{number}.railnet.io",
                        "failurePolicy": "Fail",
                        "clientConfig": {
                            "service": {"name": NAME, "namespace": NAMESPACE, "path": "/pods"},
                            **({} if bundle is None else {"caBundle": bundle}),
                        },
                    }
                    for number, bundle in enumerate(bundles)
                ],
            }
        )

    def put_secret(self, data: dict[str, bytes], **metadata: Any) -> None:
        """Write the Secret without a request, as another program would."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        before = {} if self.secret is None else self.secret["metadata"]
        self.secret = self._changed(
            {"type": "kubernetes.io/tls", "metadata": {"name": SECRET, **before, **metadata}, "data": encoded}
        )

    @property
    def data(self) -> dict[str, bytes]:
        assert self.secret is not None
        return {key: base64.b64decode(value) for key, value in self.secret["data"].items()}

    @property
    def kept(self) -> Kept:
        return secret_content.read(self.data, NAMES)

    @property
    def bundles(self) -> list[list[str]]:
        """The subjects of the authorities in each webhook's bundle."""
        assert self.webhooks is not None
        pems = [base64.b64decode(one["clientConfig"].get("caBundle", "")) for one in self.webhooks["webhooks"]]
        return [[one.subject.rfc4514_string() for one in authority.parse_certificates(pem)] for pem in pems]

    @property
    def pem(self) -> bytes:
        """The bundle that the first webhook trusts, in PEM."""
        assert self.webhooks is not None
        return base64.b64decode(self.webhooks["webhooks"][0]["clientConfig"]["caBundle"])

    @property
    def trusted(self) -> list[x509.Certificate]:
        """The authorities that the first webhook trusts."""
        return authority.parse_certificates(self.pem)

    def answer(self, method: str, path: str, headers: Message, body: Any) -> tuple[int, JsonObject]:
        try:
            if headers["Authorization"] != f"Bearer {_TOKEN}":
                raise Refusal(401, "Unauthorized")
            content_type = "application/json-patch+json" if method == "PATCH" else "application/json"
            if body is not None and headers["Content-Type"] != content_type:
                raise Refusal(415, headers["Content-Type"])
            return 200, self.do(method, path, body)
        except Refusal as refusal:
            return refusal.status, {"kind": "Status", "message": str(refusal), "code": refusal.status}

    def do(self, method: str, path: str, body: Any) -> JsonObject:
        kind = {_SECRETS: "secrets", _SECRET: "secrets", _WEBHOOKS: "webhooks"}.get(path)
        with self.lock:
            self.requests.append(f"{method} {kind}")
        if kind is None:
            raise Refusal(404, f"{path} does not exist")
        self.interfere(method, kind)
        with self.lock:
            of_kind = {"secrets": self._of_secret, "webhooks": self._of_webhooks}[kind]
            found = of_kind(method, body)
            return copy.deepcopy(found)

    def _of_secret(self, method: str, body: Any) -> JsonObject:
        before = self.secret
        if method == "POST":
            if before is not None:
                raise Refusal(409, f'secrets "{SECRET}" already exists')
            self.secret = self._changed({**body, "metadata": {**body["metadata"], "namespace": NAMESPACE}})
            return self.secret
        if before is None:
            raise Refusal(404, f'secrets "{SECRET}" not found')
        if method == "PUT":
            if body["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
                raise Refusal(409, "the object has been modified; please apply your changes to the latest version")
            self.secret = self._changed(body)
            return self.secret
        return before

    def _of_webhooks(self, method: str, body: Any) -> JsonObject:
        if self.webhooks is None:
            raise Refusal(404, f'mutatingwebhookconfigurations "{NAME}" not found')
        if method == "PATCH":
            self.webhooks = self._changed(_patched(self.webhooks, body))
            self.trusted_since.append((time.monotonic(), self.pem))
        return self.webhooks

    def _changed(self, document: JsonObject) -> JsonObject:
        self._version += 1
        return {**document, "metadata": {**document["metadata"], "resourceVersion": str(self._version)}}


def _patched(document: JsonObject, operations: list[JsonObject]) -> JsonObject:
    patched = copy.deepcopy(document)
    for operation in operations:
        *parents, last = operation["path"].split("/")[1:]
        parent: Any = patched
        for part in parents:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        if operation["op"] == "add":
            parent[last] = operation["value"]
        elif parent.get(last) != operation["value"]:
            raise Refusal(422, f"testing value {operation['path']} failed: test failed")
    return patched


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with five, as by default, a sixth client at once waits a second: its SYN is dropped


@contextmanager
def serving(fake: FakeApiServer, account: Path) -> Iterator[dict[str, str]]:
    """Serve the fake over TLS, and write the service account's folder; yield the environment that kubelet sets in a container."""
    account.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    ours = authority.make(now)
    leaf = authority.sign(ours, ["localhost"], now)
    (account / "ca.crt").write_bytes(authority.certificate_pem([ours.certificate]))
    (account / "token").write_text(_TOKEN)
    (account / "namespace").write_text(NAMESPACE)
    (account / "chain").write_bytes(leaf.chain + leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(account / "chain")
    server = _Server(("127.0.0.1", 0), _handler(fake))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield {"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": str(server.server_address[1])}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(fake: FakeApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = fake.answer(self.command, self.path, self.headers, body)
            raw = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def do_PATCH(self) -> None:
            self._serve()

        def log_message(self, *_arguments: object) -> None:
            pass

    return Handler
