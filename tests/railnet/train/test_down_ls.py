"""`railnet train down` and `ls`."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from railnet.cli.output import Form, Output
from railnet.fabric.published_reach import config_map
from railnet.objects.network_status import ANNOTATION
from railnet.train.down import down
from railnet.train.job_lookup import NoSuchJob
from railnet.train.ls import ls
from railnet.train.up import read, up
from tests.railnet.train.jobs import ON_ETH0, RUNNING, job, pods
from tests.railnet.train.memory_api_server import MemoryApiServer, status

TABLE, JSON = Output(), Output(Form.JSON)


def server_with(tmp_path: Path, *namespaces: str) -> MemoryApiServer:
    found = MemoryApiServer()
    found.add("priorityclasses", {"metadata": {"name": "iteration"}})
    for namespace in namespaces:
        file = tmp_path / f"{namespace}.yaml"
        file.write_text(f"{ON_ETH0}namespace: {namespace}\n")
        assert up(found.api, read(str(file)), wait=False)
    return found


@pytest.fixture
def server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> MemoryApiServer:
    found = server_with(tmp_path, "mnist")
    capsys.readouterr()
    return found


def test_down_deletes_all_and_says_what_is_gone(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    for one in pods(job(), RUNNING):
        owner = server.objects["configmaps", "mnist", "mnist"]["metadata"]["uid"]
        server.add("pods", {**one, "metadata": {**one["metadata"], "ownerReferences": [{"uid": owner}]}})

    assert down(server.api, "mnist", None, wait=True)

    assert {kind for kind, _, _ in server.objects} == {"namespaces", "priorityclasses"}
    assert capsys.readouterr().out.splitlines() == [
        "job mnist in namespace mnist is gone: 5 services, 2 deployments, 3 jobs, 5 pods",
        "namespace mnist and its volumes stay",
    ]


@pytest.mark.slow
def test_down_waits_for_pods_that_take_their_time(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    last = server.add("pods", pods(job(), RUNNING)[0])["metadata"]["name"]
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(down(server.api, "mnist", None, wait=True)), daemon=True)
    thread.start()
    thread.join(1.5)
    waits = thread.is_alive()
    server.remove(("pods", "mnist", last))
    thread.join(60)

    assert (waits, found) == (True, [True])


def test_down_without_waiting_returns_at_once(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.add("pods", pods(job(), RUNNING)[0])

    assert down(server.api, "mnist", "mnist", wait=False)
    assert "is being deleted: 5 services, 2 deployments, 3 jobs, 1 pods" in capsys.readouterr().out


def test_job_of_another_namespace_is_deleted_only_where_that_is_named(tmp_path: Path) -> None:
    one, two = server_with(tmp_path, "ml"), server_with(tmp_path, "ml", "other")

    with pytest.raises(
        NoSuchJob, match=r"^namespace mnist has no job mnist; one is in namespace ml: choose it with -n ml$"
    ):
        down(one.api, "mnist", None, wait=False)
    assert ("configmaps", "ml", "mnist") in one.objects
    assert down(one.api, "mnist", "ml", wait=False)
    with pytest.raises(NoSuchJob, match="there are jobs mnist in the namespaces ml, other; choose one with -n"):
        down(two.api, "mnist", None, wait=False)
    assert down(two.api, "mnist", "other", wait=False)
    assert [key[1] for key in two.objects if key[0] == "configmaps"] == ["ml"]


def test_missing_job_is_named(server: MemoryApiServer) -> None:
    with pytest.raises(NoSuchJob, match="there is no job cifar of railnet train; railnet train ls shows all jobs"):
        down(server.api, "cifar", None, wait=True)
    with pytest.raises(NoSuchJob, match="namespace ml has no job mnist of railnet train"):
        down(server.api, "mnist", "ml", wait=True)
    with pytest.raises(NoSuchJob, match="cannot be the name of an API object"):
        down(server.api, "../mnist", None, wait=True)


def test_foreign_config_map_is_no_job_and_stays(server: MemoryApiServer) -> None:
    server.add("configmaps", {"metadata": {"name": "cifar", "namespace": "cifar"}})

    with pytest.raises(NoSuchJob):
        down(server.api, "cifar", None, wait=True)
    assert "cifar" in server.names("configmaps")


def test_user_of_one_namespace_is_told_to_name_it(server: MemoryApiServer) -> None:
    server.before = lambda request: status(403, "no") if str(request) == "list configmaps" else None

    with pytest.raises(NoSuchJob, match="name its namespace with -n"):
        down(server.api, "cifar", None, wait=True)


def test_ls_shows_states_of_tasks(server: MemoryApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "x"}}}],
    }
    for one, state in zip(pods(job(), RUNNING), (RUNNING, RUNNING, RUNNING, waiting), strict=False):
        server.add("pods", {**one, "status": state})

    ls(server.api, None, TABLE)
    assert capsys.readouterr().out.splitlines() == [
        "NAMESPACE  JOB    STATE    PARAMETER SERVERS  WORKERS                               RESTARTS  WAITS FOR",
        "mnist      mnist  waiting  2 running          1 running, 1 starting, 1 unscheduled         0  worker-1: ErrImagePull: x",
    ]

    ls(server.api, "mnist", JSON)
    (found,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (found["namespace"], found["name"], found["state"]) == ("mnist", "mnist", "waiting")
    assert [(task["name"], task["stage"]) for task in found["tasks"]] == [
        ("ps-0", "running"),
        ("ps-1", "running"),
        ("worker-0", "running"),
        ("worker-1", "starting"),
        ("worker-2", "unscheduled"),
    ]


def test_ls_names_a_job_whose_pods_do_not_reach_each_other(
    server: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, one in enumerate(pods(job(), RUNNING)):
        networks = [{"name": "railnet/default", "interface": "net1", "ips": ["10.56.0.9"], "rail": min(number, 1)}]
        annotations = {**(one["metadata"].get("annotations") or {}), ANNOTATION: json.dumps(networks)}
        server.add("pods", {**one, "metadata": {**one["metadata"], "annotations": annotations}})
    server.add("configmaps", config_map({frozenset({0, 1}): False}, datetime(2026, 11, 27, tzinfo=UTC)))

    ls(server.api, None, TABLE)
    assert "(rail 1) do not reach each other over net1" in capsys.readouterr().out.splitlines()[-1]
    ls(server.api, None, JSON)
    (found,) = json.loads(capsys.readouterr().out)["jobs"]
    assert [one["rails"] for one in found["railsApart"]["pods"]] == [[0], [1]]


def test_ls_knows_completed_failed_and_half_made_jobs(
    server: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(name: str, condition: str) -> None:
        made = server.objects["jobs", "mnist", name]
        server.add("jobs", {**made, "status": {"conditions": [{"type": condition, "status": "True"}]}})

    def state() -> str:
        ls(server.api, None, JSON)
        found: str = json.loads(capsys.readouterr().out)["jobs"][0]["state"]
        return found

    for name in ("mnist-worker-0", "mnist-worker-1", "mnist-worker-2"):
        end(name, "Complete")
    assert state() == "completed"
    end("mnist-worker-1", "Failed")
    assert state() == "failed"
    owner = server.objects["configmaps", "mnist", "mnist"]
    owner["metadata"]["annotations"] = {}
    assert state() == "half made"


def test_ls_without_jobs_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    ls(MemoryApiServer().api, None, TABLE)

    assert capsys.readouterr().out == "there is no job of railnet train\n"


def test_wide_ls_shows_when_a_job_was_created_and_where_its_tasks_are(
    server: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, one in enumerate(pods(job(), RUNNING)):
        server.add("pods", {**one, "spec": {**one["spec"], "nodeName": f"gpu-{number % 2}"}})
    server.objects["configmaps", "mnist", "mnist"]["metadata"]["creationTimestamp"] = "2026-11-26T11:00:00Z"

    ls(server.api, None, Output(Form.WIDE))

    head, row = capsys.readouterr().out.splitlines()
    assert head.endswith("WAITS FOR  CREATED               NODES")
    assert row.endswith("2026-11-26T11:00:00Z  gpu-0, gpu-1")
