"""Tokens of the daemons, which the API server binds to their pods, and with them to their nodes; and tokens of others."""

import http.client
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.chart import Values
from tests.cluster.manifests import NAMESPACE
from tests.cluster.process import until_found, wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.server import ApiServer

OF_NODE_A, OF_NO_NODE, OF_ANOTHER_ACCOUNT, OF_ADMIN = "of node-a", "of no node", "of another account", ""
_SECONDS = 60.0
_ACCOUNT, _OTHER, _ELSEWHERE = "railnet", "other", "kube-system"
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@contextmanager
def daemons(server: ApiServer, values: Values) -> Iterator[dict[str, str]]:
    """Apply the chart with these values, and have its daemons on node-a and node-b; yield the tokens."""
    with some_nodes(server.api, [node("node-a"), node("node-b")]), applied(server, values, daemons=True):
        own = until_found(lambda: _pod_on(server, NAMESPACE, "node-a"), _SECONDS, "the daemon of node-a")
        with _other_account(server) as other:
            yield {
                OF_NODE_A: server.token(NAMESPACE, _ACCOUNT, own),
                OF_NO_NODE: server.token(NAMESPACE, _ACCOUNT),
                OF_ANOTHER_ACCOUNT: other,
                OF_ADMIN: OF_ADMIN,
            }


@contextmanager
def every_right(server: ApiServer, token: str) -> Iterator[None]:
    """Give the daemons' account every right: what is refused in the block, the policies refuse."""
    with _every_right(server, NAMESPACE, _ACCOUNT):
        wait_until(lambda: server.api.get("/api/v1/secrets?limit=1", token).status == 200, _SECONDS, "every right")
        yield


@contextmanager
def _every_right(server: ApiServer, namespace: str, account: str) -> Iterator[None]:
    binding = {
        "metadata": {"name": f"every-right-{account}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }
    made = server.api.create(_RIGHTS, binding)
    assert made.status == http.client.CREATED, made.message
    try:
        yield
    finally:
        server.api.delete(f"{_RIGHTS}/every-right-{account}")


@contextmanager
def _other_account(server: ApiServer) -> Iterator[str]:
    """Have an account with every right, and a pod of it on node-b; yield the token of this pod."""
    accounts, pods = (f"/api/v1/namespaces/{_ELSEWHERE}/{what}" for what in ("serviceaccounts", "pods"))
    server.api.create(accounts, {"metadata": {"name": _OTHER}})
    spec = {"serviceAccountName": _OTHER, "nodeName": "node-b", "containers": [{"name": "main", "image": "i"}]}
    made = server.api.create(pods, {"metadata": {"name": _OTHER}, "spec": spec})
    assert made.status == http.client.CREATED, made.message
    try:
        with _every_right(server, _ELSEWHERE, _OTHER):
            yield server.token(_ELSEWHERE, _OTHER, made.object)
    finally:
        server.api.delete(f"{pods}/{_OTHER}?gracePeriodSeconds=0")
        server.api.delete(f"{accounts}/{_OTHER}")


def _pod_on(server: ApiServer, namespace: str, name: str) -> JsonObject | None:
    pods = server.api.items(f"/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName={name}")
    return next(iter(pods), None)
