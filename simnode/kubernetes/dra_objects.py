"""The objects of DRA in a simulated API server: ResourceSlices, and ResourceClaims with their status.

Preconditions are not looked at: one daemon alone writes them.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from itertools import count
from typing import Any

_versions = count(1)


class Refused(Exception):
    """A request that is not done; `status` is the status of HTTP."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def slices_after(
    slices: dict[str, dict[str, Any]], method: str, name: list[str], body: dict[str, Any]
) -> Mapping[str, Any]:
    """List the slices, or create, replace or delete one; return the answer. `name` is empty for the collection."""
    if method == "GET":
        return {"metadata": {"resourceVersion": str(next(_versions))}, "items": list(slices.values())}
    if method == "DELETE":
        return slices.pop(name[0], {})
    metadata = body["metadata"]
    if method == "POST" and metadata["name"] in slices:
        raise Refused(HTTPStatus.CONFLICT, f"{metadata['name']} already exists")
    version = str(next(_versions))
    body["metadata"] = {"uid": version, **metadata, "resourceVersion": version}
    slices[metadata["name"]] = body
    return body


def claim_after(
    claims: dict[tuple[str, str], dict[str, Any]], method: str, parts: list[str], body: dict[str, Any]
) -> Mapping[str, Any]:
    """Return a claim as it is, or after its status was applied; `parts` is the path after `namespaces`."""
    namespace, _, name, *subresource = parts
    claim = claims.get((namespace, name))
    if claim is None:
        raise Refused(HTTPStatus.NOT_FOUND, f'"{name}" not found')
    if (method, subresource) == ("PATCH", ["status"]):
        claim["status"]["devices"] = body["status"]["devices"]
    copy: Mapping[str, Any] = json.loads(json.dumps(claim))
    return copy
