"""Keeps the objects of each training job, as the API server last reported them: its pods, and the Jobs of its workers."""

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from railnet.controllers.training_pod import Job, TrainingPod


class JobMember(Protocol):
    """An object that belongs to a training job."""

    @property
    def job(self) -> Job:
        """Its job."""

    @property
    def name(self) -> str:
        """Its name."""


_Member = TypeVar("_Member", bound=JobMember)


class JobMembers(Generic[_Member]):
    """All objects of one kind by job. One thread changes them, and any thread may read them."""

    def __init__(self) -> None:
        """Begin without objects."""
        self._lock = threading.Lock()
        self._members: dict[Job, dict[str, _Member]] = {}
        self._watching: list[Callable[[Job], None]] = []

    def watch(self, changed: Callable[[Job], None]) -> None:
        """Have `changed` called with the job of each object that changes; by the informer's thread, so it must not wait."""
        self._watching.append(changed)

    def change(self, before: _Member | None, after: _Member | None) -> None:
        """Replace an object by its newer state; None where it was or is not. An informer calls this."""
        with self._lock:
            if before is not None:
                members = self._members[before.job]
                del members[before.name]
                if not members:
                    del self._members[before.job]
            if after is not None:
                self._members.setdefault(after.job, {})[after.name] = after
        for job in {member.job for member in (before, after) if member is not None}:
            for changed in self._watching:
                changed(job)

    def of(self, job: Job) -> list[_Member]:
        """Return a job's objects, sorted by name."""
        with self._lock:
            return sorted(self._members.get(job, {}).values(), key=lambda member: member.name)

    def jobs(self) -> list[Job]:
        """Return all jobs that have objects."""
        with self._lock:
            return list(self._members)


class JobPods(JobMembers[TrainingPod]):
    """All pods by job."""
