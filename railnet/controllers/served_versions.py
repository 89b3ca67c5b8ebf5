"""Asks which version of a group of kinds the API server serves: once, when a leader begins."""

from collections.abc import Sequence

from railnet.apiserver.client import ApiServer, RequestFailed
from railnet.apiserver.request import ApiGroup, get


def first_served(api: ApiServer, group: str, versions: Sequence[str]) -> str:
    """Return the first of some versions that is served.

    Raises:
        RequestFailed: the API server did not answer, or serves none of them.
    """
    api_group = api.send(get(ApiGroup(group)))
    served = [
        str(group_version.get("version"))
        for group_version in api_group.get("versions") or ()
        if isinstance(group_version, dict)
    ]
    for version in versions:
        if version in served:
            return version
    raise RequestFailed(
        f"the API server serves {group} in {', '.join(served) or 'no version'}, and Railnet knows {', '.join(versions)}; "
        "Kubernetes 1.20 and newer serve one of them"
    )
