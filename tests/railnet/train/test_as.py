"""`railnet train up --as`: a job as the object of an operator, where the cluster has that operator."""

from pathlib import Path
from typing import Any

import pytest

from railnet.admission.offline import explain
from railnet.apiserver.client import Answer, RequestFailed
from railnet.apiserver.request import ApiObject, Request, Verb
from railnet.cli.output import chosen
from railnet.configuration import Configuration
from railnet.errors import Misconfigured
from railnet.jobs.job_pods.job_pods import pods_of
from railnet.jobs.job_pods.pod_of_template import RenderedPod
from railnet.jobs.pod_progress import Stage
from railnet.jobs.recogniser import recognise
from railnet.jobs.train_job.operator_objects import OPERATOR_OBJECTS, objects_as, pods_as
from railnet.jobs.train_job.task_states import summary, task_states
from railnet.objects import pod as pod_module
from railnet.train import dry_run
from railnet.train.creation import Creation, CreationOutcome, CreationRefused
from railnet.train.job_file import job_of
from railnet.train.up import read, up
from railnet.webhook.explain_command import policy
from tests.jittered import jittered
from tests.railnet.train.memory_api_server import MemoryApiServer, status

# kubeflow/trainer v2.3.0, pkg/runtime/core/trainingruntime.go, ValidateObjects; controller-runtime makes 403 of it.
_NO_RUNTIME = status(
    403,
    'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: spec.runtimeRef: Invalid value: {"name":"a"}: '
    'TrainingRuntime.trainer.kubeflow.org "a" not found: specified trainingRuntime must be created before the TrainJob is created',
)
_TEXT = "name: a\nimage: b\nworkers: 4\ngpus: 8\nrails: 2\ncommand: [torchrun, x]\nenv: {A: b}\n"
_KINDS = {"pytorchjob": "pytorch", "jobset": "pytorch", "trainjob": "pytorch", "mpijob": "mpi"}
_ROLES = {
    "pytorchjob": [("master 0 of a", 1), ("worker 0 of a", 3)],
    "jobset": [("worker 0.0 of a", 4)],
    "trainjob": [("node 0.0 of a", 4)],
    "mpijob": [("launcher of a", 1), ("worker 0 of a", 4)],
}


def all_made(name: str, more: str = "") -> list[dict[str, Any]]:
    return objects_as(job_of(f"kind: {_KINDS[name]}\n{_TEXT}{more}", "job.yaml", name), name)


def made(name: str, more: str = "") -> dict[str, Any]:
    return all_made(name, more)[-1]


def rendered(name: str, more: str = "") -> list[RenderedPod]:
    *others, wanted = all_made(name, more)
    return list(pods_of(wanted, others))


def member(pod: Any) -> str:
    found = recognise(pod_module.parse(pod))
    assert found is not None
    return str(found)


@pytest.mark.parametrize("name", OPERATOR_OBJECTS)
def test_pods_of_the_object_are_the_jobs_ranks(name: str) -> None:
    found = rendered(name)

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
    for one in spec["pytorchReplicaSpecs"].values():
        (container,) = one["template"]["spec"]["containers"]
        assert container["ports"] == [{"name": "pytorchjob-port", "containerPort": 29500}]
    assert {one["restartPolicy"] for one in spec["pytorchReplicaSpecs"].values()} == {"Never"}
    (alone,) = objects_as(
        job_of(f"kind: pytorch\n{_TEXT}".replace("workers: 4", "workers: 1"), "job.yaml"), "pytorchjob"
    )
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


