"""A node that offers its VFs by the device plugin again: its daemon's token removes the slices of its own node, and can do nothing else to any."""

import http.client
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from railnet.apiserver.request import Request
from railnet.dra.resource_slices import NodeIdentity, deletions, existing_slice, own_slices, writes
from tests.cluster.process import until_found, wait_until
from tests.control_plane.api import ApiAnswer
from tests.control_plane.daemon_tokens import OF_ADMIN, OF_NODE_A, daemons
from tests.control_plane.server import ApiServer
from tests.railnet.dra.slice_store import a_device

_SECONDS = 120.0
_DRY_RUN = {"dryRun": ["All"]}  # in the body: beside one the API server does not read the query


@pytest.fixture
def tokens(server: ApiServer) -> Iterator[Mapping[str, str]]:
    """Have a slice of node-a and one of node-b, and no node that offers by DRA."""
    with daemons(server, {}) as tokens:
        for node in ("node-a", "node-b"):
            assert write(server, node, OF_ADMIN).status == http.client.CREATED
        yield tokens
        for node in ("node-a", "node-b"):
            for request in removals(server, node, OF_ADMIN):
                send(server, request, OF_ADMIN)


def send(server: ApiServer, request: Request, token: str, more: Mapping[str, Any] = {}) -> ApiAnswer:
    body = request.body
    assert isinstance(body, dict)
    return server.api.send(request.method, request.path, {**body, **more}, token, request.content_type)


def write(server: ApiServer, node: str, token: str) -> ApiAnswer:
    uid = server.api.get(f"/api/v1/nodes/{node}").object["metadata"]["uid"]
    (request,) = writes([], [a_device(0)], NodeIdentity(node, uid))
    return send(server, request, token)


def removals(server: ApiServer, node: str, token: str) -> list[Request]:
    """Return the requests that remove the slices of a node, as an account sees them."""
    slices = own_slices(node)
    documents = server.api.get(f"{slices.path}?{slices.query()}", token).object.get("items", [])
    return deletions([existing_slice(document, node) for document in documents])


def test_token_removes_the_slices_of_its_own_node_alone(server: ApiServer, tokens: Mapping[str, str]) -> None:
    token = tokens[OF_NODE_A]
    (own,) = until_found(lambda: removals(server, "node-a", token), _SECONDS, "the right to list")
    (other,) = removals(server, "node-b", token)

    wait_until(
        lambda: send(server, other, token, _DRY_RUN).status == http.client.UNPROCESSABLE_ENTITY,
        _SECONDS,
        "the policy to be in force",
    )
    assert write(server, "node-a", token).status == http.client.FORBIDDEN
    assert send(server, own, token).status == http.client.OK
    assert removals(server, "node-a", OF_ADMIN) == []
    assert removals(server, "node-b", OF_ADMIN) == [other]
