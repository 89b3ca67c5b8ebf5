"""The pods of each training job, as the API server last reported them."""

import threading
from collections.abc import Callable

from controllers.training_pod import Job, TrainingPod


class JobPods:
    """All pods by job. One thread changes them, and any thread may read them."""

    def __init__(self) -> None:
        """Begin without pods."""
        self._lock = threading.Lock()
        self._pods: dict[Job, dict[str, TrainingPod]] = {}
        self._watching: list[Callable[[Job], None]] = []

    def watch(self, changed: Callable[[Job], None]) -> None:
        """Have `changed` called with the job of each pod that changes; by the informer's thread, so it must not wait."""
        self._watching.append(changed)

    def change(self, before: TrainingPod | None, after: TrainingPod | None) -> None:
        """Replace a pod by its newer state; None where it was or is not. An informer calls this."""
        with self._lock:
            if before is not None:
                pods = self._pods[before.job]
                del pods[before.name]
                if not pods:
                    del self._pods[before.job]
            if after is not None:
                self._pods.setdefault(after.job, {})[after.name] = after
        for job in {one.job for one in (before, after) if one is not None}:
            for changed in self._watching:
                changed(job)

    def of(self, job: Job) -> list[TrainingPod]:
        """Return a job's pods, sorted by name."""
        with self._lock:
            return sorted(self._pods.get(job, {}).values(), key=lambda pod: pod.name)

    def jobs(self) -> list[Job]:
        """Return all jobs that have pods."""
        with self._lock:
            return list(self._pods)
