"""The table of kinds: which chains of owners permit that their pods are evicted."""

from pathlib import Path
from typing import Any

import pytest

from railnet.jobs.eviction_tolerance import KINDS, UNREAD, Kinds, Tolerance, job_pause_seconds, tolerance
from railnet.jobs.pod_failure_policy import IGNORES_EVICTIONS
from railnet.objects.owner_reference import OwnerReference

JsonObject = dict[str, Any]
PAGE = Path(__file__).resolve().parents[3] / "docs/training/gangs.md"
POD = {"spec": {"restartPolicy": "Never"}}
COUNTS = {"spec": {"template": POD}}
IGNORES = {"spec": {"template": POD, "podFailurePolicy": {"rules": [IGNORES_EVICTIONS]}}}


def owner(kind: str, group: str, name: str = "bert") -> OwnerReference:
    return OwnerReference(f"{group}/v1" if group else "v1", kind, name, f"uid-of-{name}")


def why(*chain: tuple[str, str, JsonObject | None]) -> str | None:
    refusal = tolerance((owner(kind, group), document) for kind, group, document in chain).refusal
    return None if refusal is None else refusal.why


def replicas(*policies: str | None, **run_policy: Any) -> JsonObject:
    roles = {
        f"Role{number}": {} if policy is None else {"restartPolicy": policy} for number, policy in enumerate(policies)
    }
    return {"spec": {"someReplicaSpecs": roles, "runPolicy": run_policy}}


def policy(event: str, action: str) -> JsonObject:
    return {"spec": {"tasks": [{"name": "worker", "policies": [{"event": event, "action": action}]}]}}


JOB = ("Job", "batch")
PYTORCH, PADDLE = ("PyTorchJob", "kubeflow.org"), ("PaddleJob", "kubeflow.org")
VOLCANO = ("Job", "batch.volcano.sh")
PERMITTED: list[tuple[tuple[str, str, JsonObject | None], ...]] = [
    ((*JOB, IGNORES),),
    ((*JOB, IGNORES), ("JobSet", "jobset.x-k8s.io", {}), ("TrainJob", "trainer.kubeflow.org", {})),
    ((*JOB, IGNORES), ("Workflow", "argoproj.io", None)),
    ((*JOB, IGNORES), ("ConfigMap", "", None)),
    (("StatefulSet", "apps", None),),
    (("StatefulSet", "apps", {}), ("Pod", "", None)),  # a worker of a LeaderWorkerSet: its leader owns the StatefulSet
    (("ReplicaSet", "apps", {}), ("Deployment", "apps", {})),
    ((*PYTORCH, replicas("OnFailure", None)),),
    ((*PADDLE, replicas("OnFailure", "Always")),),
    ((*VOLCANO, {"spec": {}}),),
    ((*VOLCANO, {"spec": {"policies": 5, "tasks": [{"policies": [{"event": {}, "events": [[]]}]}]}}),),
    ((*VOLCANO, policy("PodEvicted", "RestartTask")),),
    ((*VOLCANO, policy("PodFailed", "AbortJob")),),
    (("RayCluster", "ray.io", {}), ("RayService", "ray.io", {})),
]


@pytest.mark.parametrize("chain", PERMITTED)
def test_chain_that_loses_nothing_permits_evictions(chain: tuple[tuple[str, str, JsonObject | None], ...]) -> None:
    assert why(*chain) is None


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (((*JOB, COUNTS),), "Job bert counts evicted pods as failures"),
        (((*JOB, COUNTS), ("JobSet", "jobset.x-k8s.io", {})), "Job bert counts evicted pods as failures"),
        (((*JOB, None),), "Job bert cannot be read"),
        (((*JOB, IGNORES), ("MPIJob", "kubeflow.org", {})), "MPIJob bert counts the end of mpirun"),
        ((("MPIJob", "kubeflow.org", {}),), "MPIJob bert counts the end of mpirun"),
        ((("RayCluster", "ray.io", {}), ("RayJob", "ray.io", {})), "RayJob bert fails when its head is evicted"),
        (
            ((*PYTORCH, replicas("OnFailure", "Never")),),
            "PyTorchJob bert fails when a pod is evicted that has restartPolicy Never",
        ),
        (
            ((*PYTORCH, replicas("ExitCode")),),
            "PyTorchJob bert fails when a pod is evicted that has restartPolicy ExitCode",
        ),
        (((*PYTORCH, replicas("OnFailure", backoffLimit=3)),), "PyTorchJob bert counts evicted pods against runPolicy"),
        (
            ((*PADDLE, replicas("OnFailure", None)),),
            "PaddleJob bert fails when a pod is evicted that has restartPolicy Never",
        ),
        ((("TFJob", "kubeflow.org", replicas("OnFailure")),), "TFJob bert fails when one of its pods is evicted"),
        (((*VOLCANO, policy("*", "RestartJob")),), "Job bert has a policy that answers an eviction by RestartJob"),
        ((("TFJob", "training.kubedl.io", {}),), "TFJob bert fails when one of its pods is evicted"),
        ((("Workflow", "argoproj.io", {}),), "Workflow bert is of a kind of which Railnet does not know"),
    ],
)
def test_chain_that_loses_something_says_which_object_and_why(
    chain: tuple[tuple[str, str, JsonObject | None], ...], words: str
) -> None:
    assert (why(*chain) or "").startswith(words)


def test_object_that_could_not_be_read_may_be_read_later() -> None:
    found = tolerance([(owner(*JOB), None)])

    assert found.unread
    assert found.refusal is not None
    assert found.refusal.remedy == UNREAD.remedy
    assert not tolerance([(owner(*JOB), COUNTS)]).unread


def test_job_controller_pauses_and_the_others_do_not() -> None:
    assert tolerance([(owner(*JOB), IGNORES)]) == Tolerance(None, pauses=True)
    assert tolerance([(owner("StatefulSet", "apps"), {})]) == Tolerance(None)
    assert [job_pause_seconds(evicted) for evicted in (0, 1, 2, 4, 7, 8, 5000)] == [0, 10, 20, 80, 600, 600, 600]


def in_page(row: Kinds) -> str:
    names = ", ".join(f"`{row.group}` {kind}" if number == 0 else kind for number, kind in enumerate(row.kinds))
    return f"| {names} | {row.eviction}. | {row.railnet}. | {row.source} |"


def test_page_has_the_table() -> None:
    lines = PAGE.read_text().splitlines()

    assert [line for line in lines if line.startswith("| `") and line.count("|") == 5] == [
        in_page(row) for row in KINDS
    ]


def test_each_kind_has_one_row() -> None:
    kinds = [(row.group, kind) for row in KINDS for kind in row.kinds]

    assert len(kinds) == len(set(kinds))
