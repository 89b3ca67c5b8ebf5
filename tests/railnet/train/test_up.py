"""`railnet train up`: all of a job, or nothing; what the API server refuses and what is in the way; what is shown while it waits."""

import io
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.client import Answer, RequestFailed
from railnet.apiserver.request import Request, Verb
from railnet.errors import Misconfigured
from railnet.jobs.pod_progress import Stage
from railnet.jobs.train_job.objects import objects
from railnet.jobs.train_job.task_states import task_states
from railnet.train import up as up_module
from railnet.train.creation import CreationRefused
from railnet.train.up import read, shown, up
from tests.railnet.train.jobs import ON_ETH0, RUNNING, job, pods
from tests.railnet.train.memory_api_server import MemoryApiServer, status
from tests.waiting import until

OBJECTS = {
    "namespaces": ["mnist"],
    "configmaps": ["mnist"],
    "services": ["mnist-ps-0", "mnist-ps-1", "mnist-worker-0", "mnist-worker-1", "mnist-worker-2"],
    "deployments": ["mnist-ps-0", "mnist-ps-1"],
    "jobs": ["mnist-worker-0", "mnist-worker-1", "mnist-worker-2"],
}
SECONDS = 60.0
CREATIONS = sum(map(len, OBJECTS.values()))


@pytest.fixture
def server() -> MemoryApiServer:
    found = MemoryApiServer()
    found.add("priorityclasses", {"metadata": {"name": "iteration"}})
    return found


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(ON_ETH0)
    return str(path)


def names(server: MemoryApiServer) -> dict[str, list[str]]:
    return {resource: server.names(resource) for resource in OBJECTS}


NOTHING: dict[str, list[str]] = {resource: [] for resource in OBJECTS}


