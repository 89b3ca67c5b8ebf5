"""The article's job by `railnet train up`, with admission helper and controllers: names on net1, sticky addresses, clean-up.

Each fixture is a step of one run, and says what was seen of it: a run takes a minute.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from simnode.waiting import until_empty
from tests.cluster import kube_proxy
from tests.cluster.admission_on_node import Admission
from tests.cluster.controllers_on_node import Controllers
from tests.cluster.manifests import ROOT
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.pod_networks import Traffic, net1
from tests.cluster.pods import RESOURCE
from tests.cluster.process import until_found, wait_until
from tests.cluster.train_jobs import CLAIM, MOUNT, NAMESPACE, Tasks, claimed_folder, job_file, train
from tests.stand_ins.toy_trainer import Checkpoint

_SECONDS = 240.0
_LOOK_SECONDS = 0.5
# Five are promised for all of it. A busy machine may need more; and the pods of a Deployment are the garbage collector's to delete, which
# stands still for up to a minute after an earlier test has made a new kind of object.
_CLEAN_UP_SECONDS = 60.0
_STEPS, _BYTES = 60, 128 << 10  # steps of each worker, and what it sends with each step to each parameter server
# What may go over eth0: questions to the DNS, 14 KiB each second while peers have not started. It is less than the steps that are waited for.
_LITTLE = 1 << 20  # what may go over eth0: questions to the DNS, for as long as a peer is awaited, and the look at it
_SERVERS, _WORKERS = ("ps-0", "ps-1"), ("worker-0", "worker-1", "worker-2")
_OPTIONS = (f"--steps={_STEPS}", "--step-seconds=0.2", f"--bytes={_BYTES}", f"--hold={MOUNT}/hold")
_JOBS = ("mnist", "cifar", "late")
_STICKY = {"railnet.io/sticky": "true"}
Objects = list[dict[str, Any]]


class Cluster(NamedTuple):
    """The node with helper and controllers, and the folder that is the jobs' volume."""

    node: ClusterNode
    controllers: Controllers
    folder: Path

    def objects(self, kinds: str, job: str = "") -> Objects:
        """Return the objects of a job of these kinds; without a job, all."""
        found: Objects = self.node.kubectl.get(kinds, f"--namespace={NAMESPACE}")
        return [one for one in found if one["metadata"]["name"].startswith(job)]

    def names(self, kinds: str, job: str) -> set[str]:
        return {f"{one['kind']} {one['metadata']['name']}" for one in self.objects(kinds, job)}


class Running(NamedTuple):
    """The job mnist while all of it runs.

    Attributes:
        said: what `up` printed.
        pods: by task.
        resolved: what the names of each task lead to: its own, and that of its pod below the job's.
        slices: of the namespace.
        forwarded: the Services of the namespace for which kube-proxy has rules.
        carried: the bytes that the fabrics carried.
    """

    said: str
    tasks: Tasks
    pods: dict[str, dict[str, Any]]
    resolved: dict[str, list[set[str]]]
    traffic: dict[str, Traffic]
    slices: Objects
    forwarded: set[str]
    carried: int

    @property
    def addresses(self) -> dict[str, str]:
        """On net1, by task."""
        return {task: net1(pod) for task, pod in self.pods.items()}


class Names(NamedTuple):
    """A part of `Running`, as one look saw it."""

    pods: dict[str, dict[str, Any]]
    slices: Objects
    resolved: dict[str, list[set[str]]]

    @property
    def complete(self) -> bool:
        """Whether there is an address for each name; which one is the tests' to say."""
        endpoints = [endpoint for one in self.slices for endpoint in one["endpoints"] or ()]
        has_addresses = all(net1(pod) for pod in self.pods.values())
        return has_addresses and len(endpoints) == 2 * len(self.pods) and all(map(all, self.resolved.values()))


class Resumed(NamedTuple):
    """The job after the container of worker-1 was killed, and the pod of worker-2 deleted.

    Attributes:
        steps: in the checkpoints at that moment, by task.
        before, after: the pods.
        logs: of the workers' new containers.
    """

    steps: dict[str, int]
    before: dict[str, dict[str, Any]]
    after: dict[str, dict[str, Any]]
    logs: dict[str, str]


