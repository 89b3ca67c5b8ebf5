"""The job of most tests, and pods as controllers and kubelet make them."""

from typing import Any

from railnet.jobs.train_job.objects import objects
from railnet.jobs.train_job.train_job import TrainingJob
from railnet.train.job_file import job_of

TEXT = """\
name: mnist
image: registry.example/train:1
command: [python, /train.py]
ps: 2
workers: 3
gpus: 1
cpu: 500m
memory: 4Gi
priority: iteration
volumes: {checkpoints: /checkpoints}
"""
ON_ETH0 = f"{TEXT}rendezvous: eth0\n"  # with Services of its own
JsonObject = dict[str, Any]
RUNNING = {"phase": "Running", "containerStatuses": [{"restartCount": 0, "state": {"running": {}}}]}


def job(**changes: Any) -> TrainingJob:
    lines = [line for line in TEXT.splitlines() if line.partition(":")[0] not in changes]
    added = [f"{key}: {value}" for key, value in changes.items() if value is not None]
    return job_of("\n".join([*lines, *added]), "job.yaml")


def pods(of: TrainingJob, status: JsonObject, node: str = "a") -> list[JsonObject]:
    """Return a pod of each task, as the controllers of Jobs and Deployments make it."""
    found = []
    for made in objects(of):
        if "template" in made["spec"]:
            template, metadata = made["spec"]["template"], made["metadata"]
            found.append(
                {
                    "metadata": {
                        **template["metadata"],
                        "name": f"{metadata['name']}-x",
                        "namespace": metadata["namespace"],
                    },
                    "spec": {**template["spec"], **({"nodeName": node} if node else {})},
                    "status": status,
                }
            )
    return found
