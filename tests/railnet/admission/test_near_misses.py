"""Pods that must stay untouched: pods that differ from an operator's in one key, and random pods of no operator."""

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from railnet.jobs import railnet_labels
from railnet.jobs.operators import OPERATORS, Operator
from railnet.jobs.recogniser import recognise
from railnet.objects.pod import parse
from tests.railnet.admission.goldens import GOLDENS
from tests.railnet.admission.reviewing import ask

pytestmark = pytest.mark.slow  # thousands of pods

ANOTHER = "x-not-one-of-them"
JsonObject = dict[str, Any]


def near_misses(operator: Operator, pod: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield the pod with one mark changed, for each mark and each way in which it no longer fits the operator."""
    for key, values in operator.marks.items():
        value = pod["metadata"]["labels"][key]
        domain, slash, name = key.rpartition("/")
        others = {
            "missing": {},
            "empty": {key: ""},
            "under another domain": {f"other.{domain}{slash}{name}" if domain else f"example.com/{name}": value},
            "longer": {f"{key}s": value},
            "shorter": {key[:-1]: value},
            "in other letters": {f"{domain}{slash}{name.title()}": value},
        }
        if values:
            others |= {
                "of another value": {key: ANOTHER},
                "of a longer value": {key: f"{value}s"},
                "of a value in other letters": {key: value.upper()},
            }
        for how, labels in others.items():
            yield f"{key} {how}", relabelled(pod, key, labels)
        yield f"{key} as an annotation", annotated(relabelled(pod, key, {}), key, value)
    if operator.named:
        changed = copy.deepcopy(pod)
        changed["spec"]["containers"][0]["name"] += "-x"
        yield "another container", changed


def relabelled(pod: JsonObject, key: str, labels: dict[str, str]) -> JsonObject:
    changed = copy.deepcopy(pod)
    del changed["metadata"]["labels"][key]
    changed["metadata"]["labels"] |= labels
    return changed


def annotated(pod: JsonObject, key: str, value: str) -> JsonObject:
    pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), key: value}
    return pod


def with_gpus(pod: JsonObject) -> JsonObject:
    """Return the pod with GPUs in each container, so that only its marks differ from an operator's pod."""
    changed = copy.deepcopy(pod)
    for container in changed["spec"]["containers"]:
        container["resources"] = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
    return changed


def near_misses_of_goldens(operator: Operator) -> Iterator[tuple[str, JsonObject]]:
    for golden in GOLDENS:
        if golden.expected.get("operator") == operator.name:
            pod = without_switch(operator, with_gpus(golden.pod))
            yield from ((f"{golden.name}: {how}", changed) for how, changed in near_misses(operator, pod))


def without_switch(operator: Operator, pod: JsonObject) -> JsonObject:
    """Remove the label that overrides all other reasons, unless it is the operator's mark."""
    if railnet_labels.NET1 not in operator.marks:
        pod["metadata"]["labels"].pop(railnet_labels.NET1, None)
    return pod


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.page)
def test_pod_that_differs_from_an_operators_in_one_key_stays_untouched(operator: Operator):
    near = list(near_misses_of_goldens(operator))

    assert len(near) >= 10
    for how, pod in near:
        response = ask(pod, namespace=pod["metadata"]["namespace"])
        assert "patch" not in response, how
        member = recognise(parse(pod), lambda container: False)
        assert member is None or member.operator is not operator, how


VALUES = {key: values or ("mnist", "0") for operator in OPERATORS for key, values in operator.marks.items()}
OTHER_LABELS = (
    "app",
    "app.kubernetes.io/name",
    "pod-template-hash",
    "controller-uid",
    "k8s-app",
    "task-name",
    "job_name",
)
CONTAINERS = ("tensorflow", "pytorch", "mpi", "node", "main", "ray-worker", "mnist-ps-0")
RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "cpu", "rdma/ib_vf")


def a_pod_of_no_operator(random: Random) -> JsonObject:
    """Return a random pod: of each operator's marks, at least one is missing or has a wrong value."""
    labels = {key: random.choice(values) for key, values in VALUES.items() if random.random() < 0.7}
    for operator in OPERATORS:
        if operator.marks.keys() <= labels.keys():
            broken = random.choice(list(operator.marks))
            if operator.marks[broken] and broken != railnet_labels.NET1 and random.random() < 0.5:
                labels[broken] = ANOTHER
            else:
                labels.pop(broken)
    labels |= {key: random.choice(("web", "mnist", "worker")) for key in OTHER_LABELS if random.random() < 0.2}
    annotations = {key: "true" for key in (*VALUES, "railnet.io/vf") if random.random() < 0.1}
    containers = [a_container(random) for _ in range(random.randint(1, 3))]
    metadata = {"generateName": "web-", "labels": labels or None, "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": containers, "hostNetwork": random.random() < 0.1}}


def a_container(random: Random) -> JsonObject:
    asked = {resource: random.choice("128") for resource in RESOURCES if random.random() < 0.5}
    env = [{"name": "TF_CONFIG", "value": "{"}, {"name": "PET_NNODES", "value": "4"}]
    container = {"name": random.choice(CONTAINERS), "resources": {"limits": asked, "requests": asked}, "env": env}
    return {key: value for key, value in container.items() if key == "name" or random.random() < 0.8}


@pytest.mark.parametrize("seed", range(5))
def test_pods_of_no_operator_stay_untouched(seed: int):
    random = Random(seed)  # noqa: S311 - the same pods in every run
    for _ in range(1000):
        pod = a_pod_of_no_operator(random)
        response = ask(pod, net1=random.choice((None, True, False)))
        assert response["allowed"], pod
        assert "patch" not in response, pod
