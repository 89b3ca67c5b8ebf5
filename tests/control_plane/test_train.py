"""`railnet train` as a program, by a kubeconfig: Kubernetes' controllers make the pods, and delete what belongs to a job that is gone."""

import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.chart import WEBHOOK
from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.cluster import Cluster
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.proxy import Answer, ApiProxy, Passed
from tests.control_plane.server import ApiServer

JOB = """\
name: mnist
image: registry.example/train:1
command: [python, /train.py]
ps: 2
workers: 3
gpus: 1
cpu: 500m
memory: 4Gi
priority: iteration
volumes: {checkpoints: /checkpoints}
rendezvous: eth0
"""
CORE, APPS, BATCH = "/api/v1", "/apis/apps/v1", "/apis/batch/v1"
MINE = "/namespaces/mnist"
OBJECTS = {
    f"{CORE}{MINE}/configmaps": 1,
    f"{CORE}{MINE}/services": 5,
    f"{APPS}{MINE}/deployments": 2,
    f"{BATCH}{MINE}/jobs": 3,
}
_SECONDS = 60.0
_GONE_SECONDS = 180.0  # a namespace of 1,000 pods or 100 Jobs, while other programs are busy, too


class Train:
    """The command with a kubeconfig of the server."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.file, self._folder = server, folder / "job.yaml", folder
        self.kubeconfig = server.api.kubeconfig
        self.file.write_text(JOB)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "railnet", "train", *arguments, "--kubeconfig", str(self.kubeconfig)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=_SECONDS)

    def find_proxy(self, proxy: ApiProxy) -> None:
        """Have the command send its requests to a proxy in front of the server."""
        config = json.loads(self.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://{proxy.host}:{proxy.port}"
        self.kubeconfig = self._folder / "proxy.kubeconfig"
        self.kubeconfig.write_text(json.dumps(config))

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.run("up", "-f", str(self.file), "--no-wait")

    def count(self) -> dict[str, int]:
        return {path: len(self.items(path)) for path in OBJECTS}

    def items(self, path: str) -> list[JsonObject]:
        found = self.server.api.items(path)
        return [one for one in found if "railnet.io/train" in (one["metadata"].get("labels") or {})]

    def specified(self) -> list[tuple[str, JsonObject]]:
        """Return each object's UID and specification: Kubernetes' controllers change the rest meanwhile."""
        items = [one for path in OBJECTS for one in self.items(path)]
        return [(one["metadata"]["uid"], one.get("spec") or one["data"]) for one in items]


def wait_until_collected(train: Train) -> None:
    """Wait until what belongs to an owner that is gone is deleted, and the namespace, if it is being deleted, too."""
    wait_until(lambda: train.count() == dict.fromkeys(OBJECTS, 0), _GONE_SECONDS, "all to be gone")
    wait_until(lambda: not is_terminating(train), _GONE_SECONDS, "the namespace to be gone")


def is_terminating(train: Train) -> bool:
    """Return whether the job's namespace is being deleted: the API server then refuses new objects in it."""
    answer = train.server.api.get(f"{CORE}/namespaces/mnist")
    return answer.status == http.client.OK and answer.object["status"]["phase"] == "Terminating"


@pytest.fixture
def train(server: ApiServer, tmp_path: Path) -> Iterator[Train]:
    server.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "iteration"}, "value": 1000})
    found = Train(server, tmp_path)
    yield found
    for path in OBJECTS:
        server.api.delete(f"{path}?propagationPolicy=Background")
    server.api.delete(f"{CORE}/namespaces/mnist")
    wait_until(
        lambda: server.api.get(f"{CORE}/namespaces/mnist").status == 404, _GONE_SECONDS, "the namespace to be gone"
    )


def test_up_creates_the_job_and_the_second_up_changes_nothing(train: Train) -> None:
    first = train.up()
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[-1] == "job mnist is created in namespace mnist"
    assert train.count() == OBJECTS
    before = train.specified()

    second = train.up()

    assert (second.returncode, second.stdout) == (0, "job mnist is up in namespace mnist already: nothing to change\n")
    assert train.specified() == before


def test_manifests_of_a_job_pass_strict_validation_without_a_warning(train: Train) -> None:
    """The API server names each field that it does not know, and each that it would drop."""
    assert train.up().returncode == 0
    assert train.count() == OBJECTS
    for path in OBJECTS:
        for one in train.items(path):
            name = one["metadata"]["name"]
            body = {**one, "metadata": {**one["metadata"], "resourceVersion": None}}
            answer = train.server.api.send("PUT", f"{path}/{name}?fieldValidation=Strict&dryRun=All", body)
            assert (answer.status, answer.warnings) == (200, []), (name, answer.text)


