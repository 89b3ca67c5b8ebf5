"""`railnet train up --dry-run` creates nothing: it shows what would be created, and what the API server would refuse."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.apiserver.client import Answer
from railnet.apiserver.request import Request
from railnet.cli.output import Form, Output
from railnet.train import dry_run
from railnet.train.creation import CreationRefused, JobFile
from railnet.train.job_template import KINDS, text_of
from railnet.train.up import read
from tests.railnet.train.jobs import ON_ETH0
from tests.railnet.train.memory_api_server import MemoryApiServer, status

_NAMES = [
    "ConfigMap mnist in namespace mnist",
    *(f"Service mnist-{task} in namespace mnist" for task in ("ps-0", "ps-1", "worker-0", "worker-1", "worker-2")),
    *(f"Deployment mnist-ps-{index} in namespace mnist" for index in range(2)),
    *(f"Job mnist-worker-{index} in namespace mnist" for index in range(3)),
]


@pytest.fixture
def file(tmp_path: Path) -> JobFile:
    path = tmp_path / "job.yaml"
    path.write_text(ON_ETH0)
    return read(str(path))


@pytest.fixture
def server() -> MemoryApiServer:
    """An API server that stores nothing of a dry run, and adds a default as the real one does."""
    found = MemoryApiServer()
    found.add("priorityclasses", {"metadata": {"name": "iteration"}})
    found.add("namespaces", {"metadata": {"name": "mnist"}})

    def dry(request: Request) -> Answer | None:
        assert request.method != "POST" or request.query == "dryRun=All"
        if request.method != "POST":
            return None
        body: Any = request.body
        key = request.about.resource, "mnist", body["metadata"]["name"]
        if key in found.objects:
            return status(409, "already exists")
        return Answer(201, "application/json", "", json.dumps({**body, "status": {}}).encode())

    found.before = dry
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [Form.YAML, Form.JSON])
def test_written_file_of_each_kind_is_taken_and_shown(
    kind: str, form: Form, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(text_of(kind))

    assert dry_run.client(read(str(tmp_path / "job.yaml")), Output(form))

    text = capsys.readouterr().out
    found = yaml.safe_load(text) if form is Form.YAML else json.loads(text)
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    assert found["items"][0]["data"]["job.yaml"] == text_of(kind)
    assert {item["kind"] for item in found["items"]} >= {"ConfigMap", "Job"}
    assert form is Form.JSON or "\n      # A job of `railnet train`." in text  # the file's lines are lines


def test_client_shows_names_without_a_form(file: JobFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run.client(file, Output())

    assert capsys.readouterr().out.splitlines() == _NAMES


def test_server_checks_each_object_and_stores_none(
    file: JobFile, server: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(server.objects)

    assert dry_run.server(server.api, file, Output(Form.JSON))

    found = json.loads(capsys.readouterr().out)["items"]
    assert [f"{one['kind']} {one['metadata']['name']} in namespace mnist" for one in found] == _NAMES
    assert all("status" in one for one in found)
    assert server.objects == before


def test_all_that_the_server_refuses_is_said(
    file: JobFile, server: MemoryApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = server.before
    server.add("services", {"metadata": {"name": "mnist-ps-1", "namespace": "mnist"}})
    server.before = lambda request: status(422, "no such field") if request.about.resource == "jobs" else dry(request)

    assert not dry_run.server(server.api, file, Output())

    said = capsys.readouterr()
    assert said.out.splitlines() == [name for name in _NAMES if not name.startswith(("Job", "Service mnist-ps-1"))]
    assert said.err.count("no such field") == 3
    assert "Service mnist-ps-1 exists already; railnet train down mnist" in said.err


def test_missing_namespace_and_priority_are_said_with_what_to_do(file: JobFile, server: MemoryApiServer) -> None:
    server.remove(("namespaces", "", "mnist"))
    with pytest.raises(
        CreationRefused,
        match=r"namespace mnist does not exist, .*kubectl create namespace mnist, or use --dry-run=client",
    ):
        dry_run.server(server.api, file, Output())
    server.remove(("priorityclasses", "", "iteration"))
    with pytest.raises(CreationRefused, match="the cluster has no such PriorityClass"):
        dry_run.server(server.api, file, Output())
