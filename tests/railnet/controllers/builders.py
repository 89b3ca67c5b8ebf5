"""Pods as the API server reports them, and the same pods reduced, built from the fields that a test sets."""

import json
from typing import Any

from railnet.controllers.training_pod import TrainingPod, training_pod
from railnet.jobs.reported_pod import ReportedPod
from railnet.objects.network_status import ANNOTATION

JsonObject = dict[str, Any]
ROOT = {"apiVersion": "batch/v1", "kind": "Job", "name": "mnist", "uid": "uid-of-mnist", "controller": True}


def network_status(*addresses: str) -> str:
    return json.dumps(
        [
            {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.7"], "default": True},
            {"name": "railnet/default", "interface": "net1", "ips": list(addresses)},
        ]
    )


def pod(
    name: str,
    *addresses: str,
    job: str = "mnist",
    root: JsonObject | None = ROOT,
    rank: int | None = None,
    **fields: Any,
) -> JsonObject:
    """Return a worker of a job, of no operator: the label railnet.io/job says which one it is."""
    labels = {"railnet.io/net1": "true", "railnet.io/job": job}
    if rank is not None:
        labels["railnet.io/rank"] = str(rank)
    annotations = {ANNOTATION: network_status(*addresses)} if addresses else {}
    metadata = {
        "namespace": "ml",
        "name": name,
        "uid": f"uid-of-{name}",
        "labels": labels | fields.pop("labels", {}),
        "annotations": annotations | fields.pop("annotations", {}),
        **({} if root is None else {"ownerReferences": [root]}),
        **fields.pop("metadata", {}),
    }
    spec = {"containers": [{"name": "main"}], "nodeName": fields.pop("node", "node-a"), **fields.pop("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": fields.pop("phase", "Running"), **fields}}


def training(*arguments: Any, **fields: Any) -> TrainingPod:
    found = training_pod(ReportedPod(pod(*arguments, **fields)))
    assert found is not None
    return found
