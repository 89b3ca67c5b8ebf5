"""The two objects of the API server that matter here, by the `kubernetes` client: the Secret and the webhook configuration.

Its generated models are not used: they would drop, on the way back, what a newer API server has in an object.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader

from admission.certificates.ca_bundle import Operation

NAME = "railnet-admission"  # of the service, the webhook configuration, the service account, and the prefix of the Secret's
SECRET = f"{NAME}-tls"
ROTATE = "railnet.io/rotate"  # the Secret's annotation by which somebody asks for a new authority
_SECONDS = (3.0, 7.0)  # to connect, and for each read
_MAX_MESSAGE = 400
_CONFIGURATION = f"mutatingwebhookconfigurations/{NAME}"


class Unanswered(Exception):
    """The API server did not do what it was asked; the message is for the log."""


class Conflict(Unanswered):
    """Somebody else was faster: read again."""


class Absent(Unanswered):
    """There is no such object."""


@dataclass(frozen=True, slots=True)
class Secret:
    """The Secret as it was read: `document` is all of it, `data` what it holds."""

    document: Mapping[str, Any]
    data: Mapping[str, bytes]

    @property
    def asked(self) -> bool:
        """Whether somebody asks for a new authority."""
        return ROTATE in (self.document["metadata"].get("annotations") or {})


class Cluster(Protocol):
    """What the keeper asks of an API server. All of it blocks, and raises Unanswered."""

    def webhooks(self) -> Mapping[str, Any]:
        """Read the webhook configuration. Raises Absent."""

    def patch_webhooks(self, operations: list[Operation]) -> None:
        """Change the webhook configuration. Raises Conflict if it has changed meanwhile."""

    def secret(self) -> Secret | None:
        """Read the Secret; None if there is none."""

    def write_secret(self, before: Secret | None, data: Mapping[str, bytes], *, rotated: bool) -> None:
        """Write the Secret; nobody asks for a new authority any more if it is `rotated`.

        Raises Conflict if it is not as it was before.
        """


class _Request(NamedTuple):
    method: str
    what: str  # in words, for what is said of a failure
    path: str
    body: Any = None
    content_type: str = "application/json"


class ApiServer:
    """The API server of the cluster that this runs in, with the rights of its service account."""

    def __init__(self, namespace: str, account: Path) -> None:
        """Find it by what kubelet gives every container; `account` is the folder of the token and of the cluster's ca.crt.

        Raises:
            Unanswered: this is no container of a cluster.
        """
        configuration = Configuration()
        configuration.retries = False  # the keeper tries again
        try:
            loader = InClusterConfigLoader(account / "token", account / "ca.crt")  # type: ignore[no-untyped-call]
            loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError) as error:
            raise Unanswered(
                f"there is no API server to ask: {error}; outside of a cluster, give --certificates"
            ) from None
        self._client = ApiClient(configuration)
        self._client.user_agent = NAME
        self._of_namespace(namespace)

    def _of_namespace(self, namespace: str) -> None:
        self._namespace = namespace
        self._secret = f"/api/v1/namespaces/{namespace}/secrets"
        self._webhooks = f"/apis/admissionregistration.k8s.io/v1/{_CONFIGURATION}"

    def webhooks(self) -> Mapping[str, Any]:
        """Read the webhook configuration."""
        return self._send(_Request("GET", f"get {_CONFIGURATION}", self._webhooks))

    def patch_webhooks(self, operations: list[Operation]) -> None:
        """Change the webhook configuration."""
        patch = "application/json-patch+json"
        self._send(_Request("PATCH", f"patch {_CONFIGURATION}", self._webhooks, operations, patch))

    def secret(self) -> Secret | None:
        """Read the Secret."""
        try:
            document = self._send(_Request("GET", self._of_secret("get"), f"{self._secret}/{SECRET}"))
        except Absent:
            return None
        return Secret(document, {key: _decoded(value) for key, value in (document.get("data") or {}).items()})

    def write_secret(self, before: Secret | None, data: Mapping[str, bytes], *, rotated: bool) -> None:
        """Write the Secret."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        if before is None:
            self._send(_Request("POST", self._of_secret("create"), self._secret, _made(encoded)))
        else:
            path = f"{self._secret}/{SECRET}"
            document = _without_request(before.document) if rotated else before.document
            self._send(_Request("PUT", self._of_secret("update"), path, {**document, "data": encoded}))

    def _of_secret(self, verb: str) -> str:
        return f"{verb} secrets/{SECRET} in namespace {self._namespace}"

    def _send(self, request: _Request) -> dict[str, Any]:
        try:
            serialised = self._client.param_serialize(
                request.method,
                request.path,
                header_params={"Accept": "application/json", "Content-Type": request.content_type},
                body=request.body,
                auth_settings=["BearerToken"],
            )
            answer = self._client.call_api(*serialised, _request_timeout=_SECONDS)
            body: bytes = answer.read()  # type: ignore[no-untyped-call]
        except (urllib3.exceptions.HTTPError, ApiException, ConfigException, OSError) as error:
            raise Unanswered(f"cannot {request.what}: {type(error).__name__}: {error!s:.{_MAX_MESSAGE}}") from None
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise _failure(request, answer.status, body)
        return _document(request, body)


def _document(request: _Request, body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Unanswered(f"cannot {request.what}: the answer is not a JSON object")
    return document


def _failure(request: _Request, status: int, body: bytes) -> Unanswered:
    message = _message(body)
    if status in (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY):
        # A JSON Patch whose test fails is unprocessable (kube-apiserver 1.20 and 1.3x alike).
        return Conflict(f"cannot {request.what}: {message}")
    if status == HTTPStatus.NOT_FOUND:
        return Absent(f"cannot {request.what}: {message}")
    if status == HTTPStatus.FORBIDDEN:
        verb, _, what = request.what.partition(" ")
        return Unanswered(
            f"the service account {NAME} lacks the right '{verb}' on {what}; apply its Role and ClusterRole: {message}"
        )
    return Unanswered(f"cannot {request.what}: HTTP {status}: {message}")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])[:_MAX_MESSAGE]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "the API server does not say why"


def _made(data: Mapping[str, str]) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": NAME}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "labels": labels},
        "type": "kubernetes.io/tls",
        "data": dict(data),
    }


def _without_request(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(document["metadata"])
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {key: text for key, text in annotations.items() if key != ROTATE}
    return {**document, "metadata": metadata}


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(value or "", validate=True)
    except (ValueError, TypeError):
        return b""  # then the entry counts as missing
