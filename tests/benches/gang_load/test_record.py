"""What is kept of the events of pods and Jobs."""

from typing import Any

from benches.gang_load.record import PodTimes, Record


def pod(phase: str = "Pending", node: str = "", *, deleted: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"uid": "u", "labels": {"job-name": "gang"}}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}


def recorded(*events: tuple[float, str, dict[str, Any]]) -> PodTimes:
    record = Record()
    for at, kind, body in events:
        record.observe_pod(at, kind, body)
    return record.pods["u"]


def test_pod_that_runs_and_ends_has_the_times_of_both() -> None:
    times = recorded(
        (1, "ADDED", pod()),
        (2, "MODIFIED", pod(node="n")),
        (3, "MODIFIED", pod("Running", "n")),
        (9, "MODIFIED", pod("Succeeded", "n")),
        (10, "MODIFIED", pod("Succeeded", "n", deleted=True)),
        (11, "DELETED", pod("Succeeded", "n", deleted=True)),
    )

    assert times == PodTimes("gang", "n", bound=2, ended=9, lost=False)


def test_pod_without_a_node_is_not_bound() -> None:
    assert recorded((1, "ADDED", pod())) == PodTimes("gang")


def test_pod_that_is_deleted_while_it_runs_is_lost() -> None:
    times = recorded((2, "ADDED", pod("Running", "n")), (3, "MODIFIED", pod("Running", "n", deleted=True)))

    assert times.lost
    assert times.ended is None


def test_pod_that_is_gone_while_it_runs_is_lost_and_has_ended() -> None:
    times = recorded((2, "ADDED", pod("Running", "n")), (3, "DELETED", pod("Running", "n")))

    assert times == PodTimes("gang", "n", bound=2, ended=3, lost=True)


def test_pod_that_failed_is_lost() -> None:
    assert recorded((2, "ADDED", pod("Failed", "n"))).lost


def test_events_that_a_new_watch_repeats_change_nothing() -> None:
    record = Record()
    for at in (1, 5):
        record.observe_pod(at, "ADDED", pod("Running", "n"))

    assert record.pods["u"].bound == 1
    assert record.bound == {"gang": 1}


def test_job_that_failed_is_kept() -> None:
    record = Record()
    record.observe_job({"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}})

    assert record.failed == {"a"}


def test_job_that_is_suspended_or_complete_has_not_failed() -> None:
    conditions = [{"type": "Suspended", "status": "True"}, {"type": "Complete", "status": "True"}]
    record = Record()
    record.observe_job({"metadata": {"name": "a"}, "status": {"conditions": conditions}})
    record.observe_job({"metadata": {"name": "a"}})

    assert record.failed == set()
