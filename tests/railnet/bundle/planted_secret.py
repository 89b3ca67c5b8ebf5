"""A secret, and objects in which it stands wherever Kubernetes lets a person put one."""

from typing import Any

PLANTED = "hunter2-planted-secret"


def planted(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with the secret in its annotations, labels, environments, commands, volumes and messages of a container's end."""
    spec = {
        **pod["spec"],
        "volumes": [{"name": "v", "secret": {"secretName": PLANTED}}],
        "nodeSelector": {"x": PLANTED},
    }
    spec["containers"] = [
        {
            **container,
            "env": [{"name": "TOKEN", "value": PLANTED}],
            "args": ["--password", PLANTED],
            "command": [PLANTED],
            "envFrom": [{"secretRef": {"name": PLANTED}}],
        }
        for container in spec["containers"]
    ]
    metadata = {
        **pod["metadata"],
        "annotations": {"a": PLANTED},
        "labels": {**pod["metadata"].get("labels", {}), "l": PLANTED},
    }
    metadata["managedFields"] = [{"manager": PLANTED}]
    status = {**pod["status"], "hostIP": PLANTED}
    status["containerStatuses"] = [
        {**one, "lastState": {"terminated": {"message": PLANTED, "reason": "Error"}}}
        if "lastState" not in one and one.get("ended")
        else one
        for one in status["containerStatuses"]
    ]
    return {**pod, "metadata": metadata, "spec": spec, "status": status}
