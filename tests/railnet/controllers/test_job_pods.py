"""The pods of each job."""

from railnet.controllers.job_pods import JobPods
from railnet.controllers.training_pod import Job, TrainingPod, training_pod
from railnet.jobs.reported_pod import ReportedPod

A, B = Job("ml", "a"), Job("ml", "b")


def a_pod(name: str, job: Job = A) -> TrainingPod:
    labels = {"batch.kubernetes.io/job-name": job.name, "batch.kubernetes.io/job-completion-index": "0"}
    metadata = {"name": name, "namespace": job.namespace, "uid": name, "labels": labels}
    found = training_pod(ReportedPod({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}}))
    assert found is not None
    return found


def test_pods_are_found_by_job_and_sorted_by_name() -> None:
    pods = JobPods()
    first, second, other = a_pod("a-1"), a_pod("a-0"), a_pod("b-0", B)
    for one in (first, second, other):
        pods.change(None, one)

    assert pods.of(A) == [second, first]
    assert pods.of(B) == [other]
    assert pods.of(Job("other", "a")) == []
    assert sorted(job.name for job in pods.jobs()) == ["a", "b"]


def test_pod_is_replaced_and_removed_and_its_job_goes_with_the_last() -> None:
    pods = JobPods()
    first, second = a_pod("a-0"), a_pod("a-1")
    running = first._replace(phase="Running")
    pods.change(None, first)
    pods.change(None, second)
    pods.change(first, running)

    assert pods.of(A) == [running, second]
    pods.change(running, None)
    pods.change(second, None)
    assert pods.of(A) == []
    assert pods.jobs() == []


def test_pod_that_moves_to_another_job_changes_both_jobs() -> None:
    pods, told = JobPods(), list[Job]()
    pods.watch(told.append)
    before, after = a_pod("p"), a_pod("p", B)
    pods.change(None, before)
    pods.change(before, after)

    assert (pods.of(A), pods.of(B)) == ([], [after])
    assert told[0] == A
    assert sorted(job.name for job in told[1:]) == ["a", "b"]


def test_listener_sees_the_pods_as_they_are_after_the_change() -> None:
    pods, seen = JobPods(), list[int]()
    pods.watch(lambda job: seen.append(len(pods.of(job))))
    one = a_pod("a-0")
    pods.change(None, one)
    pods.change(one, None)

    assert seen == [1, 0]
