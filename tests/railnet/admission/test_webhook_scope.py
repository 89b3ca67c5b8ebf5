"""The webhook's scope: its expressions and selectors, evaluated by other implementations of their languages."""

import copy
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_network
from pathlib import Path
from random import Random
from typing import Any

import celpy
import pytest
import yaml

from railnet.admission import webhook_scope
from railnet.admission.certificates.cluster_objects import NAME
from railnet.admission.review_configuration import Policy
from railnet.admission.server.server import PATHS
from railnet.jobs.operators import OPERATORS, Operator
from railnet.jobs.railnet_labels import NET1
from railnet.jobs.recogniser import recognise
from railnet.objects.pod import parse
from railnet.vf.permitted_networks import STICKY_ANNOTATION, Limit, Network, Networks, StickyIpam
from tests.railnet.admission.goldens import GOLDENS, Golden
from tests.railnet.admission.reviewing import ask
from tests.railnet.admission.test_near_misses import a_pod_of_no_operator, near_misses_of_goldens

pytestmark = pytest.mark.slow  # thousands of CEL evaluations

ROOT = Path(__file__).resolve().parents[3]
JsonObject = dict[str, Any]
STAYING = Policy(
    networks=Networks(
        {"default": Network(), "staying": Network("staying", ipam=StickyIpam(ip_network("10.58.0.0/16")))},
        {"*": Limit(("default", "staying"))},
    )
)
NAMESPACE_LABELS = {None: {}, True: {NET1: "true"}, False: {NET1: "false"}}


def entries_of_chart(name: str) -> list[JsonObject]:
    """Return entries that the chart puts into the webhook configuration."""
    entries: list[JsonObject] = yaml.safe_load((ROOT / f"charts/railnet/files/webhooks/{name}.yaml").read_text())
    return entries


CONFIGURATION: JsonObject = {"webhooks": entries_of_chart("pods")}


def selected(selector: JsonObject, labels: Mapping[str, str]) -> bool:
    """Match as k8s.io/apimachinery/pkg/labels does."""
    return all(
        MATCHES[one["operator"]](labels.get(one["key"]), one.get("values")) for one in selector["matchExpressions"]
    )