class Finished(NamedTuple):
    """After all workers of mnist were complete, and worker-0 of cifar had failed.

    Attributes:
        gone: how many seconds after the last worker's end nothing of a kind was left of mnist.
        kept: what was left of cifar then.
        events: what was said about a job, by reason.
    """

    gone: dict[str, float]
    kept: set[str]
    events: dict[str, str]


@pytest.fixture(scope="module")
def cluster(
    shared_node: ClusterNode, tmp_path_factory: pytest.TempPathFactory, measured: Callable[[str], None]
) -> Iterator[Cluster]:
    """Install all; nothing may be left over after all tests."""
    shared_node.railnet.start()
    shared_node.wait_for_vfs(VFS * len(PFS))
    folder = tmp_path_factory.mktemp("checkpoints")
    began = time.monotonic()
    with shared_node.joined_rails(), Admission(shared_node), Controllers(shared_node) as controllers:
        measured(f"admission helper and controllers installed: {time.monotonic() - began:.1f} s")
        shared_node.kubectl.apply(*claimed_folder(folder))
        wait_until(lambda: _is_bound(shared_node), _SECONDS, "the claim to be bound")
        yield Cluster(shared_node, controllers, folder)
        began = time.monotonic()
        # The claim first: a namespace that it keeps is looked at seldom.
        shared_node.kubectl.run("delete", f"persistentvolumeclaim/{CLAIM}", f"--namespace={NAMESPACE}")
        shared_node.kubectl.run("delete", f"persistentvolume/{CLAIM}", f"namespace/{NAMESPACE}", "--wait=false")
    wait_until(
        lambda: not shared_node.kubectl.answers("get", f"namespace/{NAMESPACE}"), _SECONDS, "the namespace's end"
    )
    measured(f"… and taken away: {time.monotonic() - began:.1f} s")
    assert shared_node.left_over() == []


@pytest.fixture(scope="module")
def running(cluster: Cluster, measured: Callable[[str], None]) -> Running:
    """Bring up mnist, and cifar, a smaller job without retries: seven of eight rails."""
    (cluster.folder / "hold").touch()
    before = sum(fabric.counters.bytes for fabric in cluster.node.fabrics)
    began = time.monotonic()
    files = [
        job_file(cluster.folder, "mnist", *_OPTIONS, ps=2, workers=3, annotations=_STICKY),
        job_file(cluster.folder, "cifar", *_OPTIONS, ps=1, workers=1, retries=0),
    ]
    done = _train(*(("up", "-f", str(file)) for file in files))
    measured(f"railnet train up until two jobs run: {time.monotonic() - began:.1f} s\n{done[0]}")
    tasks = Tasks(cluster.node.kubectl, "mnist")
    checkpoints = [Checkpoint(cluster.folder / "mnist", name) for name in _WORKERS]
    wait_until(lambda: all(one.read() > 3 for one in checkpoints), _SECONDS, "steps of all workers")
    # The job runs before all names exist: workers need the names of the parameter servers alone.
    names = until_found(lambda: _complete_names(cluster, tasks), _SECONDS, "the names of all tasks and pods")
    return Running(
        said=done[0],
        tasks=tasks,
        **names._asdict(),
        traffic={task: tasks.traffic(task) for task in (*_SERVERS, *_WORKERS)},
        forwarded={name for name in kube_proxy.services() if name.startswith(f"{NAMESPACE}/")},
        carried=sum(fabric.counters.bytes for fabric in cluster.node.fabrics) - before,
    )


@pytest.fixture(scope="module")
def views(running: Running, cluster: Cluster, measured: Callable[[str], None]) -> dict[str, str]:
    """What `top` and `ls` show while a third job waits for two rails."""
    _train(("up", "-f", str(job_file(cluster.folder, "late", ps=0, workers=1, rails=2)), "--no-wait"))
    late = Tasks(running.tasks.kubectl, "late")
    wait_until(lambda: "conditions" in late.pods().get("worker-0", {}).get("status", {}), _SECONDS, "a pod to wait")
    found = dict(zip(("top", "ls"), _train(("top",), ("ls",)), strict=True))
    for verb, text in found.items():
        measured(f"railnet train {verb}:\n{text}")
    return found


