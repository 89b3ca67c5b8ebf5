"""Ends the wait of pods for their gang: when Railnet is gone, no program would remove their gate.

The webhook, which adds gates, must be gone. API servers learn that by a watch, and may add some gates until then.
"""

from collections.abc import Callable

from railnet.apiserver.client import Absent, ApiServer, Conflict
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, json_patch
from railnet.cluster_uninstall.failure import NotUninstalled
from railnet.gangs import gate_removal_patch
from railnet.gangs.gate_removal_patch import Gated

_UNBOUND = Collection("v1", "pods", fields="spec.nodeName=")  # a pod with a gate is on no node
_LEARN_SECONDS = 5.0


def release_all(api: ApiServer, rest: Callable[[float], bool]) -> int:
    """Remove the gate from each pod, and return how many gates were removed.

    Args:
        api: the API server.
        rest: waits for some seconds; returns False at once if there is no time for them.

    Raises:
        NotUninstalled: gates were still added at the end of the time.
        RequestFailed: as `ApiServer.send`.
    """
    removed = 0
    while True:
        waiting = _waiting(api)
        removed += sum(_release(api, pod, gated) for pod, gated in waiting)
        if not rest(_LEARN_SECONDS):
            raise NotUninstalled(
                "pods may still wait for their gang, and the time is over: run this again, with a longer --timeout"
            )
        if not _waiting(api):
            return removed


def _waiting(api: ApiServer) -> list[tuple[ApiObject, Gated]]:
    return [
        (_address(pod), gated)
        for page in pages(api, _UNBOUND)
        for pod in page.found
        if (gated := gate_removal_patch.gated(pod)) is not None
    ]


def _address(pod: JsonObject) -> ApiObject:
    return ApiObject("v1", "pods", pod["metadata"]["name"], pod["metadata"]["namespace"])


def _release(api: ApiServer, pod: ApiObject, gated: Gated) -> bool:
    """Remove the gate; return False if the pod has changed since it was listed, or is gone."""
    try:
        api.send(json_patch(pod, gate_removal_patch.steps(gated, None)))
    except (Absent, Conflict):
        return False
    return True
