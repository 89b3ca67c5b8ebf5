"""The ResourceSlices of one node: what they should be, and the fewest writes that make them so. Pure.

The pool has the name of the node. The devices are in the slices in their order, 64 in each. A slice may have 128 devices, but 64 if one
of them has a taint; so a taint never moves a device to another slice.

| what differs | what is written |
|---|---|
| nothing | nothing |
| attributes or taints of some devices | the slices of these devices; the pool keeps its generation |
| which devices there are, or one slice is missing or strange | every slice, with the next generation; then the superfluous slices are deleted |
| the writes of a generation were interrupted | the slices that are not of this generation yet |

The scheduler leaves out a pool of which not all slices have the highest generation. So it never sees half of a change.

Source: kubernetes/api, resource/v1/types.go (`ResourceSliceSpec`, `ResourcePool`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from railnet.apiserver.request import ApiObject, Collection, JsonObject, Request, create, delete, update
from railnet.dra.devices import DraDevice, device_object
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.objects.owner_reference import OwnerReference

API_VERSION: Final = "resource.k8s.io/v1"
RESOURCE: Final = "resourceslices"
DEVICES_OF_A_SLICE: Final = 64  # ResourceSliceMaxDevicesWithTaintsOrConsumesCounters
_LONGEST_NAME = 253  # a DNS subdomain (RFC 1123)
_DIGEST_DIGITS = 10
_KEYS_OF_A_SPEC = frozenset({"driver", "pool", "nodeName", "devices"})


class NodeIdentity(NamedTuple):
    """The node in the API server: the owner of its slices."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ExistingSlice:
    """A slice as the API server has it.

    Attributes:
        generation: of the pool; 0 if the slice is not one of this driver's form, so that it is written or deleted.
        count: the slices of the pool, as this slice says.
        devices: as they are written, without the times of taints.
        taint_times: `timeAdded` of each taint, by device, key, value and effect.
        owners: the owners.
    """

    name: str
    uid: str
    version: str
    generation: int
    count: int
    devices: tuple[JsonObject, ...]
    taint_times: Mapping[tuple[str, str, str, str], str]
    owners: tuple[JsonObject, ...]


def own_slices(node: str) -> Collection:
    """Return the slices of this driver and of a node."""
    return Collection(API_VERSION, RESOURCE, fields=f"spec.nodeName={node},spec.driver={DRIVER}")


