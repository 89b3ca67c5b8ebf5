"""The article's TFJob from its start to its end, of which a worker may be killed while all of them train."""

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.node import ClusterNode
from tests.cluster.process import wait_until
from tests.cluster.tfjob import TfJob, articles_job
from tests.stand_ins.toy_trainer import Checkpoint

STEPS = 30
SERVERS = [f"mnist-ps-{index}" for index in range(2)]
WORKERS = [f"mnist-worker-{index}" for index in range(3)]
KILLED = WORKERS[1]
_PEER, _TASK = WORKERS[0], "worker-1"
_SECONDS = 240.0

Pods = Mapping[str, dict[str, Any]]


class Trained(NamedTuple):
    """A job whose workers are complete.

    Attributes:
        before: its pods, by name, when all of them trained.
        after: its pods at the end.
        services: its Services at the end, by name.
        logs: what its pods said, by name.
        reached: where worker-0 reached worker-1, each time that it connected, as `address:port`.
        refusals: what the API server said to the operator when a webhook refused something.
    """

    before: Pods
    after: Pods
    services: Mapping[str, dict[str, Any]]
    logs: Mapping[str, str]
    reached: tuple[str, ...]
    refusals: tuple[str, ...]

    def made_again(self) -> set[str]:
        """Name the pods that are not those that trained first."""
        return {name for name in self.before if _uid(self.before, name) != _uid(self.after, name)}


def train(
    node: ClusterNode,
    folder: Path,
    *,
    annotations: Mapping[str, str] | None = None,
    described: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
    labels: Mapping[str, str] | None = None,
    kill: bool,
) -> Trained:
    """Run the article's job with these annotations, as another operator's job if `described` makes it so.

    Args:
        node: where it runs.
        folder: an empty one, for checkpoints.
        annotations: of the job.
        described: makes another operator's job of it.
        labels: of its namespace.
        kill: whether worker-1's container is killed; its peers must have reached it before, and again afterwards.
    """
    hold = folder / "hold"
    hold.touch()
    job = described(articles_job(folder, f"--steps={STEPS}", "--hold=/train/hold", annotations=annotations))
    with TfJob(node.kubectl, job, labels) as running:
        try:
            return _train(node, running, folder, kill=kill)
        except (TimeoutError, subprocess.CalledProcessError) as error:
            error.add_note(
                "\n".join(
                    [*running.refusals[-3:], *(f"{name}: {one['status']}" for name, one in running.pods().items())]
                )
            )
            raise


def _train(node: ClusterNode, job: TfJob, folder: Path, *, kill: bool) -> Trained:
    wait_until(lambda: Checkpoint(folder, _TASK).read() > 3, _SECONDS, f"steps of {_TASK}")
    wait_until(lambda: bool(_reached(job)), _SECONDS, f"{_PEER} to have reached {_TASK}")
    before = _running(job)
    if kill:
        _kill(node, job)
    (folder / "hold").unlink()
    wait_until(lambda: _complete(job), _SECONDS, "the workers to complete")
    return Trained(
        before,
        job.pods(),
        job.services(),
        {name: job.log(name) for name in (*SERVERS, *WORKERS)},
        _reached(job),
        tuple(job.refusals),
    )


def _running(job: TfJob) -> Pods:
    """Return the job's pods when kubelet has reported that each of them runs."""
    wait_until(lambda: _phases(job) == dict.fromkeys((*SERVERS, *WORKERS), "Running"), _SECONDS, "all pods to run")
    return job.pods()


def _kill(node: ClusterNode, job: TfJob) -> None:
    reached = len(_reached(job))
    node.containerd.kill_container(KILLED)
    wait_until(lambda: "resumed at step" in job.log(KILLED), _SECONDS, f"{_TASK} to resume")
    wait_until(lambda: len(_reached(job)) > reached, _SECONDS, f"{_PEER} to reach {_TASK} again")


def _reached(job: TfJob) -> tuple[str, ...]:
    return tuple(re.findall(rf"^reached {_TASK} at (\S+)$", job.log(_PEER), re.MULTILINE))


def _complete(job: TfJob) -> bool:
    phases = _phases(job)
    return all(phases.get(name) == "Succeeded" for name in WORKERS)


def _phases(job: TfJob) -> dict[str, str]:
    return {name: str(pod["status"].get("phase")) for name, pod in job.pods().items()}


def _uid(pods: Pods, name: str) -> Any:
    return pods[name]["metadata"]["uid"] if name in pods else None


def port(pods: Pods, name: str) -> int:
    """Return the number of the one port of a pod's container."""
    (found,) = pods[name]["spec"]["containers"][0]["ports"]
    return int(found["containerPort"])


def containers(pods: Pods, *names: str) -> dict[str, tuple[Any, ...]]:
    """Return by pod which container runs or ran, by its id, and how often kubelet started one again."""
    statuses = {name: pods[name]["status"]["containerStatuses"] for name in names}
    return {name: (one["containerID"], one["restartCount"]) for name, (one,) in statuses.items()}