def test_another_job_of_the_name_and_an_unknown_priority_are_refused(train: Train) -> None:
    train.up()
    train.file.write_text(JOB.replace("workers: 3", "workers: 9"))
    other = train.up()
    train.file.write_text(JOB.replace("iteration", "urgent").replace("mnist", "cifar"))
    unknown = train.up()

    assert (other.returncode, unknown.returncode) == (1, 1)
    assert "namespace mnist has another job mnist already, with another workers" in other.stderr
    assert "priority is urgent, and the cluster has no such PriorityClass" in unknown.stderr
    assert train.count() == OBJECTS
    assert train.server.api.get("/api/v1/namespaces/cifar").status == 404


def test_refusal_in_the_middle_takes_all_back(train: Train) -> None:
    """A Job of the last worker's name is in the way."""
    train.server.namespace("mnist")
    foreign = {"containers": [{"name": "x", "image": "x"}], "restartPolicy": "Never"}
    train.server.api.create(
        f"{BATCH}{MINE}/jobs", {"metadata": {"name": "mnist-worker-2"}, "spec": {"template": {"spec": foreign}}}
    )
    found = train.up()

    assert found.returncode == 1
    assert "Job mnist-worker-2 exists in namespace mnist and does not belong to this job" in found.stderr
    wait_until_collected(train)
    assert train.server.api.get(f"{BATCH}{MINE}/jobs/mnist-worker-2").status == 200


class HeldCreation:
    """The fault that holds the creation of one object, so that a signal comes in the middle, however fast the command is.

    Attributes:
        begun: set when the request has come.
        may_end: is to be set when the request may be passed on.
    """

    def __init__(self, resource: str, number: int) -> None:
        """Hold the `number`th creation of a resource's objects."""
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._resource, self._number, self._numbers = resource, number, itertools.count(1)

    def __call__(self, passed: Passed) -> Answer:
        if passed.method == "POST" and passed.writes([self._resource]) and next(self._numbers) == self._number:
            self.begun.set()
            self.may_end.wait(_SECONDS)
        return passed.send()


@pytest.fixture
def proxy(server: ApiServer) -> Iterator[ApiProxy]:
    with ApiProxy(server.api) as found:
        yield found


