"""`railnet train logs`: lines of all tasks, an archive, and following over restarts, lost connections and new pods."""

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from railnet.jobs.pod_progress import Stage
from railnet.jobs.train_job.task_states import TaskState
from railnet.train.logs import NoSuchTask, logs
from railnet.train.task_logs import FollowedLog
from railnet.train.up import read, up
from tests.railnet.train.jobs import RUNNING, TEXT, job, pods
from tests.railnet.train.memory_api_server import MemoryApiServer

WORKER = TaskState("worker", 0, Stage.RUNNING, pod="mnist-worker-0-x")


@pytest.fixture
def server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> MemoryApiServer:
    found = MemoryApiServer()
    found.add("priorityclasses", {"metadata": {"name": "iteration"}})
    file = tmp_path / "job.yaml"
    file.write_text(TEXT)
    up(found.api, read(str(file)), wait=False)
    for one in pods(job(), RUNNING):
        found.add("pods", one)
    found.logs = lambda pod, _parameters: iter([f"first of {pod}".encode(), b"second"])
    capsys.readouterr()
    return found


def test_lines_of_all_tasks_have_a_prefix(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert logs(server.api, "mnist", None, [], follow=False, pack=None)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[:3] == ["ps-0     | first of mnist-ps-0-x", "ps-0     | second", "ps-1     | first of mnist-ps-1-x"]


def test_lines_of_one_task_are_as_written(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Mapping[str, str]] = []

    def found(pod: str, parameters: Mapping[str, str]) -> Iterator[bytes]:
        asked.append(parameters)
        return iter([f"first of {pod}".encode(), b"second"])

    server.logs = found
    assert logs(server.api, "mnist", None, ["worker-1"], follow=False, pack=None)

    assert asked == [{"container": "mnist-worker-1"}]  # a service mesh may have put another one beside it
    assert capsys.readouterr().out == "first of mnist-worker-1-x\nsecond\n"


def test_unknown_task_is_refused_with_the_tasks(server: MemoryApiServer) -> None:
    with pytest.raises(
        NoSuchTask, match="job mnist has no task worker-9; its tasks are: ps-0, ps-1, worker-0, worker-1, worker-2"
    ):
        logs(server.api, "mnist", None, ["worker-9"], follow=False, pack=None)


def test_archive_has_a_file_for_each_task_and_for_the_container_before_a_restart(
    server: MemoryApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restarted = {**RUNNING, "containerStatuses": [{"restartCount": 1, "state": {"running": {}}}]}
    server.add("pods", {**pods(job(), RUNNING)[2], "status": restarted})
    server.logs = lambda pod, parameters: iter([b"before" if "previous" in parameters else b"now", b"\xff"])

    assert logs(server.api, "mnist", None, [], follow=False, pack=tmp_path / "all.tar.gz")

    with tarfile.open(tmp_path / "all.tar.gz") as archive:
        found = {one.name: archive.extractfile(one) for one in archive}
        texts = {name: file.read() for name, file in found.items() if file}
    tasks = ("ps-0", "ps-1", "worker-0", "worker-1", "worker-2")
    assert texts == {
        **{f"mnist/{task}.log": b"now\n\xff\n" for task in tasks},
        "mnist/worker-0.previous.log": b"before\n\xff\n",
    }
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".part")] == []