@pytest.fixture(scope="module")
def resumed(running: Running, views: dict[str, str], cluster: Cluster, measured: Callable[[str], None]) -> Resumed:
    tasks, kubectl = running.tasks, cluster.node.kubectl
    before = tasks.pods()
    reached = {task: _reached(tasks, task) for task in ("worker-1", "worker-2")}
    steps = {task: Checkpoint(cluster.folder / "mnist", task).read() for task in reached}
    began = time.monotonic()
    cluster.node.containerd.kill_container(tasks.pod("worker-1"))
    kubectl.run("delete", "pod", tasks.pod("worker-2"), f"--namespace={NAMESPACE}", "--wait=false")
    for task in reached:
        wait_until(lambda one=task: "resumed" in tasks.log(one), _SECONDS, f"{task} to resume")
        measured(f"{task} goes on {time.monotonic() - began:.1f} s after its end")
        wait_until(lambda one=task: _reached(tasks, one) > reached[one], _SECONDS, f"worker-0 to reach {task} again")
    wait_until(lambda: bool(net1(tasks.pods()["worker-2"])), _SECONDS, "the new pod's network-status")
    return Resumed(steps, before, tasks.pods(), {task: tasks.log(task) for task in _WORKERS})


@pytest.fixture(scope="module")
def finished(resumed: Resumed, cluster: Cluster, measured: Callable[[str], None]) -> Finished:
    cluster.node.containerd.kill_container(Tasks(cluster.node.kubectl, "cifar").pod("worker-0"))
    wait_until(lambda: _ended(cluster, "cifar", "Failed") == 1, _SECONDS, "worker-0 of cifar to fail")
    (cluster.folder / "hold").unlink()
    wait_until(lambda: _ended(cluster, "mnist", "Complete") == len(_WORKERS), _SECONDS, "the workers to complete")
    gone = _gone(cluster, time.monotonic())
    measured("after the last worker's end: " + ", ".join(f"{kind} gone {after:.1f} s" for kind, after in gone.items()))
    wait_until(lambda: "ParameterServersStay" in _events(cluster), _SECONDS, "an event about cifar")
    return Finished(gone, cluster.names("deployments,pods,services,endpointslices", "cifar-ps-0"), _events(cluster))


@pytest.fixture(scope="module")
def removed(finished: Finished, cluster: Cluster, measured: Callable[[str], None]) -> tuple[dict[str, str], list[str]]:
    """The table of sticky addresses before the jobs were removed, and what was left of them when it had had time to go.

    `down` waits for pods and all that `railnet train` made, and not for what Kubernetes' and Railnet's controllers made of it.
    """
    table = cluster.controllers.table()
    began = time.monotonic()
    _train(*(("down", job, f"--namespace={NAMESPACE}") for job in _JOBS))
    measured(f"railnet train down: {time.monotonic() - began:.1f} s")
    wait_until(lambda: not cluster.controllers.table(), _SECONDS, "the addresses to be free")
    return table, until_empty(lambda: _left(cluster), _SECONDS, _LOOK_SECONDS)


def _complete_names(cluster: Cluster, tasks: Tasks) -> Names | None:
    """Return the job's names if all of them exist."""
    pods, slices = tasks.pods(), cluster.objects("endpointslices", "mnist")
    resolved = {
        task: [
            cluster.node.dns.addresses(f"{name}.{NAMESPACE}.svc")
            for name in (f"mnist-{task}", f"{pod['metadata']['name']}.mnist-net1")
        ]
        for task, pod in pods.items()
    }
    names = Names(pods, slices, resolved)
    return names if names.complete else None


def _train(*commands: Sequence[str]) -> list[str]:
    """Run commands at the same time, which must succeed; return what each printed."""
    with ThreadPoolExecutor(len(commands)) as threads:
        done = list(threads.map(lambda command: train(*command), commands))
    assert [one.returncode for one in done] == [0] * len(done), [one.stderr for one in done]
    return [one.stdout for one in done]


