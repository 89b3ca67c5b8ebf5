"""What the stand-in for TFJobs' controllers makes of a job, compared with golden pods that were read from the operators' sources."""

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.admission import goldens
from tests.stand_ins import tfjob_operator
from tests.stand_ins.tfjob_operator import KUBEDL, KUBEFLOW, BadJob, Changes, Operator, reconcile

ARTICLE = yaml.safe_load((Path(__file__).parent / "article_tfjob.yaml").read_text())
UID = "6f1c1c2e-0b0a-4a53-9c0c-6d5b1c7f2a11"
NAMES = [*(f"mnist-ps-{index}" for index in range(2)), *(f"mnist-worker-{index}" for index in range(3))]
HOST = {tfjob_operator.HOST_NETWORK: "host"}


def article(**annotations: str) -> dict[str, Any]:
    job = copy.deepcopy(ARTICLE)
    job["metadata"] |= {"uid": UID, "annotations": annotations}
    return job


def kubeflows_article() -> dict[str, Any]:
    """Describe the article's job for Kubeflow's operator, with the annotation in the pod templates, as the golden pods have it."""
    job = article()
    job["apiVersion"] = KUBEFLOW.api_version
    for role in job["spec"]["tfReplicaSpecs"].values():
        role["template"] = {**role["template"], "metadata": {"annotations": HOST}}
    return job


def job_of(
    golden: dict[str, Any], replicas: dict[str, int], operator: Operator = KUBEDL, **annotations: str
) -> dict[str, Any]:
    """Describe a TFJob of whose template a golden pod is made: the pod without what its operator adds."""
    metadata, spec = golden["metadata"], copy.deepcopy(golden["spec"])
    policy = spec["restartPolicy"] if operator is KUBEFLOW else "ExitCode"
    for key in ("hostNetwork", "dnsPolicy", "restartPolicy"):
        spec.pop(key, None)
    for container in spec["containers"]:
        container.pop("ports", None)
        if not (env := [one for one in container.pop("env", ()) if one["name"] != "TF_CONFIG"]):
            continue
        container["env"] = env
    template = {"metadata": {"annotations": metadata.get("annotations", {})}, "spec": spec}
    roles = {
        role: {"replicas": count, "restartPolicy": policy, "template": template} for role, count in replicas.items()
    }
    name = {
        "name": metadata["labels"][f"{operator.prefix}job-name"],
        "namespace": metadata["namespace"],
        "uid": UID,
        "annotations": annotations,
    }
    return {"apiVersion": operator.api_version, "metadata": name, "spec": {"tfReplicaSpecs": roles}}


def port() -> int:
    return 23817


def kinds(changes: Changes, kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in changes.created if one["kind"] == kind}


def with_status(
    pods: Iterable[dict[str, Any]], phase: str, code: int | None = None, **status: Any
) -> list[dict[str, Any]]:
    """Return the pods as kubelet reports them."""
    state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
    return [
        {**pod, "status": {"phase": phase, "containerStatuses": [{"name": "tensorflow", "state": state}], **status}}
        for pod in pods
    ]


