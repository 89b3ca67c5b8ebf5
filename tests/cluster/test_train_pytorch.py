"""A PyTorch job of four ranks by `railnet train init` and `up`, with the real torchrun: all-reduce over net1, and workers that are killed.

Each fixture is a step of one run, and says what was seen of it.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from railnet.train import job_template
from tests.cluster import pytorch
from tests.cluster.admission_on_node import Admission
from tests.cluster.controllers_on_node import Controllers
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.pod_networks import net1
from tests.cluster.pods import RESOURCE
from tests.cluster.process import wait_until
from tests.cluster.train_jobs import CLAIM, MOUNT, NAMESPACE, Tasks, claimed_folder, train

_SECONDS = 400.0  # four that import PyTorch at once on two processors, twice after a restart
_JOB = "ranks"
_WORKERS = tuple(f"worker-{index}" for index in range(4))
_LITTLE = 2 << 20  # what may go over eth0: questions to the DNS, for as long as a peer is awaited
_CHANGES: dict[str, Any] = {
    "namespace": NAMESPACE,
    "image": pytorch.NAME,
    "workers": len(_WORKERS),
    "gpus": 1,
    "rails": 1,
    "cpu": "50m",
    "memory": "1Gi",
    "command": pytorch.checkpointed(f"{MOUNT}/{_JOB}", f"{MOUNT}/hold"),
    "volumes": {CLAIM: MOUNT},
    "env": pytorch.DEBIANS_TORCHRUN,
}


class Job(NamedTuple):
    """The job while it runs.

    Attributes:
        said: what `up --dry-run=server` and `up` printed.
        pods: by task.
    """

    node: ClusterNode
    folder: Path
    said: tuple[str, str]
    tasks: Tasks
    pods: dict[str, dict[str, Any]]

    def steps(self) -> list[int]:
        """Return the step of each rank's checkpoint; 0 before there is one."""
        files = [self.folder / _JOB / f"rank-{rank}" for rank in range(len(_WORKERS))]
        return [int(file.read_text()) if file.exists() else 0 for file in files]

    def ranks(self, word: str) -> list[int]:
        """Return the last step at which each worker said that it `started` or `resumed`; -1 if it did not."""
        found = [re.findall(rf"{word} at step (\d+) as rank", self.tasks.log(task)) for task in _WORKERS]
        return [int(steps[-1]) if steps else -1 for steps in found]


@pytest.fixture(scope="module")
def cluster(shared_node: ClusterNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterNode, Path]]:
    """Install all; nothing may be left over after all tests."""
    shared_node.railnet.start()
    shared_node.wait_for_vfs(VFS * len(PFS))
    folder = tmp_path_factory.mktemp("checkpoints")
    shared_node.containerd.load(Path(os.environ["RAILNET_TORCH_IMAGE"]))
    with shared_node.joined_rails(), Admission(shared_node), Controllers(shared_node):
        shared_node.kubectl.apply(*claimed_folder(folder))
        yield shared_node, folder
        shared_node.kubectl.run("delete", f"persistentvolumeclaim/{CLAIM}", f"--namespace={NAMESPACE}")
        shared_node.kubectl.run("delete", f"persistentvolume/{CLAIM}", f"namespace/{NAMESPACE}", "--wait=false")
    wait_until(
        lambda: not shared_node.kubectl.answers("get", f"namespace/{NAMESPACE}"), _SECONDS, "the namespace's end"
    )
    shared_node.containerd.forget(pytorch.NAME)
    assert shared_node.left_over() == []


@pytest.fixture(scope="module")
def job(cluster: tuple[ClusterNode, Path], measured: Callable[[str], None]) -> Job:
    node, folder = cluster
    (folder / _JOB).mkdir()
    (folder / "hold").touch()
    file = folder / "job.yaml"
    job_template.write("pytorch", _JOB, str(file), force=False)  # `init` takes no kubeconfig, which `train` gives
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **_CHANGES}))
    dry = _train("up", "-f", str(file), "--dry-run=server")
    began = time.monotonic()
    said = _train("up", "-f", str(file))
    measured(f"railnet train up until four workers run: {time.monotonic() - began:.1f} s")
    tasks = Tasks(node.kubectl, _JOB)
    found = Job(node, folder, (dry, said), tasks, {})
    wait_until(lambda: min(found.steps()) > 3, _SECONDS, "steps of all ranks")
    measured(f"… and have added up three times: {time.monotonic() - began:.1f} s")
    return found._replace(pods=tasks.pods())


