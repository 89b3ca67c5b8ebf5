"""The two objects of the API server that the certificates need: the Secret, and the webhook configuration."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from railnet.admission.certificates.ca_bundle import Operation
from railnet.apiserver.client import Absent, ApiServer
from railnet.apiserver.request import ApiObject, JsonObject, create, get, json_patch, update

NAME = "railnet-admission"  # of the service, the webhook configuration and the service account; the Secret's name begins with it
SECRET = f"{NAME}-tls"
ROTATE = "railnet.io/rotate"  # the Secret's annotation by which an administrator asks for a new authority
_WEBHOOKS = ApiObject("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", NAME)


@dataclass(frozen=True, slots=True)
class Secret:
    """The Secret as it was read.

    Attributes:
        data: its entries, decoded.
    """

    document: Mapping[str, Any]
    data: Mapping[str, bytes]

    @property
    def asked(self) -> bool:
        """True if the annotation asks for a new authority."""
        return ROTATE in (self.document["metadata"].get("annotations") or {})


class ClusterObjects:
    """Reads and writes both objects. Each method blocks, and raises RequestFailed."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        """Use an API server; the Secret is in `namespace`."""
        self._api = api
        self._secret = ApiObject("v1", "secrets", SECRET, namespace)

    def webhooks(self) -> Mapping[str, Any]:
        """Read the webhook configuration. Raises Absent."""
        return self._api.send(get(_WEBHOOKS))

    def patch_webhooks(self, operations: list[Operation]) -> None:
        """Change the webhook configuration. Raises Conflict if it has changed since it was read."""
        self._api.send(json_patch(_WEBHOOKS, operations))

    def secret(self) -> Secret | None:
        """Read the Secret; return None if there is none."""
        try:
            document = self._api.send(get(self._secret))
        except Absent:
            return None
        return Secret(document, {key: _decoded(value) for key, value in (document.get("data") or {}).items()})

    def write_secret(self, before: Secret | None, data: Mapping[str, bytes], *, rotated: bool) -> None:
        """Write the Secret; if it is `rotated`, remove the annotation that asks for a new authority.

        Raises Conflict if the Secret has changed since it was read.
        """
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        if before is None:
            self._api.send(create(self._secret, _new(encoded)))
        else:
            document = _without_annotation(before.document) if rotated else before.document
            self._api.send(update(self._secret, {**document, "data": encoded}))


def _new(data: Mapping[str, str]) -> JsonObject:
    labels = {"app.kubernetes.io/name": NAME}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "labels": labels},
        "type": "kubernetes.io/tls",
        "data": dict(data),
    }


def _without_annotation(document: Mapping[str, Any]) -> JsonObject:
    metadata = dict(document["metadata"])
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {key: text for key, text in annotations.items() if key != ROTATE}
    return {**document, "metadata": metadata}


def _decoded(value: Any) -> bytes:
    try:
        return base64.b64decode(value or "", validate=True)
    except (ValueError, TypeError):
        return b""  # the entry then counts as missing
