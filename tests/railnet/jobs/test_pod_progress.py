from typing import Any

import pytest

from railnet.jobs.pod_progress import Progress, Stage, progress, said


def pod(status: dict[str, Any], node: str = "a") -> dict[str, Any]:
    return {"spec": {"nodeName": node} if node else {}, "status": status}


def unscheduled(reason: str, message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return pod({"phase": "Pending", "conditions": [condition]}, "")


def waiting(reason: str, message: str = "", **more: Any) -> list[dict[str, Any]]:
    return [{"state": {"waiting": {"reason": reason, "message": message}}, **more}]


@pytest.mark.parametrize(
    ("found", "stage", "why"),
    [
        (pod({}, ""), Stage.UNSCHEDULED, ""),
        (unscheduled("SchedulingGated", ""), Stage.UNSCHEDULED, "SchedulingGated"),
        (
            unscheduled("Unschedulable", "0/1 nodes\n are  available"),
            Stage.UNSCHEDULED,
            "Unschedulable: 0/1 nodes are available",
        ),
        (pod({"phase": "Pending"}), Stage.STARTING, ""),
        (pod({"phase": "Pending", "containerStatuses": waiting("ContainerCreating")}), Stage.STARTING, ""),
        (
            pod({"phase": "Pending", "containerStatuses": waiting("ImagePullBackOff", "no such tag")}),
            Stage.STARTING,
            "ImagePullBackOff: no such tag",
        ),
        (
            pod({"phase": "Pending", "initContainerStatuses": waiting("ErrImagePull", "x")}),
            Stage.STARTING,
            "ErrImagePull: x",
        ),
        (pod({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}), Stage.RUNNING, ""),
        (
            pod(
                {
                    "phase": "Running",
                    "containerStatuses": waiting(
                        "CrashLoopBackOff", "back-off", lastState={"terminated": {"exitCode": 1}}
                    ),
                }
            ),
            Stage.RESTARTING,
            "CrashLoopBackOff: exit code 1; back-off",
        ),
        (pod({"phase": "Succeeded"}), Stage.SUCCEEDED, ""),
        (pod({"phase": "Failed", "reason": "Evicted", "message": "no disk"}), Stage.FAILED, "Evicted: no disk"),
        (
            pod({"phase": "Failed", "containerStatuses": [{"name": "x", "state": {"terminated": {"exitCode": 3}}}]}),
            Stage.FAILED,
            "container x ended with exit code 3",
        ),
    ],
)
def test_progress_of_a_pod(found: dict[str, Any], stage: Stage, why: str) -> None:
    assert progress(found) == Progress(stage, why)


@pytest.mark.parametrize(
    "rest",
    [
        "",
        " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        " no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found.",
        " no new claims of resource.k8s.io to deallocate, preemption: 0/2 nodes are available: 2 No victims found.",
    ],
)
@pytest.mark.parametrize(
    "words", ["2 Insufficient nvidia.com/gpu.", "1 Insufficient rdma/ib_vf, 1 node(s) had taint(s)."]
)
def test_what_the_scheduler_says_of_preemption_is_left_out(words: str, rest: str) -> None:
    assert said("Unschedulable", f"0/2 nodes are available: {words}{rest}") == (
        f"Unschedulable: 0/2 nodes are available: {words}"
    )


def test_words_of_the_scheduler_do_not_end_with_a_comma() -> None:
    assert said("Unschedulable", "0/2 nodes are available: 2 Insufficient cpu, preemption: no") == (
        "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu"
    )


def test_reasons_of_a_large_cluster_are_not_cut() -> None:
    words = (
        "0/640 nodes are available: 1 node(s) had untolerated taint(s), 320 node(s) didn't match Pod's node affinity/selector, "
        "319 Insufficient rdma/ib_vf, 319 Insufficient nvidia.com/gpu."
    )

    assert said("Unschedulable", words) == f"Unschedulable: {words}"


def test_long_message_is_cut() -> None:
    assert len(said("Unschedulable", "x" * 1000)) == 320


def test_pod_of_a_gang_waits_for_the_whole_gang_and_one_behind_another_gate_for_its_condition() -> None:
    message = "Scheduling is blocked due to non-empty scheduling gates"
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
    status = {"phase": "Pending", "conditions": [condition]}

    def waits_for(*gates: str) -> Progress:
        return progress({"spec": {"schedulingGates": [{"name": gate} for gate in gates]}, "status": status})

    gang = Progress(Stage.UNSCHEDULED, "behind a gate until its whole gang has a place")
    assert waits_for("railnet.io/gang") == waits_for("example.com/quota", "railnet.io/gang") == gang
    assert waits_for("example.com/quota") == Progress(Stage.UNSCHEDULED, f"SchedulingGated: {message}")
