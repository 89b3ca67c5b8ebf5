"""The stand-in for the controller of a training job: which pods it makes, and when."""

from typing import Any

from tests.stand_ins.gang_job import GangJob

JOB = GangJob("mnist", {"ps": 2, "worker": 2}, in_order=True)


def pod(name: str, phase: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"phase": phase}}


def test_all_pods_are_made_at_once() -> None:
    assert GangJob("mnist", {"ps": 1, "worker": 2}).missing([]) == [("ps", 0), ("worker", 0), ("worker", 1)]


def test_role_waits_until_the_pods_of_the_one_before_run() -> None:
    assert JOB.missing([]) == [("ps", 0), ("ps", 1)]
    assert JOB.missing([pod("mnist-ps-0", "Running"), pod("mnist-ps-1", "Pending")]) == []
    assert JOB.missing([pod("mnist-ps-0", "Running"), pod("mnist-ps-1", "Running")]) == [("worker", 0), ("worker", 1)]


def test_pod_that_is_gone_is_made_again() -> None:
    running = [pod(f"mnist-{role}-{index}", "Running") for role in ("ps", "worker") for index in (0, 1)]

    assert JOB.missing(running) == []
    assert JOB.missing(running[1:]) == [("ps", 0)]
    assert JOB.missing(running[:3]) == [("worker", 1)]
