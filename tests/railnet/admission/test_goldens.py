"""Every golden pod gets exactly the additions of its file, also if it is reviewed twice, and before or after the API server's defaults."""

import copy
import re
from collections import Counter
from typing import Any

import pytest

from railnet.admission.decision import Untouched, decide
from railnet.admission.review_configuration import Namespace
from railnet.jobs.operators import OPERATORS
from railnet.jobs.recogniser import recognise
from railnet.objects.pod import parse
from tests.railnet.admission.goldens import GOLDENS, Golden
from tests.railnet.admission.reviewing import applied, ask, patch_of

RECOGNISED = [golden for golden in GOLDENS if "member" in golden.expected]
LET_IN = [golden for golden in GOLDENS if "denied" not in golden.expected]
UNTOUCHED = [golden for golden in GOLDENS if "untouched" in golden.expected]


def each(goldens: list[Golden]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("golden", goldens, ids=lambda golden: golden.name)


def answer(golden: Golden, pod: dict[str, Any] | None = None) -> dict[str, Any]:
    return ask(pod or golden.pod, golden.policy, golden.net1, golden.namespace, golden.free_port)


@each(LET_IN)
def test_golden_pod_gets_the_patch_of_its_file(golden: Golden):
    assert patch_of(answer(golden)) == golden.expected.get("patch", [])


@each([golden for golden in GOLDENS if "denied" in golden.expected])
def test_golden_pod_is_denied_with_the_message_of_its_file(golden: Golden):
    response = answer(golden)

    error, _, message = golden.expected["denied"].partition(": ")
    assert not response["allowed"]
    assert response["status"]["message"] == message
    assert response["status"]["code"] == {"NotPermitted": 403, "Misconfigured": 400}[error]
    assert "patch" not in response


@each(RECOGNISED)
def test_golden_pod_is_recognised_as_the_member_of_its_file(golden: Golden):
    pod = parse(golden.pod)
    member = recognise(pod, lambda container: "rdma/ib_vf" in container.resources)

    assert member is not None
    assert golden.expected["operator"] == member.operator.name
    assert golden.expected["member"] == {
        "job": member.job,
        "role": member.role,
        "rank": member.dotted_rank,
        "container": pod.containers[member.container].name,
        "size": member.size,
        "part": member.part.name,
    }


@each(UNTOUCHED)
def test_golden_pod_stays_untouched_for_the_reason_of_its_file(golden: Golden):
    decision = decide(parse(golden.pod), Namespace(golden.namespace, golden.net1), golden.policy, golden.free_port)

    assert decision == Untouched(golden.expected["untouched"])


@each(LET_IN)
def test_second_review_adds_nothing_to_a_golden_pod(golden: Golden):
    once = applied(golden.pod, patch_of(answer(golden)))

    assert patch_of(answer(golden, once)) == []


@each(LET_IN)
def test_golden_pod_gets_the_same_patch_after_the_api_servers_defaults(golden: Golden):
    assert patch_of(answer(golden, defaulted(golden.pod))) == golden.expected.get("patch", [])


def defaulted(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the API server sends it: with its defaults, its nulls, and a service account's token."""
    pod = copy.deepcopy(pod)
    pod["metadata"] |= {
        "creationTimestamp": None,
        "managedFields": [{"manager": "operator", "fieldsV1": {"f:spec": {}}}],
    }
    spec = pod["spec"]
    spec.setdefault("volumes", []).append(
        {"name": "kube-api-access-x", "projected": {"sources": [], "defaultMode": 420}}
    )
    for container in spec["containers"] + spec.get("initContainers", []):
        mounts = container.setdefault("volumeMounts", [])
        mounts.append({"name": "kube-api-access-x", "readOnly": True, "mountPath": "/var/run/secrets/k8s"})
        container |= {"terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent"}
        container.setdefault("env", None)
    defaults = {"dnsPolicy": "ClusterFirst", "securityContext": {}, "tolerations": [], "priority": 0, "nodeName": None}
    return {**pod, "spec": {**defaults, **spec}, "status": {}}


@each(GOLDENS)
def test_golden_pod_names_the_sources_of_its_facts(golden: Golden):
    assert golden.facts
    for fact in golden.facts:
        assert re.fullmatch(r"https://github\.com/[\w-]+/[\w-]+", fact["repository"])
        assert re.fullmatch(r"[0-9a-f]{40}", fact["commit"])
        assert fact["paths"]


def test_every_operator_has_golden_pods():
    folders = Counter(golden.page for golden in GOLDENS)
    recognised = Counter(golden.expected["operator"] for golden in RECOGNISED)

    assert folders.keys() == {operator.page for operator in OPERATORS}
    assert {operator.name: recognised[operator.name] >= 3 for operator in OPERATORS} == dict.fromkeys(recognised, True)
    assert len(GOLDENS) >= 60
