"""The controller of names on net1: brings the Services and EndpointSlices of a job to what its pods' addresses ask for.

Changes of a job that come close together become one write. A Service comes before its slices and goes after them: slices without a
Service of Railnet would put their records into a Service of another owner.
"""

import time
from collections.abc import Callable, Sequence

from railnet.apiserver.client import StreamingApiServer
from railnet.apiserver.request import ApiObject
from railnet.controllers.events import JobEvents
from railnet.controllers.informer import Informer
from railnet.controllers.job_pods import JobPods
from railnet.controllers.net1_names import net1_objects, wanted_net1_records
from railnet.controllers.net1_names.job_object_writes import JobObjectWrites, Outcome
from railnet.controllers.net1_names.name_claims import Claim, claims
from railnet.controllers.net1_names.observed_job_objects import REPORTED_SECONDS, FoundObject, JobObjects
from railnet.controllers.net1_names.wanted_net1_records import EndpointSlice, Names, Service
from railnet.controllers.owners import Owners
from railnet.controllers.reverted_writes import MOST_WRITES, WINDOW_SECONDS, RepeatedWrites
from railnet.controllers.training_pod import Job, TrainingPod
from railnet.controllers.work_queue import WorkQueue
from railnet.vf.permitted_networks import Networks

# A first change is written after the first time. A job that goes on changing is written once in the second time: 1,000 pods that get
# their addresses within some seconds cost some writes of each slice, and no address waits for longer.
_GATHER_SECONDS, _BETWEEN_SECONDS = 0.1, 0.5
# No watch reports that an object of another owner is gone.
_LOOK_AGAIN_SECONDS = 60.0
_MOST_OTHER_JOBS = 10  # of one name that have an event each
_MOST_REFUSED_PODS = 10  # of a job that have an event each: the others are made by the same template


