"""`railnet train up --as`: a job as the object of an operator, where the cluster has that operator."""

from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.client import Answer
from railnet.apiserver.request import Request
from railnet.errors import Misconfigured
from railnet.jobs.job_pods import pods_of
from railnet.jobs.pod_progress import Stage
from railnet.jobs.recogniser import recognise
from railnet.jobs.task_states import summary, task_states
from railnet.jobs.train_operator_objects import OPERATOR_OBJECTS, object_as, pods_as
from railnet.objects import pod as pod_module
from railnet.train.creation import CreationRefused
from railnet.train.job_file import job_of
from railnet.train.up import read, up
from tests.railnet.train.memory_api_server import MemoryApiServer, status

_TEXT = "name: a\nimage: b\nworkers: 4\ngpus: 8\nrails: 2\ncommand: [torchrun, x]\nenv: {A: b}\n"
_KINDS = {"pytorchjob": "pytorch", "jobset": "pytorch", "mpijob": "mpi"}
_ROLES = {
    "pytorchjob": [("master 0 of a", 1), ("worker 0 of a", 3)],
    "jobset": [("worker 0.0 of a", 4)],
    "mpijob": [("launcher of a", 1), ("worker 0 of a", 4)],
}


def made(name: str, more: str = "") -> dict[str, Any]:
    return object_as(job_of(f"kind: {_KINDS[name]}\n{_TEXT}{more}", "job.yaml", name), name)


def member(pod: Any) -> str:
    found = recognise(pod_module.parse(pod))
    assert found is not None
    return str(found)


@pytest.mark.parametrize("name", OPERATOR_OBJECTS)
def test_pods_of_the_object_are_the_jobs_ranks(name: str) -> None:
    found = list(pods_of(made(name)))

    assert [(member(one.pod), one.replicas) for one in found] == _ROLES[name]
    for one in found:
        metadata, (container,) = one.pod["metadata"], one.pod["spec"]["containers"]
        launches = "launcher" in metadata["name"]
        assert metadata["labels"]["railnet.io/train"] == "a"
        assert metadata["annotations"].get("railnet.io/vf") == (None if launches else "2")
        assert ("nvidia.com/gpu" in container["resources"]["limits"]) is not launches
        assert {"name": "A", "value": "b"} in container["env"]
        assert one.pod["spec"]["volumes"][0]["emptyDir"]["medium"] == "Memory"


def test_pytorch_job_has_the_number_of_processes_and_keeps_its_pods() -> None:
    spec = made("pytorchjob", "retries: 2\nrestart: Never\n")["spec"]

    assert (spec["nprocPerNode"], spec["runPolicy"]) == ("8", {"cleanPodPolicy": "None", "backoffLimit": 2})
    assert {one["restartPolicy"] for one in spec["pytorchReplicaSpecs"].values()} == {"Never"}
    alone = object_as(job_of(f"kind: pytorch\n{_TEXT}".replace("workers: 4", "workers: 1"), "job.yaml"), "pytorchjob")
    assert list(alone["spec"]["pytorchReplicaSpecs"]) == ["Master"]


