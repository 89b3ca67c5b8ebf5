"""A review only adds, adds once, and its result does not depend on other webhooks before or after it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.railnet.admission.goldens import GOLDENS, Golden
from tests.railnet.admission.reviewing import applied, ask, patch_of, reviewed

JsonObject = dict[str, Any]
PATCHED = [golden for golden in GOLDENS if golden.expected.get("patch")]
ONLY_ADDED = [golden for golden in PATCHED if all(operation["op"] == "add" for operation in golden.expected["patch"])]
PROXY: JsonObject = {
    "name": "istio-proxy",
    "image": "proxy",
    "env": [{"name": "POD_NAME", "value": "x"}],
    "resources": {},
}


def review(golden: Golden, pod: JsonObject) -> JsonObject:
    return reviewed(pod, golden.policy, golden.net1, golden.namespace, golden.free_port)


def a_sidecar_first(pod: JsonObject) -> None:
    """Change the pod as a service mesh does: put its proxy first, and annotate the default container."""
    containers = pod["spec"]["containers"]
    annotations = pod["metadata"].setdefault("annotations", {})
    annotations.setdefault("kubectl.kubernetes.io/default-container", containers[0]["name"])
    containers.insert(0, copy.deepcopy(PROXY))


def a_sidecar_last(pod: JsonObject) -> None:
    pod["spec"]["containers"].append(copy.deepcopy(PROXY))


def labels(pod: JsonObject) -> None:
    pod["metadata"]["labels"]["security.istio.io/tlsMode"] = "istio"


def variables(pod: JsonObject) -> None:
    for container in pod["spec"]["containers"]:
        container.setdefault("env", []).append({"name": "LWS_GROUP_SIZE", "value": "4"})


def tolerations(pod: JsonObject) -> None:
    pod["spec"].setdefault("tolerations", []).append({"key": "gpu", "operator": "Exists"})


OTHERS = st.lists(
    st.sampled_from([a_sidecar_first, a_sidecar_last, labels, variables, tolerations]), unique=True, max_size=4
)


def without_order(pod: JsonObject) -> JsonObject:
    """Return the pod without what depends on the order of webhooks: the explanation, and the order of variables."""
    pod = copy.deepcopy(pod)
    pod["metadata"].get("annotations", {}).pop("railnet.io/explain", None)
    for container in pod["spec"]["containers"]:
        container["env"] = sorted(container.get("env") or [], key=lambda variable: variable["name"])
    return pod


@pytest.mark.slow
@given(st.sampled_from(PATCHED), OTHERS, OTHERS)
def test_result_does_not_depend_on_the_order_of_webhooks(golden: Golden, before: list[Any], after: list[Any]):
    at_once, in_between = copy.deepcopy(golden.pod), copy.deepcopy(golden.pod)
    for change in dict.fromkeys([*before, *after]):
        change(at_once)
    for change in dict.fromkeys(before):
        change(in_between)
    in_between = review(golden, in_between)
    for change in [change for change in dict.fromkeys(after) if change not in before]:
        change(in_between)

    assert without_order(review(golden, in_between)) == without_order(review(golden, at_once))


@pytest.mark.slow
@given(st.sampled_from(PATCHED), OTHERS)
def test_second_review_changes_nothing(golden: Golden, others: list[Any]):
    pod = copy.deepcopy(golden.pod)
    for change in others:
        change(pod)
    once = review(golden, pod)

    assert review(golden, once) == once


@given(st.sampled_from(ONLY_ADDED), OTHERS)
def test_review_only_adds(golden: Golden, others: list[Any]):
    pod = copy.deepcopy(golden.pod)
    for change in others:
        change(pod)

    assert contains(review(golden, pod), pod)


@pytest.mark.parametrize("golden", PATCHED, ids=lambda golden: golden.name)
def test_container_inserted_first_after_a_review_gets_nothing(golden: Golden):
    pod = review(golden, golden.pod)
    pod["spec"]["containers"].insert(0, copy.deepcopy(PROXY))

    assert review(golden, pod) == pod


def without_value(variables: list[JsonObject], position: int) -> None:
    del variables[position]["value"]


def from_another_object(variables: list[JsonObject], position: int) -> None:
    variables[position] = {
        "name": variables[position]["name"],
        "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}},
    }


def again_without_value(variables: list[JsonObject], position: int) -> None:
    variables.append({"name": variables[position]["name"]})


@pytest.mark.parametrize("change", [without_value, from_another_object, again_without_value])
@pytest.mark.parametrize("golden", PATCHED, ids=lambda golden: golden.name)
def test_patch_applies_whichever_variable_has_no_value(golden: Golden, change: Callable[[list[JsonObject], int], None]):
    """The API server refuses a pod whose patch does not apply, whatever the webhook's failurePolicy is."""
    for number, container in enumerate(golden.pod["spec"]["containers"]):
        for position, variable in enumerate(container.get("env") or ()):
            if "value" not in variable:
                continue
            pod = copy.deepcopy(golden.pod)
            change(pod["spec"]["containers"][number]["env"], position)
            response = ask(pod, golden.policy, golden.net1, golden.namespace, golden.free_port)

            if response["allowed"]:
                applied(pod, patch_of(response))


MPI_LABELS = {
    "training.kubeflow.org/operator-name": "mpi-operator",
    "training.kubeflow.org/job-name": "pi",
    "training.kubeflow.org/job-role": "launcher",
}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_container_inserted_before_a_launcher_that_sets_variables_itself_gets_nothing(count: int):
    names = ("OMPI_MCA_btl_tcp_latency_net1", "OMPI_MCA_btl_tcp_bandwidth_net1")
    own = [{"name": name, "value": "eth9"} for name in names[:count]]
    launcher = {"name": "mpirun", "env": own, "resources": {}}
    pod = reviewed({"metadata": {"name": "p", "labels": MPI_LABELS}, "spec": {"containers": [launcher]}}, net1=True)
    pod["spec"]["containers"].insert(0, copy.deepcopy(PROXY))

    assert reviewed(pod, net1=True) == pod


def contains(whole: Any, part: Any) -> bool:
    """Return whether `whole` contains all of `part`; a list must begin with the part's entries."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) >= len(part) and all(map(contains, whole, part))
    return bool(whole == part)
