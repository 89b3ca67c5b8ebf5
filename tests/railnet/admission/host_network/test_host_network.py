"""Host-network mode of pods: what cannot be served is refused, what is there stays, and a second review keeps the port."""

import copy
import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railnet.admission.review import review
from railnet.admission.review_configuration import Policy
from railnet.errors import NotReady
from railnet.jobs.operators import OPERATORS
from railnet.objects.pod import Pod
from tests.railnet.admission.goldens import GOLDENS
from tests.railnet.admission.reviewing import a_review, applied, ask, patch_of

JsonObject = dict[str, Any]
LABELS = {
    "training.kubeflow.org/operator-name": "tfjob-controller",
    "training.kubeflow.org/job-name": "mnist",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}
HOST = {"railnet.io/network-mode": "host"}
EITHER = pytest.mark.parametrize("key", ["railnet.io/network-mode", "kubedl.io/network-mode"])


def from_20000() -> Callable[[Pod], int]:
    ports = itertools.count(20000)
    return lambda _: next(ports)


def a_pod(annotations: JsonObject | None = None, labels: JsonObject | None = None, **spec: Any) -> JsonObject:
    container = {"name": "tensorflow", "ports": [{"name": "tfjob-port", "containerPort": 2222}]}
    metadata = {"name": "mnist-worker-0", "namespace": "ml", "labels": LABELS if labels is None else labels}
    return {
        "metadata": {**metadata, "annotations": HOST if annotations is None else annotations},
        "spec": {"containers": [container], **spec},
    }


def on_host(pod: JsonObject, free_port: Callable[[Pod], int] | None = None) -> JsonObject:
    return applied(pod, patch_of(ask(pod, free_port=free_port or from_20000())))


def message(pod: JsonObject, free_port: Callable[[Pod], int] | None = lambda _: 20000) -> str:
    answer = ask(pod, free_port=free_port)
    assert not answer["allowed"]
    found: str = answer["status"]["message"]
    return found


@EITHER
def test_annotation_puts_the_pod_on_the_hosts_network(key: str) -> None:
    pod = on_host(a_pod({key: "host"}))

    assert pod["spec"]["hostNetwork"] is True
    assert pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    (port,) = pod["spec"]["containers"][0]["ports"]
    assert port == {"name": "tfjob-port", "containerPort": 20000, "hostPort": 20000}
    assert pod["metadata"]["annotations"]["railnet.io/host-port"] == "20000"
    assert {"name": "RAILNET_HOST_PORT", "value": "20000"} in pod["spec"]["containers"][0]["env"]


@EITHER
def test_pod_that_is_on_the_hosts_network_keeps_its_ports(key: str) -> None:
    """Its operator put it there: KubeDL, or the author of an ordinary pod."""
    before = a_pod({key: "host"}, hostNetwork=True)

    assert on_host(before)["spec"] == before["spec"]


def test_ordinary_pod_on_the_hosts_network_stays_as_it_is() -> None:
    for labels in ({"app": "web"}, LABELS):
        before = a_pod({}, labels, hostNetwork=True)
        assert patch_of(ask(before, free_port=from_20000())) == []


def test_pod_of_no_operator_stays_and_its_author_is_warned() -> None:
    answer = ask(a_pod(labels={"app": "web"}), free_port=from_20000())

    assert "patch" not in answer
    assert answer["warnings"] == [
        "railnet.io/network-mode has no effect on this pod: its labels match no training operator that Railnet knows"
    ]


@EITHER
def test_pod_without_the_annotation_gets_no_port(key: str) -> None:
    for annotations in ({}, {key: "container"} if "kubedl" in key else {}):
        assert patch_of(ask(a_pod(annotations), free_port=from_20000())) == []


REFUSED = {
    "another mode": (a_pod({"railnet.io/network-mode": "Host"}), "is 'Host'; it should be \"host\", or be removed"),
    "names on net1": (a_pod({**HOST, "railnet.io/rendezvous": "net1"}), "has no net1; remove one"),
    "a port of its own": (a_pod({**HOST, "railnet.io/host-port": "20007"}), "is written by Railnet, .* remove it"),
}


@pytest.mark.parametrize(("pod", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_pod_is_refused_that_asks_for(pod: JsonObject, words: str) -> None:
    assert re.search(words, message(pod))


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"task": []}', '{"cluster": {"worker": [1]}, "task": {"type": "worker", "index": 0}}']
)
def test_tf_config_without_a_place_for_the_port_is_refused(text: str) -> None:
    pod = a_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": "TF_CONFIG", "value": text}]

    assert "TF_CONFIG cannot get the port of host-network mode" in message(pod)


def test_used_up_range_is_answered_by_503_and_the_reason() -> None:
    def used_up(_: Pod) -> int:
        raise NotReady("no host port of 20000-29999 is free")

    reviewed = review(a_review(a_pod()), Policy(), free_port=used_up)
    answer = ask(a_pod(), free_port=used_up)

    assert reviewed.outcome == "denied"
    assert answer["status"]["code"] == 503
    assert answer["status"]["message"] == "no host port of 20000-29999 is free"


