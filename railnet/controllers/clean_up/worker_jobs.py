"""A Job that makes workers of a training job, reduced to what the controllers read of it: its conditions outlive its pods."""

from dataclasses import dataclass

from railnet.apiserver.request import JsonObject
from railnet.controllers.training_pod import Job
from railnet.errors import Misconfigured
from railnet.jobs import job_completion
from railnet.jobs.clean_up import parameter_server_rule
from railnet.jobs.clean_up.parameter_server_rule import State, TaskPosition, TaskRange
from railnet.jobs.operators import Operator, Servers
from railnet.jobs.railnet_labels import PS_CLEANUP
from railnet.jobs.recogniser import RecognisedPod, recognise
from railnet.objects import pod as pods
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.metadata_times import created
from railnet.objects.owner_reference import OwnerReference, controller

_INDEXED = "Indexed"
_MOST_OF_SWITCH = 64  # characters that are kept: its author may write 256 KiB


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """A Job of batch/v1 whose pods are workers.

    Attributes:
        tasks: the positions of its pods in the training job.
        size: how many pods the training job has; None if the Job's template does not say it.
        owner: its controller; None if it has none.
        created: when it was created, in seconds since 1970.
        switch: the value of the annotation that switches the clean-up off; None without it.
    """

    job: Job
    name: str
    uid: str
    operator: str
    tasks: TaskPosition | TaskRange
    state: State
    size: int | None
    owner: OwnerReference | None
    created: float
    switch: str | None

    @property
    def about(self) -> InvolvedObject:
        """The object that an event about the training job is written to."""
        namespace = self.job.namespace
        return (
            OwnerReference("batch/v1", "Job", self.name, self.uid).involved(namespace)
            if self.owner is None
            else self.owner.involved(namespace)
        )


def worker_job(job: JsonObject) -> WorkerJob | None:
    """Reduce a Job as the API server reports it; None if its pods are no workers whose end `railnet.jobs.clean_up.parameter_server_rule` waits for.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the API server sends no such Job.
    """
    metadata, spec = job["metadata"], job["spec"]
    try:
        pod = _first_pod(job)
        member = recognise(pod)
    except Misconfigured:  # the webhook refuses its pods
        return None
    if member is None or not _is_worker(member.operator, member):
        return None
    switch = pod.annotations.get(PS_CLEANUP)
    return WorkerJob(
        job=Job(pod.namespace, member.job),
        name=metadata["name"],
        uid=metadata["uid"],
        operator=member.operator.name,
        tasks=_tasks(member, spec),
        state=_state(job),
        size=member.size,
        owner=controller(job),
        created=created(metadata),
        switch=None if switch is None else switch[:_MOST_OF_SWITCH],
    )


def template_member(json_object: JsonObject) -> RecognisedPod | None:
    """Return the place in a training job of the pods that an object makes by its template; None if they have none.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object has no template.
    """
    try:
        return recognise(_first_pod(json_object))
    except Misconfigured:  # the webhook refuses its pods
        return None


def _first_pod(json_object: JsonObject) -> pods.Pod:
    """Return a pod as an object makes it.

    Raises:
        Misconfigured: the template is malformed.
    """
    metadata, template = json_object["metadata"], json_object["spec"]["template"]
    owner = {"name": metadata["name"], "controller": True}
    own = {"name": metadata["name"], "namespace": metadata["namespace"], "ownerReferences": [owner]}
    return pods.parse({"metadata": {**(template.get("metadata") or {}), **own}, "spec": template.get("spec")})


def _is_worker(operator: Operator, member: RecognisedPod) -> bool:
    return operator.servers is Servers.COMPLETE and parameter_server_rule.trains(operator, member.role, member.part)


def _tasks(member: RecognisedPod, spec: JsonObject) -> TaskPosition | TaskRange:
    if not member.rank and spec.get("completionMode") == _INDEXED:
        return TaskRange(member.role, int(spec.get("completions") or 0))
    return TaskPosition(member.role, member.rank)


def _state(job: JsonObject) -> State:
    end = job_completion.ended(job)
    if end is None:
        return State.GOES_ON
    return State.COMPLETE if end.succeeded else State.FAILED
