"""The objects of one kind that a controller made for jobs: as the API server last reported them, and as its answers to writes have them.

An answer comes before the watch reports the same object. Without it, the next look at the job would repeat the write, and be refused. What
no watch reports within some seconds was deleted or changed since, where the informer had to list again, and did not see it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from railnet.controllers.training_pod import Job

# After a write, the watch reports it within a second, if it is not interrupted.
REPORTED_SECONDS = 10.0


class JobObject(Protocol):
    """The part of a job's object that a controller decides about."""

    @property
    def job(self) -> Job:
        """Its job."""

    @property
    def name(self) -> str:
        """Its name."""


_What = TypeVar("_What", bound=JobObject)


@dataclass(frozen=True, slots=True)
class FoundObject(Generic[_What]):
    """An object as the API server has it.

    Attributes:
        what: what the controller decides about such objects.
        version: its `resourceVersion`, which grows (kubernetes.io/docs/reference/using-api/api-concepts, "Resource versions").
        intact: whether it also has what `what` does not say.
    """

    what: _What
    uid: str
    version: int
    intact: bool


class JobObjects(Generic[_What]):
    """All objects by job; any thread may call any method."""

    def __init__(self, changed: Callable[[Job], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without objects.

        Args:
            changed: called with the job of each object of which a report says something new.
            clock: returns seconds.
        """
        self._lock = threading.Lock()
        self._clock, self._changed = clock, changed
        self._reported: dict[Job, dict[str, FoundObject[_What]]] = {}
        # With the time until when it counts.
        self._answered: dict[Job, dict[str, tuple[FoundObject[_What], float]]] = {}

    def __len__(self) -> int:
        """Return how many objects were reported."""
        with self._lock:
            return sum(map(len, self._reported.values()))

    def change(self, before: FoundObject[_What] | None, after: FoundObject[_What] | None) -> None:
        """Replace an object by its newer state; None where it was or is not. An informer calls this."""
        jobs = {job_object.what.job for job_object in (before, after) if job_object is not None}
        with self._lock:
            known = {job: self._of(job) for job in jobs}
            if before is not None:
                self._remove(before)
            if after is not None:
                self._reported.setdefault(after.what.job, {})[after.what.name] = after
            changed = [job for job in jobs if self._of(job) != known[job]]
        for job in changed:
            self._changed(job)

    def learn(self, job_object: FoundObject[_What]) -> None:
        """Take over an object as the answer to a request has it."""
        with self._lock:
            self._answered.setdefault(job_object.what.job, {})[job_object.what.name] = (
                job_object,
                self._clock() + REPORTED_SECONDS,
            )

    def forget(self, job_object: FoundObject[_What]) -> None:
        """Drop an object that is gone, as the answer to a request says."""
        with self._lock:
            self._remove(job_object)

    def get(self, job: Job, name: str) -> FoundObject[_What] | None:
        """Return an object; None if there is none."""
        with self._lock:
            return self._of(job).get(name)

    def of(self, job: Job) -> list[FoundObject[_What]]:
        """Return a job's objects, sorted by name."""
        with self._lock:
            return sorted(self._of(job).values(), key=lambda job_object: job_object.what.name)

    def unreported(self, job: Job) -> bool:
        """Return whether the newest state of one of the job's objects is known by an answer alone."""
        with self._lock:
            self._of(job)
            return job in self._answered

    def _of(self, job: Job) -> dict[str, FoundObject[_What]]:
        """Return what is known by reports, and by answers that are newer."""
        reported, answered = self._reported.get(job, {}), self._answered.get(job, {})
        now = self._clock()
        newer = {
            name: (job_object, until)
            for name, (job_object, until) in answered.items()
            if now < until and (name not in reported or reported[name].version < job_object.version)
        }
        if answered:
            self._answered.pop(job)
        if newer:
            self._answered[job] = newer
        return reported | {name: job_object for name, (job_object, _) in newer.items()}

    def _remove(self, job_object: FoundObject[_What]) -> None:
        job, name = job_object.what.job, job_object.what.name
        reported, answered = self._reported.get(job, {}), self._answered.get(job, {})
        if name in reported and reported[name].uid == job_object.uid:
            del reported[name]
        if name in answered and answered[name][0].uid == job_object.uid:
            del answered[name]
        for known, objects in ((self._reported, reported), (self._answered, answered)):
            if not objects:
                known.pop(job, None)
