"""`railnet train` on the node: the command as a program, files of jobs of the toy trainer, and what their pods are connected to."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.control_plane import ADMIN
from tests.cluster.kubectl import Kubectl
from tests.cluster.pod_networks import Traffic, traffic
from tests.cluster.railnet_on_node import IMAGE
from tests.stand_ins import toy_trainer

NAMESPACE = "ml"
CLAIM, MOUNT = "checkpoints", "/checkpoints"
SMALL: Mapping[str, Any] = {"cpu": "50m", "memory": "64Mi", "gpus": 1}
"""What a task of the toy trainer needs; its workers ask for a GPU, as workers do."""

_COMMAND_SECONDS = 240.0


def job_file(folder: Path, name: str, *options: str, **keys: Any) -> Path:
    """Write the file of a job whose tasks run the toy trainer; its checkpoints are in a folder of its name, which is made."""
    (folder / name).mkdir()
    program = Path(toy_trainer.__file__).read_text()
    job = {
        "name": name,
        "namespace": NAMESPACE,
        "image": IMAGE,
        "command": ["python", "-c", program, f"--checkpoint={MOUNT}/{name}", *options],
        "volumes": {CLAIM: MOUNT},
        **SMALL,
        **keys,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, as the cluster's administrator."""
    command = [sys.executable, "-m", "railnet", "train", *arguments, f"--kubeconfig={ADMIN}"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS)


def claimed_folder(folder: Path) -> list[dict[str, Any]]:
    """Describe the namespace of the jobs, with a claim that stands for a folder of the node."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": CLAIM},
            "spec": {"capacity": size, "accessModes": modes, "hostPath": {"path": str(folder), "type": "Directory"}},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": {
                "accessModes": modes,
                "storageClassName": "",
                "volumeName": CLAIM,
                "resources": {"requests": size},
            },
        },
    ]


class Tasks:
    """The pods of one job, by the names of its tasks such as `worker-1`."""

    def __init__(self, kubectl: Kubectl, job: str) -> None:
        self.kubectl, self._job = kubectl, job

    def pods(self) -> dict[str, dict[str, Any]]:
        """Give the newest pod of each task."""
        found = self.kubectl.get("pods", f"--namespace={NAMESPACE}", f"--selector=railnet.io/train={self._job}")
        found.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
        return {f"{pod['metadata']['labels']['job']}-{pod['metadata']['labels']['task']}": pod for pod in found}

    def pod(self, task: str) -> str:
        name: str = self.pods()[task]["metadata"]["name"]
        return name

    def log(self, task: str) -> str:
        """Give what the running container of a task said; empty while there is none."""
        try:
            return self.kubectl.run("logs", self.pod(task), f"--namespace={NAMESPACE}")
        except (KeyError, subprocess.CalledProcessError):
            return ""

    def traffic(self, task: str) -> Traffic:
        return traffic(self.kubectl, NAMESPACE, self.pod(task))