def test_job_is_created_whole_and_belongs_to_its_owner(
    server: MemoryApiServer, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert up(server.api, read(file), wait=False)

    assert names(server) == OBJECTS
    owner = server.objects["configmaps", "mnist", "mnist"]
    assert owner["data"] == {"job.yaml": ON_ETH0}
    for resource in ("services", "deployments", "jobs"):
        for name in OBJECTS[resource]:
            (reference,) = server.objects[resource, "mnist", name]["metadata"]["ownerReferences"]
            assert (reference["uid"], reference["controller"]) == (owner["metadata"]["uid"], True)
    assert capsys.readouterr().out.splitlines() == [
        "creating namespace mnist",
        "creating 10 objects in namespace mnist",
        "job mnist is created in namespace mnist",
    ]


def test_second_up_of_the_same_file_changes_nothing(
    server: MemoryApiServer, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    up(server.api, read(file), wait=False)
    server.remove(("deployments", "mnist", "mnist-ps-0"))  # cleaned up, when the workers were complete
    before = dict(server.objects)
    capsys.readouterr()

    assert up(server.api, read(file), wait=False)

    assert server.objects == before
    assert capsys.readouterr().out == "job mnist is up in namespace mnist already: nothing to change\n"


def test_comments_and_order_of_the_file_make_no_other_job(server: MemoryApiServer, file: str) -> None:
    up(server.api, read(file), wait=False)
    Path(file).write_text("# again\n" + "\n".join(reversed(ON_ETH0.splitlines())))

    assert up(server.api, read(file), wait=False)


def test_another_job_of_the_same_name_is_refused_with_what_differs(server: MemoryApiServer, file: str) -> None:
    up(server.api, read(file), wait=False)
    before = dict(server.objects)
    Path(file).write_text(ON_ETH0.replace("workers: 3", "workers: 4"))

    with pytest.raises(CreationRefused) as caught:
        up(server.api, read(file), wait=False)

    assert str(caught.value) == (
        "namespace mnist has another job mnist already, with another workers; railnet train down mnist -n mnist removes it, or "
        "choose another name"
    )
    assert server.objects == before


def test_foreign_config_map_of_the_name_is_refused_and_stays(server: MemoryApiServer, file: str) -> None:
    server.add("namespaces", {"metadata": {"name": "mnist"}})
    server.add("configmaps", {"metadata": {"name": "mnist", "namespace": "mnist"}})

    with pytest.raises(CreationRefused, match="ConfigMap mnist that is no job of railnet train"):
        up(server.api, read(file), wait=False)

    assert names(server) == {**NOTHING, "namespaces": ["mnist"], "configmaps": ["mnist"]}


def test_foreign_object_of_a_task_is_refused_and_nothing_else_stays(server: MemoryApiServer, file: str) -> None:
    server.add("namespaces", {"metadata": {"name": "mnist"}})
    server.add("jobs", {"metadata": {"name": "mnist-worker-1", "namespace": "mnist"}})

    with pytest.raises(
        CreationRefused, match="Job mnist-worker-1 exists in namespace mnist and does not belong to this job"
    ):
        up(server.api, read(file), wait=False)

    assert names(server) == {**NOTHING, "namespaces": ["mnist"], "jobs": ["mnist-worker-1"]}


def test_job_that_is_being_deleted_is_refused(server: MemoryApiServer, file: str) -> None:
    up(server.api, read(file), wait=False)
    owner = server.objects["configmaps", "mnist", "mnist"]
    owner["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    with pytest.raises(
        CreationRefused, match="job mnist in namespace mnist is being deleted; try again when it is gone"
    ):
        up(server.api, read(file), wait=False)


def test_unknown_priority_is_refused_before_anything_is_created(server: MemoryApiServer, file: str) -> None:
    server.remove(("priorityclasses", "", "iteration"))

    with pytest.raises(CreationRefused, match="priority is iteration, and the cluster has no such PriorityClass"):
        up(server.api, read(file), wait=False)

    assert names(server) == NOTHING


def test_broken_file_is_refused_before_anything_is_asked(server: MemoryApiServer, file: str) -> None:
    Path(file).write_text(ON_ETH0.replace("workers: 3", "workers: none"))

    with pytest.raises(Misconfigured, match="line 5: workers is 'none'"):
        up(server.api, read(file), wait=False)

    assert server.requests == []


def at_write(number: int, do: Callable[[], Answer | None]) -> Callable[[Request], Answer | None]:
    """Do something at one write, and at no other."""
    left = [number]

    def seen(request: Request) -> Answer | None:
        if request.verb in (Verb.GET, Verb.LIST, Verb.WATCH):
            return None
        left[0] -= 1
        return do() if left[0] == -1 else None

    return seen


@pytest.fixture(autouse=True)
def foreground() -> Iterator[None]:
    """Ctrl-C interrupts: a shell has a program in the background ignore it, and pytest may be one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c() -> Answer | None:
    signal.raise_signal(signal.SIGINT)
    return None


def sigterm() -> Answer | None:
    signal.raise_signal(signal.SIGTERM)
    return None


@pytest.mark.parametrize("end", [ctrl_c, sigterm])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(CREATIONS))
def test_interrupted_creation_leaves_nothing(
    server: MemoryApiServer, file: str, number: int, moment: str, end: Callable[[], Answer | None]
) -> None:
    setattr(server, moment, at_write(number, end))

    with pytest.raises(KeyboardInterrupt):
        up(server.api, read(file), wait=False)

    assert names(server) == NOTHING


@pytest.mark.parametrize("number", range(CREATIONS))
def test_refusal_in_the_middle_leaves_nothing_and_its_words_are_shown(
    server: MemoryApiServer, file: str, number: int
) -> None:
    server.before = at_write(number, lambda: status(403, "exceeded quota: compute"))

    with pytest.raises(RequestFailed, match="exceeded quota: compute"):
        up(server.api, read(file), wait=False)

    assert names(server) == NOTHING


def test_interrupted_creation_leaves_a_namespace_that_was_there(server: MemoryApiServer, file: str) -> None:
    server.add("namespaces", {"metadata": {"name": "mnist"}})
    server.after = at_write(3, ctrl_c)

    with pytest.raises(KeyboardInterrupt):
        up(server.api, read(file), wait=False)

    assert names(server) == {**NOTHING, "namespaces": ["mnist"]}


def test_ctrl_c_when_all_is_created_leaves_the_job(server: MemoryApiServer, file: str) -> None:
    server.after = at_write(CREATIONS, ctrl_c)  # the annotation that says so

    with pytest.raises(KeyboardInterrupt):
        up(server.api, read(file), wait=False)

    assert names(server) == OBJECTS


def test_second_ctrl_c_does_not_stop_the_taking_back(server: MemoryApiServer, file: str) -> None:
    server.after = at_write(4, ctrl_c)

    def again(request: Request) -> Answer | None:
        if request.verb is Verb.DELETE:
            signal.raise_signal(signal.SIGINT)
        return None

    server.before = again
    with pytest.raises(KeyboardInterrupt):
        up(server.api, read(file), wait=False)

    assert names(server) == NOTHING


@pytest.mark.parametrize("code", [429, 500, 503, 0])
@pytest.mark.parametrize("number", range(CREATIONS + 1))
def test_write_is_tried_again_and_nothing_is_doubled(
    server: MemoryApiServer, file: str, number: int, code: int
) -> None:
    """The write was done, and its answer is lost: its second try is a conflict with itself."""

    def lost() -> Answer | None:
        if code:
            return status(code, "later")
        raise OSError("connection reset")

    server.after = at_write(number, lost)

    assert up(server.api, read(file), wait=False)
    assert names(server) == OBJECTS
    assert len(server.slept) == 1


@pytest.mark.parametrize("number", range(1, CREATIONS))
def test_half_made_job_of_a_machine_that_died_is_completed(
    server: MemoryApiServer, file: str, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.after = at_write(number, ctrl_c)
    with monkeypatch.context() as patched:
        patched.setattr(up_module, "_take_back", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            up(server.api, read(file), wait=False)

    assert up(server.api, read(file), wait=False)

    assert names(server) == OBJECTS
    assert "job mnist in namespace mnist was half made; the rest of it is created" in capsys.readouterr().out


def test_user_without_the_right_to_read_namespaces_and_classes_creates_in_an_existing_one(
    server: MemoryApiServer, file: str
) -> None:
    server.add("namespaces", {"metadata": {"name": "mnist"}})
    hidden = ("get namespaces/mnist", "get priorityclasses/iteration")
    server.before = lambda request: status(403, "no") if str(request) in hidden else None

    assert up(server.api, read(file), wait=False)
    assert names(server) == OBJECTS


def test_missing_right_is_said_to_the_user(server: MemoryApiServer, file: str) -> None:
    server.before = lambda request: status(403, "User cannot") if request.verb is Verb.CREATE else None

    with pytest.raises(RequestFailed) as caught:
        up(server.api, read(file), wait=False)

    assert str(caught.value) == (
        "cannot create namespaces/mnist: HTTP 403: you lack the right 'create' on namespaces/mnist, or a policy or a quota forbids "
        "the request; ask an administrator of the cluster: User cannot"
    )


def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Keep what is printed from now on: what `capsys` takes away while a thread prints may be lost."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    return out


def in_background(run: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(run()), daemon=True)
    thread.start()
    return thread, found


def test_up_waits_until_all_tasks_run_and_says_what_they_wait_for(
    server: MemoryApiServer, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed(monkeypatch)
    thread, found = in_background(lambda: up(server.api, read(file), wait=True))
    until(lambda: len(server.names("jobs")) == 3, SECONDS, "three Jobs")
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient rdma/ib_vf.",
    }
    for one in pods(job(), {"phase": "Pending", "conditions": [condition]}, ""):
        server.add("pods", one)
    words = "worker-0 is unscheduled: Unschedulable: 0/3 nodes are available: 3 Insufficient rdma/ib_vf."
    until(lambda: words in out.getvalue(), SECONDS, words)
    for one in pods(job(), RUNNING):
        server.add("pods", one)
    thread.join(SECONDS)

    assert found == [True]
    assert "job mnist: running after" in out.getvalue()


def test_refusal_of_a_jobs_pods_is_shown_in_the_api_servers_words(
    server: MemoryApiServer, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed(monkeypatch)
    thread, found = in_background(lambda: up(server.api, read(file), wait=True))
    until(lambda: len(server.names("jobs")) == 3, SECONDS, "three Jobs")
    server.add(
        "events",
        {
            "metadata": {"name": "one", "namespace": "mnist"},
            "involvedObject": {"kind": "Job", "name": "mnist-worker-1"},
            "reason": "FailedCreate",
            "message": 'Error creating: admission webhook "pods.railnet.io" denied the request: railnet.io/vf is 9',
        },
    )
    refusal = 'Error creating: admission webhook "pods.railnet.io" denied the request: railnet.io/vf is 9'
    until(lambda: f"worker-1 is unscheduled: {refusal}" in out.getvalue(), SECONDS, refusal)
    server.remove(("configmaps", "mnist", "mnist"))
    thread.join(SECONDS)

    assert found == [False]


def test_failed_worker_ends_the_wait_with_a_failure(server: MemoryApiServer, file: str) -> None:
    thread, found = in_background(lambda: up(server.api, read(file), wait=True))
    until(lambda: len(server.names("jobs")) == 3, SECONDS, "three Jobs")
    conditions = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
    server.add("jobs", {**server.objects["jobs", "mnist", "mnist-worker-1"], "status": {"conditions": conditions}})
    thread.join(SECONDS)

    assert found == [False]


def test_job_that_is_deleted_ends_the_wait(server: MemoryApiServer, file: str) -> None:
    thread, found = in_background(lambda: up(server.api, read(file), wait=True))
    until(lambda: any("watch configmaps" in one for one in server.requests), SECONDS, "a watch")
    server.remove(("configmaps", "mnist", "mnist"))
    thread.join(SECONDS)

    assert found == [False]


def test_terminal_has_a_table_and_a_file_has_lines() -> None:
    waiting = {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "x"}}}],
    }
    makers = list(objects(job(ps=1, workers=1)))
    states = task_states(makers, pods(job(ps=1, workers=1), waiting), {})

    assert list(shown(states, "", live=False)) == [
        "ps-0 is starting: ErrImagePull: x",
        "worker-0 is starting: ErrImagePull: x",
        "2 tasks: 2 starting",
    ]
    assert list(shown(states, "no answer", live=True)) == [
        "TASK      STATE     RESTARTS  NODE  WAITS FOR",
        "ps-0      starting         0  a     ErrImagePull: x",
        "worker-0  starting         0  a     ErrImagePull: x",
        "2 tasks: 2 starting",
        "no answer",
    ]
    assert states[0].stage is Stage.STARTING
