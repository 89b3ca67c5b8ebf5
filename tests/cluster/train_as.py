"""`railnet train up` on two nodes, as an operator's object or without one: a job of two workers from its file until nothing of it is left."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from simnode.waiting import until_empty
from tests.cluster.node import ClusterNode
from tests.cluster.operator_jobs import SECONDS, Objects
from tests.cluster.process import wait_until
from tests.cluster.train_jobs import train

NAMESPACE = "as"
_OWNED = "jobs,pods,services,endpointslices,configmaps,secrets"
_OF_EACH_NAMESPACE = "kube-root-ca.crt"
_LOOK_SECONDS = 0.5


class TrainedAs(NamedTuple):
    """A job that `railnet train` has created, seen to its end, and removed.

    Attributes:
        said: what `up` printed.
        pods: by name, at their end.
        log: what `logs` printed: of each task, with a prefix.
        gone: what `down` printed.
        left: what was left of the job after `down`.
    """

    said: str
    pods: Objects
    log: str
    gone: str
    left: list[str]

    def of_task(self, task: str) -> str:
        """Return the lines of a task's log, without the prefix."""
        split = (line.partition(" | ") for line in self.log.splitlines())
        return "\n".join(text for name, _, text in split if name.strip() == task)


def train_as(node: ClusterNode, folder: Path, made_as: str | None, **keys: Any) -> TrainedAs:
    """Run a job of two workers with these keys of its file until `ls` calls it completed: as an operator's object, or without one."""
    name = f"by-{made_as or 'itself'}"
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**_job(name), **keys}))
    said = _run("up", "-f", str(file), *(("--as", made_as) if made_as else ()))
    try:
        wait_until(lambda: "completed" in _run("ls", "-n", NAMESPACE), SECONDS, f"{name} to be completed")
        found = node.kubectl.get("pods", f"--namespace={NAMESPACE}")
        log = _run("logs", name, "-n", NAMESPACE)
    except TimeoutError as error:
        error.add_note(_run("ls", "-n", NAMESPACE) + _run("logs", name, "-n", NAMESPACE))
        raise
    finally:
        gone = _run("down", name, "-n", NAMESPACE)
        left = until_empty(lambda: _left(node), SECONDS, _LOOK_SECONDS)
        node.kubectl.run("delete", "namespace", NAMESPACE)
    return TrainedAs(said, {pod["metadata"]["name"]: pod for pod in found}, log, gone, left)


def carried_by(log: str) -> dict[str, int]:
    """Return the bytes that each interface has received and sent, as a task's log says (`pytorch`)."""
    return {name: int(received) + int(sent) for name, received, sent in re.findall(r"carried (\w+) (\d+) (\d+)", log)}


def _job(name: str) -> Mapping[str, Any]:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "kind": "pytorch",
        "workers": 2,
        "rails": 1,
        "cpu": "50m",
        "memory": "64Mi",
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_apart(name)]}},
    }


def _apart(name: str) -> dict[str, Any]:
    """Describe that pods of a job are on different nodes; preferred, because an MPI job's launcher is a third pod."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"railnet.io/train": name}}}
    return {"weight": 100, "podAffinityTerm": term}


def _run(*arguments: str) -> str:
    done = train(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _left(node: ClusterNode) -> list[str]:
    found = node.kubectl.get(_OWNED, f"--namespace={NAMESPACE}")
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    return [f"{kind} {name}" for kind, name in names if name != _OF_EACH_NAMESPACE]
