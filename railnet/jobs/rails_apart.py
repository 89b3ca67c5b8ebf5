"""Whether the pods of one job have rails that do not reach each other. Pure.

Such a job hangs at its first connection over net1, without an error. Which rails a pod has is read from its annotation, which anyone may have
written who may change the pod.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from railnet.fabric.published_reach import PublishedReach, first_apart
from railnet.jobs.pod_progress import Stage, progress
from railnet.objects.network_status import numbers_of, rails_of_pod

REASON = "RailsApart"
"""The reason of the event about such a job."""
# Of one job. The pods of a job with one VF each have as many as a node has rails, and pods with two of eight rails 28.
_MOST_SETS = 64
_MOST_SHOWN = 8
_ENDED = frozenset({Stage.SUCCEEDED, Stage.FAILED})


class RailsOfPod(NamedTuple):
    """A pod that is on a node, and the numbers of its rails."""

    name: str
    rails: frozenset[int]


class RailsApart(NamedTuple):
    """Two pods of a job that do not reach each other, and when it was found out that their rails do not, as a date."""

    pod: RailsOfPod
    other: RailsOfPod
    date: str


def rails_on_node(pod: Mapping[str, Any]) -> frozenset[int]:
    """Return the numbers of a pod's rails; none of a pod that has no node, or has ended."""
    if not (pod.get("spec") or {}).get("nodeName") or progress(pod)[0] in _ENDED:
        return frozenset()
    return numbers_of(rails_of_pod(pod))


def pod_rails(pods: Iterable[Mapping[str, Any]]) -> Iterator[RailsOfPod]:
    """Yield the pods that have rails."""
    yield from (RailsOfPod(pod["metadata"]["name"], rails) for pod in pods if (rails := rails_on_node(pod)))


def rails_apart(pods: Iterable[RailsOfPod], published: PublishedReach) -> RailsApart | None:
    """Return the first two pods of a job that do not reach each other, by name; None if all do, or nothing is known."""
    if not published.reach:
        return None
    first_with: dict[frozenset[int], RailsOfPod] = {}
    for pod in sorted(pods):
        if pod.rails:
            first_with.setdefault(pod.rails, pod)
    firsts = list(first_with.values())[:_MOST_SETS]
    two = first_apart([pod.rails for pod in firsts], published.reach)
    return None if two is None else RailsApart(firsts[two[0]], firsts[two[1]], published.date)


def words(apart: RailsApart) -> str:
    """Return what is said of it: what was seen, what it means, and what to do."""
    return (
        f"pods {_shown(apart.pod)} and {_shown(apart.other)} do not reach each other over net1, as railnet validate found on {apart.date}, so "
        "the job hangs at its first connection; have its pods request all rails, or a pool of one rail, or select a rail by DRA "
        '(docs/validate.md, "Which rails reach each other")'
    )


def as_json(apart: RailsApart | None) -> dict[str, Any] | None:
    """Return it as JSON has it; null where pods reach each other, or where that is not known."""
    if apart is None:
        return None
    pods = [{"name": pod.name, "rails": sorted(pod.rails)} for pod in (apart.pod, apart.other)]
    return {"pods": pods, "found": apart.date}


def _shown(pod: RailsOfPod) -> str:
    return f"{pod.name} ({shown_rails(pod.rails)})"


def shown_rails(rails: Iterable[int]) -> str:
    """Return rails in words."""
    numbers = sorted(rails)
    more = f" and {len(numbers) - _MOST_SHOWN} more" if len(numbers) > _MOST_SHOWN else ""
    return f"rail{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers[:_MOST_SHOWN]))}{more}"
