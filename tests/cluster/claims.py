"""ResourceClaims and ResourceSlices of the cluster, and pods that name claims."""

import json
from collections.abc import Sequence
from typing import Any

from railnet.kubelet.dra_driver_name import DRIVER
from tests.cluster.api_requests import ApiRequests
from tests.cluster.pods import pod

API = "resource.k8s.io/v1"
_PATH = f"/apis/{API}"

Object = dict[str, Any]


def template(name: str, requests: Sequence[Object], **spec: Any) -> Object:
    """Describe a ResourceClaimTemplate with these requests."""
    claim = {"devices": {"requests": list(requests), **spec}}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": claim}}


def claim(name: str, requests: Sequence[Object]) -> Object:
    """Describe a ResourceClaim with these requests."""
    spec = {"devices": {"requests": list(requests)}}
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def request(name: str, count: int = 1, device_class: str = DRIVER, selector: str = "") -> Object:
    """Describe a request for so many devices of a class; `selector` is an expression of CEL."""
    exactly: Object = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": exactly}


def pod_with_claim(name: str, *, of_template: str = "", claim_name: str = "") -> Object:
    """Describe a pod whose container uses a claim: a new one of a template, or one that exists."""
    described = pod(name)
    source = {"resourceClaimTemplateName": of_template} if of_template else {"resourceClaimName": claim_name}
    described["spec"]["resourceClaims"] = [{"name": "rails", **source}]
    (container,) = described["spec"]["containers"]
    container["resources"] = {"claims": [{"name": "rails"}]}
    return described


def slices(node: str, driver: str = DRIVER) -> list[Object]:
    """Return a driver's ResourceSlices of a node, Railnet's if none is named."""
    with ApiRequests() as api:
        listed = api.get(f"{_PATH}/resourceslices?fieldSelector=spec.driver%3D{driver}")["items"]
    return [entry for entry in listed if entry["spec"].get("nodeName") == node]


def devices(node: str, driver: str = DRIVER) -> list[Object]:
    """Return the devices of a node's slices."""
    return [device for entry in slices(node, driver) for device in entry["spec"].get("devices", ())]


def untainted(node: str) -> int:
    """Return how many devices of a node new pods may get."""
    return sum(not device.get("taints") for device in devices(node))


def claims(namespace: str = "default") -> list[Object]:
    """Return the ResourceClaims of a namespace."""
    with ApiRequests() as api:
        listed: list[Object] = api.get(f"{_PATH}/namespaces/{namespace}/resourceclaims")["items"]
    return listed


def claim_of(pod_name: str) -> Object:
    """Return the one claim that a pod owns.

    Raises:
        LookupError: the pod owns none, or several.
    """
    owned = [entry for entry in claims() if any(owner["name"] == pod_name for owner in _owners(entry))]
    if len(owned) != 1:
        raise LookupError(f"pod {pod_name} owns {len(owned)} claims: {json.dumps(owned)[:1000]}")
    return owned[0]


def _owners(entry: Object) -> list[Object]:
    owners: list[Object] = entry["metadata"].get("ownerReferences", [])
    return owners