def test_log_that_cannot_be_read_costs_only_itself(
    server: MemoryApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(pod: str, _parameters: Mapping[str, str]) -> Iterator[bytes]:
        if pod == "mnist-ps-1-x":
            raise LookupError(500)
        yield b"line"

    server.logs = found

    assert not logs(server.api, "mnist", None, [], follow=False, pack=tmp_path / "all.tar.gz")
    out = capsys.readouterr()
    assert "has 4 logs of 5 tasks of job mnist" in out.out
    assert "railnet: ps-1: cannot get pods/mnist-ps-1-x/log in namespace mnist: HTTP 500" in out.err


class Container:
    """A container of which a test says what each request for its log gets."""

    def __init__(self, server: MemoryApiServer, *answers: Any) -> None:
        self.server, self.answers, self.asked = server, list(answers), list[dict[str, str]]()
        server.logs = self.log

    def log(self, _pod: str, parameters: Mapping[str, str]) -> Iterator[bytes]:
        self.asked.append(dict(parameters))
        for one in self.answers.pop(0):
            if isinstance(one, Exception):
                raise one
            yield one
        if not self.answers:
            self.end()

    def restart(self, count: int) -> None:
        status = {"phase": "Running", "containerStatuses": [{"restartCount": count, "state": {"running": {}}}]}
        self.server.add("pods", {**pods(job(), RUNNING)[2], "status": status})

    def end(self) -> None:
        made = self.server.objects["jobs", "mnist", "mnist-worker-0"]
        self.server.add("jobs", {**made, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
        self.answers.append([])  # the last look at the log of a task that has ended


def at(second: int, text: str, nano: int = 5) -> bytes:
    return f"2026-01-01T00:00:{second:02}.{nano:09}Z {text}".encode()


def followed(server: MemoryApiServer) -> list[bytes]:
    return list(FollowedLog(server.api, "mnist", "mnist", WORKER, lambda _: None).lines())


def test_following_ends_with_the_task(server: MemoryApiServer) -> None:
    container = Container(server, [at(1, "one"), at(2, "two")])

    assert followed(server) == [b"one", b"two"]
    assert container.asked[0] == {"timestamps": "true", "follow": "true", "container": "mnist-worker-0"}


def test_lost_connection_doubles_and_loses_no_line(server: MemoryApiServer) -> None:
    container = Container(
        server,
        [at(1, "one"), at(2, "two"), at(2, "same time"), OSError()],
        [at(2, "two"), at(2, "same time"), at(2, "third of that time"), at(2, "later", 6), at(3, "three")],
    )

    assert followed(server) == [b"one", b"two", b"same time", b"third of that time", b"later", b"three"]
    assert container.asked[1]["sinceTime"] == "2026-01-01T00:00:02Z"


def test_restart_of_the_container_loses_no_line_of_either(server: MemoryApiServer) -> None:
    container = Container(server)

    def lost() -> Iterator[Any]:
        yield at(1, "one")
        container.restart(1)
        yield OSError()

    container.answers = [
        lost(),
        [at(1, "one"), at(2, "last words")],
        [at(3, "again")],
    ]

    assert followed(server) == [b"one", b"last words", b"again"]
    assert [one.get("previous") for one in container.asked[:3]] == [None, "true", None]


def test_container_that_has_not_started_is_waited_for(server: MemoryApiServer) -> None:
    Container(server, [LookupError(400)], [LookupError(400)], [at(1, "one")])

    assert followed(server) == [b"one"]


def test_new_pod_of_the_task_is_followed_from_its_beginning(server: MemoryApiServer) -> None:
    container = Container(server)

    def replaced() -> Iterator[Any]:
        yield at(5, "old pod")
        pod = pods(job(), RUNNING)[2]
        server.remove(("pods", "mnist", "mnist-worker-0-x"))
        server.add("pods", {**pod, "metadata": {**pod["metadata"], "name": "mnist-worker-0-y"}})

    container.answers = [replaced(), [at(5, "new pod")]]

    assert followed(server) == [b"old pod", b"new pod"]
    assert "sinceTime" not in container.asked[1]


def test_following_ends_when_the_job_is_deleted(server: MemoryApiServer) -> None:
    container = Container(server)

    def deleted() -> Iterator[Any]:
        yield at(1, "one")
        server.remove(("pods", "mnist", "mnist-worker-0-x"))
        server.remove(("configmaps", "mnist", "mnist"))

    container.answers = [deleted(), []]

    assert followed(server) == [b"one"]


def test_all_tasks_are_followed_at_once_with_a_prefix(
    server: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """All workers have ended, and their parameter servers are cleaned up: each log is read once to its end."""
    server.logs = lambda pod, _parameters: iter([at(1, f"of {pod}")])
    for index in range(3):
        made = server.objects["jobs", "mnist", f"mnist-worker-{index}"]
        server.add("jobs", {**made, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    for index in range(2):
        server.remove(("deployments", "mnist", f"mnist-ps-{index}"))
        server.remove(("pods", "mnist", f"mnist-ps-{index}-x"))

    assert logs(server.api, "mnist", None, [], follow=True, pack=None)
    assert sorted(capsys.readouterr().out.splitlines()) == [f"worker-{i} | of mnist-worker-{i}-x" for i in range(3)]
