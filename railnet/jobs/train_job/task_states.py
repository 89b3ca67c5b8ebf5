"""The tasks of a job of `railnet train`, each with its state: read from its Job or Deployment, and from its pod.

An operator's pods have other labels: their tasks are those that the recogniser sees.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from railnet.errors import Misconfigured
from railnet.jobs.pod_progress import Stage, progress, said
from railnet.jobs.recogniser import recognise
from railnet.jobs.train_job.train_job import PS, WORKER
from railnet.objects import pod as pod_module
from railnet.objects.conditions import conditions
from railnet.objects.metadata_times import created_text, is_deleted

_ORDER = {PS: 0, "launcher": 1, "master": 1, WORKER: 2}
_DONE = frozenset({Stage.RUNNING, Stage.SUCCEEDED})


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task.

    Attributes:
        stage: the stage of its pod; `unscheduled` without a pod.
        why: what it waits for, or why it failed.
        pod: the name of its pod; empty without one.
        ended: whether no pod of it will run any more.
        container: the name of the container that trains; empty without a pod.
    """

    role: str
    index: int
    stage: Stage
    why: str = ""
    pod: str = ""
    node: str = ""
    restarts: int = 0
    ended: bool = False
    container: str = ""

    @property
    def name(self) -> str:
        """The name of the task on the command line."""
        return f"{self.role}-{self.index}"

    @property
    def runs(self) -> bool:
        """True if the task runs, or has succeeded."""
        return self.stage in _DONE


def task_states(
    makers: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]], refusals: Mapping[str, str]
) -> tuple[TaskState, ...]:
    """Return the tasks in their order: parameter servers, then workers.

    Args:
        makers: the Jobs and the Deployments of one job.
        pods: its pods.
        refusals: by the name of a Job, why the API server refused its pods.
    """
    by_task: dict[tuple[str, int], Mapping[str, Any]] = {}
    for pod in sorted(pods, key=_age):
        key = _task(pod)
        if key is not None:
            by_task[key] = pod  # the youngest
    states = {
        key: _state(key, maker, by_task.get(key), refusals) for maker in makers if (key := _task(maker)) is not None
    }
    for key, pod in by_task.items():
        states.setdefault(key, _of_pod(key, pod, ended=False))
    return tuple(states[key] for key in sorted(states, key=lambda key: (_ORDER.get(key[0], len(_ORDER)), *key)))


def summary(states: Iterable[TaskState]) -> str:
    """Return one word for the whole job."""
    all_tasks = tuple(states)
    workers = [task for task in all_tasks if task.role != PS]
    if any(task.ended and task.stage is Stage.FAILED for task in workers):
        return "failed"
    if workers and all(task.stage is Stage.SUCCEEDED for task in workers):
        return "completed"
    return "running" if all_tasks and all(task.runs for task in all_tasks) else "waiting"


def refusals_of(events: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return by the name of a Job what the last of its events `FailedCreate` says."""
    refusals: dict[str, str] = {}
    for event in sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or "")):
        about = event.get("involvedObject") or {}
        if about.get("kind") == "Job":
            refusals[str(about.get("name"))] = said("", str(event.get("message") or ""))
    return refusals


def _state(
    key: tuple[str, int], maker: Mapping[str, Any], pod: Mapping[str, Any] | None, refusals: Mapping[str, str]
) -> TaskState:
    true_conditions = {condition.kind: condition for condition in conditions(maker) if condition.is_true}
    if "Complete" in true_conditions:
        return TaskState(*key, Stage.SUCCEEDED, pod=_name(pod) if pod else "", ended=True, container=_name(maker))
    if (failed := true_conditions.get("Failed")) is not None:
        why = said(failed.reason, failed.message)
        return TaskState(*key, Stage.FAILED, why, _name(pod) if pod else "", ended=True, container=_name(maker))
    if pod is not None:
        return _of_pod(key, pod, ended=False)
    failure = true_conditions.get("ReplicaFailure")
    refused = refusals.get(maker["metadata"]["name"]) or ("" if failure is None else said("", failure.message))
    return TaskState(*key, Stage.UNSCHEDULED, refused or "no pod yet")


def _of_pod(key: tuple[str, int], pod: Mapping[str, Any], *, ended: bool) -> TaskState:
    stage, why = progress(pod)
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    restarts = sum(int(container.get("restartCount") or 0) for container in status.get("containerStatuses") or ())
    member = None if _labelled(pod) else _recognised(pod)
    container = f"{_labels(pod).get('name', '')}-{key[0]}-{key[1]}" if member is None else member[1]
    return TaskState(*key, stage, why, _name(pod), spec.get("nodeName") or "", restarts, ended, container)


def _task(document: Mapping[str, Any]) -> tuple[str, int] | None:
    labelled = _labelled(document)
    if labelled is not None or "spec" not in document or "containers" not in document["spec"]:
        return labelled
    member = _recognised(document)
    return None if member is None else member[0]


def _labelled(document: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the task that the templates' labels name."""
    labels = _labels(document)
    index = str(labels.get("task", ""))
    return (str(labels["job"]), int(index)) if "job" in labels and index.isascii() and index.isdecimal() else None


def _recognised(document: Mapping[str, Any]) -> tuple[tuple[str, int], str] | None:
    """Return the task of a pod that an operator has made, by role and rank, and the name of the container that trains."""
    try:
        pod = pod_module.parse(document)
        member = recognise(pod)
    except Misconfigured:
        return None
    if member is None:
        return None
    return (member.role, member.rank[-1] if member.rank else 0), pod.containers[member.container].name


def _labels(document: Mapping[str, Any]) -> Mapping[str, Any]:
    labels: Mapping[str, Any] = document["metadata"].get("labels") or {}
    return labels


def _age(pod: Mapping[str, Any]) -> tuple[bool, str, str]:
    """Sort pods that are being deleted first, then by their age: the last one is the task's."""
    metadata = pod["metadata"]
    return not is_deleted(metadata), created_text(metadata), _name(pod)


def _name(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"]["name"])