def test_ctrl_c_leaves_nothing_or_all(train: Train, proxy: ApiProxy, measured: Callable[[str], None]) -> None:
    """Ctrl-C at moments that are spread over the creation of 100 Services."""
    train.file.write_text(JOB.replace("ps: 2", "ps: 0").replace("workers: 3", "workers: 100"))
    left = []
    train.find_proxy(proxy)
    for _ in range(4):
        held = HeldCreation("services", len(left) * 27 + 1)
        proxy.fault = held
        process = subprocess.Popen(
            # As in a terminal: a shell has a program in the background ignore Ctrl-C, and pytest may be one.
            ["env", "--default-signal=INT", *train.command("up", "-f", str(train.file), "--no-wait")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert held.begun.wait(_SECONDS)
        process.send_signal(signal.SIGINT)
        held.may_end.set()
        process.communicate(timeout=_SECONDS)
        left.append(len(train.items(f"{CORE}{MINE}/configmaps")))
        assert process.returncode == 130
        wait_until_collected(train)
    measured(f"{len(left)} interrupted creations left {sum(left)} owners")

    assert left == [0, 0, 0, 0]


def test_down_waits_until_all_is_gone_and_ls_shows_it_until_then(train: Train) -> None:
    train.up()
    wait_until(lambda: len(phases(train.server)) == 5, _SECONDS, "the pods of all tasks")
    shown = train.run("ls")
    gone = train.run("down", "mnist")

    assert shown.stdout.splitlines()[1].split()[:3] == ["mnist", "mnist", "waiting"]
    assert (
        gone.stdout.splitlines()[0] == "job mnist in namespace mnist is gone: 5 services, 2 deployments, 3 jobs, 5 pods"
    )
    assert train.count() == dict.fromkeys(OBJECTS, 0)
    assert train.run("ls").stdout == "there is no job of railnet train\n"
    assert "there is no job mnist of railnet train" in train.run("down", "mnist").stderr


# A small program runs the one that is measured: until its execve, a process counts the memory of the process that made it (getrusage(2)).
MEASURED = """\
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime, used.ru_maxrss, file=sys.stderr)
"""
VIEW = """\
NODES             CPU  MEMORY  GPUS  RAILS
2 of 3 take pods  128   512Gi     2      8
requested           2    16Gi     2      4
free              126   496Gi     0      4

NAMESPACE  JOB    PODS  RUNNING    CPU    MEMORY  GPUS  RAILS
mnist                5        4  2+0.5  16Gi+4Gi   2+1    4+1
           mnist     5        4  2+0.5  16Gi+4Gi   2+1    4+1

mnist/mnist: 1 pod waits: Unschedulable: 0/3 nodes are available: """


def test_top_shows_requested_and_free_and_who_waits_for_what(
    train: Train, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The webhook gives each pod a rail, and the scheduler finds no room for one of them. The third node has no kubelet, and is cordoned."""
    room = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "1", "rdma/ib_vf": "4"}
    server = train.server
    server.remove_namespaces()  # pods of other tests would be shown, too
    with (
        Cluster(server, WEBHOOK, tmp_path_factory.mktemp("webhook")),
        some_nodes(server.api, [node(name, **room) for name in ("node-a", "node-b")]),
    ):
        absent = node("node-c", **room)
        absent["metadata"]["annotations"] = {}
        absent["spec"] = {"unschedulable": True}
        assert server.api.create(f"{CORE}/nodes", absent).status == 201
        train.file.write_text(JOB.replace("volumes: {checkpoints: /checkpoints}\n", ""))  # there is no such claim
        train.up()
        wait_until(lambda: phases(server) == ["Pending"] + ["Running"] * 4, _SECONDS, "four pods to run")

        wait_until(lambda: "1 pod waits" in train.run("top").stdout, _SECONDS, "the scheduler to say why a pod waits")
        shown = train.run("top").stdout
        assert shown[: len(VIEW)] == VIEW
        assert "2 Insufficient nvidia.com/gpu" in shown[len(VIEW) :]
        found = json.loads(train.run("top", "--json").stdout)
        assert (found["cluster"]["free"]["gpus"], found["jobs"][0]["wanted"]["rails"]) == (0, 1)
        listed = train.run("ls").stdout.splitlines()[1]
        assert "1 unscheduled" in listed
        assert "Unschedulable: 0/3 nodes are available" in listed
        train.run("down", "mnist")  # while the nodes are there: pods of a node that is gone stay for 40 s


def phases(server: ApiServer) -> list[str]:
    return sorted(one["status"]["phase"] for one in server.api.items(f"{CORE}{MINE}/pods"))


def test_kubeconfig_that_is_absent_or_wrong_is_named(train: Train, tmp_path: Path) -> None:
    absent = subprocess.run(
        [sys.executable, "-m", "railnet", "train", "ls"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": ""},
        timeout=_SECONDS,
    )
    assert (absent.returncode, absent.stderr.count("\n")) == (3, 1)
    assert "there is no kubeconfig" in absent.stderr
    assert "this is no pod of a cluster" in absent.stderr
    assert "Expected object with name absent" in train.run("ls", "--context", "absent").stderr


def test_many_pods_are_shown_page_by_page(train: Train, measured: Callable[[str], None]) -> None:
    train.up()
    wait_until(lambda: len(phases(train.server)) == 5, _SECONDS, "the pods of all tasks")
    (job, *_) = train.items(f"{BATCH}{MINE}/jobs")
    template = job["spec"]["template"]
    # Without the Job's UID among the labels: the Job controller takes only pods that have it.
    labels = {key: value for key, value in template["metadata"]["labels"].items() if not key.endswith("controller-uid")}
    count = 1000
    spec = {**template["spec"], "nodeName": "node-a"}
    train.server.put_all(
        "pods",
        [
            {"metadata": {"name": f"pod-{number}", "namespace": "mnist", "labels": labels}, "spec": spec}
            for number in range(count)
        ],
    )
    began = time.monotonic()
    top = subprocess.run(
        [sys.executable, "-c", MEASURED, *train.command("top")],
        capture_output=True,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    wall = time.monotonic() - began
    user_seconds, most_kib = (float(one) for one in top.stderr.split())
    measured(f"top of {count} pods: {wall:.1f} s, {user_seconds:.1f} s of a processor, {most_kib / 1024:.0f} MiB")

    train.server.delete_all("pods")
    assert f" {count + 5} " in top.stdout
    assert most_kib < 200 << 10
