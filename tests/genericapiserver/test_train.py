"""`railnet train` as a program, by a kubeconfig, against a new API server. No controllers run there: the test stands in for them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.process import wait_until
from tests.genericapiserver.api import JsonObject
from tests.genericapiserver.server import ApiServer

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


class Train:
    """The command with a kubeconfig of the server."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.server, self.file, self._folder = server, folder / "job.yaml", folder
        self.file.write_text(JOB)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "railnet", "train", *arguments, "--kubeconfig", str(self.server.kubeconfig)]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=_SECONDS)

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.run("up", "-f", str(self.file), "--no-wait")

    def count(self) -> dict[str, int]:
        return {path: len(self.items(path)) for path in OBJECTS}

    def items(self, path: str) -> list[JsonObject]:
        found: list[JsonObject] = self.server.api.get(path).object.get("items") or []
        return [one for one in found if "railnet.io/train" in (one["metadata"].get("labels") or {})]


class GarbageCollector:
    """Deletes what belongs to an owner that is gone, as kube-controller-manager does; a context manager."""

    def __init__(self, train: Train) -> None:
        self._train, self._ended = train, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(_SECONDS)
        self.collect()

    def collect(self) -> None:
        owners = {one["metadata"]["uid"] for one in self._train.items(f"{CORE}{MINE}/configmaps")}
        for path in (*OBJECTS, f"{CORE}{MINE}/pods"):
            for one in self._train.items(path):
                references = one["metadata"].get("ownerReferences") or ()
                if references and not {reference["uid"] for reference in references} & owners:
                    self._train.server.api.send("DELETE", f"{path}/{one['metadata']['name']}")

    def _run(self) -> None:
        while not self._ended.wait(0.2):
            self.collect()


@pytest.fixture
def train(server: ApiServer, tmp_path: Path) -> Iterator[Train]:
    server.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "iteration"}, "value": 1000})
    found = Train(server, tmp_path)
    yield found
    for path in (f"{CORE}/nodes", f"{CORE}{MINE}/pods", *OBJECTS):
        for one in server.api.get(path).object.get("items") or []:
            server.api.send("DELETE", f"{path}/{one['metadata']['name']}")
    server.api.send("DELETE", f"{CORE}/namespaces/mnist")


def test_up_creates_the_job_and_the_second_up_changes_nothing(train: Train) -> None:
    first = train.up()
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[-1] == "job mnist is created in namespace mnist"
    assert train.count() == OBJECTS
    before = {path: train.items(path) for path in OBJECTS}

    second = train.up()

    assert (second.returncode, second.stdout) == (0, "job mnist is up in namespace mnist already: nothing to change\n")
    assert {path: train.items(path) for path in OBJECTS} == before


def test_manifests_of_a_job_pass_strict_validation_without_a_warning(train: Train) -> None:
    """The API server names each field that it does not know, and each that it would drop."""
    train.up()
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
    train.server.api.create("/api/v1/namespaces", {"metadata": {"name": "mnist"}})
    foreign = {"containers": [{"name": "x", "image": "x"}], "restartPolicy": "Never"}
    train.server.api.create(
        f"{BATCH}{MINE}/jobs", {"metadata": {"name": "mnist-worker-2"}, "spec": {"template": {"spec": foreign}}}
    )
    with GarbageCollector(train):
        found = train.up()

    assert found.returncode == 1
    assert "Job mnist-worker-2 exists in namespace mnist and does not belong to this job" in found.stderr
    assert train.count() == dict.fromkeys(OBJECTS, 0)
    assert train.server.api.get(f"{BATCH}{MINE}/jobs/mnist-worker-2").status == 200


