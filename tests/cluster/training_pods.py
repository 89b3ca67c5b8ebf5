"""Pods of training jobs, as their operators make them (`tests/railnet/admission/golden`), with this node's image and work in place of theirs.

No operator runs here: names and Services that an operator settles are the tests' to give.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.cluster import busybox
from tests.railnet.admission.goldens import FOLDER, read

GPU = "nvidia.com/gpu"
_PORT = 7000
# What its interfaces have counted, a container says before and after: a VF's netdev counts on from one pod to the next.
_COUNTED = "cat /proc/net/dev >> /dev/termination-log"


class Work(NamedTuple):
    """What a container runs."""

    command: Sequence[str]
    image: str = busybox.NAME


NOTHING = Work(["true"])


def receive() -> Work:
    """Give work that sends back what one peer sends, and ends."""
    return Work(["sh", "-c", f"{_COUNTED}; nc -l -p {_PORT} -e cat && {_COUNTED}"])


def send(address: str, count: int) -> Work:
    """Give work that sends so many bytes to a peer and gets them back, and ends."""
    exchange = f"head -c {count} /dev/zero | nc {address} {_PORT} > /dev/null"
    return Work(["sh", "-c", f"{_COUNTED}; until {exchange}; do sleep 0.1; done; {_COUNTED}"])


def trains(name: str) -> str:
    """Give the name of a golden pod's container that trains."""
    container: str = read(FOLDER / f"{name}.yaml").expected["member"]["container"]
    return container


def of(
    name: str,
    namespace: str,
    work: Work = NOTHING,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Give an operator's pod for this node, with these labels, annotations and variables in place of its own.

    What it asks of a node goes, except one GPU where it asks for some; so do volumes, as their Secrets are not here, and
    owners: the garbage collector would look for them. It asks for no VF. Containers beside the one that trains end at once.
    """
    pod = copy.deepcopy(read(FOLDER / f"{name}.yaml").pod)
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["namespace"] = namespace
    metadata["labels"] |= labels or {}
    metadata["annotations"] = {**metadata.get("annotations", {}), **(annotations or {})}
    for key in ("ownerReferences", "finalizers"):
        metadata.pop(key, None)
    for key in ("volumes", "imagePullSecrets", "dnsConfig", "initContainers", "schedulerName"):
        spec.pop(key, None)
    spec |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": False}
    for container in spec["containers"]:
        _adapt(container, work if container["name"] == trains(name) else NOTHING, env or {})
    return pod


def _adapt(container: dict[str, Any], work: Work, env: Mapping[str, str]) -> None:
    gpus = {GPU: "1"} if GPU in container.get("resources", {}).get("limits", {}) else {}
    kept = [variable for variable in container.get("env", ()) if variable["name"] not in env]
    for key in ("args", "volumeMounts", "livenessProbe", "readinessProbe"):
        container.pop(key, None)
    container |= {
        "image": work.image,
        "command": list(work.command),
        "env": [*kept, *({"name": variable, "value": value} for variable, value in env.items())],
        "resources": {"limits": dict(gpus), "requests": dict(gpus)},
    }


def job_of(name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Job that has a pod as its template; the Job controller gives the pod a name and labels of its own."""
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    own = [key for key in metadata["labels"] if key.rpartition("/")[2] in ("job-name", "controller-uid")]
    metadata["labels"] = {key: value for key, value in metadata["labels"].items() if key not in own}
    template = {"metadata": metadata, "spec": pod["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": pod["metadata"]["namespace"], "labels": metadata["labels"]},
        "spec": {"template": template},
    }


def carried(message: str) -> dict[str, tuple[int, int]]:
    """Give by interface how many bytes came and went between the first and the last time a container said it.

    The lines are those of /proc/net/dev (proc(5)), where a container sees its own network namespace.
    """
    lines = [line.replace(":", " ").split() for line in message.splitlines() if ":" in line]
    before: dict[str, tuple[int, int]] = {}
    after: dict[str, tuple[int, int]] = {}
    for name, received, *others in lines:
        after[name] = int(received), int(others[7])
        before.setdefault(name, after[name])
    return {name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after}
