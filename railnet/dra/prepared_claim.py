"""A prepared claim: what Railnet answered to kubelet. Values, and their JSON on disk; no files, which are `railnet.dra.prepared_claim_files`'s."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from deviceplugin.allocation import Allocation
from railnet.dra.claim import AllocatedClaim, ClaimIdentity
from railnet.vf.pci_address import PciAddress

_VERSION = 1  # raised whenever a key comes or goes
# A UID is part of the names of files and CDI devices. Kubernetes makes UUIDs (k8s.io/apimachinery, pkg/util/uuid).
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}", re.ASCII)


class UnreadableClaim(ValueError):
    """A record's bytes are truncated, changed, or of another version."""


class PreparedRequest(NamedTuple):
    """One request of a claim: its VFs, and what a container that names the request gets. The variables may name more VFs of the claim."""

    name: str
    vfs: tuple[PciAddress, ...]
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """A claim with what its containers get. A container that names no request gets what all requests have.

    `pod_claim` is the name by which a pod refers to a claim of a template; "" for another claim.
    """

    identity: ClaimIdentity
    pool: str
    requests: tuple[PreparedRequest, ...]
    pod_claim: str = ""

    @property
    def vfs(self) -> tuple[PciAddress, ...]:
        """The VFs of all requests."""
        return tuple(vf for request in self.requests for vf in request.vfs)

    def fits(self, claim: AllocatedClaim) -> bool:
        """Return whether the scheduler's choice is still the one that was prepared."""
        return {request.name: request.vfs for request in self.requests} == dict(claim.requests)


def is_uid(text: str) -> bool:
    """Return whether a text has the form of a claim's UID."""
    return _UID.fullmatch(text) is not None


def encode(claim: PreparedClaim) -> bytes:
    """Return a record as JSON that ends in the SHA-256 of all before it, for a human reader: a line for each value."""
    body = {
        "version": _VERSION,
        **claim.identity._asdict(),
        "pool": claim.pool,
        "pod_claim": claim.pod_claim,
        "requests": [
            {"name": request.name, "vfs": [str(vf) for vf in request.vfs], **_encode_allocation(request.allocation)}
            for request in claim.requests
        ],
    }
    return json.dumps({**body, "sha256": _digest(body)}, separators=(",\n ", ": ")).encode() + b"\n"


def decode(raw: bytes) -> PreparedClaim:
    """Parse what `encode` wrote.

    Raises:
        UnreadableClaim: the bytes are something else.
    """
    try:
        body = json.loads(raw)
        digest = body.pop("sha256")
        if body["version"] != _VERSION:
            raise UnreadableClaim(f"version {body['version']!r:.40}; this Railnet reads {_VERSION}")
        if digest != _digest(body):
            raise UnreadableClaim("its SHA-256 is another")
        return PreparedClaim(
            ClaimIdentity(_text(body["namespace"]), _text(body["name"]), _uid(body["uid"])),
            _text(body["pool"]),
            tuple(_decode_request(request) for request in body["requests"]),
            _text(body["pod_claim"]),
        )
    except UnreadableClaim:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableClaim(f"{type(error).__name__}: {error!s:.200}") from None


def _encode_allocation(allocation: Allocation) -> dict[str, Any]:
    return {"device_nodes": list(allocation.device_nodes), "envs": dict(allocation.envs)}


def _decode_request(body: dict[str, Any]) -> PreparedRequest:
    vfs = tuple(PciAddress.parse(vf) for vf in body["vfs"])
    return PreparedRequest(_text(body["name"]), vfs, _decode_allocation(body))


def _decode_allocation(body: dict[str, Any]) -> Allocation:
    envs = {_text(name): _text(value) for name, value in body["envs"].items()}
    return Allocation(tuple(map(_text, body["device_nodes"])), envs)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is where text should be")
    return value


def _uid(value: object) -> str:
    if not is_uid(_text(value)):
        raise ValueError(f"{value!r:.40} is no UID")
    return str(value)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
