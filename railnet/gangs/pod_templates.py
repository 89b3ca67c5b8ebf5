"""The pods that an object makes by its templates: how many members a gang will have, and what those ask for that do not exist yet.

Sources: kubernetes batch/v1 (Job), apps/v1; kubernetes-sigs/jobset, api/jobset/v1alpha2 (ReplicatedJob); kubernetes-sigs/lws, api/
leaderworkerset/v1 (LeaderWorkerTemplate); volcano-sh/apis, pkg/apis/batch/v1alpha1 (TaskSpec); ray-project/kuberay, apis/ray/v1
(RayClusterSpec); kubeflow/training-operator v1.9.0 and kubedl-io/kubedl b93a2b4 (ReplicaSpec).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from railnet.apiserver.request import JsonObject
from railnet.errors import Misconfigured
from railnet.gangs.placement.pod_shape import Shape, shape
from railnet.jobs.gang.recogniser import gang_request
from railnet.objects.pod import Pod

_MOST = 100_000  # pods of one template; no job has more
_MOST_TEMPLATES = 64  # of one object: its author may write thousands
_LONGEST_NAME = 253  # of a gang; a role's is shorter
_HEAD = "headgroup"  # what KubeRay labels the head's pod with, as ray.io/group


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Pods that are made by one template, as far as the planner reads them: a template may have 1.5 MB.

    Attributes:
        role: as the pods' labels say it, in lower case; empty if the object has one template only.
        count: how many there are at a time.
        gang: the gang that each names; empty if it names none that can be read.
        shape: what each asks of its node; None if that cannot be read: the API server does not check an operator's template.
    """

    role: str
    count: int
    gang: str
    shape: Shape | None


class _UnreducedTemplate(NamedTuple):
    """A template as its object has it: the role, how many pods there are at a time, and `metadata` and `spec` of each."""

    role: str
    pods: int
    template: JsonObject


def pod_templates(json_object: JsonObject) -> list[PodTemplate]:
    """Return what an object makes; empty if it is of a kind without templates. What is not as documented counts as absent."""
    every = (written for written in _found(_object(json_object.get("spec"))) if written.pods > 0)
    return [reduced(*written) for written in islice(every, _MOST_TEMPLATES)]


def reduced(role: str, count: int, template: JsonObject) -> PodTemplate:
    """Return the part of a template that is kept."""
    return PodTemplate(role[:_LONGEST_NAME], min(count, _MOST), _gang(template), _shape(template))


def _gang(template: JsonObject) -> str:
    metadata = template.get("metadata") or {}
    try:
        request = gang_request(
            Pod("", "", metadata.get("labels") or {}, metadata.get("annotations") or {}, containers=())
        )
    except (Misconfigured, TypeError, AttributeError):
        return ""
    return "" if request is None else request.name


def _shape(template: JsonObject) -> Shape | None:
    try:
        return shape(template["spec"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _found(spec: JsonObject) -> Iterator[_UnreducedTemplate]:
    if "template" in spec:  # a Job has `parallelism`, the others have `replicas`
        yield _UnreducedTemplate(
            "", _of_job(spec) if "replicas" not in spec else _number(spec["replicas"]), _template(spec)
        )
    for key, roles in spec.items():
        if key.endswith("ReplicaSpecs"):
            for role, replica_spec in _object(roles).items():
                yield _replicas(role, _object(replica_spec))
    for task in _objects(spec.get("tasks")):
        yield _replicas(task.get("name"), task)
    for replicated_job in _objects(spec.get("replicatedJobs")):
        job = _object(_object(replicated_job.get("template")).get("spec"))
        yield _UnreducedTemplate(
            _role(replicated_job.get("name")), _number(replicated_job.get("replicas")) * _of_job(job), _template(job)
        )
    yield from _of_leaders(spec)
    yield from _of_ray(spec)


def _of_leaders(spec: JsonObject) -> Iterator[_UnreducedTemplate]:
    """Yield the pods of a LeaderWorkerSet: of each replica, one leader, and the rest of its size."""
    both = _object(spec.get("leaderWorkerTemplate"))
    if not both:
        return
    replicas, worker = _number(spec.get("replicas")), _object(both.get("workerTemplate"))
    yield _UnreducedTemplate("leader", replicas, _object(both.get("leaderTemplate")) or worker)
    yield _UnreducedTemplate("worker", replicas * (_number(both.get("size")) - 1), worker)


def _of_ray(spec: JsonObject) -> Iterator[_UnreducedTemplate]:
    cluster = _object(spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec)
    head = _object(cluster.get("headGroupSpec"))
    if head:
        yield _UnreducedTemplate(_HEAD, 1, _template(head))
        for group in _objects(cluster.get("workerGroupSpecs")):
            yield _replicas(group.get("groupName"), group)


def _replicas(role: Any, spec: JsonObject) -> _UnreducedTemplate:
    return _UnreducedTemplate(_role(role), _number(spec.get("replicas")), _template(spec))


def _of_job(spec: JsonObject) -> int:
    """Return how many pods of a Job run at a time: no more than it has completions."""
    parallelism = _number(spec.get("parallelism"))
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, _number(completions))


def _template(spec: JsonObject) -> JsonObject:
    return _object(spec.get("template"))


def _role(name: Any) -> str:
    return str(name or "").lower()


def _number(field: Any) -> int:
    """Return a count; absent is 1 in all these kinds."""
    if field is None:
        return 1
    return min(max(field, 0), _MOST) if isinstance(field, int) else 1


def _object(field: Any) -> JsonObject:
    return field if isinstance(field, dict) else {}


def _objects(field: Any) -> list[JsonObject]:
    return [spec for spec in field if isinstance(spec, dict)] if isinstance(field, list) else []
