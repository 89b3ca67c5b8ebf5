"""What a review does to a gang's Job: the rule by which evictions do not fail it, where it is left alone, and what the client is warned of."""

import copy
import json
from typing import Any

import pytest

from railnet.admission import webhook_scope
from railnet.admission.gang import job_review
from railnet.jobs.pod_failure_policy import IGNORES_EVICTIONS
from tests.railnet.admission.reviewing import a_review, applied, patch_of
from tests.railnet.admission.test_webhook_scope import calls_for

JsonObject = dict[str, Any]
NAME, LEAST = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
JOB = {"group": "batch", "version": "v1", "kind": "Job"}
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"
UNTOUCHED = {"uid": UID, "allowed": True}
ON_42 = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
ON_143 = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [143]}}
ON_EVICTION = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def a_job(
    *rules: JsonObject,
    labels: JsonObject | None = None,
    pod: JsonObject | None = None,
    annotations: JsonObject | None = None,
    **spec: Any,
) -> JsonObject:
    """Return a Job with the API server's defaults, as a webhook sees it."""
    policy = {"podFailurePolicy": {"rules": list(rules)}, "podReplacementPolicy": "Failed"} if rules else {}
    template = {
        "metadata": {"labels": {NAME: "ring", LEAST: "2"} if labels is None else labels},
        "spec": {
            "containers": [{"name": "c"}],
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            **(pod or {}),
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "ring",
            "namespace": "ml",
            **({} if annotations is None else {"annotations": annotations}),
        },
        "spec": {
            "backoffLimit": 6,
            "podReplacementPolicy": "TerminatingOrFailed",
            "suspend": False,
            "template": template,
            **policy,
            **spec,
        },
    }


def ask(job: Any, **changes: Any) -> JsonObject:
    response: JsonObject = json.loads(job_review.review(a_review(job, "ml", kind=JOB, **changes)).body)["response"]
    return response


def reviewed(job: JsonObject) -> JsonObject:
    return applied(job, patch_of(ask(job)))


def test_job_without_a_policy_gets_the_rule_and_the_replacement_that_goes_with_it() -> None:
    job = a_job()

    after = reviewed(job)

    assert after["spec"]["podFailurePolicy"] == {"rules": [IGNORES_EVICTIONS]}
    assert after["spec"]["podReplacementPolicy"] == "Failed"
    assert "ignores evictions" in after["metadata"]["annotations"]["railnet.io/explain"]
    unchanged = copy.deepcopy(after)
    del unchanged["spec"]["podFailurePolicy"], unchanged["metadata"]["annotations"]
    unchanged["spec"]["podReplacementPolicy"] = "TerminatingOrFailed"
    assert unchanged == job
    assert "warnings" not in ask(job)


@pytest.mark.parametrize("spec", [{}, {"podFailurePolicy": None}, {"podFailurePolicy": {"rules": []}}])
def test_second_review_adds_nothing(spec: JsonObject) -> None:
    once = reviewed(a_job(**spec))

    assert once["spec"]["podFailurePolicy"]["rules"] == [IGNORES_EVICTIONS]
    assert ask(once) == UNTOUCHED


def test_rule_comes_after_those_of_the_author() -> None:
    after = reviewed(a_job(ON_42, annotations={"team": "a"}))

    assert after["spec"]["podFailurePolicy"]["rules"] == [ON_42, IGNORES_EVICTIONS]
    assert after["metadata"]["annotations"].keys() == {"team", "railnet.io/explain"}
    assert ask(after) == UNTOUCHED


def test_replacement_policy_that_an_older_api_server_does_not_know_stays_absent() -> None:
    job = a_job()
    del job["spec"]["podReplacementPolicy"]

    assert "podReplacementPolicy" not in reviewed(job)["spec"]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (a_job(pod={"restartPolicy": "OnFailure"}), "with restartPolicy OnFailure it can have no podFailurePolicy"),
        (a_job(backoffLimit=0), "is never to be retried, because its backoffLimit is 0"),
        (a_job(ON_143), "fails when a pod of it is evicted by its exit code"),
        (a_job(ON_EVICTION), "fails when a pod of it is evicted by rule 0"),
        (a_job(ON_143, IGNORES_EVICTIONS), "fails when a pod of it is evicted by its exit code"),
        (a_job(*[ON_42] * 20), "has 20 rules"),
    ],
)
def test_job_that_cannot_be_given_the_rule_stays_and_the_client_is_warned(job: JsonObject, words: str) -> None:
    answer = ask(job)

    assert answer["allowed"]
    assert "patch" not in answer
    (warning,) = answer["warnings"]
    assert warning.startswith("Railnet will not move this gang, nor preempt it, because its Job ")
    assert words in warning
    assert len(warning) <= 256


OTHERS = {
    "no gang": a_job(labels={}),
    "another scheduler": a_job(pod={"schedulerName": "volcano"}),
    "Kueue's": a_job(labels={NAME: "ring", "kueue.x-k8s.io/queue-name": "q"}),
    "a chosen node": a_job(pod={"nodeName": "a"}),
    "no containers": a_job(pod={"containers": []}),
}


@pytest.mark.parametrize("job", OTHERS.values(), ids=OTHERS.keys())
def test_job_whose_pods_are_no_gang_of_railnets_is_left_alone(job: JsonObject) -> None:
    assert ask(job) == UNTOUCHED


@pytest.mark.parametrize(
    "job", [None, [], {}, {"metadata": {}, "spec": {}}, {"metadata": {}, "spec": {"template": []}}]
)
def test_what_is_no_job_is_left_alone(job: Any) -> None:
    assert ask(job) == UNTOUCHED


@pytest.mark.parametrize("changes", [{"operation": "UPDATE"}, {"subResource": "status"}])
def test_request_that_makes_no_job_is_let_through(changes: JsonObject) -> None:
    assert ask(a_job(), **changes) == UNTOUCHED


def test_pod_is_no_job() -> None:
    assert json.loads(job_review.review(a_review(a_job())).body)["response"] == UNTOUCHED


@pytest.mark.slow  # CEL evaluations
def test_api_servers_ask_about_jobs_whose_pods_name_a_gang() -> None:
    entries = {"webhooks": [entry for entry in webhook_scope.gangs() if entry["name"] == "gang-jobs.railnet.io"]}
    annotated = a_job(labels={})
    annotated["spec"]["template"]["metadata"]["annotations"] = {"gang.scheduling.koordinator.sh/name": "ring"}
    bare = a_job()
    del bare["spec"]["template"]["metadata"]
    asked = [len(calls_for(entries, job, None)) for job in (a_job(), annotated, bare)]

    assert asked == [1, 1, 0]
    assert [len(calls_for(entries, OTHERS[name], None)) for name in ("no gang", "another scheduler")] == [0, 0]
    assert calls_for(entries, a_job(), None, "kube-system") == []
    assert [entry["rules"][0]["resources"] for entry in entries["webhooks"]] == [["jobs"]]
