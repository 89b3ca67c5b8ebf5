"""The jobs with parameter servers among the pods that have one job's name, each with its workers: the facts for `railnet.jobs.clean_up.parameter_server_rule`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from railnet.controllers.clean_up.worker_jobs import WorkerJob
from railnet.controllers.training_pod import TrainingPod
from railnet.jobs.clean_up import parameter_server_rule
from railnet.jobs.clean_up.parameter_server_rule import Group, State, TaskPosition, Worker
from railnet.jobs.operators import OPERATORS, Operator, Servers
from railnet.jobs.railnet_labels import PS_CLEANUP
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import OwnerReference
from railnet.objects.times import moment

_OPERATORS = {row.name: row for row in OPERATORS}
_JOB = ("batch/v1", "Job")


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """One job.

    Attributes:
        root: the object that all pods belong to, and that makes them again; None for a job whose tasks begin with objects of their own.
        servers: the pods of parameter servers that run, or will: those that have ended, or have been deleted, need no clean-up.
        jobs: the Jobs that make workers.
        ranks: those of all parameter servers' pods, also of those that have been deleted.
    """

    operator: Operator
    root: OwnerReference | None
    servers: tuple[TrainingPod, ...]
    workers: tuple[TrainingPod, ...]
    jobs: tuple[WorkerJob, ...]
    ranks: frozenset[tuple[int, ...]]

    @property
    def about(self) -> InvolvedObject:
        """The object that an event about the job is written to. It is not a parameter server's object: that goes."""
        namespace = self.servers[0].job.namespace
        if self.root is not None:
            return self.root.involved(namespace)
        if self.jobs:
            return self.jobs[0].about
        pod = (self.workers or self.servers)[0]
        return pod.involved if pod.owner is None else pod.owner.involved(namespace)

    def facts(self, now: float) -> Group:
        """Return what is known without a request; `now` is in seconds since 1970."""
        members = (*self.servers, *self.workers)
        sizes = [pod.size for pod in members] + [job.size for job in self.jobs]
        switches = {pod.annotations.get(PS_CLEANUP) for pod in members} | {job.switch for job in self.jobs}
        created = [*(moment(pod.created) or 0.0 for pod in self.workers), *(job.created for job in self.jobs)]
        return Group(
            workers=tuple(self._states()),
            servers=self.ranks,
            size=max((size for size in sizes if size is not None), default=None),
            switches=frozenset(filter(None, switches)),
            youngest_seconds=now - max(created, default=0.0),
        )

    def _states(self) -> Iterator[Worker]:
        """Yield each worker. A Job's condition says more than the phase of one of its pods: it tries again, and outlives them."""
        for job in self.jobs:
            yield Worker(job.tasks, job.state, f"Job {job.name}")
        known = {job.uid for job in self.jobs}
        for pod in self.workers:
            if pod.owner is None or pod.owner.uid not in known:
                yield Worker(TaskPosition(pod.role, pod.rank), _state(pod), f"pod {pod.name}")


def server_groups(pods: Sequence[TrainingPod], jobs: Sequence[WorkerJob]) -> Iterator[ServerGroup]:
    """Yield each job that has parameter servers which run."""
    groups: dict[tuple[str, OwnerReference | None], list[TrainingPod]] = {}
    for pod in pods:
        groups.setdefault(_key(pod), []).append(pod)
    for (name, root), of_group in groups.items():
        operator = _OPERATORS[name]
        if operator.servers is Servers.OPERATOR or (operator.servers is Servers.FINISHED and root is None):
            continue
        servers = [pod for pod in of_group if parameter_server_rule.serves(pod.role)]
        if not any(_there(servers)):
            continue
        yield ServerGroup(
            operator=operator,
            root=root,
            servers=tuple(sorted(_there(servers), key=lambda pod: (pod.rank, pod.name))),
            workers=tuple(pod for pod in of_group if parameter_server_rule.trains(operator, pod.role, pod.part)),
            jobs=tuple(job for job in jobs if job.operator == name and operator.servers is Servers.COMPLETE),
            ranks=frozenset(pod.rank for pod in servers),
        )


def _key(pod: TrainingPod) -> tuple[str, OwnerReference | None]:
    """Return what the pods of one job have in common: the operator, and its object if it makes all pods."""
    return pod.operator, pod.owner if _OPERATORS[pod.operator].servers is not Servers.COMPLETE else None


def _there(servers: Sequence[TrainingPod]) -> Iterator[TrainingPod]:
    return (pod for pod in servers if not (pod.ended or pod.leaving))


def _state(pod: TrainingPod) -> State:
    """Return a worker's state by its phase, where no Job says it. A Job that is not known yet, or has been deleted, decides first."""
    if pod.owner is not None and (pod.owner.api_version, pod.owner.kind) == _JOB:
        return State.GOES_ON
    return {"Succeeded": State.COMPLETE, "Failed": State.FAILED}.get(pod.phase, State.GOES_ON)