MATCHES: dict[str, Callable[[str | None, list[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, values: value is not None,
    "DoesNotExist": lambda value, values: value is None,
}


@functools.cache
def program(expression: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


@functools.cache
def holds(expression: str, pod: str) -> bool:
    return bool(program(expression).evaluate({"object": celpy.json_to_cel(json.loads(pod))}))


def calls_for(
    configuration: JsonObject, pod: JsonObject, net1: bool | None, namespace: str = "ml", *, sticky: bool = False
) -> list[JsonObject]:
    """Return the entries that the API server would call; an expression that fails is an error, as in the API server."""
    labels = NAMESPACE_LABELS[net1] | ({STICKY_ANNOTATION: "true"} if sticky else {})
    of_namespace = {"kubernetes.io/metadata.name": namespace, **labels}
    found = [
        entry
        for entry in configuration["webhooks"]
        if selected(entry["namespaceSelector"], of_namespace)
        and selected(entry["objectSelector"], pod["metadata"].get("labels") or {})
    ]
    text = json.dumps(without_nulls(pod))
    return [entry for entry in found if all(holds(one["expression"], text) for one in entry.get("matchConditions", ()))]


def without_nulls(value: Any) -> Any:
    """Return the value without nulls: the API server evaluates expressions on objects without them."""
    if isinstance(value, dict):
        return {key: without_nulls(one) for key, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def assert_calls_fit_the_review(
    pod: JsonObject,
    net1: bool | None,
    policy: Policy | None = None,
    namespace: str = "ml",
    *,
    sticky: bool = False,
) -> list[JsonObject]:
    """Assert that a pod without a call gets nothing from a review, and that each call gets the answer for the pod's namespace."""
    answer = ask(pod, policy, net1, namespace, sticky=sticky)
    called = calls_for(CONFIGURATION, pod, net1, namespace, sticky=sticky)
    if not called:
        assert answer["allowed"]
        assert "patch" not in answer
    for entry in called:
        path = entry["clientConfig"]["service"]["path"]
        labels = PATHS[path]
        assert ask(pod, policy, labels.net1, namespace, sticky=labels.sticky) == answer
    return called


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("pods", webhook_scope.pods()),
        ("pods-with-claims", webhook_scope.pods(by_claims=True)),
        ("services", webhook_scope.services()),
        ("gangs", webhook_scope.gangs()),
    ],
    ids=["pods", "pods-with-claims", "services", "gangs"],
)
def test_entries_of_the_chart_are_those_generated_from_the_table(name: str, entries: list[JsonObject]):
    assert entries_of_chart(name) == entries, "run scripts/generate to write them"


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_golden_pod_is_in_scope_if_a_review_changes_or_denies_it(golden: Golden):
    called = assert_calls_fit_the_review(golden.pod, golden.net1, golden.policy, golden.namespace)

    assert called or not {"patch", "denied"} & golden.expected.keys()


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
def test_label_of_a_sticky_namespace_changes_the_path_and_not_the_scope(golden: Golden):
    plain = calls_for(CONFIGURATION, golden.pod, golden.net1)
    sticky = assert_calls_fit_the_review(golden.pod, golden.net1, STAYING, sticky=True)

    paths = [[one["clientConfig"]["service"]["path"] for one in called] for called in (plain, sticky)]
    assert paths[1] == [f"{path}/sticky" for path in paths[0]]


def asks(pod: JsonObject) -> bool:
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    resources = {name for one in containers for asked in (one.get("resources") or {}).values() for name in asked or ()}
    annotations = pod["metadata"].get("annotations") or {}
    return any("/" in name for name in resources) or any(key.startswith("railnet.io/") for key in annotations)


def in_scope(pod: JsonObject, net1: bool | None) -> bool:
    """Return whether a pod is in scope by the rules of docs/training/README.md."""
    label = (pod["metadata"].get("labels") or {}).get(NET1)
    if "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {}):
        return False
    if label is not None:
        return label != "false"
    if net1 is False or recognise(parse(pod), lambda container: False) is None:
        return False
    return net1 is True or asks(pod)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.page)
def test_pods_that_differ_from_an_operators_in_one_key_cause_no_call(operator: Operator):
    near = list(itertools.islice(near_misses_of_goldens(operator), 50))

    assert len(near) >= 10
    for how, pod in near:
        for net1 in (None, True):
            assert bool(calls_for(CONFIGURATION, pod, net1)) is in_scope(pod, net1), how


def test_pods_of_no_operator_cause_no_call():
    random = Random(1)  # noqa: S311 - the same pods in every run
    for _ in range(500):
        pod = a_pod_of_no_operator(random)
        labelled = (pod["metadata"]["labels"] or {}).get(NET1) not in (None, "false")
        assert bool(calls_for(CONFIGURATION, pod, random.choice((None, True, False)))) is labelled, pod


LABELS = (None, None, None, "true", "false", "yes", "")
ANNOTATIONS = {
    "railnet.io/vf": "2",
    "railnet.io/container": "missing",
    "railnet.io/new": "",
    "sidecar.istio.io/inject": "false",
    "kubernetes.io/config.mirror": "x",
}
QUANTITIES = (
    {},
    {"cpu": "1", "hugepages-2Mi": "1Gi"},
    {"nvidia.com/gpu": "8"},
    {"rdma/ib_vf": "1"},
    {"example.com/fpga": "1"},
)


def changed_goldens(random: Random) -> Iterator[JsonObject]:
    for golden in GOLDENS:
        pod = copy.deepcopy(golden.pod)
        labels = pod["metadata"].setdefault("labels", {})
        labels.pop(NET1, None)
        if (label := random.choice(LABELS)) is not None:
            labels[NET1] = label
        pod["metadata"]["annotations"] = {key: ANNOTATIONS[key] for key in ANNOTATIONS if random.random() < 0.1} or None
        if random.random() < 0.7:
            for container in pod["spec"]["containers"]:
                quantities = random.choice(QUANTITIES)
                container["resources"] = random.choice(
                    ({}, {"limits": quantities, "requests": quantities}, {"requests": quantities})
                )
        if random.random() < 0.2:
            quantities, life = random.choice(QUANTITIES), random.choice(("Always", None))
            sidecar = {"name": "sidecar", "restartPolicy": life, "resources": {"limits": quantities}}
            pod["spec"]["initContainers"] = [*pod["spec"].get("initContainers", ()), sidecar]
        if random.random() < 0.2:
            labels.pop(random.choice(list(labels)), None) if labels else None
        yield pod


@pytest.mark.parametrize("seed", range(3))
def test_each_pod_in_scope_causes_one_call(seed: int):
    random = Random(seed)  # noqa: S311 - the same pods in every run
    for pod in changed_goldens(random):
        net1 = random.choice((None, True, False))
        static = "kubernetes.io/config.mirror" in (pod["metadata"]["annotations"] or {})

        assert len(calls_for(CONFIGURATION, pod, net1)) == in_scope_or_malformed(pod, net1), pod
        if not static:
            assert_calls_fit_the_review(pod, net1)


def in_scope_or_malformed(pod: JsonObject, net1: bool | None) -> bool:
    without = copy.deepcopy(pod)
    annotations = without["metadata"].get("annotations") or {}
    if annotations.pop("railnet.io/container", None):
        annotations["railnet.io/any"] = ""  # any annotation of Railnet, without the error of a missing container
    return in_scope(without, net1)


@pytest.mark.parametrize("net1", [None, True, False])
def test_pod_with_the_label_is_in_scope_in_every_namespace(net1: bool | None):
    pod = {"metadata": {"name": "p", "labels": {NET1: "true"}}, "spec": {"containers": [{"name": "c"}]}}

    (entry,) = calls_for(CONFIGURATION, pod, net1)

    assert entry["name"] == "label.railnet.io"
    assert "patch" in ask(pod, net1=PATHS[entry["clientConfig"]["service"]["path"]].net1)


@pytest.mark.parametrize("namespace", ["kube-system", "railnet"])
def test_pods_that_must_start_without_the_webhook_are_out_of_scope(namespace: str):
    for golden in GOLDENS:
        for net1 in (None, True):
            assert calls_for(CONFIGURATION, golden.pod, net1, namespace) == []


def test_entries_name_the_service_and_the_paths_of_the_server():
    services = [entry["clientConfig"]["service"] for entry in CONFIGURATION["webhooks"]]

    assert {service["name"] for service in services} == {NAME}
    assert {service["path"] for service in services} == PATHS.keys()


def test_entries_have_the_fields_that_the_api_server_needs():
    names = {entry["name"] for entry in CONFIGURATION["webhooks"]}

    assert len(names) == len(CONFIGURATION["webhooks"])
    for entry in CONFIGURATION["webhooks"]:
        assert entry["failurePolicy"] == "Fail"
        assert entry["reinvocationPolicy"] == "IfNeeded"
        assert entry["sideEffects"] == "None"
        assert entry["admissionReviewVersions"] == ["v1"]
        assert 1 <= entry["timeoutSeconds"] <= 5
        (rule,) = entry["rules"]
        assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])