def test_answer_says_the_port_that_the_pod_has_been_given() -> None:
    assert review(a_review(a_pod(), "ml"), Policy(), free_port=from_20000()).host_port == 20000


@pytest.mark.parametrize("dry_run", [True, None, "true"], ids=repr)
def test_dry_run_is_given_no_port(dry_run: Any) -> None:
    """Its answer has one, as that of a real run has; the webhook promises `sideEffects: None`."""
    body = a_review(a_pod(), "ml", dryRun=dry_run)
    found = review(body, Policy(), free_port=from_20000())

    assert (found.outcome, found.host_port) == ("patched", 0)


def test_pod_that_is_refused_after_a_port_was_found_is_given_none() -> None:
    pod = a_pod()
    pod["spec"]["containers"][0]["env"] = [{"name": "TF_CONFIG", "value": "{"}]
    found = review(a_review(pod, "ml"), Policy(), free_port=from_20000())

    assert (found.outcome, found.host_port) == ("denied", 0)


def test_port_is_asked_for_by_the_namespace_of_the_review() -> None:
    """A pod's metadata is its author's."""
    asked: list[str] = []

    def free_port(pod: Pod) -> int:
        asked.append(pod.namespace)
        return 20000

    review(a_review(a_pod(), "its-own"), Policy(), free_port=free_port)
    review(a_review(a_pod(), "x" * 1_000_000), Policy(), free_port=free_port)

    assert asked == ["its-own", "x" * 63]


def test_refused_pod_takes_no_port() -> None:
    """A port that is given is not free again for a while."""
    given = from_20000()
    for pod, _ in REFUSED.values():
        ask(pod, free_port=given)

    assert given(None) == 20000  # type: ignore[arg-type]


@pytest.mark.parametrize("operator", [row for row in OPERATORS if row.off_host], ids=lambda row: row.page)
def test_operator_that_cannot_be_served_is_refused_with_the_reason(operator: Any) -> None:
    labels = {key: values[0] if values else "0" for key, values in operator.marks.items()}

    assert (
        f"{operator.name} cannot run in host-network mode: {operator.off_host}. Remove the annotation, and use net1"
        in message(a_pod(labels=labels))
    )


def test_pods_own_dns_policy_stays() -> None:
    assert on_host(a_pod(dnsPolicy="None"))["spec"]["dnsPolicy"] == "None"
    assert on_host(a_pod(dnsPolicy="ClusterFirst"))["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


NAMES = ("tfjob-port", "tensorboard", "metrics", "")
A_PORT = st.builds(
    lambda name, number: {"containerPort": number} | ({"name": name} if name else {}),
    st.sampled_from(NAMES),
    st.integers(1, 19999),
)
PORTS = st.lists(A_PORT, max_size=4, unique_by=lambda port: port.get("name") or port["containerPort"])


@given(st.lists(PORTS, min_size=1, max_size=3))
def test_of_several_ports_only_the_one_for_the_peers_changes(ports: list[list[JsonObject]]) -> None:
    pod = a_pod()
    first = pod["spec"]["containers"][0]
    pod["spec"]["containers"] = [
        {**first, "name": ("tensorflow", "b", "c")[place], "ports": some} for place, some in enumerate(ports)
    ]
    before = [copy.deepcopy(some) for some in ports]

    after = [container["ports"] for container in on_host(pod)["spec"]["containers"]]

    names = [port.get("name") for port in before[0]]
    place = names.index("tfjob-port") if "tfjob-port" in names else 0
    assert after[1:] == before[1:]
    changed = after[0].pop(place)
    if before[0]:
        assert changed["name"] == (before[0].pop(place).get("name") or "tfjob-port")
    assert after[0] == before[0]
    assert (changed["containerPort"], changed["hostPort"]) == (20000, 20000)


IN_MODE = [golden for golden in GOLDENS if golden.host_port and golden.expected.get("patch")]


@pytest.mark.parametrize("golden", IN_MODE, ids=lambda golden: golden.name)
def test_second_review_keeps_the_port(golden: Any) -> None:
    free_port = from_20000()
    once = applied(golden.pod, patch_of(ask(golden.pod, golden.policy, golden.net1, golden.namespace, free_port)))

    assert patch_of(ask(once, golden.policy, golden.net1, golden.namespace, free_port)) == []


def test_explanation_names_the_ports_that_stay_of_all_containers() -> None:
    pod = a_pod(initContainers=[{"name": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 15090}]}])
    pod["spec"]["containers"][0]["ports"].append({"containerPort": 6006})
    pod["spec"]["containers"].append({"name": "exporter", "ports": [{"containerPort": 9400}]})

    explanation = on_host(pod)["metadata"]["annotations"]["railnet.io/explain"]

    assert "kept its other ports 6006, 9400, 15090, so no two such pods run on one node" in explanation
