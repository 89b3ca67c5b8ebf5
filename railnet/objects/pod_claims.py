"""The ResourceClaims of a pod: those that it names, and those that are made of the templates that it names.

Source: kubernetes/api, core/v1/types.go (`PodResourceClaim`, `PodResourceClaimStatus`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class PodClaim(NamedTuple):
    """A claim of a pod.

    Attributes:
        entry: its name in the pod.
        claim: the name of the ResourceClaim; empty if it is not made yet, or the template needs none.
        template: the name of the template; empty if the pod names the claim itself.
        is_made: whether it is known which claim it is; a template may also turn out to need none.
    """

    entry: str
    claim: str
    template: str
    is_made: bool


def pod_claims(pod: Mapping[str, Any]) -> Iterator[PodClaim]:
    """Yield the claims of a pod as the API server reports it, but for the one that the scheduler makes of its extended resources.

    Raises:
        KeyError, TypeError, AttributeError: the API server sends no such pod.
    """
    entries = pod["spec"].get("resourceClaims")
    if not entries:  # nearly all pods
        return
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    claim_of = {status["name"]: status.get("resourceClaimName") or "" for status in statuses}
    for entry in entries:
        named, template = entry.get("resourceClaimName") or "", entry.get("resourceClaimTemplateName") or ""
        name = str(entry["name"])
        yield PodClaim(name, str(named or claim_of.get(name, "")), str(template), bool(named) or name in claim_of)