def _is_bound(node: ClusterNode) -> bool:
    claim = node.kubectl.get(f"persistentvolumeclaim/{CLAIM}", f"--namespace={NAMESPACE}")
    return bool(claim["status"].get("phase") == "Bound")


def _reached(tasks: Tasks, task: str) -> int:
    return tasks.log("worker-0").count(f"reached {task} at ")


def _left(cluster: Cluster) -> list[str]:
    """Name what there is of the jobs."""
    found = cluster.objects("deployments,replicasets,jobs,pods,services,endpointslices,configmaps")
    names = [f"{one['kind']} {one['metadata']['name']}" for one in found]
    return [name for name in names if any(job in name for job in _JOBS)]


def _ended(cluster: Cluster, job: str, condition: str) -> int:
    """Count the Jobs that have a condition."""
    found = cluster.objects("jobs", job)
    return sum(any(one["type"] == condition for one in job["status"].get("conditions", ())) for job in found)


def _gone(cluster: Cluster, began: float) -> dict[str, float]:
    """Wait until parameter servers, Services and slices of mnist are gone; return after how many seconds each was."""
    gone: dict[str, float] = {}

    def look() -> bool:
        left = cluster.objects("deployments,pods,services,endpointslices", "mnist")
        kinds = {
            "parameter servers": [one for one in left if one["kind"] == "Deployment"],
            "their containers": [one for one in left if one["kind"] == "Pod" and _serves(one)],
            "Services": [one for one in left if one["kind"] == "Service"],
            "slices": [one for one in left if one["kind"] == "EndpointSlice"],
        }
        for kind, found in kinds.items():
            if not found:
                gone.setdefault(kind, time.monotonic() - began)
        return len(gone) == len(kinds)

    wait_until(look, _SECONDS, "parameter servers, Services and slices to be gone")
    return gone


def _serves(pod: dict[str, Any]) -> bool:
    """Tell whether a pod is a parameter server whose container runs; kubelet lets go of the pod a little later."""
    states = [one["state"] for one in pod["status"].get("containerStatuses", ())]
    return pod["metadata"]["labels"]["job"] == "ps" and any("running" in state for state in states)


def _events(cluster: Cluster) -> dict[str, str]:
    return {one["reason"]: one["message"] for one in cluster.objects("events")}


def test_up_waits_until_the_job_runs(running: Running) -> None:
    assert "job mnist is created in namespace ml" in running.said
    assert "job mnist: running after" in running.said.splitlines()[-1]


def test_each_task_asks_for_one_rail_by_the_webhook(running: Running) -> None:
    limits = {task: pod["spec"]["containers"][0]["resources"]["limits"] for task, pod in running.pods.items()}

    assert {task: found[RESOURCE] for task, found in limits.items()} == dict.fromkeys((*_SERVERS, *_WORKERS), "1")


def test_names_of_tasks_and_pods_lead_to_net1(running: Running) -> None:
    found = {
        one["metadata"]["labels"]["kubernetes.io/service-name"]: [
            address for endpoint in one["endpoints"] for address in endpoint["addresses"]
        ]
        for one in running.slices
    }

    assert {one["apiVersion"] for one in running.slices} == {"discovery.k8s.io/v1"}
    assert all(address.startswith("10.58.") for address in running.addresses.values())
    assert sorted(found.pop("mnist-net1")) == sorted(running.addresses.values())
    assert found == {f"mnist-{task}": [address] for task, address in running.addresses.items()}
    assert running.resolved == {task: [{address}] * 2 for task, address in running.addresses.items()}


def test_tasks_talk_over_net1_alone(running: Running) -> None:
    every = set(running.addresses.values())
    servers = {running.addresses[task] for task in _SERVERS}
    for task in _WORKERS:
        connections, carried = running.traffic[task]
        assert {address for pair in connections for address in pair} <= every
        assert servers <= {remote for _, remote in connections}
        assert carried["net1"] > 3 * len(_SERVERS) * _BYTES
        assert carried["eth0"] < _LITTLE
    assert running.carried > 3 * len(_SERVERS) * len(_WORKERS) * _BYTES


