"""The conditions in an object's status: of nodes, of pods, of Jobs and of the objects of training operators.

An object has one condition of a type. If another program wrote two, the first one counts, as in Kubernetes itself.

Sources: kubernetes/api, core/v1 NodeCondition and PodCondition, batch/v1 JobCondition; kubernetes/kubernetes, pkg/api/v1/pod and
k8s.io/component-helpers/node, GetPodCondition and GetNodeCondition.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from railnet.objects.times import moment

_TRUE = "True"


class StatusCondition(NamedTuple):
    """A condition.

    Attributes:
        kind: its type, such as `Ready`.
        status: `True`, `False` or `Unknown`.
        reason: one word; empty without one.
        message: empty without one.
        since: its `lastTransitionTime` in seconds since 1970; None if it has none.
    """

    kind: str
    status: str
    reason: str = ""
    message: str = ""
    since: float | None = None

    @property
    def is_true(self) -> bool:
        """True if the condition holds."""
        return self.status == _TRUE


def is_ready(document: Mapping[str, Any]) -> bool:
    """Return whether the condition `Ready` of a node or a pod holds.

    Raises:
        TypeError, AttributeError: the API server sends no such object.
    """
    for written in _written(document):
        if written.get("type") == "Ready":
            return bool(written.get("status") == _TRUE)
    return False


def condition(document: Mapping[str, Any], kind: str) -> StatusCondition | None:
    """Return the condition of a type; None if the object has none.

    Raises:
        TypeError, AttributeError: the API server sends no such object.
    """
    return next((_read(written) for written in _written(document) if written.get("type") == kind), None)


def conditions(document: Mapping[str, Any]) -> Iterator[StatusCondition]:
    """Yield all conditions, in their order.

    Raises:
        TypeError, AttributeError: the API server sends no such object.
    """
    return map(_read, _written(document))


def unscheduled(pod: Mapping[str, Any]) -> StatusCondition | None:
    """Return the condition by which the scheduler says that a pod has no node; None if it says no such thing.

    Raises:
        TypeError, AttributeError: the API server sends no such pod.
    """
    scheduled = condition(pod, "PodScheduled")
    return None if scheduled is None or scheduled.status != "False" else scheduled


def _written(document: Mapping[str, Any]) -> Any:
    return (document.get("status") or {}).get("conditions") or ()


def _read(written: Mapping[str, Any]) -> StatusCondition:
    """Read a condition; a field of another type counts as absent."""
    kind, status, reason, message = (
        text if isinstance(text := written.get(key), str) else "" for key in ("type", "status", "reason", "message")
    )
    return StatusCondition(kind, status, reason, message, moment(written.get("lastTransitionTime")))
