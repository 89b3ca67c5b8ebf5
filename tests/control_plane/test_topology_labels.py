"""The policy of topologyLabels: the daemon changes the topology labels of its own node, and nothing else of any node.

What passes, passes with the rights of the manifest. What is refused, the policy refuses to an account with every right.
"""

import http.client
from collections.abc import Iterator, Mapping

import pytest

from railnet.apiserver import node_labels
from railnet.fabric.topology_labels import LEAF, RAILS, RATE, leaf_of_rail
from tests.cluster.chart import ENABLED
from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer, JsonObject
from tests.control_plane.daemon_tokens import OF_ADMIN, OF_ANOTHER_ACCOUNT, OF_NO_NODE, OF_NODE_A, daemons, every_right
from tests.control_plane.nodes import own_part
from tests.control_plane.server import ApiServer

REFUSED = "ValidatingAdmissionPolicy 'railnet-own-node-nodes' with binding 'railnet-own-node-nodes' denied request: "
OTHER_LABELS = "only the labels railnet.io/leaf, rails, rate and rail<number>-leaf may be changed"
METADATA = "neither annotations nor finalizers nor owners may be changed"
SPEC = "nothing of the specification but the taint railnet.io/rails-not-active, with NoSchedule, may be changed"
STATUS = "nothing of the status but the condition RailnetRails may be changed"
LABELS: dict[str, str | None] = {LEAF: "0002c903007e5a10", leaf_of_rail(0): "0002c903007e5a10", RAILS: "1", RATE: "400"}
_SECONDS = 120.0


class Nodes:
    """Nodes of the API server, and requests about them with different tokens."""

    def __init__(self, server: ApiServer, tokens: Mapping[str, str]) -> None:
        self._api, self.tokens = server.api, tokens
        self._first = {name: self.read(name) for name in ("node-a", "node-b")}

    def make(self, name: str, **labels: str) -> None:
        """Have a node as it was in the beginning, with a label and an annotation of another program's, and more labels."""
        first = self._first[name]
        more: JsonObject = {"labels": {"zone": "z1", **labels}, "annotations": {"a": "b"}}
        metadata = {"name": name, **{key: first["metadata"][key] | more[key] for key in more}}
        made = self._api.send("PUT", f"/api/v1/nodes/{name}", {"metadata": metadata, "spec": first["spec"]})
        assert made.status == http.client.OK, made.message

    def labels(self, name: str) -> JsonObject:
        """Return the labels of a node but for those that it had in the beginning."""
        found = self.read(name)["metadata"]["labels"]
        return {key: value for key, value in found.items() if key not in self._first[name]["metadata"]["labels"]}

    def label(self, name: str, labels: dict[str, str | None], token: str = OF_NODE_A) -> ApiAnswer:
        request = node_labels.change(name, labels)
        return self._api.send(
            request.method,
            request.path,
            request.body,
            self.tokens[token],
            request.content_type,
            accept=request.accept,
        )

    def patch(self, name: str, patch: JsonObject, subresource: str = "") -> ApiAnswer:
        return self._api.merge(f"/api/v1/nodes/{name}{subresource}", patch, self.tokens[OF_NODE_A])

    def send(self, method: str, path: str, body: JsonObject | None = None) -> ApiAnswer:
        return self._api.send(method, path, body, self.tokens[OF_NODE_A])

    def read(self, name: str) -> JsonObject:
        return self._api.get(f"/api/v1/nodes/{name}").object


@pytest.fixture(scope="module")
def policy(server: ApiServer) -> Iterator[Nodes]:
    """Yield nodes of an API server after its admission plugin has the policy, which it gets by watch."""
    with daemons(server, {"topologyLabels": ENABLED}) as tokens:
        found = Nodes(server, tokens)
        wait_until(lambda: REFUSED in found.label("node-b", {}).message, _SECONDS, "the policy to be in force")
        yield found


@pytest.fixture(scope="module")
def all_rights(server: ApiServer, policy: Nodes) -> Iterator[None]:
    with every_right(server, policy.tokens[OF_NODE_A]):
        yield


@pytest.fixture
def nodes(policy: Nodes) -> Nodes:
    policy.make("node-a")
    policy.make("node-b")
    return policy


def test_daemon_labels_its_node_and_removes_the_labels(nodes: Nodes) -> None:
    made = nodes.label("node-a", LABELS)
    labelled = nodes.labels("node-a")
    gone = nodes.label("node-a", dict.fromkeys(LABELS))

    assert (made.status, made.message, gone.status) == (200, "", 200)
    assert labelled == {"zone": "z1", **LABELS}
    assert nodes.labels("node-a") == {"zone": "z1"}


