"""Whether a Job counts evicted pods as failures, rule by rule as the Job controller reads them, and where a rule may be added."""

from typing import Any

import pytest

from railnet.jobs import pod_failure_policy
from railnet.jobs.pod_failure_policy import IGNORES_EVICTIONS, why_evictions_count, why_no_rule_is_added

JsonObject = dict[str, Any]


def a_spec(*rules: Any, restart: str | None = "Never", **fields: Any) -> JsonObject:
    policy = {"podFailurePolicy": {"rules": list(rules)}} if rules else {}
    return {"template": {"spec": {"restartPolicy": restart}}, "backoffLimit": 6, **policy, **fields}


def on_codes(action: str, *codes: int, operator: str = "In") -> JsonObject:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes)}}


def on_eviction(action: str, status: str | None = "True") -> JsonObject:
    pattern = {"type": "DisruptionTarget"} if status is None else {"type": "DisruptionTarget", "status": status}
    return {"action": action, "onPodConditions": [{"type": "ConfigIssue", "status": "True"}, pattern]}


IGNORED = [
    a_spec(IGNORES_EVICTIONS),
    a_spec(on_eviction("Ignore", None)),
    a_spec(on_codes("FailJob", 42), IGNORES_EVICTIONS),
    a_spec(on_codes("Ignore", 137, 143), IGNORES_EVICTIONS),
    a_spec(IGNORES_EVICTIONS, on_codes("FailJob", 0, operator="NotIn")),
    a_spec(IGNORES_EVICTIONS, managedBy="kubernetes.io/job-controller"),
]


@pytest.mark.parametrize("spec", IGNORED)
def test_job_whose_first_matching_rule_ignores_evictions_does_not_count_them(spec: JsonObject) -> None:
    assert why_evictions_count(spec) == ""


COUNTED = [
    (a_spec(), "counts evicted pods as failures, and fails at its backoffLimit"),
    (a_spec(podFailurePolicy={"rules": None}), "counts evicted pods as failures, and fails at its backoffLimit"),
    (a_spec(on_codes("Ignore", 137, 143)), "counts evicted pods as failures, and fails"),
    (a_spec(on_eviction("Ignore", "False")), "counts evicted pods as failures, and fails"),
    (a_spec(on_eviction("FailJob"), IGNORES_EVICTIONS), "fails when a pod of it is evicted by rule 0"),
    (a_spec(on_eviction("Count"), IGNORES_EVICTIONS), "counts evicted pods as failures by rule 0"),
    (
        a_spec(on_codes("FailJob", 143), IGNORES_EVICTIONS),
        "fails when a pod of it is evicted by its exit code, by rule 0",
    ),
    (
        a_spec(on_codes("FailJob", 1), IGNORES_EVICTIONS),
        "fails when a pod of it is evicted by its exit code, by rule 0",
    ),
    (
        a_spec(on_codes("FailIndex", 42, operator="NotIn"), IGNORES_EVICTIONS),
        "fails the index of a pod that is evicted",
    ),
    (a_spec(restart="OnFailure"), "counts evicted pods as failures, and with restartPolicy OnFailure it can have no"),
    (a_spec(IGNORES_EVICTIONS, managedBy="kueue.x-k8s.io/multikueue"), "is run by kueue.x-k8s.io/multikueue"),
    ({}, "counts evicted pods as failures, and with restartPolicy Always"),
]


@pytest.mark.parametrize(("spec", "words"), COUNTED)
def test_job_that_counts_evictions_says_why(spec: JsonObject, words: str) -> None:
    assert why_evictions_count(spec).startswith(words)


@pytest.mark.parametrize("spec", [a_spec(), a_spec(on_codes("FailJob", 42)), a_spec(on_codes("Ignore", 137, 143))])
def test_rule_that_is_added_after_the_authors_makes_a_job_ignore_evictions(spec: JsonObject) -> None:
    rules = [*pod_failure_policy.rules(spec), IGNORES_EVICTIONS]

    assert why_no_rule_is_added(spec) == ""
    assert why_evictions_count(spec | {"podFailurePolicy": {"rules": rules}}) == ""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (a_spec(restart="OnFailure"), "with restartPolicy OnFailure it can have no podFailurePolicy"),
        (a_spec(backoffLimit=0), "is never to be retried"),
        (a_spec(backoffLimitPerIndex=0), "is never to be retried"),
        (a_spec(on_codes("FailJob", 143)), "fails when a pod of it is evicted by its exit code"),
        (a_spec(on_codes("FailJob", 0, operator="NotIn")), "fails when a pod of it is evicted by its exit code"),
        (a_spec(*[on_codes("FailJob", 42)] * 20), "has 20 rules"),
        (a_spec(managedBy="acme.com/controller"), "is run by acme.com/controller"),
    ],
)
def test_rule_is_not_added_against_the_authors_words(spec: JsonObject, words: str) -> None:
    assert words in why_no_rule_is_added(spec)