@pytest.fixture(scope="module")
def resumed(job: Job, measured: Callable[[str], None]) -> dict[str, tuple[int, list[int], dict[str, int]]]:
    """Kill a worker, then the one where all meet: the step before, the steps from which the ranks went on, and restarts of containers."""
    return {task: _killed(job, task, measured) for task in ("worker-2", "worker-0")}


@pytest.fixture(scope="module")
def ended(job: Job, resumed: object, measured: Callable[[str], None]) -> dict[str, dict[str, int]]:
    """Let the job end, and return the bytes that each worker's interfaces have carried."""
    (job.folder / "hold").unlink()
    wait_until(lambda: "completed" in _train("ls", f"--namespace={NAMESPACE}"), _SECONDS, "the job to be completed")
    logs = {task: job.tasks.log(task) for task in _WORKERS}
    carried = {
        task: {
            name: int(received) + int(sent) for name, received, sent in re.findall(r"carried (\w+) (\d+) (\d+)", log)
        }
        for task, log in logs.items()
    }
    measured(f"all-reduce by torchrun: {carried}")
    _train("down", _JOB, f"--namespace={NAMESPACE}")
    return carried


def _train(*arguments: str) -> str:
    done = train(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _killed(job: Job, task: str, measured: Callable[[str], None]) -> tuple[int, list[int], dict[str, int]]:
    before, began = min(job.steps()), time.monotonic()
    job.node.containerd.kill_container(job.tasks.pod(task))
    wait_until(lambda: min(job.steps()) > before + 5, _SECONDS, f"all ranks to go on after the end of {task}")
    steps, restarts = job.ranks("resumed"), {name: _restarts(pod) for name, pod in job.tasks.pods().items()}
    measured(
        f"{task} killed at step {before}: all go on after {time.monotonic() - began:.1f} s, {steps}, restarts {restarts}"
    )
    return before, steps, restarts


def _restarts(pod: dict[str, Any]) -> int:
    return sum(int(status["restartCount"]) for status in pod["status"]["containerStatuses"])


def test_api_server_takes_the_job_that_init_wrote(job: Job) -> None:
    dry, said = job.said

    assert dry.splitlines() == [
        f"ConfigMap {_JOB} in namespace {NAMESPACE}",
        *(f"Job {_JOB}-{task} in namespace {NAMESPACE}" for task in _WORKERS),
    ]
    assert f"job {_JOB}: running after" in said.splitlines()[-1]


def test_each_worker_has_a_rail_and_four_ranks_have_met(job: Job) -> None:
    limits = {task: pod["spec"]["containers"][0]["resources"]["limits"] for task, pod in job.pods.items()}

    assert {task: found[RESOURCE] for task, found in limits.items()} == dict.fromkeys(_WORKERS, "1")
    assert len({net1(pod) for pod in job.pods.values()}) == len(_WORKERS)
    assert job.ranks("started") == [0] * len(_WORKERS)


@pytest.mark.parametrize("task", ["worker-2", "worker-0"])
def test_all_go_on_after_their_checkpoint_when_a_worker_was_killed(
    resumed: dict[str, tuple[int, list[int], dict[str, int]]], task: str
) -> None:
    before, steps, restarts = resumed[task]

    assert len(set(steps)) == 1
    assert steps[0] >= before > 3
    assert restarts[task] > 0


def test_torchrun_of_the_others_outlives_a_worker(resumed: dict[str, tuple[int, list[int], dict[str, int]]]) -> None:
    """Only the worker that was killed has a new container: the others' torchrun starts their processes again."""
    assert resumed["worker-2"][2] == {"worker-0": 0, "worker-1": 0, "worker-2": 1, "worker-3": 0}


def test_all_reduce_goes_over_net1_alone(ended: dict[str, dict[str, int]]) -> None:
    assert all(carried["net1"] > 20 * 4 * pytorch.SIDE for carried in ended.values())
    assert all(carried["eth0"] < _LITTLE for carried in ended.values())