def test_answer_has_all_labels_and_nothing_but_metadata(nodes: Nodes) -> None:
    answer = nodes.label("node-a", {RAILS: "1"})

    assert node_labels.parse(answer.object) == nodes.read("node-a")["metadata"]["labels"]
    assert nodes.labels("node-a") == {"zone": "z1", RAILS: "1"}
    assert (answer.object["kind"], "status" in answer.object) == ("PartialObjectMetadata", False)


def test_look_at_the_labels_writes_nothing(nodes: Nodes) -> None:
    before = nodes.read("node-a")
    answer = nodes.label("node-a", {})

    assert (answer.status, node_labels.parse(answer.object)) == (200, before["metadata"]["labels"])
    assert own_part(nodes.read("node-a")) == own_part(before)


@pytest.mark.parametrize("labels", [{}, LABELS], ids=["look", "change"])
def test_daemon_may_not_touch_another_node(nodes: Nodes, labels: dict[str, str | None]) -> None:
    answer = nodes.label("node-b", labels)

    assert (answer.status, answer.message) == (
        422,
        f'nodes "node-b" is forbidden: {REFUSED}the node is not the node of this token',
    )
    assert nodes.labels("node-b") == {"zone": "z1"}


def test_token_without_a_node_is_refused(nodes: Nodes) -> None:
    assert nodes.label("node-a", LABELS, OF_NO_NODE).message.endswith("the token does not say which node it is of")


@pytest.mark.parametrize("token", [OF_ADMIN, OF_ANOTHER_ACCOUNT])
def test_policy_does_not_apply_to_other_accounts(nodes: Nodes, token: str) -> None:
    assert nodes.label("node-a", {"zone": "z2"}, token).status == 200


@pytest.mark.parametrize(
    "labels",
    [
        {"zone": "z2"},
        {"zone": None},
        {"new": ""},
        {"railnet.io/net1": "true"},
        {"railnet.io/leaf2": "x"},
        {"railnet.io/rail-leaf": "x"},
        {"x.railnet.io/leaf": "x"},
        {**LABELS, "node-role.kubernetes.io/control-plane": ""},
    ],
    ids=str,
)
def test_another_label_is_refused(nodes: Nodes, labels: dict[str, str | None]) -> None:
    answer = nodes.label("node-a", labels)

    assert answer.message.endswith(OTHER_LABELS)
    assert nodes.labels("node-a") == {"zone": "z1"}


def test_node_with_many_labels_stays_below_the_cost_limit_of_expressions(nodes: Nodes) -> None:
    """An expression beyond its cost limit (k8s.io/apiserver/pkg/apis/cel) fails, and then the request is refused."""
    nodes.make("node-a", **{f"label-{number}": "x" * 63 for number in range(1000)})
    made = nodes.label("node-a", LABELS)
    other = nodes.label("node-a", {"label-7": "y"})

    assert (made.status, made.message) == (200, "")
    assert other.message.endswith(OTHER_LABELS)


@pytest.mark.usefixtures("all_rights")
@pytest.mark.parametrize(
    ("patch", "subresource", "refusal"),
    [
        ({"spec": {"unschedulable": True}}, "", SPEC),
        ({"spec": {"providerID": "x"}}, "", SPEC),
        ({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}, "", SPEC),
        ({"metadata": {"annotations": {"a": "c"}}}, "", METADATA),
        ({"metadata": {"annotations": {"new": ""}}}, "", METADATA),
        ({"metadata": {"finalizers": ["x.io/y"]}}, "", METADATA),
        (
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "u"}]}},
            "",
            METADATA,
        ),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "/status", STATUS),
        ({"status": {"allocatable": {"rdma/ib_vf": "0"}}}, "/status", STATUS),
        ({"metadata": {"annotations": {"a": "c"}}}, "/status", METADATA),
        ({"metadata": {"labels": {RAILS: "1"}}}, "/status", OTHER_LABELS),
    ],
    ids=str,
)
def test_anything_else_of_a_node_is_refused(nodes: Nodes, patch: JsonObject, subresource: str, refusal: str) -> None:
    before = nodes.read("node-a")
    answer = nodes.patch("node-a", patch, subresource)

    assert answer.message.endswith(f"{REFUSED}{refusal}")
    assert own_part(nodes.read("node-a")) == own_part(before)


@pytest.mark.usefixtures("all_rights")
def test_labels_of_the_topology_excuse_no_other_change(nodes: Nodes) -> None:
    patch: JsonObject = {"metadata": {"labels": LABELS}, "spec": {"unschedulable": True}}

    assert nodes.patch("node-a", patch).message.endswith(SPEC)


@pytest.mark.usefixtures("all_rights")
def test_daemon_may_neither_create_nor_delete_a_node(nodes: Nodes) -> None:
    created = nodes.send("POST", "/api/v1/nodes", {"metadata": {"name": "node-c"}})
    deleted = nodes.send("DELETE", "/api/v1/nodes/node-a")

    assert REFUSED in created.message
    assert REFUSED in deleted.message
    assert nodes.read("node-a")["kind"] == "Node"
