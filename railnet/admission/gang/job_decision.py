"""The decision about a batch/v1 Job whose pods are a gang: whether it is given the rule by which evicted pods do not fail it. Pure.

Such a rule can be set only when the Job is created. It is given to a Job that has no `podFailurePolicy`, and added as the last rule to one
that does not speak of evictions: so each rule of the author's decides as before, and only what no rule matches is decided anew. A
policy that speaks of evictions, in whatever way, is its author's. `railnet.jobs.pod_failure_policy` says where the author's words are against it.

JobSet, and by it Trainer v2, create batch/v1 Jobs, so each of these has a review of its own. Operators that make pods without a Job have no
such rule.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from railnet.admission import railnet_annotations
from railnet.admission.patch import Operation, add, entries
from railnet.errors import Misconfigured
from railnet.jobs import pod_failure_policy
from railnet.jobs.gang.other_placement import placed_by_others
from railnet.jobs.gang.recogniser import names_gang
from railnet.jobs.pod_failure_policy import IGNORES_EVICTIONS
from railnet.objects.pod import parse

_POLICY, _REPLACEMENT, _FAILED = "podFailurePolicy", "podReplacementPolicy", "Failed"
_EXPLANATION = "its podFailurePolicy ignores evictions, so that its gang can be moved"


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What becomes of a Job.

    Attributes:
        adds_rule: whether it is given the rule that ignores evictions.
        obstacle: why Railnet will never evict its pods, a clause whose subject is the Job; empty if it may, or if they are no gang of Railnet's.
    """

    adds_rule: bool = False
    obstacle: str = ""


def decide(job: Mapping[str, Any], namespace: str) -> JobDecision:
    """Decide about a Job as the API server sends it."""
    if not _makes_gang(job, namespace):
        return JobDecision()
    spec = job["spec"]
    if any(map(pod_failure_policy.is_about_evictions, pod_failure_policy.rules(spec))):
        return JobDecision(obstacle=pod_failure_policy.why_evictions_count(spec))
    obstacle = pod_failure_policy.why_no_rule_is_added(spec)
    return JobDecision(adds_rule=not obstacle, obstacle=obstacle)


def operations(job: Mapping[str, Any], decision: JobDecision) -> list[Operation]:
    """Return the decision as a JSON Patch; empty if the Job stays as it is."""
    return list(_operations(job)) if decision.adds_rule else []


def _operations(job: Mapping[str, Any]) -> Iterator[Operation]:
    spec = job["spec"]
    rule = dict(IGNORES_EVICTIONS)
    if not spec.get(_POLICY):
        yield add(f"/spec/{_POLICY}", {"rules": [rule]})
    elif any(pod_failure_policy.rules(spec)):
        yield add(f"/spec/{_POLICY}/rules/-", rule)
    else:
        yield add(f"/spec/{_POLICY}/rules", [rule])
    # The API server has written the default of a Job without a policy, TerminatingOrFailed, and permits no other than Failed with one.
    if spec.get(_REPLACEMENT) not in (None, _FAILED):
        yield add(f"/spec/{_REPLACEMENT}", _FAILED)
    yield from entries(job["metadata"], "/metadata", "annotations", {railnet_annotations.EXPLAIN: _EXPLANATION})


def _makes_gang(job: Any, namespace: str) -> bool:
    """Return whether a Job's pods will be a gang that Railnet places. What is malformed in them is said when they are created."""
    if not (_is_mapping(job) and _is_mapping(job.get("metadata")) and _is_mapping(job.get("spec"))):
        return False
    template = job["spec"].get("template")
    if not (_is_mapping(template) and _is_mapping(template.get("metadata"))):
        return False
    metadata = {**template["metadata"], "name": job["metadata"].get("name"), "namespace": namespace}
    try:
        pod = parse({"metadata": metadata, "spec": template.get("spec")})
    except Misconfigured:
        return False
    return names_gang(pod) and not pod.node and not any(placed_by_others(pod, template["spec"]))


def _is_mapping(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a part of a Job has its type. The API server sends no other."""
    return isinstance(value, dict)
