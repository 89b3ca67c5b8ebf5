"""Pods of the one image, and what is asked of them."""

from typing import Any

from tests.cluster import busybox

RESOURCE = "rdma/ib_vf"
# Process 1 of a container gets no signal that it does not handle.
_COMMAND = ["sh", "-c", "trap 'exit 0' TERM; sleep 2147483647 & wait"]


def pod(name: str, vfs: int = 0) -> dict[str, Any]:
    """Describe a pod that runs until it is deleted."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec(vfs)}


def job(name: str, vfs: int) -> dict[str, Any]:
    """Describe a Job, which makes another pod when one fails."""
    template = {"spec": {**spec(vfs), "restartPolicy": "Never"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def spec(vfs: int) -> dict[str, Any]:
    limits = {RESOURCE: vfs} if vfs else {}
    container = {"name": "main", "image": busybox.NAME, "command": _COMMAND, "resources": {"limits": limits}}
    return {"terminationGracePeriodSeconds": 5, "automountServiceAccountToken": False, "containers": [container]}
