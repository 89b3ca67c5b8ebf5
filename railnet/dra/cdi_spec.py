"""The CDI specification of a prepared claim: what the container runtime adds to a container that uses the claim. Pure.

The runtime adds the environment of one CDI device after the other, and the last of a name wins (cncf-tags/container-device-interface,
pkg/cdi/container-edits.go). So a request has one CDI device for all of its VFs, and its lists, such as NCCL_IB_HCA, also name the VFs of the
other requests that a container may name (`railnet.dra.preparation`). Names of devices have the claim's UID: a runtime may keep what a name
meant.

Source of the form: cncf-tags/container-device-interface, SPEC.md.
"""

import json
from typing import Any

from deviceplugin.allocation import Allocation
from railnet.dra.prepared_claim import PreparedClaim
from railnet.kubelet.dra_driver import DRIVER

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


def encode(claim: PreparedClaim) -> bytes:
    """Return the content of the claim's file."""
    uid = claim.identity.uid
    devices = [_device(_name_of_request(uid, request.name), request.allocation) for request in claim.requests]
    spec = {"cdiVersion": _VERSION, "kind": KIND, "devices": devices}
    return json.dumps(spec, indent=1).encode() + b"\n"


def _name_of_request(uid: str, request: str) -> str:
    return f"{uid}-{request}"


def _device(name: str, allocation: Allocation) -> dict[str, Any]:
    nodes = [{"path": node, "permissions": "rw"} for node in allocation.device_nodes]
    edits = {"env": [f"{name}={value}" for name, value in sorted(allocation.envs.items())]}
    return {"name": name, "containerEdits": {**edits, **({"deviceNodes": nodes} if nodes else {})}}
