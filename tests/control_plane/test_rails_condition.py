"""The policy of railsCondition: the daemon changes one condition and one taint of its own node, and nothing else.

What passes, passes with the rights of the manifest. What is refused, the policy refuses to an account with every right.
"""

import http.client
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from railnet.apiserver import node_status
from railnet.apiserver.request import Request
from railnet.fabric import rails_condition
from railnet.fabric.rails_condition import TAINT, TYPE
from railnet.fabric.topology_labels import RAILS
from tests.cluster.chart import ENABLED
from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer, JsonObject
from tests.control_plane.daemon_tokens import OF_ADMIN, OF_ANOTHER_ACCOUNT, OF_NO_NODE, OF_NODE_A, daemons, every_right
from tests.control_plane.nodes import own_part
from tests.control_plane.server import ApiServer

REFUSED = "ValidatingAdmissionPolicy 'railnet-own-node-nodes' with binding 'railnet-own-node-nodes' denied request: "
SPEC = "nothing of the specification but the taint railnet.io/rails-not-active, with NoSchedule, may be changed"
STATUS = "nothing of the status but the condition RailnetRails may be changed"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FOREIGN = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
OURS = {"key": TAINT, "effect": "NoSchedule"}
_SECONDS = 120.0


class Nodes:
    """Nodes of the API server, and the daemon's requests about them with different tokens."""

    def __init__(self, server: ApiServer, tokens: Mapping[str, str]) -> None:
        self._api, self.tokens = server.api, tokens
        self._first = {name: self.read(name) for name in ("node-a", "node-b")}

    def make(self, name: str, **status: Any) -> None:
        """Have a node as it was in the beginning, with a label and a taint of another program's, and more of the status."""
        first = self._first[name]
        metadata = {"name": name, "labels": first["metadata"]["labels"] | {"zone": "z1"}}
        metadata["annotations"] = first["metadata"]["annotations"]
        body = {"metadata": metadata, "spec": first["spec"] | {"taints": [FOREIGN]}, "status": first["status"] | status}
        for subresource in ("", "/status"):
            made = self._api.send("PUT", f"/api/v1/nodes/{name}{subresource}", body)
            assert made.status == http.client.OK, made.message

    def conditions(self, name: str) -> list[JsonObject]:
        """Return the conditions of a node but for those that it had in the beginning, and those of Kubernetes' node controller."""
        found: list[JsonObject] = self.read(name)["status"]["conditions"]
        first = [_without_heartbeat(one) for one in self._first[name]["status"]["conditions"]]
        return [
            one
            for one in found
            if _without_heartbeat(one) not in first and not one.get("reason", "").startswith("NodeStatus")
        ]

    def send(self, request: Request, token: str = OF_NODE_A) -> ApiAnswer:
        return self._api.send(request.method, request.path, request.body, self.tokens[token], request.content_type)

    def say(self, name: str, status: str = "False", token: str = OF_NODE_A, kind: str = TYPE) -> ApiAnswer:
        request = node_status.set_condition(
            name, kind, status=status, reason="RailFlaps", message="words", since=NOON, now=NOON
        )
        return self.send(request, token)

    def taint(self, name: str, *taints: JsonObject, version: str = "") -> ApiAnswer:
        for _ in range(5):  # the node controller may change the node between the look and the write
            seen = version or self.read(name)["metadata"]["resourceVersion"]
            answer = self.send(node_status.set_taints(name, taints, seen))
            if version or answer.status != http.client.CONFLICT:
                break
        return answer

    def patch(self, name: str, patch: JsonObject, subresource: str = "") -> ApiAnswer:
        return self._api.merge(f"/api/v1/nodes/{name}{subresource}", patch, self.tokens[OF_NODE_A])

    def read(self, name: str) -> JsonObject:
        return self._api.get(f"/api/v1/nodes/{name}").object


def _without_heartbeat(condition: JsonObject) -> JsonObject:
    """Return what a condition says; kwok may report it once more at any moment."""
    return {key: value for key, value in condition.items() if key != "lastHeartbeatTime"}


@pytest.fixture(scope="module")
def policy(server: ApiServer) -> Iterator[Nodes]:
    """Yield nodes of an API server after its admission plugin has the policy, which it gets by watch."""
    with daemons(server, {"railsCondition": {**ENABLED, "taint": True}}) as tokens:
        found = Nodes(server, tokens)
        wait_until(lambda: REFUSED in found.say("node-b").message, _SECONDS, "the policy to be in force")
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


def test_condition_comes_beside_kubelets_changes_and_goes(nodes: Nodes) -> None:
    made, changed = nodes.say("node-a"), nodes.say("node-a", "True")
    conditions = nodes.conditions("node-a")
    gone = nodes.send(node_status.remove_condition("node-a", TYPE))

    assert [(one.status, one.message) for one in (made, changed, gone)] == [(200, "")] * 3
    assert [(one["type"], one["status"]) for one in conditions] == [(TYPE, "True")]
    assert nodes.conditions("node-a") == []
    assert len(nodes.read("node-a")["status"]["conditions"]) > 1


def test_look_shows_condition_taints_and_version_and_writes_nothing(nodes: Nodes) -> None:
    nodes.say("node-a")
    before = nodes.read("node-a")
    answer = nodes.send(node_status.look("node-a"))
    state = node_status.parse(answer.object, TYPE)

    assert (answer.status, state.taints, state.version) == (200, [FOREIGN], before["metadata"]["resourceVersion"])
    assert state.condition == node_status.NodeCondition("False", NOON, "RailFlaps", "words")
    assert own_part(nodes.read("node-a")) == own_part(before)


