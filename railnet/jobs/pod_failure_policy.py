"""The `podFailurePolicy` of a batch/v1 Job, as far as evictions go: whether an evicted pod counts as a failure, and the rule by which it does not.

Sources: kubernetes 1.37.2, pkg/controller/job/pod_failure_policy.go (the first rule that matches decides; a pod that no rule matches counts
against `backoffLimit`), pkg/apis/batch/validation/validation.go (only with restartPolicy Never and podReplacementPolicy Failed; at most 20
rules; immutable), pkg/apis/batch/v1/defaults.go; pkg/registry/core/pod/storage/eviction.go (the condition DisruptionTarget).
"""

from collections.abc import Iterator, Mapping
from typing import Any

IGNORES_EVICTIONS: Mapping[str, Any] = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
IN_WORDS = 'podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: "True"}]}]}'
MOST_RULES = 20
_CONDITION, _IGNORE = "DisruptionTarget", "Ignore"
_JOB_CONTROLLER = "kubernetes.io/job-controller"
# Codes with which a container ends that is evicted: 128 + SIGTERM, SIGKILL, or SIGINT, which some entry points send on; and 1, with which
# programs end that make an exception of SIGTERM, such as torchrun (torch/distributed/elastic, SignalException).
_CODES_OF_EVICTED = frozenset({1, 130, 137, 143})


def why_evictions_count(job_spec: Mapping[str, Any]) -> str:
    """Return why a Job counts an evicted pod as a failure, a clause whose subject is the Job; empty if it does not."""
    if job_spec.get("managedBy") not in (None, _JOB_CONTROLLER):
        return f"is run by {job_spec['managedBy']!s:.63}, not by Kubernetes' Job controller"
    if restart_policy(job_spec) != "Never":
        return f"counts evicted pods as failures, and with restartPolicy {restart_policy(job_spec):.20} it can have no podFailurePolicy"
    for position, rule in enumerate(rules(job_spec)):
        if is_about_evictions(rule):
            return "" if rule.get("action") == _IGNORE else f"{_deed(rule)} by rule {position} of its podFailurePolicy"
        if rule.get("action") != _IGNORE and _matches_codes(rule):
            return f"{_deed(rule)} by its exit code, by rule {position} of its podFailurePolicy, which comes before one that ignores evictions"
    return "counts evicted pods as failures, and fails at its backoffLimit"


def why_no_rule_is_added(job_spec: Mapping[str, Any]) -> str:
    """Return why no rule that ignores evictions is added to a Job that has none, a clause whose subject is the Job; empty if the rule is added.

    The rule is added after all others, and only where the author's own words leave evictions open. So it changes nothing that the author
    decided: a Job that is never to be retried (`backoffLimit: 0`) stays so, and a rule that fails the Job for an exit code that evicted pods
    have still does.
    """
    if restart_policy(job_spec) != "Never" or job_spec.get("managedBy") not in (None, _JOB_CONTROLLER):
        return why_evictions_count(job_spec)
    if 0 in (job_spec.get("backoffLimit"), job_spec.get("backoffLimitPerIndex")):
        return "is never to be retried, because its backoffLimit is 0"
    if any(rule.get("action") != _IGNORE and _matches_codes(rule) for rule in rules(job_spec)):
        return why_evictions_count(job_spec)
    if len(list(rules(job_spec))) >= MOST_RULES:
        return f"has {MOST_RULES} rules in its podFailurePolicy, and can have no more"
    return ""


def rules(job_spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the rules of a Job's policy, in their order; what the API server would not accept is passed over."""
    policy = job_spec.get("podFailurePolicy")
    written = policy.get("rules") if isinstance(policy, dict) else None
    yield from (rule for rule in written or () if isinstance(rule, dict)) if isinstance(written, list) else ()


def is_about_evictions(rule: Mapping[str, Any]) -> bool:
    """Return whether a rule matches each evicted pod. A pattern without a status means "True"."""
    patterns = rule.get("onPodConditions")
    return isinstance(patterns, list) and any(
        isinstance(pattern, dict) and pattern.get("type") == _CONDITION and pattern.get("status") in (None, "True")
        for pattern in patterns
    )


def restart_policy(job_spec: Mapping[str, Any]) -> str:
    """Return the restart policy of a Job's pods; `Always`, which no Job may have, if it is absent."""
    template = job_spec.get("template")
    pod_spec = template.get("spec") if isinstance(template, dict) else None
    return str((pod_spec.get("restartPolicy") if isinstance(pod_spec, dict) else None) or "Always")


def _matches_codes(rule: Mapping[str, Any]) -> bool:
    """Return whether a rule may match an evicted pod by the exit code of a container."""
    exit_codes = rule.get("onExitCodes")
    if not isinstance(exit_codes, dict):
        return False
    values = {value for value in exit_codes.get("values") or () if isinstance(value, int)}
    return bool(_CODES_OF_EVICTED & values if exit_codes.get("operator") == "In" else _CODES_OF_EVICTED - values)


def _deed(rule: Mapping[str, Any]) -> str:
    deeds = {"FailJob": "fails when a pod of it is evicted", "FailIndex": "fails the index of a pod that is evicted"}
    return deeds.get(str(rule.get("action")), "counts evicted pods as failures")
