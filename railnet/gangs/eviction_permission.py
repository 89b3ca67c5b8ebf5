"""Finds out whether a gang may be evicted: only if that costs none of the jobs whose pods it has (`railnet.jobs.eviction_tolerance`).

An owner that has not been read is asked for, and nothing is evicted before its answer.
"""

from collections.abc import Collection, Iterable

from railnet.gangs.planning_pass_state import PlanningPass
from railnet.gangs.planning_result import Asked
from railnet.gangs.pod import GangPod
from railnet.jobs.eviction_tolerance import Refusal, Tolerance

_READ_AGAIN_SECONDS = 60.0  # after which an owner that could not be read is read once more
_MOST_REMEMBERED = 10_000
ENDS_WITH_ZERO = Refusal(
    "a pod of it that was evicted has ended with 0, so its job counts that pod as complete",
    "have the program end with another code on SIGTERM, and create the job again",
)


class EvictionPermissions:
    """Merges what is known of the owners of a gang's pods."""

    def __init__(self) -> None:
        """Begin without anything that could not be read."""
        self._unread: dict[Asked, float] = {}  # when it was last asked for

    def find(self, owners: Collection[Asked], current: PlanningPass) -> Tolerance | None:
        """Return what evicting the pods of these owners costs; None if an owner is not known yet, and is asked for."""
        roots = [current.find(owner) for owner in owners]  # all are asked for at once
        pauses = False
        for owner, root in zip(owners, roots, strict=True):
            if root is None:
                return None
            if root.tolerance.unread:
                self._read_again(owner, current)
            if root.tolerance.refusal is not None:
                return root.tolerance
            pauses = pauses or root.tolerance.pauses
        return Tolerance(None, pauses)

    def _read_again(self, owner: Asked, current: PlanningPass) -> None:
        last = self._unread.setdefault(owner, current.now)
        if current.now >= last + _READ_AGAIN_SECONDS:
            self._unread[owner] = current.now
            current.asked_again.append(owner)
        if len(self._unread) > _MOST_REMEMBERED:
            del self._unread[next(iter(self._unread))]
        current.at(current.now + _READ_AGAIN_SECONDS)


def owners_of(pods: Iterable[GangPod]) -> tuple[Asked, ...]:
    """Return the owners of pods, each once, in the order of their names."""
    return tuple(sorted({Asked(pod.name.namespace, pod.owner) for pod in pods if pod.owner is not None}, key=_name))


def _name(asked: Asked) -> tuple[str, str]:
    return asked.owner.name, asked.owner.uid