def test_taint_comes_and_goes_beside_those_of_other_programs(nodes: Nodes) -> None:
    state = node_status.parse(nodes.say("node-a").object, TYPE)
    tainted = rails_condition.taints(state.taints, wanted=True)
    assert tainted is not None
    made = nodes.taint("node-a", *tainted, version=state.version)
    with_taint = nodes.read("node-a")["spec"]["taints"]
    gone = nodes.taint("node-a", FOREIGN)

    assert [(one.status, one.message) for one in (made, gone)] == [(200, "")] * 2
    assert with_taint == [FOREIGN, OURS]
    assert nodes.read("node-a")["spec"]["taints"] == [FOREIGN]


def test_taints_of_a_node_that_has_changed_meanwhile_are_a_conflict(nodes: Nodes) -> None:
    version = node_status.parse(nodes.say("node-a").object, TYPE).version
    nodes.say("node-a", "True")
    answer = nodes.taint("node-a", FOREIGN, OURS, version=version)

    assert answer.status == 409
    assert nodes.read("node-a")["spec"]["taints"] == [FOREIGN]


def test_daemon_may_not_touch_another_node(nodes: Nodes) -> None:
    before = nodes.read("node-b")
    answers = nodes.say("node-b"), nodes.taint("node-b", FOREIGN, OURS)

    assert [answer.message for answer in answers] == [
        f'nodes "node-b" is forbidden: {REFUSED}the node is not the node of this token'
    ] * 2
    assert own_part(nodes.read("node-b")) == own_part(before)


def test_token_without_a_node_is_refused(nodes: Nodes) -> None:
    assert nodes.say("node-a", token=OF_NO_NODE).message.endswith("the token does not say which node it is of")


@pytest.mark.parametrize("token", [OF_ADMIN, OF_ANOTHER_ACCOUNT])
def test_policy_does_not_apply_to_other_accounts(nodes: Nodes, token: str) -> None:
    assert nodes.say("node-a", token=token, kind="Ready").status == 200


def test_condition_of_another_program_is_refused(nodes: Nodes) -> None:
    changed, made = nodes.say("node-a", kind="Ready"), nodes.say("node-a", kind="Other")
    removed = nodes.send(node_status.remove_condition("node-a", "Ready"))

    assert [one.message.endswith(f"{REFUSED}{STATUS}") for one in (changed, made, removed)] == [True] * 3
    assert nodes.conditions("node-a") == []


@pytest.mark.parametrize(
    "taints",
    [
        [],
        [OURS],
        [FOREIGN, {"key": "k", "effect": "NoSchedule"}],
        [{**FOREIGN, "effect": "NoExecute"}],
        [FOREIGN, {"key": TAINT, "effect": "NoExecute"}],
    ],
    ids=str,
)
def test_another_taint_or_effect_is_refused(nodes: Nodes, taints: list[JsonObject]) -> None:
    # Kubernetes takes its own taint away from a new node a little later.
    wait_until(lambda: nodes.read("node-a")["spec"]["taints"] == [FOREIGN], _SECONDS, "node-a to have one taint")
    answer = nodes.taint("node-a", *taints)

    assert answer.message.endswith(f"{REFUSED}{SPEC}")
    assert nodes.read("node-a")["spec"]["taints"] == [FOREIGN]


def test_policy_lets_the_daemon_label_its_node(nodes: Nodes) -> None:
    assert nodes.patch("node-a", {"metadata": {"labels": {RAILS: "1"}}}).status == 200


def test_node_with_a_large_status_stays_below_the_cost_limit_of_expressions(nodes: Nodes) -> None:
    """An expression beyond its cost limit (k8s.io/apiserver/pkg/apis/cel) fails, and then the request is refused."""
    images = [
        {"names": [f"registry.example/{number}/{name}@sha256:{'0' * 64}" for name in range(5)], "sizeBytes": number}
        for number in range(200)
    ]
    others = [{"type": f"Condition{number}", "status": "False", "message": "x" * 200} for number in range(100)]
    nodes.make("node-a", images=images, conditions=[*nodes.read("node-a")["status"]["conditions"], *others])
    made, other = nodes.say("node-a"), nodes.say("node-a", kind="Condition7", status="True")

    assert (made.status, made.message) == (200, "")
    assert other.message.endswith(STATUS)


@pytest.mark.usefixtures("all_rights")
@pytest.mark.parametrize(
    ("patch", "subresource", "refusal"),
    [
        ({"spec": {"unschedulable": True}}, "", SPEC),
        ({"status": {"allocatable": {"rdma/ib_vf": "0"}}}, "/status", STATUS),
        ({"metadata": {"labels": {"zone": "z2"}}}, "", "may be changed"),
        ({"metadata": {"labels": {RAILS: "1"}}}, "/status", "may be changed"),
        (
            {"metadata": {"annotations": {"a": "b"}}},
            "/status",
            "neither annotations nor finalizers nor owners may be changed",
        ),
    ],
    ids=str,
)
def test_anything_else_of_a_node_is_refused(nodes: Nodes, patch: JsonObject, subresource: str, refusal: str) -> None:
    before = nodes.read("node-a")
    answer = nodes.patch("node-a", patch, subresource)

    assert REFUSED in answer.message
    assert answer.message.endswith(refusal)
    assert own_part(nodes.read("node-a")) == own_part(before)
