"""Services of pods in host-network mode forward to their pods' ports by name; all others stay as they are."""

import base64
import json
from typing import Any

import pytest

from railnet.admission.host_network.host_port_usage import Identity, SeenPod, identity, seen_pod
from railnet.admission.host_network.service_review import answered, asked
from tests.railnet.admission.reviewing import a_review

JsonObject = dict[str, Any]
WEBHOOK = ("railnet", "railnet-admission")
KUBEDL = {"group-name": "training.kubedl.io", "job-name": "mnist", "replica-type": "worker", "replica-index": "0"}
KUBEFLOW = {
    "training.kubeflow.org/operator-name": "tfjob-controller",
    "training.kubeflow.org/job-name": "mnist",
    "training.kubeflow.org/replica-type": "worker",
    "training.kubeflow.org/replica-index": "0",
}
KINDS = {
    "kind": {"group": "", "version": "v1", "kind": "Service"},
    "resource": {"group": "", "version": "v1", "resource": "services"},
}


def a_service(labels: dict[str, str] = KUBEDL, **spec: Any) -> JsonObject:
    """Return a Service as KubeDL makes it (pkg/job_controller/service.go), with the API server's defaults."""
    port = {"name": "tfjob-port", "port": 2222, "targetPort": 2222, "protocol": "TCP"}
    headless = {"clusterIP": "None", "selector": labels, "ports": [port], "type": "ClusterIP"}
    return {"metadata": {"name": "mnist-worker-0", "namespace": "ml", "labels": labels}, "spec": {**headless, **spec}}


def a_pod(labels: dict[str, str] = KUBEDL, *, host: bool = True, **metadata: Any) -> JsonObject:
    ports = [{"name": "tensorboard", "containerPort": 6006}, {"name": "tfjob-port", "containerPort": 23817}]
    annotations = {}
    if host:
        ports = [{**port, "hostPort": port["containerPort"]} for port in ports]
        annotations = {"railnet.io/host-port": "23817"}
    return {
        "metadata": {
            "name": "mnist-worker-0",
            "namespace": "ml",
            "labels": labels,
            "annotations": annotations,
            **metadata,
        },
        "spec": {"hostNetwork": host, "containers": [{"name": "tensorflow", "ports": ports}]},
        "status": {"phase": "Running"},
    }


def seen(pod: JsonObject) -> SeenPod:
    found = seen_pod(pod, WEBHOOK)
    assert found is not None
    return found


def response(service: JsonObject, pod: SeenPod | None, **changes: Any) -> JsonObject:
    body = a_review(service, "ml", **{**KINDS, **changes})
    answer: JsonObject = json.loads(answered(asked(body), pod).body)["response"]
    return answer


def patch(service: JsonObject, pod: SeenPod | None, **changes: Any) -> list[JsonObject]:
    answer = response(service, pod, **changes)
    assert answer["allowed"], answer["status"]
    found: list[JsonObject] = json.loads(base64.b64decode(answer.get("patch", b"W10=")))
    return found


FORWARDS = [
    {"op": "remove", "path": "/spec/clusterIP"},
    {"op": "add", "path": "/spec/ports/0/targetPort", "value": "tfjob-port"},
]


@pytest.mark.parametrize("labels", [KUBEDL, KUBEFLOW], ids=["KubeDL", "Kubeflow"])
def test_service_of_a_pod_in_host_network_mode_forwards_to_the_named_port(labels: dict[str, str]) -> None:
    assert patch(a_service(labels), seen(a_pod(labels))) == FORWARDS


@pytest.mark.parametrize("labels", [KUBEDL, KUBEFLOW], ids=["KubeDL", "Kubeflow"])
def test_service_waits_for_the_pod_that_its_selector_names(labels: dict[str, str]) -> None:
    wanted = asked(a_review(a_service(labels), "ml", **KINDS)).pod

    assert wanted == seen(a_pod(labels)).identity
    assert wanted != seen(a_pod({**labels, next(reversed(labels)): "1"})).identity
    assert wanted != seen(a_pod(labels, namespace="other")).identity


def test_each_port_forwards_to_the_pods_port_of_its_name() -> None:
    """KubeDL patches the first port only, and takes the number of the wrong one."""
    ports = [
        {"name": "tensorboard", "port": 6006, "targetPort": 6006},
        {"name": "tfjob-port", "port": 2222, "targetPort": 2222},
        {"name": "elsewhere", "port": 1, "targetPort": 1},
        {"name": "named", "port": 2, "targetPort": "tfjob-port"},
    ]

    changed = {one["path"]: one.get("value") for one in patch(a_service(ports=ports), seen(a_pod()))}

    assert changed == {
        "/spec/clusterIP": None,
        "/spec/ports/0/targetPort": "tensorboard",
        "/spec/ports/1/targetPort": "tfjob-port",
    }


def test_cluster_ips_go_with_the_cluster_ip() -> None:
    removed = [one["path"] for one in patch(a_service(clusterIPs=["None"]), seen(a_pod())) if one["op"] == "remove"]

    assert removed == ["/spec/clusterIP", "/spec/clusterIPs"]