WITH_DRA: JsonObject = {"webhooks": entries_of_chart("pods-with-claims")}


@pytest.mark.parametrize("part", ["containers", "initContainers"])
@pytest.mark.parametrize(("sticky", "path"), [(False, "/pods"), (True, "/pods/sticky")], ids=["", "sticky"])
def test_recognised_pod_that_asks_by_a_claim_alone_is_in_scope_where_nodes_offer_by_dra(
    part: str, path: str, *, sticky: bool
):
    pod = copy.deepcopy(next(one for one in GOLDENS if one.page == "jobset" and one.expected.get("patch")).pod)
    for container in pod["spec"]["containers"]:
        container.pop("resources", None)
    assert calls_for(WITH_DRA, pod, None, sticky=sticky) == []
    asks = {"name": "asks", "image": "i", "resources": {"claims": [{"name": "vf"}]}}
    pod["spec"][part] = [*pod["spec"].get(part, []), asks]

    called = calls_for(WITH_DRA, pod, None, sticky=sticky)
    assert [entry["clientConfig"]["service"]["path"] for entry in called] == [path]
    assert calls_for(CONFIGURATION, pod, None, sticky=sticky) == []
    assert calls_for(WITH_DRA, pod, False, sticky=sticky) == []
    del pod["metadata"]["labels"]
    assert calls_for(WITH_DRA, pod, None, sticky=sticky) == []


@pytest.mark.parametrize("net1", [None, True])
@pytest.mark.parametrize("also", [{"limits": {"nvidia.com/gpu": "8"}}, {"limits": {"rdma/ib_vf": "1"}}])
def test_pod_that_asks_by_a_claim_and_otherwise_is_asked_about_once(also: JsonObject, *, net1: bool | None):
    pod = copy.deepcopy(next(one for one in GOLDENS if one.page == "jobset" and one.expected.get("patch")).pod)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "vf"}], **also}

    for configuration in (CONFIGURATION, WITH_DRA):
        assert len(calls_for(configuration, pod, net1)) == 1
