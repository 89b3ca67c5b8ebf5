"""Ends the wait of pods for their gang: when Railnet is gone, no program would remove their gate, or create the PodGroup that they name.

The webhook, which adds gates, must be gone. API servers learn that by a watch, and may add some gates until then.
"""

from collections.abc import Callable

from railnet.apiserver.client import Absent, ApiServer, Conflict
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiObject, Collection, JsonObject, create, json_patch
from railnet.cluster_uninstall.failure import NotUninstalled
from railnet.errors import Misconfigured
from railnet.gangs import gate_removal_patch
from railnet.gangs.gate_removal_patch import Gated
from railnet.gangs.pod_group import PodGroup, pod_group
from railnet.jobs.gang.other_placement import names_own_group
from railnet.jobs.gang.recogniser import gang_name
from railnet.objects.involved_object import InvolvedObject
from railnet.objects.owner_reference import controller
from railnet.objects.pod import parse

_UNBOUND = Collection("v1", "pods", fields="spec.nodeName=")  # a pod with a gate is on no node
_LEARN_SECONDS = 5.0


def release_all(api: ApiServer, rest: Callable[[float], bool]) -> int:
    """Let each pod go by itself, and return how many gates were removed, and PodGroups created.

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
        created = sum(_create(api, group) for group in _missing_groups(api))
        removed += created
        if not rest(_LEARN_SECONDS):
            raise NotUninstalled(
                "pods may still wait for their gang, and the time is over: run this again, with a longer --timeout"
            )
        if not created and not _waiting(api):
            return removed


def _waiting(api: ApiServer) -> list[tuple[ApiObject, Gated]]:
    return [
        (_address(pod), gated)
        for page in pages(api, _UNBOUND)
        for pod in page.found
        if (gated := gate_removal_patch.gated(pod)) is not None
    ]


def _missing_groups(api: ApiServer) -> list[PodGroup]:
    """Return a PodGroup for each one that pods without a node name; those that exist are among them."""
    groups = {}
    for page in pages(api, _UNBOUND):
        for document in page.found:
            group = _group(document)
            if group is not None:
                groups[group.gang] = group
    return list(groups.values())


def _group(document: JsonObject) -> PodGroup | None:
    metadata, spec = document["metadata"], document["spec"]
    try:
        pod = parse(document)
    except Misconfigured:
        return None
    if not names_own_group(pod, spec):
        return None
    itself = InvolvedObject("v1", "Pod", metadata["namespace"], metadata["name"], metadata["uid"])
    owner = controller(document) or itself
    return PodGroup((metadata["namespace"], gang_name(pod)), "", 0, spec.get("priorityClassName") or "", (owner,))


def _create(api: ApiServer, group: PodGroup) -> bool:
    """Create a PodGroup whose pods start each by itself; return False if it exists, or if PodGroups are not served."""
    try:
        api.send(create(group.about, pod_group(group)))
    except (Absent, Conflict):
        return False
    return True


def _address(pod: JsonObject) -> ApiObject:
    return ApiObject("v1", "pods", pod["metadata"]["name"], pod["metadata"]["namespace"])


def _release(api: ApiServer, pod: ApiObject, gated: Gated) -> bool:
    """Remove the gate; return False if the pod has changed since it was listed, or is gone."""
    try:
        api.send(json_patch(pod, gate_removal_patch.steps(gated, None)))
    except (Absent, Conflict):
        return False
    return True
