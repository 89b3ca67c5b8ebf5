"""Kubelet's `dra_manager_state`, as kubelet writes it."""

import json
import zlib
from collections.abc import Iterable
from typing import Any

from railnet.kubelet.dra_driver_name import DRIVER


def a_claim(
    uid: str = "claim-1",
    pods: Iterable[str] = ("uid-1",),
    devices: Iterable[str] = ("pci-0000-03-00-1",),
    **changes: Any,
) -> dict[str, Any]:
    """Return a claim of which Railnet's driver has prepared these devices."""
    listed = [
        {
            "PoolName": "node-a",
            "DeviceName": device,
            "ShareID": None,
            "RequestNames": ["vf"],
            "CDIDeviceIDs": [f"{DRIVER}/claim={uid}-vf"],
        }
        for device in devices
    ]
    return {
        "ClaimUID": uid,
        "ClaimName": "train-vf",
        "Namespace": "ml",
        "PodUIDs": {pod: {} for pod in pods},
        "DriverState": {DRIVER: {"Devices": listed or None}},
        **changes,
    }


def a_data(*claims: object, **changes: Any) -> str:
    data = {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": list(claims) or None,
        **changes,
    }
    return json.dumps(data, separators=(",", ":"))


def a_file(data: str) -> bytes:
    return json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}, separators=(",", ":")).encode()


def a_state(*claims: object) -> bytes:
    """Return the file with these claims."""
    return a_file(a_data(*claims))