def slice_name(node: str, index: int) -> str:
    """Return the name of a slice of a node, such as `gpu-7-rdma.railnet.io-0`; the name of a node that is too long is cut, with a digest."""
    end = f"-{DRIVER}-{index}"
    if len(node) + len(end) <= _LONGEST_NAME:
        return node + end
    digest = hashlib.sha256(node.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{node[: _LONGEST_NAME - len(end) - _DIGEST_DIGITS - 1].rstrip('-.')}-{digest}{end}"


def slice_object(name: str) -> ApiObject:
    """Return the address of a slice.

    Raises:
        ValueError: as `ApiObject`.
    """
    return ApiObject(API_VERSION, RESOURCE, name)


def existing_slice(document: Mapping[str, Any], node: str) -> ExistingSlice:
    """Read a slice of this driver and of a node.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: the API server sends no such object.
    """
    metadata, spec = document["metadata"], document["spec"]
    if spec["driver"] != DRIVER or spec.get("nodeName") != node:
        raise ValueError(f"ResourceSlice {metadata['name']!r:.300} is of another driver or node than the one asked for")
    pool = spec["pool"]
    strange = pool["name"] != node or any(value for key, value in spec.items() if key not in _KEYS_OF_A_SPEC)
    devices = [dict(device) for device in spec.get("devices") or ()]
    return ExistingSlice(
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
        generation=0 if strange else int(pool["generation"]),
        count=int(pool["resourceSliceCount"]),
        devices=tuple(map(_without_times, devices)),
        taint_times=dict(_taint_times(devices)),
        owners=tuple(metadata.get("ownerReferences") or ()),
    )


def is_own(document: Mapping[str, Any], node: str) -> bool:
    """Return whether a slice is of this driver and of a node."""
    spec = document.get("spec")
    return isinstance(spec, dict) and spec.get("driver") == DRIVER and spec.get("nodeName") == node


def writes(
    existing: Sequence[ExistingSlice], devices: Sequence[DraDevice], node: NodeIdentity, above: int = 0
) -> list[Request]:
    """Return the requests that make the slices of a node what they should be, in the order in which they are to be sent.

    Args:
        existing: all slices of this driver and node.
        devices: the devices in their order; a device may not be there twice.
        node: the node.
        above: a generation that this node has had; a new one is higher.
    """
    objects = tuple(map(device_object, devices))
    wanted = [objects[first : first + DEVICES_OF_A_SLICE] for first in range(0, len(objects), DEVICES_OF_A_SLICE)]
    by_name = {known.name: known for known in existing}
    names = [slice_name(node.name, index) for index in range(len(wanted))]
    newest = _generation(existing, dict(zip(names, wanted, strict=True)), above)
    requests = []
    for name, of_slice in zip(names, wanted, strict=True):
        known, pool = by_name.get(name), {"name": node.name, "generation": newest, "resourceSliceCount": len(names)}
        if known is None or not _is_as_wanted(known, of_slice, newest, len(names), node):
            requests.append(_write(known, name, pool, of_slice, node))
    return requests + deletions(known for known in existing if known.name not in names)


def deletions(existing: Iterable[ExistingSlice]) -> list[Request]:
    """Return the requests that delete slices; a slice that has changed by then stays, and is looked at again."""
    return [delete(slice_object(known.name), known.uid, version=known.version) for known in existing]


def generation(request: Request) -> int:
    """Return the generation that a slice is written with; 0 if it is deleted."""
    return (
        int(request.body["spec"]["pool"]["generation"])
        if isinstance(request.body, dict) and "spec" in request.body
        else 0
    )


def lost_taints(request: Request, answer: JsonObject) -> bool:
    """Return whether the API server left out the taints of a slice that was written: it is too old, or has the gate DRADeviceTaints off."""
    if not isinstance(request.body, dict):
        return False
    sent, kept = (_tainted(document) for document in (request.body, answer))
    return bool(sent - kept)


def _generation(existing: Sequence[ExistingSlice], wanted: Mapping[str, tuple[JsonObject, ...]], above: int) -> int:
    """Return the generation of the pool: the highest that exists, if each slice of it has the devices that it should have."""
    highest = max((known.generation for known in existing), default=0)
    newest = [known for known in existing if known.generation == highest]
    is_kept = highest > 0 and all(
        known.count == len(wanted) and _names(known.devices) == _names(wanted.get(known.name, ())) for known in newest
    )
    # A slice of a generation that is not the highest is written, so the pool was or becomes incomplete.
    return highest if is_kept else max(highest, above) + 1


def _is_as_wanted(
    known: ExistingSlice, devices: tuple[JsonObject, ...], newest: int, count: int, node: NodeIdentity
) -> bool:
    return (known.generation, known.count, known.devices, known.owners) == (newest, count, devices, (_owner(node),))


def _write(
    known: ExistingSlice | None, name: str, pool: JsonObject, devices: tuple[JsonObject, ...], node: NodeIdentity
) -> Request:
    spec: JsonObject = {"driver": DRIVER, "nodeName": node.name, "pool": pool, "devices": list(devices)}
    metadata: JsonObject = {"name": name, "ownerReferences": [_owner(node)]}
    body: JsonObject = {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": spec,
    }
    if known is None:
        return create(slice_object(name), body)
    metadata |= {"uid": known.uid, "resourceVersion": known.version}
    spec["devices"] = [_with_times(device, known.taint_times) for device in devices]
    return update(slice_object(name), body)


def _owner(node: NodeIdentity) -> JsonObject:
    return {**OwnerReference("v1", "Node", node.name, node.uid).reference(), "controller": True}


def _names(devices: Iterable[JsonObject]) -> tuple[Any, ...]:
    return tuple(device.get("name") for device in devices)


def _taint_keys(device: JsonObject) -> list[tuple[JsonObject, tuple[str, str, str, str]]]:
    return [
        (taint, (device["name"], taint["key"], taint.get("value") or "", taint["effect"]))
        for taint in device.get("taints") or ()
    ]


def _taint_times(devices: Iterable[JsonObject]) -> Iterable[tuple[tuple[str, str, str, str], str]]:
    for device in devices:
        for taint, key in _taint_keys(device):
            if taint.get("timeAdded"):
                yield key, taint["timeAdded"]


def _without_times(device: JsonObject) -> JsonObject:
    taints = [
        {key: value for key, value in taint.items() if key != "timeAdded"} for taint in device.get("taints") or ()
    ]
    return {**device, **({"taints": taints} if taints else {})}


def _with_times(device: JsonObject, times: Mapping[tuple[str, str, str, str], str]) -> JsonObject:
    """Return a device with the times at which its taints were added: without one the API server takes a taint for new."""
    taints = [taint | ({"timeAdded": times[key]} if key in times else {}) for taint, key in _taint_keys(device)]
    return {**device, **({"taints": taints} if taints else {})}


def _tainted(document: JsonObject) -> set[str]:
    spec = document.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    return {str(device.get("name")) for device in devices or () if isinstance(device, dict) and device.get("taints")}
