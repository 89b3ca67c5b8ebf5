"""What is given is only added, is given once, and does not depend on what other webhooks do before or after."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admission.goldens import GOLDENS, Golden
from tests.admission.reviewing import reviewed

JsonObject = dict[str, Any]
GIVEN = [golden for golden in GOLDENS if golden.expected.get("patch")]
ONLY_GIVEN = [golden for golden in GIVEN if all(operation["op"] == "add" for operation in golden.expected["patch"])]
PROXY: JsonObject = {
    "name": "istio-proxy",
    "image": "proxy",
    "env": [{"name": "POD_NAME", "value": "x"}],
    "resources": {},
}


def review(golden: Golden, pod: JsonObject) -> JsonObject:
    return reviewed(pod, golden.policy, golden.net1, golden.namespace)


def a_sidecar_first(pod: JsonObject) -> None:
    """Do as service meshes do: the proxy first, and a word on which container is meant by default."""
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


def without_words(pod: JsonObject) -> JsonObject:
    """Leave out what tells of the order in which things were done: our words, and the order of variables."""
    pod = copy.deepcopy(pod)
    pod["metadata"].get("annotations", {}).pop("railnet.io/explain", None)
    for container in pod["spec"]["containers"]:
        container["env"] = sorted(container.get("env") or [], key=lambda variable: variable["name"])
    return pod


@given(st.sampled_from(GIVEN), OTHERS, OTHERS)
def test_order_of_webhooks_does_not_matter(golden: Golden, before: list[Any], after: list[Any]):
    at_once, in_between = copy.deepcopy(golden.pod), copy.deepcopy(golden.pod)
    for change in dict.fromkeys([*before, *after]):
        change(at_once)
    for change in dict.fromkeys(before):
        change(in_between)
    in_between = review(golden, in_between)
    for change in [change for change in dict.fromkeys(after) if change not in before]:
        change(in_between)

    assert without_words(review(golden, in_between)) == without_words(review(golden, at_once))


@given(st.sampled_from(GIVEN), OTHERS)
def test_review_of_what_was_reviewed_gives_nothing(golden: Golden, others: list[Any]):
    pod = copy.deepcopy(golden.pod)
    for change in others:
        change(pod)
    once = review(golden, pod)

    assert review(golden, once) == once


@given(st.sampled_from(ONLY_GIVEN), OTHERS)
def test_review_only_adds(golden: Golden, others: list[Any]):
    pod = copy.deepcopy(golden.pod)
    for change in others:
        change(pod)

    assert contains(review(golden, pod), pod)


@pytest.mark.parametrize("golden", GIVEN, ids=lambda golden: golden.name)
def test_container_put_first_later_draws_nothing_to_itself(golden: Golden):
    pod = review(golden, golden.pod)
    pod["spec"]["containers"].insert(0, copy.deepcopy(PROXY))

    assert review(golden, pod) == pod


MPI_LABELS = {
    "training.kubeflow.org/operator-name": "mpi-operator",
    "training.kubeflow.org/job-name": "pi",
    "training.kubeflow.org/job-role": "launcher",
}


@pytest.mark.parametrize("given", [0, 1, 2])
def test_container_put_before_a_launcher_that_sets_variables_itself_gets_nothing(given: int):
    names = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
    own = [{"name": name, "value": "eth9"} for name in names[:given]]
    launcher = {"name": "mpirun", "env": own, "resources": {}}
    pod = reviewed({"metadata": {"name": "p", "labels": MPI_LABELS}, "spec": {"containers": [launcher]}}, net1=True)
    pod["spec"]["containers"].insert(0, copy.deepcopy(PROXY))

    assert reviewed(pod, net1=True) == pod


def contains(whole: Any, part: Any) -> bool:
    """Tell whether all of `part` stands in `whole`, lists at their beginning."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], part[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) >= len(part) and all(map(contains, whole, part))
    return bool(whole == part)