def test_job_set_has_a_fixed_rendezvous_and_starts_again_as_a_whole() -> None:
    spec = made("jobset")["spec"]
    job = spec["replicatedJobs"][0]["template"]["spec"]
    env = {one["name"]: one.get("value") for one in job["template"]["spec"]["containers"][0]["env"]}

    assert (spec["failurePolicy"], job["backoffLimit"], job["completions"], job["parallelism"]) == (
        {"maxRestarts": 3},
        0,
        4,
        4,
    )
    assert (env["PET_MASTER_ADDR"], env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("a-worker-0-0.a", "4", "8")
    assert env["PET_NODE_RANK"] is None  # from the pod's annotation
    assert "RANK" not in env


def test_launcher_has_the_command_and_workers_run_sshd() -> None:
    spec = made("mpijob", "processes: 4\n")["spec"]
    commands = {
        role: one["template"]["spec"]["containers"][0].get("command") for role, one in spec["mpiReplicaSpecs"].items()
    }

    assert commands == {"Launcher": ["torchrun", "x"], "Worker": None}
    assert spec["slotsPerWorker"] == 4


@pytest.mark.parametrize("name", OPERATOR_OBJECTS)
def test_all_pods_are_one_gang(name: str) -> None:
    pods = [one.pod["metadata"]["labels"] for one in pods_of(made(name, "topology: railnet.io/leaf\n"))]

    job = job_of(f"kind: {_KINDS[name]}\n{_TEXT}", "job.yaml", name)
    assert {one["pod-group.scheduling.sigs.k8s.io/min-available"] for one in pods} == {str(pods_as(job))}


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (
            f"kind: mpi\n{_TEXT}",
            None,
            "job.yaml, line 1: kind is mpi, whose launcher needs keys .*; add --as mpijob to the command",
        ),
        (_TEXT, "pytorchjob", "kind is tensorflow, and --as pytorchjob is for kind: pytorch; change kind"),
        (f"kind: pytorch\n{_TEXT}", "mpijob", "line 1: kind is pytorch, and --as mpijob is for kind: mpi"),
        (
            f"kind: pytorch\n{_TEXT}rendezvous: net1\n",
            "jobset",
            "line 9: rendezvous is net1, and the pods of a JobSet meet by the",
        ),
        *(
            (
                f"kind: pytorch\n{_TEXT}restart: {restart}\n",
                "jobset",
                f"line 9: restart is {restart}, and a JobSet starts the whole job again, .*; remove restart",
            )
            for restart in ("OnFailure", "Never")
        ),
        (
            f"kind: mpi\n{_TEXT}port: 22\n",
            "mpijob",
            "line 9: port is for kind: tensorflow or pytorch, and this job's kind is mpi; remove port",
        ),
    ],
)
def test_file_that_cannot_be_the_object_is_refused(text: str, name: str | None, words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        job_of(text, "job.yaml", name)


@pytest.fixture
def server() -> MemoryApiServer:
    return MemoryApiServer()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(f"kind: pytorch\n{_TEXT}")
    return str(path)


def test_object_belongs_to_the_jobs_owner(server: MemoryApiServer, file: str) -> None:
    assert up(server.api, read(file, "pytorchjob"), wait=False)

    owner = server.objects["configmaps", "a", "a"]
    (reference,) = server.objects["pytorchjobs", "a", "a"]["metadata"]["ownerReferences"]
    assert reference["uid"] == owner["metadata"]["uid"]
    assert owner["metadata"]["annotations"]["railnet.io/train-as"] == "pytorchjob"
    assert server.names("jobs") == []


def test_same_file_as_something_else_is_another_job(server: MemoryApiServer, file: str) -> None:
    up(server.api, read(file, "pytorchjob"), wait=False)

    assert up(server.api, read(file, "pytorchjob"), wait=False)
    for other in (None, "jobset"):
        with pytest.raises(
            CreationRefused,
            match="has another job a already, which is pytorchjob; railnet train down a -n a removes it",
        ):
            up(server.api, read(file, other), wait=False)


def test_operator_that_the_cluster_lacks_is_named_and_nothing_is_created(server: MemoryApiServer, file: str) -> None:
    def without(request: Request) -> Answer | None:
        return (
            status(404, "the server could not find the requested resource")
            if request.about.resource == "jobsets"
            else None
        )

    server.before = without
    with pytest.raises(
        CreationRefused,
        match=r"the cluster has no JobSet \(jobset.x-k8s.io/v1alpha2\): install JobSet, or leave --as jobset out",
    ):
        up(server.api, read(file, "jobset"), wait=False)

    assert server.objects == {}


def test_tasks_of_an_operators_pods_are_seen_by_role_and_rank() -> None:
    running = {"phase": "Running", "containerStatuses": [{"restartCount": 1, "state": {"running": {}}}]}
    pods = [
        {**one.pod, "spec": {**one.pod["spec"], "nodeName": "n"}, "status": running}
        for one in pods_of(made("pytorchjob"))
    ]
    states = task_states((), pods, {})

    assert [(one.name, one.stage, one.restarts, one.container) for one in states] == [
        ("master-0", Stage.RUNNING, 1, "pytorch"),
        ("worker-0", Stage.RUNNING, 1, "pytorch"),
    ]
    assert summary(states) == "running"
    assert summary(task_states((), [{**one, "status": {"phase": "Succeeded"}} for one in pods], {})) == "completed"