def test_train_job_says_nothing_but_its_runtime_whose_job_set_has_all_pods() -> None:
    runtime, job = all_made("trainjob", "retries: 5\nport: 30000\n")
    spec = runtime["spec"]
    (replicated,) = spec["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}

    assert job["spec"] == {"runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "a"}}
    assert (runtime["apiVersion"], runtime["kind"], runtime["metadata"]) == (
        job["apiVersion"],
        "TrainingRuntime",
        job["metadata"],
    )
    assert spec["mlPolicy"] == {"numNodes": 4}
    assert spec["template"]["spec"]["failurePolicy"] == {"maxRestarts": 5}
    assert replicated["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert (replicated["name"], replicated["replicas"], container["name"]) == ("node", 1, "node")
    assert (env["PET_MASTER_ADDR"], env["PET_MASTER_PORT"], env["PET_NNODES"]) == ("a-node-0-0.a", "30000", "4")
    assert pod["metadata"]["annotations"]["railnet.io/vf"] == "2"


def test_explanation_of_a_dry_run_has_the_pods_of_the_runtime() -> None:
    (explained,) = explain(all_made("trainjob"), policy(Configuration()))

    assert any("made by:   TrainJob a, 4 pods like this" in line for line in explained.lines)


def test_launcher_has_the_command_and_workers_run_sshd() -> None:
    spec = made("mpijob", "processes: 4\n")["spec"]
    commands = {
        role: one["template"]["spec"]["containers"][0].get("command") for role, one in spec["mpiReplicaSpecs"].items()
    }

    assert commands == {"Launcher": ["torchrun", "x"], "Worker": None}
    assert spec["slotsPerWorker"] == 4


@pytest.mark.parametrize("name", OPERATOR_OBJECTS)
def test_all_pods_are_one_gang(name: str) -> None:
    pods = [one.pod["metadata"]["labels"] for one in rendered(name, "topology: railnet.io/leaf\n")]

    job = job_of(f"kind: {_KINDS[name]}\n{_TEXT}", "job.yaml", name)
    assert {one["pod-group.scheduling.sigs.k8s.io/min-available"] for one in pods} == {str(pods_as(job))}


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
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
                name,
                f"line 9: restart is {restart}, and a {kind} starts the whole job again, .*; remove restart",
            )
            for restart in ("OnFailure", "Never")
            for name, kind in (("jobset", "JobSet"), ("trainjob", "TrainJob"))
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


@pytest.mark.parametrize(
    ("name", "most", "workers"), [("jobset", 46, 10), ("jobset", 45, 11), ("trainjob", 48, 10), ("trainjob", 47, 11)]
)
def test_name_of_which_job_set_would_refuse_the_pods_is_refused(name: str, most: int, workers: int) -> None:
    text = f"kind: pytorch\nimage: b\nworkers: {workers}\ncommand: [torchrun, x]\n"

    assert job_of(f"{text}name: {'a' * most}\n", "job.yaml", name).workers == workers
    with pytest.raises(
        Misconfigured, match=r"line 5: name is 'a+', .* has 64 characters; it may have 63: shorten name"
    ):
        job_of(f"{text}name: {'a' * (most + 1)}\n", "job.yaml", name)


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


def _creates_train_job(request: Request) -> bool:
    return (
        request.verb is Verb.CREATE and isinstance(request.about, ApiObject) and request.about.resource == "trainjobs"
    )


def refused_train_jobs(server: MemoryApiServer, times: int) -> None:
    """Have the server refuse a TrainJob so many times, as Trainer's webhook does that has not heard of its runtime yet."""
    refusals = iter([_NO_RUNTIME] * times)

    def refused(request: Request) -> Answer | None:
        return next(refusals, None) if _creates_train_job(request) else None

    server.before = refused


def test_train_job_is_created_when_the_operator_knows_its_runtime(
    server: MemoryApiServer, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused_train_jobs(server, 2)
    slept: list[float] = []

    assert Creation(server.api, read(file, "trainjob"), lambda _: None, slept.append).run() is CreationOutcome.CREATED
    assert len(slept) == 2
    assert capsys.readouterr().err.count("waiting until the operator knows TrainingRuntime a") == 1
    uid = server.objects["configmaps", "a", "a"]["metadata"]["uid"]
    for resource in ("trainingruntimes", "trainjobs"):
        assert [one["uid"] for one in server.objects[resource, "a", "a"]["metadata"]["ownerReferences"]] == [uid]


def test_nothing_is_left_of_a_train_job_that_is_refused_for_ever(server: MemoryApiServer, file: str) -> None:
    refused_train_jobs(server, 99)
    slept: list[float] = []
    creation = Creation(server.api, read(file, "trainjob"), lambda _: None, slept.append)

    with pytest.raises(RequestFailed, match="specified trainingRuntime must be created"):
        creation.run()
    assert slept == [jittered(whole) for whole in (0.4, 0.8, 1.6, 3.2, 6.4)]
    assert creation.take_back() == []
    assert server.objects == {}


@pytest.mark.parametrize("code", [403, 422])
def test_train_job_that_is_refused_for_another_reason_is_sent_once(
    server: MemoryApiServer, file: str, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    server.before = lambda request: status(code, "exceeded quota: jobs") if _creates_train_job(request) else None
    slept: list[float] = []
    creation = Creation(server.api, read(file, "trainjob"), lambda _: None, slept.append)

    with pytest.raises(RequestFailed, match="exceeded quota"):
        creation.run()
    assert slept == []
    assert "waiting" not in capsys.readouterr().err


def test_dry_run_says_that_the_operator_cannot_check_a_train_job_without_its_runtime(
    server: MemoryApiServer, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add("namespaces", {"metadata": {"name": "a"}})
    refused_train_jobs(server, 99)

    assert dry_run.server(server.api, read(file, "trainjob"), chosen(None, no_color=True))
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["ConfigMap a in namespace a", "TrainingRuntime a in namespace a"]
    assert "TrainJob a cannot be checked: its operator looks for the runtime" in printed.err


def test_dry_run_counts_another_refusal_of_a_train_job(server: MemoryApiServer, file: str) -> None:
    server.add("namespaces", {"metadata": {"name": "a"}})
    server.before = lambda request: status(403, "exceeded quota: jobs") if _creates_train_job(request) else None

    assert not dry_run.server(server.api, read(file, "trainjob"), chosen(None, no_color=True))


def test_tasks_of_an_operators_pods_are_seen_by_role_and_rank() -> None:
    running = {"phase": "Running", "containerStatuses": [{"restartCount": 1, "state": {"running": {}}}]}
    pods = [
        {**one.pod, "spec": {**one.pod["spec"], "nodeName": "n"}, "status": running} for one in rendered("pytorchjob")
    ]
    states = task_states((), pods, {})

    assert [(one.name, one.stage, one.restarts, one.container) for one in states] == [
        ("master-0", Stage.RUNNING, 1, "pytorch"),
        ("worker-0", Stage.RUNNING, 1, "pytorch"),
    ]
    assert summary(states) == "running"
    assert summary(task_states((), [{**one, "status": {"phase": "Succeeded"}} for one in pods], {})) == "completed"
