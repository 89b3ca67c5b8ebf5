"""The policies of ownNode: the daemon's requests for pods of its own node pass, and all other requests are refused.

What passes, passes with the rights of the manifest. What is refused, the policies refuse to an account with every right.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from railnet.apiserver.event import Series, involved_node
from railnet.apiserver.network_status import NetworkStatus
from railnet.apiserver.request import Request
from railnet.objects.network_status import ANNOTATION
from railnet.vf.record import SandboxPod
from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer, JsonObject
from tests.control_plane.daemon_tokens import OF_ADMIN, OF_ANOTHER_ACCOUNT, OF_NO_NODE, OF_NODE_A, daemons, every_right
from tests.control_plane.server import ApiServer

_SECONDS = 120.0
NOT_OURS = "the pod is not on the node of this token"
REFUSED = "ValidatingAdmissionPolicy 'railnet-own-node-{0}' with binding 'railnet-own-node-{0}' denied request: "


# Annotations of a pod may have 256 KiB together (k8s.io/apimachinery/pkg/api/validation, TotalAnnotationSizeLimitB).
LARGEST = {f"annotation-{number}": "x" * 8 for number in range(9000)}


class Pods:
    """Pods of namespace ml, and requests about them with different tokens."""

    def __init__(self, server: ApiServer, tokens: Mapping[str, str]) -> None:
        self._api, self.tokens, self._numbers = server.api, tokens, count()

    def make(self, name: str, node: str | None, annotations: Mapping[str, str] | None = None) -> SandboxPod:
        """Create a pod, whose name is a new one; without a node it waits behind a gate, since a scheduler is there.

        A name that was used before would be dangerous: kwok deletes by name, and late.
        """
        name = f"{name}-{next(self._numbers)}"
        spec: JsonObject = {"containers": [{"name": "main", "image": "train:1"}]}
        where: JsonObject = {"nodeName": node} if node else {"schedulingGates": [{"name": "example.com/waits"}]}
        metadata = {"name": name, "labels": {"app": "train"}, "annotations": annotations or {"a": "b"}}
        made = self._api.create("/api/v1/namespaces/ml/pods", {"metadata": metadata, "spec": spec | where})
        assert made.status == 201, made.message
        return SandboxPod("ml", name, made.object["metadata"]["uid"])

    def send(self, request: Request, token: str = OF_NODE_A) -> ApiAnswer:
        return self._api.send(request.method, request.path, request.body, self.tokens[token], request.content_type)

    def annotate(self, pod: SandboxPod, token: str = OF_NODE_A) -> ApiAnswer:
        (request,) = NetworkStatus(pod, static=False, elements=list).requests()
        return self.send(request, token)

    def patch(self, pod: SandboxPod, patch: JsonObject, subresource: str = "/status") -> ApiAnswer:
        return self._api.merge(f"/api/v1/namespaces/ml/pods/{pod.name}{subresource}", patch, self.tokens[OF_NODE_A])

    def write_status(self, pod: SandboxPod, text: str, token: str) -> ApiAnswer:
        path = f"/api/v1/namespaces/ml/pods/{pod.name}"
        return self.merge(path, {"metadata": {"annotations": {ANNOTATION: text}}}, self.tokens[token])

    def merge(self, path: str, patch: JsonObject, token: str) -> ApiAnswer:
        return self._api.merge(path, patch, token)

    def create(self, name: str, annotations: Mapping[str, str], token: str) -> ApiAnswer:
        pod = {
            "metadata": {"name": f"{name}-{next(self._numbers)}", "annotations": annotations},
            "spec": {
                "containers": [{"name": "main", "image": "train:1"}],
                "schedulingGates": [{"name": "example.com/waits"}],
            },
        }
        return self._api.create("/api/v1/namespaces/ml/pods", pod, self.tokens[token])

    def read(self, pod: SandboxPod) -> JsonObject:
        return self._api.get(f"/api/v1/namespaces/ml/pods/{pod.name}").object


@pytest.fixture(scope="module")
def pods(server: ApiServer) -> Iterator[Pods]:
    """Yield pods of an API server after its admission plugin has the policy, which it gets by watch."""
    server.namespace("ml")
    with daemons(server, {}) as tokens:
        found = Pods(server, tokens)
        probe = found.make("probe", "node-b")
        wait_until(lambda: found.annotate(probe).status == 422, _SECONDS, "the policy for pods to be in force")
        strange = forged(an_event(probe), source={})
        wait_until(
            lambda: REFUSED.format("events") in found.send(strange).message, _SECONDS, "the policy for events, too"
        )
        wait_until(
            lambda: found.write_status(probe, RAILS, OF_ANOTHER_ACCOUNT).status == 422, _SECONDS, "that of rails, too"
        )
        yield found


@pytest.fixture(scope="module")
def all_rights(server: ApiServer, pods: Pods) -> Iterator[None]:
    with every_right(server, pods.tokens[OF_NODE_A]):
        yield


def test_daemon_annotates_a_pod_of_its_node_twice(pods: Pods) -> None:
    train = pods.make("train", "node-a")
    answers = [pods.annotate(train) for _ in range(2)]

    assert [(answer.status, answer.message) for answer in answers] == [(200, "")] * 2
    assert pods.read(train)["metadata"]["annotations"] == {"a": "b", ANNOTATION: "[]"}


def test_daemon_annotates_a_mirror_pod_of_its_node(pods: Pods) -> None:
    mirror = pods.make("mirror", "node-a", {"kubernetes.io/config.mirror": "uid-of-file"})
    (request,) = NetworkStatus(mirror._replace(uid="uid-of-file"), static=True, elements=list).requests()

    assert pods.send(request).status == 200


@pytest.mark.parametrize("node", ["node-b", None])
def test_daemon_may_not_annotate_a_pod_of_another_node(pods: Pods, node: str | None) -> None:
    other = pods.make("other", node)
    answer = pods.annotate(other)

    assert (answer.status, answer.message) == (
        422,
        f'pods "{other.name}" is forbidden: {REFUSED.format("pods")}{NOT_OURS}',
    )
    assert pods.read(other)["metadata"]["annotations"] == {"a": "b"}


def test_token_without_a_node_is_refused(pods: Pods) -> None:
    answer = pods.annotate(pods.make("train", "node-a"), OF_NO_NODE)

    assert answer.message.endswith("the token does not say which node it is of")


@pytest.mark.parametrize("token", [OF_ADMIN, OF_ANOTHER_ACCOUNT])
def test_policy_does_not_apply_to_other_accounts(pods: Pods, token: str) -> None:
    assert pods.annotate(pods.make("train", "node-a"), token).status == 200


def test_role_of_the_manifest_permits_no_patch_of_a_specification(pods: Pods) -> None:
    answer = pods.patch(pods.make("train", "node-a"), {"metadata": {"annotations": {"a": "c"}}}, "")

    assert answer.status == 403
    assert 'cannot patch resource "pods" in API group ""' in answer.message


RAILS = '[{"name": "railnet/default", "interface": "net1", "ips": ["10.56.0.9"]}]'
NO_RAILS = '[{"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.9"]}]'
OF_THE_NODE_ALONE = "only Railnet's daemon on the pod's node may write rails into the annotation"


@pytest.mark.parametrize("text", [RAILS, RAILS.replace("r", r"\u0072", 1)], ids=["plain", "escaped"])
def test_author_of_a_pod_names_no_rail_and_the_daemon_does(pods: Pods, text: str) -> None:
    train = pods.make("train", "node-a")
    forged_by_author = pods.write_status(train, text, OF_ANOTHER_ACCOUNT)
    own = NetworkStatus(train, static=False, elements=lambda: json.loads(RAILS)).requests()
    written = [pods.send(request) for request in own]
    forged_later = pods.write_status(train, text.replace("0.9", "0.8"), OF_ANOTHER_ACCOUNT)

    assert (forged_by_author.status, forged_later.status) == (422, 422)
    assert OF_THE_NODE_ALONE in forged_by_author.message
    assert [answer.status for answer in written] == [200]
    assert json.loads(pods.read(train)["metadata"]["annotations"][ANNOTATION]) == json.loads(RAILS)


def test_pod_that_names_a_rail_is_not_created_and_what_names_none_passes(pods: Pods) -> None:
    forged_answer = pods.create("copy", {ANNOTATION: RAILS}, OF_ANOTHER_ACCOUNT)
    other = pods.create("other", {ANNOTATION: NO_RAILS}, OF_ANOTHER_ACCOUNT)
    by_administrator = pods.create("restored", {ANNOTATION: RAILS}, OF_ADMIN)

    assert (forged_answer.status, other.status, by_administrator.status) == (422, 201, 201)
    assert OF_THE_NODE_ALONE in forged_answer.message


def test_author_may_change_the_rest_of_a_pod_with_rails_and_remove_them(pods: Pods) -> None:
    train = pods.make("train", "node-a", {ANNOTATION: RAILS})
    path = f"/api/v1/namespaces/ml/pods/{train.name}"
    token = pods.tokens[OF_ANOTHER_ACCOUNT]
    labelled = pods.merge(path, {"metadata": {"labels": {"b": "c"}}}, token)
    removed = pods.merge(path, {"metadata": {"annotations": {ANNOTATION: None}}}, token)

    assert (labelled.status, removed.status) == (200, 200)


def an_event(pod: SandboxPod, node: str = "node-a") -> Request:
    (request,) = Series(node).warning(pod, "NetworkRefused", "words", datetime.now(UTC)).requests()
    return request


def forged(request: Request, **parts: Any) -> Request:
    assert isinstance(request.body, dict)
    return replace(request, body=request.body | parts)


def test_daemon_creates_an_event_and_counts_it_up(pods: Pods) -> None:
    train = pods.make("train", "node-a")
    series = Series("node-a")
    first = series.warning(train, "NetworkRefused", "words", datetime.now(UTC))
    again = series.warning(train, "NetworkRefused", "words", datetime.now(UTC))
    statuses = [pods.send(request).status for event in (first, again) for request in event.requests()[:1]]

    assert statuses == [201, 200]


def test_daemon_creates_an_event_about_its_own_node(pods: Pods) -> None:
    (request,) = (
        Series("node-a").event(involved_node("node-a"), "RailnetRailFlaps", "words", datetime.now(UTC)).requests()
    )

    assert pods.send(request).status == 201


@pytest.mark.parametrize(
    "parts",
    [
        {"source": {"component": "railnet", "host": "node-b"}},
        {"source": {"component": "kubelet", "host": "node-a"}},
        {"source": {}},
        {"involvedObject": {"kind": "Secret", "name": "node-a", "namespace": "ml"}},
    ],
    ids=str,
)
def test_other_events_are_refused(pods: Pods, parts: JsonObject) -> None:
    answer = pods.send(forged(an_event(pods.make("train", "node-a")), **parts))

    assert answer.message.partition(REFUSED.format("events"))[2].startswith("events must be Railnet's")


@pytest.mark.parametrize("about", [{"kind": "Node", "name": "node-b"}, {"kind": "Node"}], ids=str)
def test_events_about_another_node_or_none_are_refused(pods: Pods, about: JsonObject) -> None:
    """Events about nodes are in the namespace `default`: an API server refuses them in others."""
    (request,) = Series("node-a").event(involved_node("node-a"), "Flaps", "words", datetime.now(UTC)).requests()
    answer = pods.send(forged(request, involvedObject=about))

    assert answer.message.partition(REFUSED.format("events"))[2].startswith("events must be Railnet's")


def test_largest_pod_stays_below_the_cost_limit_of_expressions(pods: Pods) -> None:
    """An expression beyond its cost limit (k8s.io/apiserver/pkg/apis/cel) fails, and then the request is refused."""
    train = pods.make("train", "node-a", LARGEST)

    assert (pods.annotate(train).status, pods.annotate(train).message) == (200, "")


@pytest.mark.usefixtures("all_rights")
@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize(
    "metadata", [{"annotations": {"a": "c"}}, {"annotations": {"a": None}}, {"annotations": {"new": ""}}]
)
def test_another_annotation_is_refused(pods: Pods, metadata: JsonObject, subresource: str) -> None:
    answer = pods.patch(pods.make("train", "node-a"), {"metadata": metadata}, subresource)

    assert answer.message.endswith(f"only the annotation {ANNOTATION} may be changed")


@pytest.mark.usefixtures("all_rights")
@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"app": "other"}}},
        {"metadata": {"finalizers": ["x.io/y"]}},
        {"status": {"phase": "Failed"}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    ],
    ids=str,
)
def test_anything_else_of_a_pod_is_refused(pods: Pods, patch: JsonObject) -> None:
    answer = pods.patch(pods.make("train", "node-a"), patch)

    assert answer.message.endswith("neither labels nor finalizers nor status may be changed")


@pytest.mark.usefixtures("all_rights")
def test_another_image_is_refused(pods: Pods) -> None:
    """The image is what Kubernetes itself lets change of a container."""
    train = pods.make("train", "node-a")
    (container,) = pods.read(train)["spec"]["containers"]
    answer = pods.patch(train, {"spec": {"containers": [{**container, "image": "evil:1"}]}}, "")

    assert answer.message.endswith("neither labels nor finalizers nor status may be changed")


@pytest.mark.usefixtures("all_rights")
def test_event_of_another_component_cannot_be_taken_over(pods: Pods, server: ApiServer) -> None:
    train = pods.make("train", "node-a")
    request = forged(an_event(train), source={"component": "kubelet", "host": "node-a"})
    event = pods.send(request, OF_ADMIN).object["metadata"]["name"]
    answer = server.api.merge(
        f"/api/v1/namespaces/ml/events/{event}", {"source": {"component": "railnet"}}, pods.tokens[OF_NODE_A]
    )

    assert answer.message.partition(REFUSED.format("events"))[2].startswith("only Railnet's own events")


@pytest.mark.usefixtures("all_rights")
def test_policy_applies_to_the_largest_pod(pods: Pods) -> None:
    answer = pods.patch(pods.make("train", "node-a", LARGEST), {"metadata": {"annotations": {"annotation-7": "x"}}})

    assert answer.message.endswith(f"only the annotation {ANNOTATION} may be changed")
