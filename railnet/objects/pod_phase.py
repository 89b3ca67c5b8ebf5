"""A pod's phase.

Source: kubernetes/api, core/v1 PodPhase.
"""

from collections.abc import Mapping
from typing import Any

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
ENDED = (SUCCEEDED, FAILED)  # all containers have ended, and none starts again


def phase(pod: Mapping[str, Any]) -> str:
    """Return a pod's phase; `Pending` if no kubelet has written one yet, as the API server has it then."""
    return (pod.get("status") or {}).get("phase") or PENDING
