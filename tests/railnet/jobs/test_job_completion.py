"""The end of jobs of all kinds, by their status."""

from typing import Any

import pytest

from railnet.jobs import job_completion
from railnet.jobs.job_completion import JobEnd

AT = "2026-03-01T12:00:00Z"
SECONDS = 1772366400.0


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {
        "conditions": [
            {"type": "Created", "status": "True"},
            {"type": kind, "status": status, "lastTransitionTime": AT},
        ]
    }


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (condition("Succeeded"), JobEnd(True, SECONDS)),  # KubeDL, Kubeflow v1, MPIJob
        (condition("Complete"), JobEnd(True, SECONDS)),  # batch/v1, TrainJob
        (condition("Completed"), JobEnd(True, SECONDS)),  # JobSet
        (condition("Failed"), JobEnd(False, SECONDS)),
        ({**condition("Succeeded"), "completionTime": "2026-03-01T11:00:00Z"}, JobEnd(True, SECONDS - 3600)),
        ({"state": {"phase": "Completed"}}, JobEnd(True, None)),  # Volcano
        ({"state": {"phase": "Terminated"}}, JobEnd(False, None)),
        ({"jobDeploymentStatus": "Complete", "endTime": AT}, JobEnd(True, SECONDS)),  # RayJob
        (condition("Succeeded", "False"), None),
        (condition("Running"), None),
        (condition("Restarting"), None),
        (condition("Suspended"), None),
        ({"state": {"phase": "Aborted"}}, None),  # it can be resumed
        ({"state": "ready"}, None),  # a RayCluster
        ({}, None),
        (None, None),
    ],
)
def test_end_is_what_the_operators_write(status: dict[str, Any] | None, end: JobEnd | None) -> None:
    assert job_completion.ended({"status": status}) == end


def test_replicas_are_those_of_all_roles() -> None:
    specs = {"PS": {"replicas": 2}, "Worker": {"replicas": 0}, "Chief": {}, "Evaluator": None}

    assert job_completion.replicas({"spec": {"tfReplicaSpecs": specs, "other": 1}}) == {
        "ps": 2,
        "worker": 0,
        "chief": 1,
        "evaluator": 1,
    }
    assert job_completion.replicas({}) == {}


@pytest.mark.parametrize(
    ("spec", "removes"),
    [
        ({"runPolicy": {"cleanPodPolicy": "Running"}}, True),  # Kubeflow
        ({"cleanPodPolicy": "All"}, True),  # KubeDL
        ({"cleanPodPolicy": "None"}, False),
        ({}, False),
    ],
)
def test_clean_pod_policy(spec: dict[str, Any], removes: bool) -> None:
    assert job_completion.removes_pods({"spec": spec}) is removes
