"""The article's TFJob from its start to its end; one worker is killed while all of them train."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.node import ClusterNode
from tests.cluster.operator_jobs import SECONDS, Objects, OperatorJob
from tests.cluster.pod_networks import Traffic, net1, traffic
from tests.cluster.process import wait_until
from tests.stand_ins.toy_trainer import Checkpoint

STEPS, BYTES = 30, 64 << 10  # of each worker; what it sends with each step to each parameter server
OPTIONS = (f"--steps={STEPS}", f"--bytes={BYTES}", "--hold=/train/hold")
SERVERS = [f"mnist-ps-{index}" for index in range(2)]
WORKERS = [f"mnist-worker-{index}" for index in range(3)]
NAMES = [*SERVERS, *WORKERS]
KILLED = WORKERS[1]
DECLARED = 2222
"""The port that a task of a TFJob has where nothing else is said."""

_PEER, _TASK = WORKERS[0], "worker-1"


class Trained(NamedTuple):
    """A job that has succeeded.

    Attributes:
        before: its pods, by name, before the worker was killed.
        after: its pods when the killed worker trained again.
        services, slices: what there was of these then, by name.
        traffic: of each pod with a net1, since its start.
        logs: what its workers said, by name.
        reached: where worker-0 reached worker-1, each time that it connected, as `address:port`.
        conditions: of the job at its end.
        ended: its pods when parameter servers had been cleaned up.
        events: about the job, by reason.
        left: what was left when the job had been deleted.
    """

    before: Objects
    after: Objects
    services: Objects
    slices: Objects
    traffic: Mapping[str, Traffic]
    logs: Mapping[str, str]
    reached: tuple[str, ...]
    conditions: set[str]
    ended: Objects
    events: Mapping[str, str]
    left: list[str]

    def made_again(self) -> set[str]:
        """Name the pods that are not those that trained first."""
        return {name for name in self.before if _uid(self.before, name) != _uid(self.after, name)}


def train(node: ClusterNode, described: Mapping[str, Any], folder: Path) -> Trained:
    """Run a job of `article_tfjob` with `OPTIONS`, whose folder is given, until its parameter servers are cleaned up."""
    hold = folder / "hold"
    hold.touch()
    with OperatorJob(node, described) as job:
        wait_until(lambda: Checkpoint(folder, _TASK).read() > 3, SECONDS, f"steps of {_TASK}")
        wait_until(lambda: bool(_reached(job)), SECONDS, f"{_PEER} to have reached {_TASK}")
        before = job.wait_for_phase("Running", len(NAMES))
        _kill(job)
        after = job.wait_for_phase("Running", len(NAMES))
        trained = Trained(
            before=before,
            after=after,
            services=job.objects("services"),
            slices=job.objects("endpointslices"),
            traffic={name: traffic(node.kubectl, job.namespace, name) for name, pod in after.items() if net1(pod)},
            logs={name: job.log(name) for name in WORKERS},
            reached=_reached(job),
            conditions=set(),
            ended={},
            events={},
            left=[],
        )
        hold.unlink()
        job.wait_for_condition("Succeeded")
        wait_until(lambda: set(job.phases()) == set(WORKERS), SECONDS, "the parameter servers to be cleaned up")
        wait_until(lambda: "ParameterServersDeleted" in job.events(), SECONDS, "an event about them")
        trained = trained._replace(
            logs={name: job.log(name) for name in WORKERS},
            conditions=job.conditions(),
            ended=job.wait_for_phase("Succeeded", len(WORKERS)),
            events=job.events(),
        )
    return trained._replace(left=job.left)


def _kill(job: OperatorJob) -> None:
    reached = len(_reached(job))
    job.kill_container(KILLED)
    wait_until(lambda: "resumed at step" in job.log(KILLED), SECONDS, f"{_TASK} to resume")
    wait_until(lambda: _reaches_all_servers(job), SECONDS, f"{_TASK} to reach the parameter servers again")
    wait_until(lambda: _is_reached_again(job, reached), SECONDS, f"{_PEER} to reach {_TASK} again")


def _reaches_all_servers(job: OperatorJob) -> bool:
    said = job.log(KILLED)
    return all(f"reached {server.removeprefix('mnist-')} at" in said for server in SERVERS)


def _is_reached_again(job: OperatorJob, reached: int) -> bool:
    """Say whether the peer has connected again, and to the new pod where that has a net1: it also does so after a slow answer."""
    found = _reached(job)
    return len(found) > reached and net1(job.pods()[KILLED]) in ("", found[-1].rpartition(":")[0])


def _reached(job: OperatorJob) -> tuple[str, ...]:
    return tuple(re.findall(rf"^reached {_TASK} at (\S+)$", job.log(_PEER), re.MULTILINE))


def _uid(pods: Objects, name: str) -> Any:
    return pods[name]["metadata"]["uid"] if name in pods else None


def port(pods: Objects, name: str) -> int:
    """Return the number of the one port of a pod's container."""
    (found,) = pods[name]["spec"]["containers"][0]["ports"]
    return int(found["containerPort"])


def containers(pods: Objects, *names: str) -> dict[str, tuple[Any, ...]]:
    """Return by pod which container runs or ran, by its id, and how often kubelet started one again."""
    statuses = {name: pods[name]["status"]["containerStatuses"] for name in names}
    return {name: (one["containerID"], one["restartCount"]) for name, (one,) in statuses.items()}


def env(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a pod's container."""
    return {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}


def dialled(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return by pod the host and port that a pod's TF_CONFIG gives it."""
    cluster = json.loads(env(pod)["TF_CONFIG"])["cluster"]
    return {f"mnist-{role}-{index}": entry for role in cluster for index, entry in enumerate(cluster[role])}
