"""The resources that a pod holds on its node: the requests of its containers, as the scheduler counts them.

Source: k8s.io/component-helpers/resource, PodRequests: containers and sidecars together, or the largest moment while init containers run;
plus the overhead. Requests of the whole pod (Kubernetes 1.34) replace the sum.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from railnet.objects import quantity

_Sums = Mapping[str, Fraction]  # exact until all are added: `railnet.objects.resource_amounts` rounds


def pod_requests(spec: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return what a pod's `spec` requests, by resource, in cores, bytes and devices; what is no quantity counts as nothing."""
    sidecars: _Sums = {}
    moments: list[_Sums] = []  # while an init container runs, the sidecars before it run, too
    for container in spec.get("initContainers") or ():
        own = _requests(container.get("resources"))
        if container.get("restartPolicy") == "Always":
            sidecars = _sum((sidecars, own))
            moments.append(sidecars)
        else:
            moments.append(_sum((sidecars, own)))
    running = _sum((sidecars, *(_requests(container.get("resources")) for container in spec.get("containers") or ())))
    peak = {
        resource: max(moment.get(resource, Fraction()) for moment in (running, *moments))
        for resource in {*running, *(resource for moment in moments for resource in moment)}
    }
    return _sum(({**peak, **_requests(spec.get("resources"))}, _amounts(spec.get("overhead"))))


def _requests(resources: Any) -> _Sums:
    """Return the requests; the API server writes a limit as the request where there is none."""
    resources = resources or {}
    return {**_amounts(resources.get("limits")), **_amounts(resources.get("requests"))}


def _amounts(written: Any) -> dict[str, Fraction]:
    read = {resource: quantity.parsed(str(text)) for resource, text in (written or {}).items()}
    return {resource: amount for resource, amount in read.items() if amount is not None}


def _sum(parts: Iterable[_Sums]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = total.get(resource, Fraction()) + amount
    return total