def test_service_of_another_pod_stays() -> None:
    assert patch(a_service(), seen(a_pod(host=False))) == []


def test_service_stays_if_kubedl_put_the_pod_on_the_hosts_network() -> None:
    by_kubedl = seen(a_pod(annotations={}))

    assert patch(a_service(), by_kubedl) == []


def test_service_that_forwards_already_needs_no_pod() -> None:
    service = a_service(clusterIP="")

    assert asked(a_review(service, "ml", **KINDS)).pod is None
    assert patch(service, None) == []


def test_second_review_changes_nothing() -> None:
    spec = {"clusterIP": "", "ports": [{"name": "tfjob-port", "port": 2222, "targetPort": "tfjob-port"}]}

    assert patch(a_service(**spec), seen(a_pod())) == []


def test_service_whose_pod_is_not_seen_is_refused_for_now() -> None:
    answer = response(a_service(), None)

    assert not answer["allowed"]
    assert (answer["status"]["code"], answer["status"]["reason"]) == (503, "ServiceUnavailable")
    assert "has not been seen yet" in answer["status"]["message"]


OTHERS = {
    "no selector": a_service(selector=None),
    "another selector": a_service(selector={"app": "web"}),
    "a whole role": a_service(selector={key: KUBEDL[key] for key in KUBEDL if key != "replica-index"}),
    "another operator": a_service(
        {"jobset.sigs.k8s.io/jobset-name": "x", "jobset.sigs.k8s.io/replicatedjob-name": "y"}
    ),
    "no ports": a_service({"app": "web"}, ports=None),
}


@pytest.mark.parametrize("service", OTHERS.values(), ids=OTHERS.keys())
def test_other_services_stay_and_wait_for_no_pod(service: JsonObject) -> None:
    assert asked(a_review(service, "ml", **KINDS)).pod is None
    assert patch(service, None) == []


@pytest.mark.parametrize("changes", [{"operation": "UPDATE"}, {"subResource": "status"}, {"kind": {"kind": "Pod"}}])
def test_only_the_creation_of_a_service_is_answered_by_a_change(changes: JsonObject) -> None:
    assert patch(a_service(), seen(a_pod()), **changes) == []


def labelled(**port: Any) -> JsonObject:
    labels = {"app": "web", "railnet.io/network-mode": "host"}
    return a_service(labels, ports=[{"port": 2222, "targetPort": 2222, **port}])


def test_service_with_the_label_forwards_and_waits_for_no_pod() -> None:
    assert asked(a_review(labelled(name="tfjob-port"), "ml", **KINDS)).pod is None
    assert patch(labelled(name="tfjob-port"), None) == FORWARDS
    assert patch(labelled(targetPort="railnet"), None) == FORWARDS[:1]


def test_service_with_the_label_and_without_a_ports_name_is_refused() -> None:
    answer = response(labelled(), None)

    assert answer["status"]["code"] == 400
    assert "its port 2222 names no port of the pod" in answer["status"]["message"]


def test_pods_ports_are_read_until_it_ends() -> None:
    running, ended, leaving = (
        a_pod(),
        a_pod() | {"status": {"phase": "Failed"}},
        a_pod(deletionTimestamp="2026-01-01T00:00:00Z"),
    )

    assert seen(running).ports == (23817, 6006)
    assert seen_pod(ended, WEBHOOK) is None
    assert seen(leaving).ports == (23817, 6006)
    assert seen(leaving).identity is None


def test_pod_without_host_ports_and_service_is_not_kept() -> None:
    assert seen_pod(a_pod({"app": "web"}, host=False), WEBHOOK) is None
    assert seen(a_pod({"app": "web"})).ports == (23817, 6006)


def test_webhooks_own_pods_are_replicas() -> None:
    own = {"app.kubernetes.io/name": "railnet-admission"}

    assert seen(a_pod(own, host=False, namespace="railnet")).replica
    assert seen_pod(a_pod(own, host=False), WEBHOOK) is None


def test_identity_is_of_operators_that_make_a_service_for_each_pod() -> None:
    assert identity("ml", KUBEDL) == Identity("ml", ("training.kubedl.io", "mnist", "worker", "0"))
    assert identity("ml", {**KUBEDL, "group-name": "other"}) is None


BROKEN = [
    None,
    [],
    {"spec": {"clusterIP": "None"}},
    {**a_service(), "spec": []},
    {**a_service(), "metadata": {"labels": []}},
    a_service(selector=[]),
    a_service(selector={**KUBEDL, "job-name": 1}),
    a_service(ports={}),
    a_service(ports=["2222"]),
]


@pytest.mark.parametrize("service", BROKEN, ids=repr)
def test_object_that_is_no_service_stays(service: Any) -> None:
    """The API server sends no such object; another client of the webhook may."""
    assert asked(a_review(service, "ml", **KINDS)).pod is None
    assert patch(service, None) == []