def test_ctrl_c_leaves_nothing_or_all(train: Train, measured: Callable[[str], None]) -> None:
    """Ctrl-C at moments that are spread over the creation of 300 Services and 300 Jobs."""
    train.file.write_text(JOB.replace("ps: 2", "ps: 0").replace("workers: 3", "workers: 300"))
    left = []
    for _ in range(4):
        process = subprocess.Popen(
            # As in a terminal: a shell has a program in the background ignore Ctrl-C, and pytest may be one.
            ["env", "--default-signal=INT", *train.command("up", "-f", str(train.file), "--no-wait")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        services = len(left) * 80 + 1
        wait_until(
            lambda wanted=services: len(train.items(f"{CORE}{MINE}/services")) >= wanted,
            _SECONDS,
            f"{services} Services",
        )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=_SECONDS)
        left.append(len(train.items(f"{CORE}{MINE}/configmaps")))
        GarbageCollector(train).collect()
        assert process.returncode == 130
        assert train.count() == dict.fromkeys(OBJECTS, 0)
    measured(f"{len(left)} interrupted creations left {sum(left)} owners")

    assert left == [0, 0, 0, 0]


def test_down_waits_until_all_is_gone_and_ls_shows_it_until_then(train: Train) -> None:
    train.up()
    shown = train.run("ls")
    with GarbageCollector(train):
        gone = train.run("down", "mnist")

    assert shown.stdout.splitlines()[1].split()[:3] == ["mnist", "mnist", "waiting"]
    assert gone.stdout.splitlines()[0] == "job mnist in namespace mnist is gone: 5 services, 2 deployments, 3 jobs"
    assert train.count() == dict.fromkeys(OBJECTS, 0)
    assert train.run("ls").stdout == "there is no job of railnet train\n"
    assert "there is no job mnist of railnet train" in train.run("down", "mnist").stderr


def node(server: ApiServer, name: str, allocatable: Mapping[str, str], *, ready: bool = True) -> None:
    server.api.create(f"{CORE}/nodes", {"metadata": {"name": name}})
    conditions = [{"type": "Ready", "status": str(ready)}]
    server.api.merge(f"{CORE}/nodes/{name}/status", {"status": {"allocatable": allocatable, "conditions": conditions}})


def delete_pods(server: ApiServer) -> None:
    """Delete the pods of all namespaces: other tests leave theirs, and `top` shows all."""
    for pod in server.api.get(f"{CORE}/pods").object["items"]:
        metadata = pod["metadata"]
        server.api.send(
            "DELETE", f"{CORE}/namespaces/{metadata['namespace']}/pods/{metadata['name']}?gracePeriodSeconds=0"
        )


def pods_of(train: Train) -> None:
    """Make the pods of all tasks, as the controllers, the webhook, the scheduler and kubelet would; one finds no room."""
    makers = [*train.items(f"{APPS}{MINE}/deployments"), *train.items(f"{BATCH}{MINE}/jobs")]
    for maker in makers:
        template, name = maker["spec"]["template"], maker["metadata"]["name"]
        (container,) = template["spec"]["containers"]
        resources = {key: {**value, "rdma/ib_vf": "1"} for key, value in container["resources"].items()}
        waits = name == "mnist-worker-2"
        spec: JsonObject = {**template["spec"], "containers": [{**container, "resources": resources}]}
        metadata = {**template["metadata"], "name": f"{name}-x"}
        where = {} if waits else {"nodeName": "node-a" if "ps" in name else "node-b"}
        train.server.api.create(f"{CORE}{MINE}/pods", {"metadata": metadata, "spec": {**spec, **where}})
        train.server.api.merge(
            f"{CORE}{MINE}/pods/{name}-x/status", {"status": UNSCHEDULABLE if waits else {"phase": "Running"}}
        )


# A small program runs the one that is measured: until its execve, a process counts the memory of the process that made it (getrusage(2)).
MEASURED = """\
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime, used.ru_maxrss, file=sys.stderr)
"""
UNSCHEDULABLE: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.",
        }
    ],
}
VIEW = """\
NODES             CPU  MEMORY  GPUS  RAILS
2 of 3 take pods  128   512Gi     2      8
requested           2    16Gi     2      4
free              126   496Gi     0      4

NAMESPACE  JOB    PODS  RUNNING    CPU    MEMORY  GPUS  RAILS
mnist                5        4  2+0.5  16Gi+4Gi   2+1    4+1
           mnist     5        4  2+0.5  16Gi+4Gi   2+1    4+1

mnist/mnist: 1 pod waits: Unschedulable: 0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.
"""


def test_top_shows_requested_and_free_and_who_waits_for_what(train: Train) -> None:
    room = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "1", "rdma/ib_vf": "4"}
    delete_pods(train.server)
    for name, ready in (("node-a", True), ("node-b", True), ("node-c", False)):
        node(train.server, name, room, ready=ready)
    train.up()
    pods_of(train)

    assert train.run("top").stdout == VIEW
    found = json.loads(train.run("top", "--json").stdout)
    assert (found["cluster"]["free"]["gpus"], found["jobs"][0]["wanted"]["rails"]) == (0, 1)
    listed = train.run("ls").stdout.splitlines()[1]
    assert "2 running, 1 unscheduled" in listed
    assert "worker-2: Unschedulable: 0/3 nodes are available" in listed


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
    (job, *_) = train.items(f"{BATCH}{MINE}/jobs")
    template = job["spec"]["template"]
    count = 1000
    for number in range(count):
        metadata = {**template["metadata"], "name": f"pod-{number}"}
        train.server.api.create(
            f"{CORE}{MINE}/pods", {"metadata": metadata, "spec": {**template["spec"], "nodeName": "node-a"}}
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

    assert f" {count} " in top.stdout
    assert most_kib < 200 << 10