def whole(job: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the pods, which run, and the Services of a job when the controller has no more to do."""
    pods: list[dict[str, Any]] = []
    services: list[dict[str, Any]] = []
    while (changes := reconcile(job, pods, services, port)).created:
        pods += with_status(kinds(changes, "Pod").values(), "Running")
        services += kinds(changes, "Service").values()
    assert changes == Changes()
    return pods, services


@pytest.mark.parametrize(
    ("name", "replicas", "annotations"),
    [
        ("tfjob-worker", {"PS": 2, "Worker": 3}, {}),
        ("tfjob-ps", {"PS": 2, "Worker": 3}, {}),
        ("tfjob-chief", {"Chief": 1, "Worker": 2}, {}),
        ("tfjob-local", {"Worker": 1}, {}),
        ("tfjob-host-network", {"PS": 2, "Worker": 3}, HOST),
    ],
)
def test_pod_is_the_golden_pod(name: str, replicas: dict[str, int], annotations: dict[str, str]) -> None:
    golden = goldens.read(goldens.FOLDER / "kubedl" / f"{name}.yaml").pod
    pods, _ = whole(job_of(golden, replicas, **annotations))
    (made,) = (one for one in pods if one["metadata"]["name"] == golden["metadata"]["name"])
    expected = copy.deepcopy(golden)
    for container in expected["spec"][
        "containers"
    ]:  # the golden pods have protocols, as the API server adds them, and no policy
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"
        for one in container["ports"]:
            del one["protocol"]

    assert {key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")} == expected


@pytest.mark.parametrize("name", ["tfjob-ps", "tfjob-worker-names"])
def test_kubeflows_pod_is_the_golden_pod(name: str) -> None:
    golden = goldens.read(goldens.FOLDER / "kubeflow-training-operator" / f"{name}.yaml").pod
    pods, _ = whole(job_of(golden, {"PS": 2, "Worker": 4}, KUBEFLOW))
    (made,) = (one for one in pods if one["metadata"]["name"] == golden["metadata"]["name"])
    expected = copy.deepcopy(golden)
    for container in expected["spec"]["containers"]:
        for one in container["ports"]:
            one.pop("protocol", None)

    assert {key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")} == expected


def test_kubeflows_operator_knows_no_host_network_mode_and_lets_no_role_wait() -> None:
    job = kubeflows_article()
    first = reconcile(job, [], [], port)
    pods, services = whole(job)

    assert list(kinds(first, "Pod")) == NAMES
    assert not any("hostNetwork" in one["spec"] for one in pods)
    assert all(one["metadata"]["annotations"] == HOST for one in pods)
    assert {one["spec"]["clusterIP"] for one in services} == {"None"}
    assert [one["spec"]["ports"] for one in services] == [[{"name": "tfjob-port", "port": 2222}]] * 5
    assert [one["spec"]["selector"] for one in services] == [one["metadata"]["labels"] for one in services]


def test_kubeflows_operator_makes_a_killed_worker_again_and_leaves_its_service() -> None:
    job = kubeflows_article()
    pods, services = whole(job)
    (ended,) = with_status([pods[3]], "Failed", 137)
    rejected = {**pods[3], "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}

    for failed in (ended, rejected):
        assert reconcile(job, [*pods[:3], failed, pods[4]], services, port).failed == ("mnist-worker-1",)
    made = reconcile(job, [*pods[:3], pods[4]], services, port)
    assert list(kinds(made, "Pod")) == ["mnist-worker-1"]
    assert made.target_ports == {}


def test_articles_job_has_a_pod_and_a_headless_service_for_each_replica() -> None:
    pods, services = whole(article())

    assert [one["metadata"]["name"] for one in pods] == [one["metadata"]["name"] for one in services] == NAMES
    assert {one["spec"]["restartPolicy"] for one in pods} == {"Never"}
    worker = services[3]
    labels = {"group-name": "training.kubedl.io", "job-name": "mnist", "replica-type": "worker", "replica-index": "1"}
    assert worker["metadata"]["labels"] == labels
    assert worker["metadata"]["ownerReferences"] == pods[3]["metadata"]["ownerReferences"]
    assert worker["spec"] == {
        "clusterIP": "None",
        "selector": labels,
        "ports": [{"name": "tfjob-port", "port": 2222, "targetPort": 2222}],
    }


def test_pods_are_the_articles_containers_and_volumes() -> None:
    pods, _ = whole(article())
    template = ARTICLE["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    (container,) = pods[4]["spec"]["containers"]
    (config,) = container["env"]

    assert pods[4]["spec"]["volumes"] == template["volumes"]
    assert container.items() >= template["containers"][0].items()
    assert (config["name"], json.loads(config["value"])["task"]) == ("TF_CONFIG", {"type": "worker", "index": 2})


def test_workers_wait_until_the_parameter_servers_run() -> None:
    job = article()
    first = reconcile(job, [], [], port)
    servers = list(kinds(first, "Pod").values())

    assert list(kinds(first, "Pod")) == list(kinds(first, "Service")) == NAMES[:2]
    waiting = [*with_status(servers[:1], "Running"), *with_status(servers[1:], "Pending")]
    assert reconcile(job, waiting, list(kinds(first, "Service").values()), port) == Changes()


@pytest.mark.parametrize(
    ("code", "reason", "again"),
    [(137, None, True), (143, None, True), (138, None, True), (1, None, False), (0, None, False), (1, "Evicted", True)],
)
def test_worker_is_made_again_only_if_its_exit_code_or_reason_says_so(
    code: int, reason: str | None, again: bool
) -> None:
    pods, services = whole(article())
    (ended,) = with_status([pods[3]], "Failed" if code else "Succeeded", code, reason=reason)

    assert reconcile(article(), [*pods[:3], ended, pods[4]], services, port).failed == (
        ("mnist-worker-1",) if again else ()
    )


def test_parameter_server_of_the_policy_never_is_not_made_again() -> None:
    pods, services = whole(article())
    (ended,) = with_status([pods[0]], "Failed", 137)

    assert reconcile(article(), [ended, *pods[1:]], services, port) == Changes()


def test_host_network_mode_gives_each_pod_a_port_and_an_address_to_each_service() -> None:
    pods, services = whole(article(**HOST))

    assert all(one["spec"]["hostNetwork"] for one in pods)
    assert ["clusterIP" in one["spec"] for one in services] == [False] * 5
    assert [one["spec"]["ports"][0] for one in services] == [
        {"name": "tfjob-port", "port": 2222, "targetPort": 23817}
    ] * 5


def test_service_follows_the_port_of_a_pod_that_was_made_again() -> None:
    job = article(**HOST)
    pods, services = whole(job)
    made = reconcile(job, [*pods[:3], pods[4]], services, lambda: 24102)
    (again,) = made.created
    config = json.loads(again["spec"]["containers"][0]["env"][0]["value"])

    assert again["metadata"]["name"] == "mnist-worker-1"
    assert config["cluster"]["worker"] == [
        f"mnist-worker-{index}.kubedl.svc:{24102 if index == 1 else 2222}" for index in range(3)
    ]
    assert made.target_ports == {"mnist-worker-1": 24102}


@pytest.mark.parametrize("value", ["Host", "", "none"])
def test_other_network_modes_are_none(value: str) -> None:
    pods, services = whole(article(**{tfjob_operator.HOST_NETWORK: value}))

    assert not any("hostNetwork" in one["spec"] for one in pods)
    assert {one["spec"]["clusterIP"] for one in services} == {"None"}


def test_declared_port_of_a_second_container_is_used() -> None:
    job = article()
    spec = job["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]
    spec["containers"].insert(
        0, {"name": "side", "image": "side:1", "ports": [{"name": "tfjob-port", "containerPort": 1}]}
    )
    spec["containers"][1]["ports"] = [
        {"name": "metrics", "containerPort": 9},
        {"name": "tfjob-port", "containerPort": 3333},
    ]
    pods, services = whole(job)

    assert services[0]["spec"]["ports"][0]["port"] == 3333
    assert (
        json.loads(pods[0]["spec"]["containers"][1]["env"][0]["value"])["cluster"]["ps"][1]
        == "mnist-ps-1.kubedl.svc:3333"
    )
    assert "env" not in pods[0]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        (
            {"Trainer": {"template": {"spec": {"containers": [{}]}}}},
            "there is no role 'Trainer'; use PS, Master, Chief, Worker",
        ),
        ({"PS": {"template": {"spec": {}}}}, "the role PS has no containers"),
    ],
)
def test_bad_job_is_named(roles: dict[str, Any], words: str) -> None:
    with pytest.raises(BadJob, match=words):
        reconcile({"metadata": {"name": "bad", "namespace": "ml"}, "spec": {"tfReplicaSpecs": roles}}, [], [], port)
