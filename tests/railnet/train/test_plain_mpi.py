"""`kind: mpi` without an operator: a Secret, a Service and an Indexed Job, whose worker 0 runs mpirun."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.client import Answer
from railnet.apiserver.request import Request, Verb
from railnet.cli.output import Output
from railnet.errors import Misconfigured
from railnet.jobs.job_pods.job_pods import pods_of
from railnet.jobs.pod_progress import Stage
from railnet.jobs.recogniser import recognise
from railnet.jobs.train_job.task_states import summary, task_states
from railnet.objects import pod as pod_module
from railnet.train import dry_run
from railnet.train.creation import CreationRefused, JobFile
from railnet.train.job_file import job_of
from railnet.train.up import is_over, read, up
from tests.railnet.train.memory_api_server import MemoryApiServer, status

_TEXT = "kind: mpi\nname: a\nimage: b\nworkers: 3\ngpus: 8\nrails: 2\ncommand: [mpirun, x]\n"
_INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
def server() -> MemoryApiServer:
    return MemoryApiServer()


def file_of(folder: Path, text: str = _TEXT) -> JobFile:
    path = folder / "job.yaml"
    path.write_text(text)
    return read(str(path))


def made(folder: Path, more: str = "") -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in file_of(folder, _TEXT + more).objects}


def test_all_workers_are_pods_of_one_job_which_ends_with_worker_0(tmp_path: Path) -> None:
    job = made(tmp_path, "retries: 2\nrestart: Never\n")["Job"]
    (rendered,) = pods_of(job)
    member = recognise(pod_module.parse(rendered.pod))

    assert {key: job["spec"][key] for key in job["spec"] if key != "template"} == {
        "completionMode": "Indexed",
        "completions": 3,
        "parallelism": 3,
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        "backoffLimit": 2,
    }
    assert str(member) == "worker 0 of a"
    assert rendered.replicas == 3
    assert rendered.pod["spec"]["restartPolicy"] == "Never"


def test_each_worker_has_gpus_and_rails(tmp_path: Path) -> None:
    template = made(tmp_path, "env: {A: b}\nvolumes: {c: /d}\n")["Job"]["spec"]["template"]
    (container,) = template["spec"]["containers"]

    assert template["metadata"]["annotations"] == {"railnet.io/vf": "2", "railnet.io/size": "3"}
    assert template["metadata"]["labels"] == {"railnet.io/train": "a", "railnet.io/net1": "true"}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert [one["mountPath"] for one in container["volumeMounts"]] == [
        *("/d", "/dev/shm", "/etc/railnet-ssh", "/run/railnet-ssh"),
    ]


def test_keys_of_a_worker_are_in_memory_of_its_pod_where_a_shared_volume_is_mounted_at_tmp(tmp_path: Path) -> None:
    spec = made(tmp_path, "volumes: {scratch: /tmp}\n")["Job"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    sources = {one.pop("name"): one for one in spec["volumes"]}
    of_path = {one["mountPath"]: sources[one["name"]] for one in container["volumeMounts"]}

    assert of_path["/run/railnet-ssh"] == {"emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}
    assert "/tmp" not in container["command"][2]


@pytest.mark.parametrize(
    ("more", "words"), [("", ["mpirun", "x"]), ("script: exec mpirun x\n", ["/bin/sh", "-c", "exec mpirun x", "a"])]
)
def test_script_of_the_pods_runs_the_command(tmp_path: Path, more: str, words: list[str]) -> None:
    text = _TEXT.replace("command: [mpirun, x]\n", "") + more if more else _TEXT
    (job,) = (one for one in file_of(tmp_path, text).objects if one["kind"] == "Job")
    shell, option, script, name, *command = job["spec"]["template"]["spec"]["containers"][0]["command"]

    assert (shell, option, name, command) == ("/bin/sh", "-c", "railnet", words)
    assert script.endswith('exec "$@"\n')


def test_hosts_are_worker_0_itself_and_the_others_names_in_the_service(tmp_path: Path) -> None:
    objects = made(tmp_path, "processes: 4\n")
    files, service = objects["Secret"]["stringData"], objects["Service"]
    spec = objects["Job"]["spec"]["template"]["spec"]

    assert files["hostfile"].splitlines() == ["a-0 slots=4", "a-1.a.a.svc slots=4", "a-2.a.a.svc slots=4"]
    assert files["others"].splitlines() == ["a-1.a.a.svc", "a-2.a.a.svc"]
    assert (spec["subdomain"], service["metadata"]["name"], service["spec"]["clusterIP"]) == ("a", "a", "None")
    assert service["spec"]["selector"] == {"railnet.io/train": "a"}
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_keys_let_in_and_hosts_are_known(tmp_path: Path) -> None:
    file = file_of(tmp_path)
    assert file.keys is not None
    (files,) = (one["stringData"] for one in file.objects if one["kind"] == "Secret")

    assert files["authorized_keys"].startswith('restrict,command="')
    assert files["authorized_keys"].endswith(f" {file.keys.user.public}\n")
    assert files["known_hosts"] == f"* {file.keys.host.public}\n"
    assert (files["id_ed25519"], files["host_ed25519"]) == (file.keys.user.private, file.keys.host.private)
    assert "StrictHostKeyChecking yes" in files["ssh_config"]


def test_all_objects_belong_to_the_owner_and_a_second_up_keeps_the_keys(
    server: MemoryApiServer, tmp_path: Path
) -> None:
    assert up(server.api, file_of(tmp_path), wait=False)
    owner = server.objects["configmaps", "a", "a"]["metadata"]["uid"]
    keys = server.objects["secrets", "a", "a-ssh"]["stringData"]

    assert up(server.api, file_of(tmp_path), wait=False)
    for key in (("secrets", "a", "a-ssh"), ("services", "a", "a"), ("jobs", "a", "a")):
        assert [one["uid"] for one in server.objects[key]["metadata"]["ownerReferences"]] == [owner]
    assert server.objects["secrets", "a", "a-ssh"]["stringData"] == keys


_TOO_OLD = "older than Kubernetes 1.31: it has dropped successPolicy .* --as mpijob"


def drop_the_success_policy(server: MemoryApiServer) -> None:
    """Have the server answer to a new Job as Kubernetes 1.30 does."""

    def without_policy(request: Request) -> Answer | None:
        body: Any = request.body
        if request.verb is not Verb.CREATE or body["kind"] != "Job":
            return None
        spec = {key: value for key, value in body["spec"].items() if key != "successPolicy"}
        return Answer(201, "application/json", "", json.dumps({**body, "spec": spec}).encode())

    server.after = without_policy


def test_api_server_that_drops_the_success_policy_is_too_old_and_nothing_is_left(
    server: MemoryApiServer, tmp_path: Path
) -> None:
    drop_the_success_policy(server)
    with pytest.raises(CreationRefused, match=_TOO_OLD):
        up(server.api, file_of(tmp_path), wait=False)

    assert server.objects == {}


def test_too_old_api_server_is_found_where_the_job_is_created_again(server: MemoryApiServer, tmp_path: Path) -> None:
    """The first creation is a conflict with an object that is gone at the next look."""
    drop_the_success_policy(server)
    conflicts = iter([status(409, "already exists")])

    def once(request: Request) -> Answer | None:
        body: Any = request.body
        return next(conflicts, None) if request.verb is Verb.CREATE and body["kind"] == "Job" else None

    server.before = once
    with pytest.raises(CreationRefused, match=_TOO_OLD):
        up(server.api, file_of(tmp_path), wait=False)


def test_dry_run_finds_an_api_server_that_is_too_old(
    server: MemoryApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add("namespaces", {"metadata": {"name": "a"}})
    drop_the_success_policy(server)

    assert not dry_run.server(server.api, file_of(tmp_path), Output())
    printed = capsys.readouterr()
    assert re.search(_TOO_OLD, printed.err)
    assert "Job" not in printed.out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_TEXT.replace("command: [mpirun, x]\n", ""), r"command is missing, and worker 0 .*: --as mpijob"),
        (f"{_TEXT}rendezvous: net1\n", r"line 8: rendezvous is net1, and mpirun reaches .*; remove rendezvous"),
        (f"{_TEXT}env: {{A: b, my-var: x}}\n", "line 8: env.my-var does not reach the ranks: .* choose another name"),
        (
            f"{_TEXT}env:\n  A: b\n  UID: '7'\n",
            "line 10: env.UID does not reach the ranks: it is a variable of the shell",
        ),
        (f"{_TEXT}env: {{a.b: x, PPID: '1'}}\n", r"(?s)2 mistakes.* env.a.b does .* env.PPID does"),
        (f"{_TEXT}ps: 1\n", "line 8: ps is for kind: tensorflow, and this job's kind is mpi"),
    ],
)
def test_file_that_cannot_run_without_an_operator_is_refused(text: str, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        job_of(text, "job.yaml")


class TestStates:
    """The Job stands for worker 0; the other workers are known by their pods."""

    @pytest.fixture
    def job(self, tmp_path: Path) -> dict[str, Any]:
        return made(tmp_path)["Job"]

    def pods(self, job: dict[str, Any], phase: str, indices: range) -> list[dict[str, Any]]:
        (rendered,) = pods_of(job)
        running = {"phase": phase, "containerStatuses": [{"restartCount": 0, "state": {phase.lower(): {}}}]}
        return [
            {
                "metadata": {
                    **rendered.pod["metadata"],
                    "name": f"a-{index}-x",
                    "labels": {**rendered.pod["metadata"]["labels"], _INDEX: str(index)},
                    "annotations": {**rendered.pod["metadata"]["annotations"], _INDEX: str(index)},
                },
                "spec": {**rendered.pod["spec"], "nodeName": "n"},
                "status": running,
            }
            for index in indices
        ]

    def test_workers_run(self, job: dict[str, Any]) -> None:
        states = task_states([job], self.pods(job, "Running", range(3)), {})

        assert [(one.name, one.stage, one.container) for one in states] == [
            (f"worker-{index}", Stage.RUNNING, "a") for index in range(3)
        ]
        assert summary(states) == "running"

    def test_job_is_complete_when_only_worker_0_is_left(self, job: dict[str, Any]) -> None:
        complete = {**job, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
        (state,) = task_states([complete], self.pods(job, "Succeeded", range(1)), {})

        assert (state.name, state.pod, state.container) == ("worker-0", "a-0-x", "a")
        assert summary([state]) == "completed"

    def test_job_has_failed_when_kubernetes_gives_it_up(self, job: dict[str, Any]) -> None:
        failed = {
            **job,
            "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]},
        }
        states = task_states([failed], self.pods(job, "Failed", range(1)), {})

        assert summary(states) == "failed"
        assert "BackoffLimitExceeded" in states[0].why

    def test_pods_that_are_refused_are_said(self, job: dict[str, Any]) -> None:
        (state,) = task_states([job], [], {"a": "exceeded quota"})

        assert (state.name, state.why) == ("worker-0", "exceeded quota")


@pytest.mark.parametrize(
    ("word", "tasks", "kind", "over"),
    [
        ("running", 3, "mpi", True),
        ("running", 1, "mpi", False),  # the others have no pod yet
        ("completed", 1, "mpi", True),  # the others have no pod any more
        ("completed", 1, "pytorch", False),
        ("waiting", 3, "mpi", False),
        ("failed", 1, "pytorch", True),
    ],
)
def test_up_waits_until_all_workers_run_or_mpirun_has_ended(word: str, tasks: int, kind: str, *, over: bool) -> None:
    assert is_over(word, tasks, 3, kind) is over
