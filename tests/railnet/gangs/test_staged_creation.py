"""Which objects create their pods in stages, by the fields that their operators read."""

from typing import Any

import pytest

from railnet.gangs.staged_creation import STAGED_KINDS, creation_stages
from railnet.objects.owner_reference import OwnerReference

JOBSET, KUBEDL = "jobset.x-k8s.io/v1alpha2", "training.kubedl.io/v1alpha1"
TWO_ROLES = {"tfReplicaSpecs": {"PS": {"replicas": 1}, "Worker": {"replicas": 4}}}


def stages(version: str, kind: str, spec: Any) -> str:
    return creation_stages(OwnerReference(version, kind, "bert", "uid"), {"spec": spec})


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        ("apps/v1", "StatefulSet", {}),
        ("apps/v1", "StatefulSet", {"podManagementPolicy": "OrderedReady"}),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"startupPolicy": "LeaderReady"}),
        (JOBSET, "JobSet", {"startupPolicy": {"startupPolicyOrder": "InOrder"}}),
        (JOBSET, "JobSet", {"replicatedJobs": [{"name": "a"}, {"name": "b", "dependsOn": [{"name": "a"}]}]}),
        ("kubeflow.org/v2beta1", "MPIJob", {"launcherCreationPolicy": "WaitForWorkersReady"}),
        (KUBEDL, "TFJob", TWO_ROLES),
        (KUBEDL, "PyTorchJob", {"pytorchReplicaSpecs": {"Master": {}, "Worker": {}}}),
    ],
)
def test_object_that_creates_its_pods_in_stages(version: str, kind: str, spec: dict[str, Any]) -> None:
    assert stages(version, kind, spec)


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        ("batch/v1", "Job", {"parallelism": 4}),
        ("apps/v1", "Deployment", {"replicas": 4}),
        ("apps/v1", "StatefulSet", {"podManagementPolicy": "Parallel"}),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"startupPolicy": "LeaderCreated"}),
        (JOBSET, "JobSet", {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}, "replicatedJobs": [{"name": "a"}]}),
        (JOBSET, "JobSet", {"startupPolicy": "InOrder", "replicatedJobs": "a"}),
        ("kubeflow.org/v2beta1", "MPIJob", {"launcherCreationPolicy": "AtStartup"}),
        ("kubeflow.org/v1", "TFJob", TWO_ROLES),
        (KUBEDL, "TFJob", {"tfReplicaSpecs": {"Worker": {}}}),
        (KUBEDL, "XDLJob", {"xdlReplicaSpecs": {"PS": {}, "Worker": {}}}),
        ("apps/v1", "StatefulSet", None),
        ("apps/v1", "StatefulSet", []),
    ],
)
def test_object_that_creates_all_of_its_pods(version: str, kind: str, spec: Any) -> None:
    assert not stages(version, kind, spec)


def test_each_row_says_why_and_where_it_is_from() -> None:
    assert all(row.why and row.source and row.kinds for row in STAGED_KINDS)
