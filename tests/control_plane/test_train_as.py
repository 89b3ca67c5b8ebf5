"""`railnet train up --as trainjob` with the definitions of Kubeflow Trainer, whose controller and webhooks do not run here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.server import ApiServer

_SECONDS = 60.0
_NAMESPACE = "trainer"
_GROUP = "/apis/trainer.kubeflow.org/v1alpha1"
_RESOURCES = {"TrainingRuntime": "trainingruntimes", "TrainJob": "trainjobs"}
# All that a file may say of pods.
_JOB: JsonObject = {
    "kind": "pytorch",
    "name": "resnet",
    "namespace": _NAMESPACE,
    "image": "registry.example/train:1",
    "command": ["torchrun", "/train.py"],
    "workers": 4,
    "gpus": 8,
    "cpu": "32",
    "memory": "256Gi",
    "sharedMemory": "64Gi",
    "retries": 2,
    "port": 30000,
    "env": {"NCCL_DEBUG": "INFO"},
    "annotations": {"example.com/owner": "ml"},
    "imagePullSecrets": ["registry"],
    "volumes": {"checkpoints": "/checkpoints", "scratch": {"mountPath": "/scratch", "hostPath": {"path": "/mnt/nvme"}}},
    "nodeSelector": {"example.com/pool": "training"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"railnet.io/train": "resnet"}},
                }
            ]
        }
    },
    "topology": "railnet.io/leaf",
}


class Trainer:
    """The command, with a file, where the cluster has Trainer's kinds."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.file = server, folder / "job.yaml"
        self.file.write_text(yaml.safe_dump(_JOB))

    def train(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "railnet", "train", *arguments, f"--kubeconfig={self.server.api.kubeconfig}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def printed(self, where: str) -> dict[str, JsonObject]:
        """Return what a dry run prints, by kind."""
        text = self.train("up", "-f", str(self.file), "--as", "trainjob", f"--dry-run={where}", "-o", "json")
        return {item["kind"]: item for item in json.loads(text)["items"]}


@pytest.fixture(scope="module")
def trainer(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    folder = Path(os.environ["RAILNET_TRAINER"]) / "crds"
    done = server.kubectl("apply", "--server-side", f"--kustomize={folder}")
    assert done.returncode == 0, done.stderr
    try:
        wait_until(lambda: _is_served(server), _SECONDS, "Trainer's kinds to be served")
        server.namespace(_NAMESPACE)
        yield Trainer(server, tmp_path_factory.mktemp("trainer"))
    finally:
        server.kubectl("delete", "--ignore-not-found", f"--kustomize={folder}")
        server.api.delete(f"/api/v1/namespaces/{_NAMESPACE}")


def _is_served(server: ApiServer) -> bool:
    """Return whether the API server has Trainer's kinds; before, its answer is no object."""
    return server.kubectl("get", ",".join(_RESOURCES.values()), "--all-namespaces").returncode == 0


def _missing(wanted: Any, found: Any, path: str) -> list[str]:
    """Return the fields of an object that are not in another one, which may have more."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [lost for key in wanted for lost in _missing(wanted[key], found.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [lost for index, pair in pairs for lost in _missing(*pair, f"{path}[{index}]")]
    return [] if wanted == found else [path]


def test_api_server_keeps_each_field_of_the_runtime_and_the_train_job(trainer: Trainer) -> None:
    wanted, found = trainer.printed("client"), trainer.printed("server")

    assert list(wanted) == list(found) == ["ConfigMap", *_RESOURCES]
    assert [path for kind in _RESOURCES for path in _missing(wanted[kind]["spec"], found[kind]["spec"], kind)] == []


def test_objects_pass_strict_validation_without_a_warning(trainer: Trainer) -> None:
    for kind, resource in _RESOURCES.items():
        path = f"{_GROUP}/namespaces/{_NAMESPACE}/{resource}?dryRun=All&fieldValidation=Strict"
        answer = trainer.server.api.send("POST", path, trainer.printed("client")[kind])

        assert (answer.status, answer.warnings) == (201, []), answer.text


def test_runtime_and_train_job_belong_to_the_jobs_owner(trainer: Trainer) -> None:
    said = trainer.train("up", "-f", str(trainer.file), "--as", "trainjob", "--no-wait")
    api, base = trainer.server.api, f"{_GROUP}/namespaces/{_NAMESPACE}"
    owner = api.get(f"/api/v1/namespaces/{_NAMESPACE}/configmaps/resnet").object["metadata"]
    owners = {
        resource: [reference["uid"] for reference in one["metadata"]["ownerReferences"]]
        for resource in _RESOURCES.values()
        for one in api.items(f"{base}/{resource}")
    }
    trainer.train("down", "resnet", "-n", _NAMESPACE, "--no-wait")

    assert said.splitlines()[-1] == f"job resnet is created in namespace {_NAMESPACE}"
    assert owners == {resource: [owner["uid"]] for resource in _RESOURCES.values()}
    assert owner["annotations"]["railnet.io/train-as"] == "trainjob"
