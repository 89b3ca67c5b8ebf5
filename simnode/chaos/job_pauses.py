"""How long Kubernetes does nothing for a job since the node failed a pod of it, and which of it a fault of the node explains. Pure.

The sources are those of Kubernetes 1.37:

- *The Job controller* makes no pod for ten seconds after a Job's first pod failed, and twice as long after each further one, ten minutes at most
  (pkg/controller/job/job_controller.go, DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff; backoff_utils.go). Two pods that fail together
  count twice. It counts from the pod's end, or from its creation where kubelet never admitted it.
- *Kubelet* does nothing for a pod for ten to fifteen seconds after its sandbox or container could not be made (pkg/kubelet/pod_workers.go,
  completeWork; kubelet.go, backOffPeriod), and looks once a second which pods are due.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

FIRST_SECONDS = 10.0
MOST_SECONDS = 600.0
KUBELET_SECONDS = 16.0
# After a fault of the node is done, what it ended still starts: the daemon, and its registration at kubelet.
AFTER_FAULT_SECONDS = 10.0
_STAMP_SECONDS = 1.0  # Kubernetes writes whole seconds


class Span(NamedTuple):
    """From when until when something was, in seconds of time.time."""

    began: float
    ended: float


class PodSeen(NamedTuple):
    """A pod of a job.

    Attributes:
        created: when it was created.
        failed: when the node failed it; None if the node did not.
        tried: when kubelet could not make its sandbox or container.
        started: when its container started; None if it has not.
        place: which of the job's pods it is; another pod takes this place after it.
    """

    created: float
    failed: float | None = None
    tried: tuple[float, ...] = ()
    started: float | None = None
    place: str = ""


def pauses(pods: Iterable[PodSeen]) -> tuple[Span, ...]:
    """Return from when until when Kubernetes did nothing for a job, by its rules above and never longer than it was seen to do nothing.

    After a pod that failed this lasts until another pod took its place, after a sandbox or container until the container started. What
    did not come yet has no pause: there may be another reason why it does not come.
    """
    seen = list(pods)
    return tuple(sorted((*_of_jobs(seen), *_of_kubelet(seen))))


def explained(spans: Sequence[Span], faults: Iterable[Span]) -> float:
    """Return the seconds of the pauses that began while a fault of the node was, or shortly after it; what several pauses share counts once."""
    known = list(faults)
    return sum(span.ended - span.began for span in _united(span for span in spans if _within(span.began, known)))


def _of_jobs(seen: Sequence[PodSeen]) -> Iterator[Span]:
    failed = [pod.failed for pod in seen if pod.failed is not None]
    for pod in seen:
        later = [other.created for other in seen if other.place == pod.place and other.created > pod.created]
        if pod.failed is None or not later:
            continue
        next_created = min(later)
        failures = sum(1 for at in failed if at < next_created + _STAMP_SECONDS)
        most = min(FIRST_SECONDS * 2 ** (failures - 1), MOST_SECONDS)
        yield Span(pod.failed, min(max(next_created, pod.failed), pod.failed + most))


def _of_kubelet(seen: Sequence[PodSeen]) -> Iterator[Span]:
    for pod in seen:
        for at in pod.tried:
            if pod.started is not None and pod.started >= at:
                yield Span(at, min(pod.started, at + KUBELET_SECONDS))


def _within(at: float, faults: Iterable[Span]) -> bool:
    return any(fault.began - _STAMP_SECONDS <= at <= fault.ended + AFTER_FAULT_SECONDS for fault in faults)


def _united(spans: Iterable[Span]) -> Iterator[Span]:
    whole: Span | None = None
    for span in sorted(spans):
        if whole is not None and span.began <= whole.ended:
            whole = Span(whole.began, max(whole.ended, span.ended))
            continue
        if whole is not None:
            yield whole
        whole = span
    if whole is not None:
        yield whole
