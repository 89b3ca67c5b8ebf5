"""The pods that an object makes by its templates: how many members a gang will have, and what those ask for that do not exist yet.

Sources: kubernetes batch/v1 (Job), apps/v1; kubernetes-sigs/jobset, api/jobset/v1alpha2 (ReplicatedJob); kubernetes-sigs/lws, api/
leaderworkerset/v1 (LeaderWorkerTemplate); volcano-sh/apis, pkg/apis/batch/v1alpha1 (TaskSpec); ray-project/kuberay, apis/ray/v1
(RayClusterSpec); kubeflow/training-operator v1.9.0 and kubedl-io/kubedl b93a2b4 (ReplicaSpec).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from railnet.apiserver.request import JsonObject

_MOST = 100_000  # pods of one template; no job has more
_HEAD = "headgroup"  # what KubeRay labels the head's pod with, as ray.io/group


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """Pods that are made by one template.

    Attributes:
        role: as the pods' labels say it, in lower case; empty if the object has one template only.
        count: how many there are at a time.
        template: `metadata` and `spec` of each.
    """

    role: str
    count: int
    template: JsonObject


def pod_templates(found: JsonObject) -> list[PodTemplate]:
    """Return what an object makes; empty if it is of a kind without templates. What is not as documented counts as absent."""
    every = (replace(one, count=min(one.count, _MOST)) for one in _found(_object(found.get("spec"))))
    return [one for one in every if one.count > 0]


def _found(spec: JsonObject) -> Iterator[PodTemplate]:
    if "template" in spec:  # a Job has `parallelism`, the others have `replicas`
        yield PodTemplate("", _of_job(spec) if "replicas" not in spec else _number(spec["replicas"]), _template(spec))
    for key, roles in spec.items():
        if key.endswith("ReplicaSpecs"):
            for role, one in _object(roles).items():
                yield _replicas(role, _object(one))
    for one in _objects(spec.get("tasks")):
        yield _replicas(one.get("name"), one)
    for one in _objects(spec.get("replicatedJobs")):
        job = _object(_object(one.get("template")).get("spec"))
        yield PodTemplate(_role(one.get("name")), _number(one.get("replicas")) * _of_job(job), _template(job))
    yield from _of_leaders(spec)
    yield from _of_ray(spec)


def _of_leaders(spec: JsonObject) -> Iterator[PodTemplate]:
    """Yield the pods of a LeaderWorkerSet: of each replica, one leader, and the rest of its size."""
    both = _object(spec.get("leaderWorkerTemplate"))
    if not both:
        return
    replicas, worker = _number(spec.get("replicas")), _object(both.get("workerTemplate"))
    yield PodTemplate("leader", replicas, _object(both.get("leaderTemplate")) or worker)
    yield PodTemplate("worker", replicas * (_number(both.get("size")) - 1), worker)


def _of_ray(spec: JsonObject) -> Iterator[PodTemplate]:
    cluster = _object(spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec)
    head = _object(cluster.get("headGroupSpec"))
    if head:
        yield PodTemplate(_HEAD, 1, _template(head))
        for one in _objects(cluster.get("workerGroupSpecs")):
            yield _replicas(one.get("groupName"), one)


def _replicas(role: Any, one: JsonObject) -> PodTemplate:
    return PodTemplate(_role(role), _number(one.get("replicas")), _template(one))


def _of_job(spec: JsonObject) -> int:
    """Return how many pods of a Job run at a time: no more than it has completions."""
    parallelism = _number(spec.get("parallelism"))
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, _number(completions))


def _template(spec: JsonObject) -> JsonObject:
    return _object(spec.get("template"))


def _role(name: Any) -> str:
    return str(name or "").lower()


def _number(found: Any) -> int:
    """Return a count; absent is 1 in all these kinds."""
    if found is None:
        return 1
    return min(max(found, 0), _MOST) if isinstance(found, int) else 1


def _object(found: Any) -> JsonObject:
    return found if isinstance(found, dict) else {}


def _objects(found: Any) -> list[JsonObject]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