def test_no_rule_of_kube_proxy_is_made_for_names_of_tasks(running: Running) -> None:
    assert running.forwarded == set()


def test_top_shows_both_jobs_and_what_the_third_waits_for(views: dict[str, str]) -> None:
    lines = [line.split() for line in views["top"].splitlines()]

    assert lines[0] == ["NODES", "CPU", "MEMORY", "GPUS", "RAILS"]
    assert [line[-2:] for line in lines[1:4]] == [["8", "8"], ["4", "7"], ["4", "1"]]
    assert {tuple(line[:3]) for line in lines} >= {("mnist", "5", "5"), ("cifar", "2", "2"), ("late", "1", "0")}
    assert "ml/late: 1 pod waits: Unschedulable: 0/" in views["top"]
    assert " nodes are available: 1 Insufficient rdma/ib_vf" in views["top"]
    assert {tuple(line.split()[:3]) for line in views["ls"].splitlines()} >= {
        ("ml", "mnist", "running"),
        ("ml", "cifar", "running"),
    }


def test_page_has_what_top_and_ls_print_here(views: dict[str, str]) -> None:
    """The table of nodes, which has this machine's processors and memory, is left out."""
    page = (ROOT / "docs/training/train.md").read_text()

    assert views["ls"] in page
    assert views["top"].partition("\n\n")[2] in page


@pytest.mark.parametrize("task", ["worker-1", "worker-2"])
def test_killed_worker_goes_on_after_its_checkpoint(resumed: Resumed, task: str) -> None:
    (line,) = [line for line in resumed.logs[task].splitlines() if line.startswith("resumed at step")]

    assert int(line.split()[-1]) >= resumed.steps[task] > 3
    assert "started at step 0" not in resumed.logs[task]


def test_new_pod_has_the_address_of_its_rank_and_no_other_pod_was_made_again(resumed: Resumed) -> None:
    pods = [{task: pod["metadata"]["uid"] for task, pod in found.items()} for found in (resumed.before, resumed.after)]
    addresses = [{task: net1(pod) for task, pod in found.items()} for found in (resumed.before, resumed.after)]

    assert {task for task in pods[0] if pods[0][task] != pods[1][task]} == {"worker-2"}
    assert addresses[0] == addresses[1]
    assert f"reached worker-2 at {addresses[1]['worker-2']}:" in resumed.logs["worker-0"]


def test_parameter_servers_and_names_go_when_all_workers_are_complete(finished: Finished) -> None:
    assert finished.gone.keys() == {"parameter servers", "their containers", "Services", "slices"}
    assert finished.gone["parameter servers"] < _CLEAN_UP_SECONDS
    assert "all 3 workers are complete; deleted Deployment mnist-ps-0" in finished.events["ParameterServersDeleted"]


def test_failed_worker_keeps_its_parameter_server(finished: Finished) -> None:
    assert {name.rpartition("-ps-0")[0] for name in finished.kept} == {
        f"{kind} cifar" for kind in ("Deployment", "Pod", "Service", "EndpointSlice")
    }
    assert "the parameter servers of cifar stay: Job cifar-worker-0 failed" in finished.events["ParameterServersStay"]


def test_garbage_collector_removes_what_the_jobs_owned(removed: tuple[dict[str, str], list[str]]) -> None:
    table, left = removed

    assert "mnist" in table["staying"]
    assert left == []


def test_roles_give_the_controllers_each_right_that_they_used(
    removed: tuple[dict[str, str], list[str]], cluster: Cluster, measured: Callable[[str], None]
) -> None:
    requests = cluster.controllers.requests()
    measured(f"requests of the controllers: {requests}")

    assert {key: count for key, count in requests.items() if key[2] == "failed"} == {}
    assert "forbidden" not in cluster.controllers.log()
    assert {(verb, resource) for verb, resource, _ in requests} >= {
        ("create", "endpointslices"),
        ("delete", "deployments"),
        ("patch", "pods"),
        ("create", "configmaps"),
        ("update", "configmaps"),
        ("get", "configmaps"),
    }
