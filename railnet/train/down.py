"""`railnet train down`: deletes a job's owner, and waits until the cluster has deleted all that belongs to it."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from railnet.apiserver.client import Absent, Conflict, StreamingApiServer
from railnet.apiserver.request import JsonObject, delete
from railnet.cli.messages import tell
from railnet.train.job_lookup import CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS, SERVICES, address, collection, find, listed
from railnet.train.watched_objects import LiveObjects

_RESOURCES = (SERVICES, DEPLOYMENTS, JOBS, PODS)
_SHOWN_SECONDS = 5.0


def down(api: StreamingApiServer, name: str, namespace: str | None, *, wait: bool) -> bool:
    """Delete a job; return whether all of it is gone, or need not be waited for.

    Without a namespace, the job of the namespace with its name: what is deleted is never looked for elsewhere.

    Raises:
        NoSuchJob: there is no such job.
        RequestFailed: the API server refuses to delete it.
    """
    owner = find(api, name, namespace, elsewhere=False)
    place = owner["metadata"]["namespace"]
    before = {resource: len(listed(api, collection(resource, place, name))) for resource in _RESOURCES}
    try:
        api.send(delete(address({"apiVersion": "v1", "kind": "ConfigMap", **owner}), owner["metadata"]["uid"]))
    except (Absent, Conflict):
        tell(f"job {name} was deleted by something else at the same moment")
    if not wait:
        tell(f"job {name} in namespace {place} is being deleted: {_counted(before)}")
        return True
    return _wait(api, name, place, before)


def _wait(api: StreamingApiServer, name: str, namespace: str, before: dict[str, int]) -> bool:
    keep: Callable[[JsonObject], Any] = lambda document: document["metadata"]["name"]  # noqa: E731 - typed for LiveObjects
    watched = (*_RESOURCES, CONFIG_MAPS)
    shown = time.monotonic()
    with LiveObjects(api, {resource: (collection(resource, namespace, name), keep) for resource in watched}) as live:
        while True:
            live.wait(1.0)
            left = {resource: live.of(resource) for resource in watched}
            if live.listed and not any(left.values()):
                tell(f"job {name} in namespace {namespace} is gone: {_counted(before)}")
                tell(f"namespace {namespace} and its volumes stay")
                return True
            if time.monotonic() - shown > _SHOWN_SECONDS:
                shown = time.monotonic()
                tell(live.trouble or f"still there: {_named(left)}")


def _counted(numbers: Mapping[str, int]) -> str:
    return (
        ", ".join(f"{number} {resource}" for resource, number in numbers.items() if number) or "it had no other objects"
    )


def _named(left: Mapping[str, Sequence[str]]) -> str:
    names = [f"{resource}/{name}" for resource, names_left in left.items() for name in sorted(names_left)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")  # noqa: PLR2004 - as above
