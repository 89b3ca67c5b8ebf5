"""The controller that deletes parameter servers, and the Services of their jobs' tasks, when all workers are complete.

What is deleted is what would make a pod again: the Deployment, not its pod. All state is in the cluster: Services go first and parameter
servers by rising rank, so that a leader that dies leaves a job in which the next one finds the same facts.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from railnet.apiserver.client import Absent, Conflict, StreamingApiServer
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, delete, get
from railnet.controllers.clean_up.parameter_server_jobs import ServerGroup, server_groups
from railnet.controllers.clean_up.worker_jobs import WorkerJob, template_member, worker_job
from railnet.controllers.events import JobEvents
from railnet.controllers.informer import Informer
from railnet.controllers.job_pods import JobMembers, JobPods
from railnet.controllers.owners import Owners, address
from railnet.controllers.training_pod import Job, TrainingPod
from railnet.controllers.work_queue import WorkQueue
from railnet.jobs import job_completion
from railnet.jobs.clean_up import parameter_server_rule
from railnet.jobs.clean_up.parameter_server_rule import Group, State, TaskPosition
from railnet.jobs.clean_up.verdict import Action, Verdict
from railnet.jobs.railnet_labels import PS_CLEANUP
from railnet.objects.owner_reference import OwnerReference, controller

# Kubernetes' own kinds that make a pod again.
_MAKERS = frozenset(
    {("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job")}
)
_INERT = ("v1", "ConfigMap")  # it owns the objects of `railnet train up`, and nothing makes them again for it
# After a change: the pods of a large job change at about the same time, and one look is enough for all.
_GATHER_SECONDS = 0.5
# No watch reports that an operator's object has succeeded, which follows the end of its pods at once. If it does not, looks become rare.
_LOOK_AGAIN_SECONDS, _LONGEST_SECONDS = 1.0, 300.0


class Doomed(NamedTuple):
    """An object that is deleted, and its controller."""

    kind: str
    about: ApiObject
    uid: str
    above: OwnerReference | None

    def __str__(self) -> str:
        """Name the object in an event."""
        return f"{self.kind} {self.about.name}"


class CleanUp:
    """The controller.

    Attributes:
        queue: the jobs that are to be looked at.
        jobs: the Jobs of workers.
        informer: keeps `jobs` up to date; `reconcile` needs it and the pods listed.
    """

    def __init__(
        self,
        api: StreamingApiServer,
        pods: JobPods,
        owners: Owners,
        events: JobEvents,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Reconcile by an API server; `clock` returns seconds since 1970."""
        self._api, self._pods, self._events, self._clock = api, pods, events, clock
        self._owners = owners
        self._since: dict[Job, float] = {}  # since when the root of a job whose workers are complete goes on
        self.queue: WorkQueue[Job] = WorkQueue()
        self.jobs: JobMembers[WorkerJob] = JobMembers()
        self.informer = Informer(api, Collection("batch/v1", "jobs"), worker_job, self.jobs.change)
        pods.watch(self._changed)
        self.jobs.watch(self._changed)

    def _changed(self, job: Job) -> None:
        self.queue.add(job, _GATHER_SECONDS)

    def reconcile(self, job: Job) -> float | None:
        """Delete what a job does not need any more; return the seconds after which to look again, None if a change will be reported.

        Raises:
            RequestFailed: a request was not done; those before it were.
        """
        again = [self._look(group, job) for group in server_groups(self._pods.of(job), self.jobs.of(job))]
        seconds = min((pause for pause in again if pause is not None), default=None)
        if seconds is None:
            self._since.pop(job, None)
        return seconds

    def _look(self, group: ServerGroup, job: Job) -> float | None:
        facts = group.facts(self._clock())
        verdict = parameter_server_rule.verdict(facts)
        services: list[tuple[TaskPosition, Doomed]] = []
        if verdict.action is Action.DELETE:  # only now are there requests
            services = list(self._services(group, job))
            verdict = parameter_server_rule.verdict(self._asked(group, facts, [task for task, _ in services]))
        if verdict.action is Action.DELETE:
            self._delete(group, job, [service for _, service in services], verdict.why)
        elif verdict.action is Action.KEEP:
            self._keep(group, verdict.why)
        return self._pause(job, verdict)

    def _asked(self, group: ServerGroup, facts: Group, services: Iterable[TaskPosition]) -> Group:
        """Add the facts that cost requests."""
        namespace = group.servers[0].job.namespace
        labels = self._api.send(get(ApiObject("v1", "namespaces", namespace)))["metadata"].get("labels") or {}
        switch = labels.get(PS_CLEANUP)
        facts = replace(
            facts,
            switches=facts.switches | ({switch} if switch else set()),
            named=frozenset(task for task in services if not parameter_server_rule.serves(task.role)),
            replicas={},
        )
        return facts if group.root is None else self._with_root(group, group.root, facts)

    def _with_root(self, group: ServerGroup, root: OwnerReference, facts: Group) -> Group:
        about = address(group.servers[0].job.namespace, root)
        if about is None:
            return replace(facts, root=State.GOES_ON)
        try:
            root_object = self._api.send(get(about))
        except Absent:  # it has been deleted: its pods follow
            return replace(facts, root=State.GOES_ON)
        end = job_completion.ended(root_object) if root_object["metadata"]["uid"] == root.uid else None
        if end is None or job_completion.removes_pods(root_object):
            return replace(facts, root=State.GOES_ON)
        roles = group.operator.roles
        replicas = {
            role: count
            for role, count in job_completion.replicas(root_object).items()
            if role not in roles and not parameter_server_rule.serves(role)
        }
        return replace(facts, root=State.COMPLETE if end.succeeded else State.FAILED, replicas=replicas)

    def _pause(self, job: Job, verdict: Verdict) -> float | None:
        """Return when to look again: for an operator's object that goes on, after half the time that it has gone on."""
        if verdict.seconds is None or verdict.seconds > 0:
            return verdict.seconds
        now = self._clock()
        waited = now - self._since.setdefault(job, now)
        return min(max(waited / 2, _LOOK_AGAIN_SECONDS), _LONGEST_SECONDS)

    def _services(self, group: ServerGroup, job: Job) -> Iterator[tuple[TaskPosition, Doomed]]:
        """Yield the Services of the job's tasks that no operator would make again, by task and name."""
        if group.root is not None:
            return
        for page in pages(self._api, Collection("v1", "services", job.namespace)):
            for service in sorted(page.found, key=lambda service: str(service["metadata"]["name"])):
                task = parameter_server_rule.service_task(
                    group.operator, job.name, (service.get("spec") or {}).get("selector") or {}
                )
                if task is not None and _is_free(controller(service)):
                    yield task, _service(service)

    def _delete(self, group: ServerGroup, job: Job, services: Iterable[Doomed], why: str) -> None:
        makers = self._doomed(group, job)
        for maker in makers:
            if group.root is None and maker.above is not None and not _is_free(maker.above):
                self._keep(
                    group, f"{maker.above.kind} {maker.above.name} owns {maker}, and may make it again; delete it"
                )
                return
        gone = [str(doomed) for doomed in (*services, *makers) if self._deleted(doomed)]
        if gone:
            self._events.normal(group.about, "ParameterServersDeleted", f"{why}; deleted {', '.join(gone)}")

    def _doomed(self, group: ServerGroup, job: Job) -> list[Doomed]:
        """Return what makes the parameter servers; what makes the highest rank comes last."""
        makers: dict[tuple[ApiObject, str], Doomed] = {}  # a pod's author may give two objects the same UID
        for pod in group.servers:
            maker = self._maker(pod)
            makers.pop((maker.about, maker.uid), None)
            makers[maker.about, maker.uid] = maker
        return [maker for maker in makers.values() if maker.about.resource == "pods" or self._makes_servers(maker, job)]

    def _maker(self, pod: TrainingPod) -> Doomed:
        """Return the last of a pod's owners that is of a kind of Kubernetes' own; the pod itself if there is none."""
        namespace, above = pod.job.namespace, pod.owner
        maker = Doomed("Pod", ApiObject("v1", "pods", pod.name, namespace), pod.uid, above)
        while above is not None and (above.api_version, above.kind) in _MAKERS:
            about = address(namespace, above)
            if about is None:  # no object has this name
                return maker
            kind, uid, above = above.kind, above.uid, self._owners.above(namespace, above)
            maker = Doomed(kind, about, uid, above)
        return maker

    def _makes_servers(self, maker: Doomed, job: Job) -> bool:
        """Return whether an object makes parameter servers of this job by its own template.

        The author of a pod may name any object of the namespace as its owner, also one that the author may not delete.
        """
        try:
            json_object = self._api.send(get(maker.about))
        except Absent:
            return False
        member = template_member(json_object)
        return member is not None and member.job == job.name and parameter_server_rule.serves(member.role)

    def _deleted(self, doomed: Doomed) -> bool:
        with suppress(Absent, Conflict):  # it is gone, or another object has its name
            self._api.send(delete(doomed.about, doomed.uid))
            return True
        return False

    def _keep(self, group: ServerGroup, why: str) -> None:
        name = group.servers[0].job.name
        self._events.warning(group.about, "ParameterServersStay", f"the parameter servers of {name} stay: {why}")


def _is_free(owner: OwnerReference | None) -> bool:
    return owner is None or (owner.api_version, owner.kind) == _INERT


def _service(service: JsonObject) -> Doomed:
    metadata = service["metadata"]
    about = ApiObject("v1", "services", metadata["name"], metadata["namespace"])
    return Doomed("Service", about, metadata["uid"], controller(service))
