"""The checkpoint of kubelet's device manager, `kubelet_internal_checkpoint`, in the JSON form that kubelet writes.

`kubelet` decides when it is written. Form: pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go.
"""

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193  # FNV-1a, 32 bits, as k8s.io/kubernetes/pkg/util/hash uses


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The devices of one resource that one container has.

    `device_ids` is by NUMA node, with -1 for devices without topology; `response` is the marshalled
    ContainerAllocateResponse.
    """

    pod_uid: str
    container: str
    resource: str
    device_ids: Mapping[int, Sequence[str]]
    response: bytes

    def ids(self) -> tuple[str, ...]:
        """Return the device ids in kubelet's order."""
        return tuple(device for node in sorted(self.device_ids) for device in self.device_ids[node])


def encode(entries: Iterable[CheckpointEntry], registered: Mapping[str, Sequence[str]]) -> bytes:
    """Encode a checkpoint; an empty list of entries becomes `null`, as Go marshals a nil slice."""
    data = {
        "PodDeviceEntries": [_encode_entry(entry) for entry in entries] or None,
        "RegisteredDevices": {resource: list(ids) for resource, ids in registered.items()},
    }
    checksum = _fnv32a(_compact(data))
    return _compact({"Data": data, "Checksum": checksum})


def _encode_entry(entry: CheckpointEntry) -> dict[str, object]:
    return {
        "PodUID": entry.pod_uid,
        "ContainerName": entry.container,
        "ResourceName": entry.resource,
        "DeviceIDs": {str(node): list(ids) for node, ids in sorted(entry.device_ids.items())},
        "AllocResp": base64.b64encode(entry.response).decode(),
    }


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _fnv32a(data: bytes) -> int:
    """Return a checksum by kubelet's hash function, but over the JSON text and not over Go's dump of the structure."""
    value = _FNV_OFFSET
    for octet in data:
        value = (value ^ octet) * _FNV_PRIME & 0xFFFFFFFF
    return value


def write(path: Path, content: bytes) -> None:
    """Write the file as kubelet's file store does: write a temporary file in the same folder, then rename it."""
    temporary = path.with_name(f".{path.name}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    temporary.rename(path)
