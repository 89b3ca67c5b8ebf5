"""Checks whether the pods of one job can reach each other by their rails, for `railnet doctor --pod`. Pure.

Where rails do not reach each other, a job whose pods have no rail in common hangs at its first connection, without an error.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from railnet.errors import Misconfigured
from railnet.fabric.published_reach import Reach, reach_each_other
from railnet.jobs.pod_progress import Stage, progress
from railnet.jobs.rails_apart import shown_rails
from railnet.jobs.recogniser import recognise
from railnet.objects.network_status import numbers_of, rails_of_pod
from railnet.objects.owner_reference import controlling
from railnet.objects.pod import parse

_MOST_SHOWN = 4


class JobRails(NamedTuple):
    """The pods of the job that a pod does not reach, and those of which that is not known, each in words."""

    apart: tuple[str, ...]
    unknown: tuple[str, ...]


def job_rails(pod: Mapping[str, Any], neighbours: Iterable[Mapping[str, Any]], reach: Reach) -> JobRails:
    """Compare a pod's rails with those of the other pods of its job; a pod whose rails are not reported is left out."""
    own, job = _rails(pod), _job(pod)
    apart: list[str] = []
    unknown: list[str] = []
    for neighbour in neighbours:
        if not own or job is None or not _is_other(pod, neighbour) or _job(neighbour) != job:
            continue
        rails = _rails(neighbour)
        reached = reach_each_other(own, rails, reach)
        if rails and not reached:
            (unknown if reached is None else apart).append(f"{neighbour['metadata']['name']} has {shown_rails(rails)}")
    return JobRails(tuple(sorted(apart)), tuple(sorted(unknown)))


def told(pod: Mapping[str, Any], others: tuple[str, ...]) -> str:
    """Return what was seen: the pod's rails, and those of others of its job."""
    more = f" and {len(others) - _MOST_SHOWN} more pods" if len(others) > _MOST_SHOWN else ""
    return f"this pod has {shown_rails(_rails(pod))}; of its job {', '.join(others[:_MOST_SHOWN])}{more}"


def _rails(pod: Mapping[str, Any]) -> frozenset[int]:
    return numbers_of(rails_of_pod(pod))


def _is_other(pod: Mapping[str, Any], neighbour: Mapping[str, Any]) -> bool:
    """Return whether this is another pod, and one that has not ended."""
    return neighbour["metadata"].get("uid") != pod["metadata"].get("uid") and progress(neighbour)[0] not in _ENDED


def _job(pod: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the job of a pod: as an operator's labels name it, else its controller; None if it has neither."""
    try:
        recognised = recognise(parse(pod))
    except Misconfigured:
        recognised = None
    if recognised is not None:
        return recognised.operator.name, recognised.job
    controller = controlling(pod["metadata"].get("ownerReferences") or ())
    return None if controller is None else ("", str(controller.get("uid")))


_ENDED = frozenset({Stage.SUCCEEDED, Stage.FAILED})


def of_job(
    facts_pod: Mapping[str, Any], neighbours: Iterable[Mapping[str, Any]], reach: Reach
) -> Iterator[tuple[str, str]]:
    """Yield the name of each finding about the rails of the pod's job, with what was seen."""
    compared = job_rails(facts_pod, neighbours, reach)
    if compared.apart:
        yield "job-rails-apart", told(facts_pod, compared.apart)
    if compared.unknown:
        yield "job-rails-differ", told(facts_pod, compared.unknown)
