"""ResourceSlices of nodes and ResourceClaims of pods, as the API server has them."""

from typing import Any

from railnet.dra.resource_slices import NodeIdentity, writes
from railnet.kubelet.dra_driver_name import DRIVER
from tests.railnet.dra.slice_store import SliceStore, a_device

JsonObject = dict[str, Any]
VF = "rdma/ib_vf"


def slices_of(node: str, vfs: int, unhealthy: int = 0, resource: str = VF, above: int = 0) -> list[JsonObject]:
    """Return the slices that a daemon writes for a node: so many VFs, of which the first are unhealthy."""
    store = SliceStore()
    devices = [
        a_device(number, "the port is DOWN" if number < unhealthy else None, resource=resource) for number in range(vfs)
    ]
    for request in writes([], devices, NodeIdentity(node, f"uid-of-{node}"), above):
        store.send(request)
    return list(store.slices.values())


def a_claim(
    name: str,
    count: int = 1,
    device_class: str = DRIVER,
    held: tuple[str, ...] = (),
    node: str = "a-0",
    **asked: Any,
) -> JsonObject:
    """Return a claim of one request; with devices that it has, it is allocated."""
    request = {"name": "vf", "exactly": {"deviceClassName": device_class, "count": count, **asked}}
    results = [{"request": "vf", "driver": DRIVER, "pool": node, "device": device} for device in held]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return {
        "metadata": {"namespace": "ml", "name": name},
        "spec": {"devices": {"requests": [request]}},
        "status": status,
    }
