"""Asks the API server for what goes on in a namespace: pods, Jobs, what makes pods again, and the objects of the operators that it serves."""

from collections.abc import Iterator
from typing import NamedTuple

from railnet.apiserver.client import Absent, ApiServer
from railnet.apiserver.object_watch import pages
from railnet.apiserver.request import ApiGroup, Collection, get
from railnet.controllers.owners import known_kinds
from railnet.jobs.clean_up import namespace_rule

# By group; the likeliest to go on come first, since the first object that goes on ends the look.
_OWN: dict[str, dict[str, str]] = {
    "batch": {"jobs": "Job", "cronjobs": "CronJob"},
    "apps": {"deployments": "Deployment", "statefulsets": "StatefulSet", "replicasets": "ReplicaSet"},
}
_OPERATORS = {
    group: {resource: kind for (of, kind), resource in known_kinds().items() if of == group}
    for group in dict.fromkeys(group for group, _ in known_kinds())
    if group not in _OWN
}


class NamespaceContents(NamedTuple):
    """The contents of a namespace.

    Attributes:
        goes_on: an object that goes on, for messages; empty if there is none.
        ends: when the others ended, in seconds since 1970.
    """

    goes_on: str
    ends: list[float]


def contents(api: ApiServer, namespace: str) -> NamespaceContents:
    """Ask for what a namespace has, up to the first object that goes on.

    Raises:
        RequestFailed: the API server did not answer, or does not allow it: then it is unknown what goes on.
    """
    ends = []
    for version, kind, resource in _kinds(api):
        for page in pages(api, Collection(version, resource, namespace)):
            for json_object in page.found:
                end = namespace_rule.end(kind, json_object)
                if end is None:
                    return NamespaceContents(f"{kind} {json_object['metadata']['name']}", [])
                if end.at is not None:
                    ends.append(end.at)
    return NamespaceContents("", ends)


def claims(api: ApiServer, namespace: str) -> list[str]:
    """Return the names of a namespace's PersistentVolumeClaims.

    Raises:
        RequestFailed: as `contents`.
    """
    claim_pages = pages(api, Collection("v1", "persistentvolumeclaims", namespace))
    try:
        return [str(claim["metadata"]["name"]) for page in claim_pages for claim in page.found]
    except Absent:  # an API server without claims
        return []


def _kinds(api: ApiServer) -> Iterator[tuple[str, str, str]]:
    """Yield version, kind and resource of what is served."""
    yield "v1", "Pod", "pods"
    for group, resources in (_OWN | _OPERATORS).items():
        left = dict(resources)
        for version in _versions(api, group):
            served = {
                str(api_resource["name"]) for api_resource in api.send(get(ApiGroup(version))).get("resources") or ()
            }
            for resource in [name for name in left if name in served]:
                yield version, left.pop(resource), resource


def _versions(api: ApiServer, group: str) -> list[str]:
    try:
        api_group = api.send(get(ApiGroup(group)))
    except Absent:  # the operator is not installed
        return []
    return [str(group_version["groupVersion"]) for group_version in api_group.get("versions") or ()]