class Net1Services:
    """The controller.

    Attributes:
        queue: the jobs that are to be looked at.
        services, slices: what Railnet made.
        informers: keep `services` and `slices` up to date; `reconcile` needs them and the pods listed.
    """

    def __init__(
        self,
        api: StreamingApiServer,
        pods: JobPods,
        owners: Owners,
        events: JobEvents,
        networks: Networks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reconcile by an API server; `networks` are those of the node configuration, `clock` returns seconds."""
        self._clock, self._networks = clock, networks
        self._pods, self._owners, self._events = pods, owners, events
        self._next: dict[Job, float] = {}  # when each job may be written again
        self.queue: WorkQueue[Job] = WorkQueue()
        self.services: JobObjects[Service] = JobObjects(self._changed, clock)
        self.slices: JobObjects[EndpointSlice] = JobObjects(self._changed, clock)
        self.informers = (
            Informer(api, net1_objects.services(), net1_objects.service, self.services.change),
            Informer(api, net1_objects.slices(), net1_objects.endpoint_slice, self.slices.change),
        )
        self._service_writes = JobObjectWrites(
            api,
            self.services,
            net1_objects.service_address,
            net1_objects.service_body,
            net1_objects.service,
            RepeatedWrites(clock),
        )
        self._slice_writes = JobObjectWrites(
            api,
            self.slices,
            net1_objects.slice_address,
            net1_objects.slice_body,
            net1_objects.endpoint_slice,
            RepeatedWrites(clock),
        )
        pods.watch(self._changed)

    @property
    def left_out(self) -> int:
        """How many writes were left out, because the same content had been written again and again."""
        return self._service_writes.repeated.left_out + self._slice_writes.repeated.left_out

    def _changed(self, job: Job) -> None:
        wait = self._next.get(job, 0.0) - self._clock()
        self.queue.add(job, max(_GATHER_SECONDS, wait))

    def reconcile(self, job: Job) -> float | None:
        """Write what differs; return the seconds after which to look again, None if a change will be reported.

        Raises:
            RequestFailed: a request was not done; those before it were.
        """
        pods = self._addressed(job)
        services, slices = self.services.of(job), self.slices.of(job)
        if not pods and not services and not slices:
            self._next.pop(job, None)
            self._service_writes.repeated.forget_owner(job)
            self._slice_writes.repeated.forget_owner(job)
            return None
        self._next[job] = self._clock() + _BETWEEN_SECONDS
        claim = self._claim(job, pods)
        names = [] if claim is None else self._names(claim, services)
        not_done = self._write(job, names, [endpoint_slice.what for endpoint_slice in slices])
        if claim is not None and not_done:
            for address, outcome in not_done:
                if outcome is Outcome.FOREIGN:
                    self._events.warning(claim.about, "Net1NameTaken", _taken(address, job))
                else:
                    self._events.warning(claim.about, "Net1NameLeftAlone", _left_alone(address))
            return _LOOK_AGAIN_SECONDS
        return REPORTED_SECONDS if self.services.unreported(job) or self.slices.unreported(job) else None

    def _write(
        self, job: Job, names: Sequence[Names], before: Sequence[EndpointSlice]
    ) -> list[tuple[ApiObject, Outcome]]:
        """Write what differs, and return what is another owner's, or was written too often.

        Slices are written in order: a leader that dies has a successor that gives the same records to the slices that are left.
        """
        outcomes: list[tuple[ApiObject, Outcome]] = []
        wanted: list[EndpointSlice] = []
        for service_names in names:
            service = service_names.service
            outcome = self._service_writes.make(service)
            outcomes.append((net1_objects.service_address(service), outcome))
            if outcome is not Outcome.FOREIGN and self.services.get(job, service.name) is not None:
                wanted += wanted_net1_records.slices(service_names, before)
        outcomes += [
            (self._slice_writes.address(endpoint_slice), self._slice_writes.make(endpoint_slice))
            for endpoint_slice in wanted
        ]
        self._slice_writes.keep(job, {endpoint_slice.name for endpoint_slice in wanted})
        self._service_writes.keep(job, {service_names.service.name for service_names in names})
        return [(address, outcome) for address, outcome in outcomes if outcome is not Outcome.DONE]

    def _addressed(self, job: Job) -> list[TrainingPod]:
        pods, refused = wanted_net1_records.addressed(wanted_net1_records.members(self._pods.of(job)), self._networks)
        for refusal in refused[:_MOST_REFUSED_PODS]:
            if refusal.pod is not None:
                self._events.warning(refusal.pod.involved, "Net1NameRefused", refusal.text)
        return pods

    def _claim(self, job: Job, pods: Sequence[TrainingPod]) -> Claim | None:
        """Return the pods that have the job's name; None if there are none."""
        job_claims = claims(self._owners, job, pods)
        for other in job_claims[1 : _MOST_OTHER_JOBS + 1]:
            self._events.warning(
                other.about,
                "Net1NameInUse",
                f"{job_claims[0].about} is older and has the name {job.name} too, so the pods of this job have no names on net1; "
                "rename one of the two jobs",
            )
        return job_claims[0] if job_claims else None

    def _names(self, claim: Claim, services: Sequence[FoundObject[Service]]) -> list[Names]:
        names, refused = wanted_net1_records.wanted(claim.pods, claim.owner)
        for refusal in refused[:_MOST_REFUSED_PODS]:
            about = claim.about if refusal.pod is None else refusal.pod.involved
            self._events.warning(about, "Net1NameRefused", refusal.text)
        if all(pod.leaving for pod in claim.pods):
            # Their root may be gone, and Kubernetes then deletes what it owned: nothing is made for it again.
            there = {service.what.name for service in services}
            return [service_names for service_names in names if service_names.service.name in there]
        return names


def _taken(address: ApiObject, job: Job) -> str:
    return f"{address} exists and is not Railnet's, so pods of job {job.name} have no names on net1; delete or rename it, or rename the job"


def _left_alone(address: ApiObject) -> str:
    return (
        f"{address} was written {MOST_WRITES} times within {WINDOW_SECONDS:g} s with the same content, and was changed each time, so it is left alone "
        "until that time is over; its managedFields say what else writes it, such as another controller or a mutating webhook: stop that"
    )
