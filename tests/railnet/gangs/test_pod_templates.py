"""How many pods an object makes, by its kind."""

import pickle
from typing import Any

import pytest

from railnet.gangs.placement.pod_shape import shape
from railnet.gangs.pod_templates import pod_templates

POD = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main"}]}}
SHAPE = shape(POD["spec"])


def roles(spec: dict[str, Any]) -> list[tuple[str, int]]:
    return [(one.role, one.count) for one in pod_templates({"spec": spec}) if one.shape == SHAPE]


def test_job_makes_as_many_as_run_at_a_time() -> None:
    assert roles({"template": POD}) == [("", 1)]
    assert roles({"template": POD, "parallelism": 4, "completions": 4}) == [("", 4)]
    assert roles({"template": POD, "parallelism": 8, "completions": 5}) == [("", 5)]
    assert roles({"template": POD, "parallelism": 8}) == [("", 8)]


def test_suspended_or_empty_object_makes_none() -> None:
    assert roles({"template": POD, "parallelism": 0}) == []
    assert roles({"template": POD, "replicas": 0}) == []


def test_deployment_makes_its_replicas() -> None:
    assert roles({"template": POD, "replicas": 3}) == [("", 3)]


def test_operators_object_makes_each_role() -> None:
    specs = {
        "PS": {"replicas": 2, "template": POD},
        "Worker": {"replicas": 5, "template": POD},
        "Chief": {"template": POD},
    }

    assert roles({"tfReplicaSpecs": specs}) == [("ps", 2), ("worker", 5), ("chief", 1)]


def test_jobset_makes_jobs_of_pods() -> None:
    jobs = [
        {"name": "Leader", "template": {"spec": {"template": POD}}},
        {"name": "workers", "replicas": 3, "template": {"spec": {"template": POD, "parallelism": 4, "completions": 4}}},
    ]

    assert roles({"replicatedJobs": jobs}) == [("leader", 1), ("workers", 12)]


def test_volcano_job_makes_its_tasks() -> None:
    assert roles(
        {"tasks": [{"name": "ps", "replicas": 1, "template": POD}, {"name": "worker", "replicas": 2, "template": POD}]}
    ) == [
        ("ps", 1),
        ("worker", 2),
    ]


def test_leader_worker_set_makes_groups_of_its_size() -> None:
    assert roles({"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}}) == [
        ("leader", 2),
        ("worker", 6),
    ]


@pytest.mark.parametrize("key", ["", "rayClusterSpec", "rayClusterConfig"])
def test_ray_makes_a_head_and_groups(key: str) -> None:
    cluster = {
        "headGroupSpec": {"template": POD},
        "workerGroupSpecs": [{"groupName": "gpu", "replicas": 2, "template": POD}],
    }

    assert roles({key: cluster} if key else cluster) == [("headgroup", 1), ("gpu", 2)]


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        "text",
        {},
        {"tasks": "none"},
        {"tasks": [7]},
        {"replicatedJobs": [None]},
        {"tfReplicaSpecs": ["worker"]},
        {"runtimeRef": {"name": "torch"}},
    ],
)
def test_what_has_no_templates_makes_nothing(spec: Any) -> None:
    assert pod_templates({"spec": spec}) == []


def test_count_that_is_none_counts_as_one() -> None:
    assert roles({"template": POD, "replicas": "many"}) == [("", 1)]
    assert roles({"template": POD, "replicas": -3}) == []


def test_numbers_that_are_multiplied_have_a_limit() -> None:
    """JobSet permits two thousand million pods; a list of so many members would end the leader, and the next one."""
    jobs = [{"name": "w", "replicas": 40_000, "template": {"spec": {"template": POD, "parallelism": 40_000}}}]
    groups = {"replicas": 40_000, "leaderWorkerTemplate": {"size": 40_000, "workerTemplate": POD}}

    assert roles({"replicatedJobs": jobs}) == [("w", 100_000)]
    assert roles(groups) == [("leader", 40_000), ("worker", 100_000)]


def test_of_a_template_of_any_size_little_is_kept() -> None:
    env = [{"name": f"OPTION_{number}", "value": "x" * 100} for number in range(10_000)]
    large = {**POD, "spec": {"containers": [{"name": "main", "env": env}]}}
    every = pod_templates(
        {"spec": {"tasks": [{"name": f"{number}" * 1000, "template": large} for number in range(500)]}}
    )

    assert len(every) == 64
    assert len(pickle.dumps(every)) < 64 << 10
