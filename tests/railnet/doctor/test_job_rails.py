"""Whether the pods of a job can reach each other: by the same rail, by rails that reach each other, or not."""

import json
from typing import Any

import pytest

from railnet.doctor.job_rails import JobRails, job_rails
from railnet.doctor.pod_checks import findings
from railnet.doctor.pod_facts import PodFacts
from railnet.objects.network_status import ANNOTATION

RAILS = frozenset({"rdma/ib_vf"})
Json = dict[str, Any]


def pod(name: str, *rails: int, job: str = "mnist", phase: str = "Running", owner: str = "") -> Json:
    """Return a pod of a PyTorchJob, or with an owner one of a job that no row knows."""
    networks = [
        {"name": "railnet/default", "interface": f"net{number}", "ips": [f"10.56.{rail}.9"], "rail": rail}
        for number, rail in enumerate(rails, 1)
    ]
    labels = {
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": name[-1],
    }
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner, "controller": True}]
    devices = {"rdma/ib_vf": str(len(rails))}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "annotations": {ANNOTATION: json.dumps(networks)},
            **({"ownerReferences": owners} if owner else {"labels": labels}),
        },
        "spec": {
            "nodeName": "gpu-1",
            "containers": [{"name": "pytorch", "image": "x", "resources": {"limits": devices, "requests": devices}}],
        },
        "status": {"phase": phase},
    }


def compared(own: Json, *others: Json, **reach: bool) -> JobRails:
    return job_rails(
        own, [own, *others], {frozenset(map(int, key[1:].split("_"))): told for key, told in reach.items()}
    )


def test_pods_with_a_rail_in_common_reach_each_other() -> None:
    assert compared(pod("w-0", 0), pod("w-1", 0), pod("w-2", 1, 0), r0_1=False) == ((), ())


def test_pod_on_a_rail_that_is_not_reached_is_named() -> None:
    assert compared(pod("w-0", 0), pod("w-1", 1), pod("w-2", 2), r0_1=False, r0_2=True) == (("w-1 has rail 1",), ())


def test_rails_of_which_nothing_is_known_are_apart_from_those_that_are_apart() -> None:
    assert compared(pod("w-0", 0), pod("w-1", 1, 2), r0_1=False) == ((), ("w-1 has rails 1, 2",))
    assert compared(pod("w-0", 0), pod("w-1", 1, 2), r0_1=False, r0_2=False) == (("w-1 has rails 1, 2",), ())


@pytest.mark.parametrize(
    "other",
    [
        pod("w-1", 1, job="other"),
        pod("w-1", 1, phase="Succeeded"),
        pod("w-1", 1, phase="Failed"),
        pod("w-1"),
        pod("w-1", 1, owner="uid-of-a-job"),
    ],
    ids=["of another job", "done", "failed", "without a rail", "of another controller"],
)
def test_pod_that_is_not_met_is_not_compared(other: Json) -> None:
    assert compared(pod("w-0", 0), other, r0_1=False) == ((), ())


def test_pods_of_one_controller_are_one_job() -> None:
    own, other = pod("w-0", 0, owner="uid-j"), pod("w-1", 1, owner="uid-j")

    assert compared(own, other, r0_1=False).apart == ("w-1 has rail 1",)


def test_doctor_names_the_pods_that_do_not_reach_each_other() -> None:
    own = pod("w-0", 0)
    facts = PodFacts(own, RAILS, neighbours=(own, pod("w-1", 1)), reach={frozenset({0, 1}): False})
    found = {one.name: one.seen for one in findings(facts)}

    assert found["job-rails-apart"] == "this pod has rail 0; of its job w-1 has rail 1"
    assert "job-rails-differ" not in found


def test_doctor_says_so_where_it_is_not_known() -> None:
    own = pod("w-0", 0)
    found = [one.name for one in findings(PodFacts(own, RAILS, neighbours=(own, pod("w-1", 1))))]

    assert found == ["job-rails-differ"]
