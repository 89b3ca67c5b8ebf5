"""Finds out whether a gang may be evicted: only if that costs none of the jobs whose pods it has (`railnet.jobs.eviction_tolerance`).

An owner that has not been read is asked for, and nothing is evicted before its answer. An owner's author may change it, so a permission counts for
a minute only.
"""

from collections.abc import Collection, Iterable, Sequence

from railnet.gangs.planning_pass_state import PlanningPass
from railnet.gangs.planning_result import Asked, Root
from railnet.gangs.pod import GangPod
from railnet.jobs.eviction_tolerance import Refusal, Tolerance

_COUNTS_SECONDS = 60.0  # that a permission counts, or that an owner could not be read
ENDS_WITH_ZERO = Refusal(
    "a pod of it that was evicted has ended with 0, so its job counts that pod as complete",
    "have the program end with another code on SIGTERM, and create the job again",
)


def known_tolerance(owners: Collection[Asked], current: PlanningPass) -> Tolerance | None:
    """Return what evicting the pods of these owners costs, as far as it is known; None if an owner is not known yet, and is asked for."""
    return _merged([_root(owner, current) for owner in owners])  # all are asked for at once


def recent_tolerance(owners: Collection[Asked], current: PlanningPass) -> Tolerance | None:
    """Return what evicting the pods of these owners costs; None if an owner was not read in the last minute, and is asked for.

    What refuses it is not read again: an eviction that does not happen costs nothing.
    """
    tolerance = known_tolerance(owners, current)
    if tolerance is None or tolerance.refusal is not None:
        return tolerance
    return _merged([current.find(owner, current.now - _COUNTS_SECONDS) for owner in owners])


def _root(owner: Asked, current: PlanningPass) -> Root | None:
    root = current.find(owner)
    if root is None or not root.tolerance.unread:
        return root
    current.at(current.now + _COUNTS_SECONDS)
    return current.find(owner, current.now - _COUNTS_SECONDS)


def _merged(roots: Sequence[Root | None]) -> Tolerance | None:
    """Return the first refusal of several owners; None if one that comes before it is not known."""
    pauses = False
    for root in roots:
        if root is None:
            return None
        if root.tolerance.refusal is not None:
            return root.tolerance
        pauses = pauses or root.tolerance.pauses
    return Tolerance(None, pauses)


def owners_of(pods: Iterable[GangPod]) -> tuple[Asked, ...]:
    """Return the owners of pods, each once, in the order of their names."""
    return tuple(sorted({Asked(pod.name.namespace, pod.owner) for pod in pods if pod.owner is not None}, key=_name))


def _name(asked: Asked) -> tuple[str, str]:
    return asked.owner.name, asked.owner.uid
