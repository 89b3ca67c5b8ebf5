"""Golden pods of gangs: each gets exactly the answer of its file, and once only.

The files are under `golden_gangs/`. The pods are as their operator or their author's template makes them, and `facts` is where that stands.
"""

import copy
import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from railnet.admission import webhook_scope
from railnet.admission.gang import gang_decision, gang_review
from railnet.admission.server.server import GANG_JOBS, GANGS
from railnet.jobs.gang.recogniser import SPELLINGS, described, names_gang
from railnet.objects.pod import parse
from tests.railnet.admission.goldens import GOLDENS
from tests.railnet.admission.reviewing import a_review, applied, ask, patch_of
from tests.railnet.admission.test_goldens import defaulted
from tests.railnet.admission.test_near_misses import a_pod_of_no_operator
from tests.railnet.admission.test_webhook_scope import CONFIGURATION, calls_for, selected

JsonObject = dict[str, Any]
FOLDER = Path(__file__).parent / "golden_gangs"
FILES = {path.stem: yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(FOLDER.glob("*.yaml"))}
EACH = pytest.mark.parametrize("golden", FILES.values(), ids=FILES.keys())
GANGS_ALONE = {"webhooks": webhook_scope.gangs()}


def answered(pod: JsonObject) -> JsonObject:
    response: JsonObject = json.loads(gang_review.review(a_review(pod, "ml")).body)["response"]
    return response


@EACH
def test_golden_pod_gets_the_answer_of_its_file(golden: JsonObject) -> None:
    answer, expected = answered(golden["pod"]), golden["expected"]

    assert golden["facts"]
    if "denied" in expected:
        assert answer["status"]["message"] == expected["denied"]
        return
    assert patch_of(answer) == expected.get("patch", [])
    assert answer.get("warnings", []) == expected.get("warnings", [])
    decision: Any = gang_decision.decide(parse(golden["pod"]), golden["pod"])
    if "left_alone" in expected:
        assert decision.reason == expected["left_alone"]
    else:
        said = decision.request
        place = None if said.constraint is None else described(said.constraint)
        assert {"name": said.name, "min_available": said.min_available, "place": place} == expected["gang"]


@EACH
def test_golden_pod_gets_the_same_patch_after_the_api_servers_defaults(golden: JsonObject) -> None:
    answer = answered(defaulted(golden["pod"]))

    assert answer["allowed"] is ("denied" not in golden["expected"])
    if answer["allowed"]:
        assert patch_of(answer) == golden["expected"].get("patch", [])


@EACH
def test_two_reviews_in_either_order_and_once_more_each_end_in_one_pod(golden: JsonObject) -> None:
    if "denied" in golden["expected"]:
        assert not answered(golden["pod"])["allowed"]
        return
    ends = []
    for order in itertools.permutations((ask, answered)):
        pod = golden["pod"]
        for review in order:
            pod = applied(pod, patch_of(review(pod)))
        assert [patch_of(review(pod)) for review in order] == [[], []]
        pod["metadata"].get("annotations", {}).pop("railnet.io/explain", None)
        ends.append(pod)
    assert ends[0] == ends[1]


def changed(golden: JsonObject) -> bool:
    return bool({"patch", "denied"} & golden["expected"].keys())


@pytest.mark.slow  # thousands of CEL evaluations
@EACH
def test_golden_pod_causes_one_call_if_a_review_changes_or_denies_it(golden: JsonObject) -> None:
    assert len(calls_for(GANGS_ALONE, golden["pod"], None)) == changed(golden)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda one: one.name)
def test_each_spelling_causes_one_call(spelling: Any) -> None:
    kind = "annotations" if spelling.annotated else "labels"
    pod = {"metadata": {"name": "p", kind: {spelling.name: "ring"}}, "spec": {"containers": [{"name": "c"}]}}

    assert len(calls_for(GANGS_ALONE, pod, None)) == 1


@pytest.mark.slow
def test_pod_with_all_spellings_causes_one_call() -> None:
    keys = {spelling.name: "ring" for spelling in SPELLINGS}
    pod = {"metadata": {"name": "p", "labels": keys, "annotations": keys}, "spec": {"containers": [{"name": "c"}]}}

    assert len(calls_for(GANGS_ALONE, pod, None)) == 1


@pytest.mark.slow
def test_pods_without_a_gang_cause_no_call() -> None:
    random = Random(2)  # noqa: S311 - the same pods in every run
    others = [a_pod_of_no_operator(random) for _ in range(300)]
    goldens = [golden.pod for golden in GOLDENS]
    constraint = FILES["article-annotation-only"]["pod"]

    for pod in (*others, *goldens, constraint):
        if not names_gang(parse(pod)):
            assert calls_for(GANGS_ALONE, pod, None) == [], pod


@pytest.mark.slow
def test_gangs_change_no_call_about_rails() -> None:
    names = {entry["name"] for entry in CONFIGURATION["webhooks"]}
    added = GANGS_ALONE["webhooks"]

    assert names.isdisjoint(entry["name"] for entry in added)
    assert [entry["clientConfig"]["service"]["path"] for entry in added] == [GANGS, GANG_JOBS]


@pytest.mark.slow
def test_namespaces_that_are_off_and_the_systems_own_cause_no_call() -> None:
    pod = FILES["article-job"]["pod"]

    assert len(calls_for(GANGS_ALONE, pod, False)) == 1
    for namespace in ("kube-system", "railnet"):
        assert calls_for(GANGS_ALONE, pod, None, namespace) == []
    for entry in GANGS_ALONE["webhooks"]:
        assert not selected(entry["namespaceSelector"], {"railnet.io/gang": "off"})
        assert selected(entry["namespaceSelector"], {"railnet.io/gang": "on", "railnet.io/net1": "false"})


@pytest.mark.slow
def test_gate_that_an_author_wrote_and_static_pods_are_selected_rightly() -> None:
    gated = {"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "railnet.io/gang"}], "containers": []}}
    other = {"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "example.com/quota"}], "containers": []}}
    static = copy.deepcopy(FILES["article-job"]["pod"])
    static["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "x"

    assert [len(calls_for(GANGS_ALONE, pod, None)) for pod in (gated, other, static)] == [1, 0, 0]


def test_pods_and_jobs_are_let_in_where_the_webhook_does_not_answer() -> None:
    for entry in GANGS_ALONE["webhooks"]:
        assert entry["failurePolicy"] == "Ignore"
        assert entry["reinvocationPolicy"] == "IfNeeded"
        assert 1 <= entry["timeoutSeconds"] <= 5
