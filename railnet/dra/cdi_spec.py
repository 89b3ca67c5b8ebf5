"""The CDI specification of a prepared claim: what the container runtime adds to a container that uses the claim. Pure.

The runtime adds the environment of one CDI device after the other, and the last of a name wins (cncf-tags/container-device-interface,
pkg/cdi/container-edits.go). So a request has one CDI device for all of its VFs, and its lists, such as NCCL_IB_HCA, also name the VFs of the
other requests that a container may name (`railnet.dra.preparation`). Names of devices have the claim's UID: a runtime may keep what a name
meant.

Source of the form: cncf-tags/container-device-interface, SPEC.md.
"""

import json
from pathlib import Path
from typing import Any

from railnet.dra import device_metadata
from railnet.dra.prepared_claim import PreparedClaim, PreparedRequest
from railnet.kubelet.dra_driver_name import DRIVER

KIND = f"{DRIVER}/claim"
_PREFIX, _SUFFIX = f"{DRIVER}-claim_", ".json"
_VERSION = "0.5.0"  # the first in which a device's name may begin with a digit, as UIDs do


def file_name(uid: str) -> str:
    """Return the name of a claim's file; runtimes read every file that ends in .json."""
    return f"{_PREFIX}{uid}{_SUFFIX}"


def uid_of(name: str) -> str | None:
    """Return the UID of the claim that a file is of, or the temporary file of such a file; None for a file of another program."""
    if not name.lstrip(".").startswith(_PREFIX):
        return None
    return name.lstrip(".").removeprefix(_PREFIX).partition(_SUFFIX)[0]


def device_of_request(uid: str, request: str) -> str:
    """Return the id of a request's CDI device, as kubelet gives it to the runtime."""
    return f"{KIND}={_name_of_request(uid, request)}"


def encode(claim: PreparedClaim, metadata: Path) -> bytes:
    """Return the content of the claim's file; `metadata` is the host's folder of `railnet.dra.device_metadata_files`."""
    devices = [_device(claim, request, metadata) for request in claim.requests]
    spec = {"cdiVersion": _VERSION, "kind": KIND, "devices": devices}
    return json.dumps(spec, indent=1).encode() + b"\n"


def _name_of_request(uid: str, request: str) -> str:
    return f"{uid}-{request}"


def _device(claim: PreparedClaim, request: PreparedRequest, metadata: Path) -> dict[str, Any]:
    uid, allocation = claim.identity.uid, request.allocation
    nodes = [{"path": node, "permissions": "rw"} for node in allocation.device_nodes]
    mount = {
        "hostPath": str(device_metadata.host_path(metadata, uid, request.name)),
        "containerPath": device_metadata.container_path(claim, request.name),
        "options": ["ro", "bind"],
    }
    edits = {"env": [f"{name}={value}" for name, value in sorted(allocation.envs.items())], "mounts": [mount]}
    return {
        "name": _name_of_request(uid, request.name),
        "containerEdits": {**edits, **({"deviceNodes": nodes} if nodes else {})},
    }
