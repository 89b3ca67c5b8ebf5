"""A pod as several controllers see it: one list and one watch for all of them, and each has its own reduction of the pod.

A second watch of all pods would double what the API server sends.
"""

import logging
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from railnet.apiserver.request import JsonObject

_log = logging.getLogger(__name__)
_One = TypeVar("_One")
_Other = TypeVar("_Other")
_Kept = TypeVar("_Kept")
Changed = Callable[[_Kept | None, _Kept | None], None]


class WatchedPod(NamedTuple, Generic[_One, _Other]):
    """A pod's two reductions; None for a controller that it does not concern."""

    one: _One | None
    other: _Other | None


def both(
    reduction: Callable[[JsonObject], _One | None], other_reduction: Callable[[JsonObject], _Other | None]
) -> Callable[[JsonObject], WatchedPod[_One, _Other] | None]:
    """Return a reduction that keeps what either of two reductions keeps. A pod that one cannot read is still the other's."""

    def keep(pod: JsonObject) -> WatchedPod[_One, _Other] | None:
        kept = WatchedPod(_kept(reduction, pod), _kept(other_reduction, pod))
        return None if kept == (None, None) else kept

    return keep


def each(tell: Changed[_One], tell_other: Changed[_Other]) -> Callable[..., None]:
    """Return what tells each of two controllers about the changes of its own reduction."""

    def changed(
        before: WatchedPod[_One, _Other] | None,
        after: WatchedPod[_One, _Other] | None,
    ) -> None:
        old, new = before or WatchedPod(None, None), after or WatchedPod(None, None)
        try:
            if old.one != new.one:
                tell(old.one, new.one)
        finally:  # an error in one controller must not cost the other the change
            if old.other != new.other:
                tell_other(old.other, new.other)

    return changed


def _kept(keep: Callable[[JsonObject], _Kept | None], pod: JsonObject) -> _Kept | None:
    try:
        return keep(pod)
    except Exception as error:  # noqa: BLE001 - the other controllers can read it
        _log.warning("pod %s cannot be read, and is left out: %r", (pod.get("metadata") or {}).get("name"), error)
        return None
