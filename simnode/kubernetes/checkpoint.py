"""kubelet's device manager checkpoint, `kubelet_internal_checkpoint`, in the JSON form that kubelet writes.

When it is written is decided in `kubelet`. Form: pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go.
"""

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193  # FNV-1a, 32 bits, as k8s.io/kubernetes/pkg/util/hash uses


@dataclass(frozen=True, slots=True)
class Entry:
    """The devices of one resource given to one container.

    `device_ids` is by NUMA node, -1 for devices without topology; `response` is the marshalled ContainerAllocateResponse.
    """

    pod_uid: str
    container: str
    resource: str
    device_ids: Mapping[int, Sequence[str]]
    response: bytes

    def ids(self) -> tuple[str, ...]:
        """Return the device ids in kubelet's order."""
        return tuple(device for node in sorted(self.device_ids) for device in self.device_ids[node])


def encode(entries: Iterable[Entry], registered: Mapping[str, Sequence[str]]) -> bytes:
    """Encode a checkpoint; no entry at all is `null`, as Go marshals a nil slice."""
    data = {
        "PodDeviceEntries": [_encode_entry(entry) for entry in entries] or None,
        "RegisteredDevices": {resource: list(ids) for resource, ids in registered.items()},
    }
    checksum = _fnv32a(_compact(data))
    return _compact({"Data": data, "Checksum": checksum})


def _encode_entry(entry: Entry) -> dict[str, object]:
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
    """Stand in for kubelet's checksum: the same function, though over JSON and not over Go's dump of the structure."""
    value = _FNV_OFFSET
    for octet in data:
        value = (value ^ octet) * _FNV_PRIME & 0xFFFFFFFF
    return value


def write(path: Path, content: bytes) -> None:
    """Write as kubelet's file store does: a temporary file beside it, then rename."""
    temporary = path.with_name(f".{path.name}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    temporary.rename(path)
