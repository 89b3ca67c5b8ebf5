"""A pod as several controllers see it: one list and one watch for all of them, and each has its own reduction of the pod.

A second watch of all pods would double what the API server sends, and a second parse of each pod what an event costs.
"""

import logging
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from railnet.apiserver.request import JsonObject
from railnet.jobs.reported_pod import ReportedPod

_log = logging.getLogger(__name__)
_One = TypeVar("_One")
_Other = TypeVar("_Other")
_Kept = TypeVar("_Kept")
Changed = Callable[[_Kept | None, _Kept | None], None]
Reduction = Callable[[ReportedPod], _Kept | None]


class WatchedPod(NamedTuple, Generic[_One, _Other]):
    """A pod's two reductions; None for a controller that it does not concern."""

    one: _One | None
    other: _Other | None


def alone(reduction: Reduction[_One]) -> Callable[[JsonObject], _One | None]:
    """Return a reduction for the one controller that watches pods."""
    return lambda document: reduction(ReportedPod(document))


def both(
    reduction: Reduction[_One], other_reduction: Reduction[_Other]
) -> Callable[[JsonObject], WatchedPod[_One, _Other] | None]:
    """Return a reduction that keeps what either of two reductions keeps. A pod that one cannot read is still the other's."""

    def keep(document: JsonObject) -> WatchedPod[_One, _Other] | None:
        pod = ReportedPod(document)
        kept = WatchedPod(_kept(reduction, pod), _kept(other_reduction, pod))
        return None if kept == (None, None) else kept

    return keep


def each(tell: Changed[_One], tell_other: Changed[_Other]) -> Callable[..., None]:
    """Return what tells each of two controllers about the changes of its own reduction."""

    def changed(before: WatchedPod[_One, _Other] | None, after: WatchedPod[_One, _Other] | None) -> None:
        old, new = before or WatchedPod(None, None), after or WatchedPod(None, None)
        try:
            if old.one != new.one:
                tell(old.one, new.one)
        finally:  # an error in one controller must not cost the other the change
            if old.other != new.other:
                tell_other(old.other, new.other)

    return changed


def _kept(keep: Reduction[_Kept], pod: ReportedPod) -> _Kept | None:
    try:
        return keep(pod)
    except Exception as error:  # noqa: BLE001 - the other controllers can read it
        name = (pod.document.get("metadata") or {}).get("name")
        _log.warning("pod %s cannot be read, and is left out: %r", name, error)
        return None
