"""A job of an operator, from its creation until nothing of it is left."""

import contextlib
import json
import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from simnode.waiting import until_empty
from tests.cluster.kubectl import Kubectl
from tests.cluster.node import ClusterNode
from tests.cluster.process import wait_until
from tests.cluster.worker import Worker

OPTED_IN = {"railnet.io/net1": "true"}
"""Labels of a namespace whose training pods get VFs without asking for GPUs."""

SPREAD = {"railnet.example.com/spread": "true"}
"""A label of pods that are spread over the nodes."""

SECONDS = 240.0
_LOOK_SECONDS = 0.5
_OWNED = "jobs,pods,services,endpointslices,configmaps,secrets"
_OF_EACH_NAMESPACE = {"kube-root-ca.crt"}
Objects = dict[str, dict[str, Any]]


class OperatorJob:
    """A context manager. The job has a namespace of its own, which is made with it and deleted with it.

    Attributes:
        kind: the name of the job's kind in kubectl's arguments.
        left: what was left of the job when it had been deleted and its dependents had had time to go; known after the block.
    """

    def __init__(self, node: ClusterNode, job: Mapping[str, Any], labels: Mapping[str, str] = OPTED_IN) -> None:
        """Describe a job, in a namespace with these labels."""
        self.node, self._job, self._labels = node, dict(job), dict(labels)
        self.name: str = job["metadata"]["name"]
        self.namespace: str = job["metadata"]["namespace"]
        self.kind = f"{job['kind'].lower()}s.{job['apiVersion'].partition('/')[0]}"
        self.left: list[str] = []
        self._made = contextlib.ExitStack()

    @property
    def kubectl(self) -> Kubectl:
        return self.node.kubectl

    def __enter__(self) -> Self:
        metadata = {"name": self.namespace, "labels": self._labels}
        with contextlib.ExitStack() as made:
            made.callback(self.kubectl.run, "delete", "namespace", self.namespace)
            self.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            # The API server refuses pods of a namespace without its service account, which a controller makes.
            account = ("get", "serviceaccount/default", f"--namespace={self.namespace}")
            wait_until(lambda: self.kubectl.answers(*account), SECONDS, " ".join(account))
            made.callback(self._delete)
            self.kubectl.apply(self._job)
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._made:
            if error is not None:
                error.add_note(self._describe())

    def _delete(self) -> None:
        """Delete the job, and see what is left of it."""
        self._run("delete", self.kind, self.name, "--ignore-not-found")
        self.left = until_empty(self._left, SECONDS, _LOOK_SECONDS)

    def object(self) -> dict[str, Any]:
        """Return the job as the API server has it."""
        found: dict[str, Any] = self.kubectl.get(self.kind, self.name, f"--namespace={self.namespace}")
        return found

    def conditions(self) -> set[str]:
        """Return the conditions of the job that are true."""
        conditions = self.object().get("status", {}).get("conditions", ())
        return {one["type"] for one in conditions if one["status"] == "True"}

    def wait_for_condition(self, condition: str) -> float:
        """Wait until the job has a condition; gives the seconds."""
        return wait_until(lambda: condition in self.conditions(), SECONDS, f"{self.name} to be {condition}")

    def objects(self, kinds: str) -> Objects:
        """Return the objects of these kinds in the job's namespace, by name."""
        found = self.kubectl.get(kinds, f"--namespace={self.namespace}")
        return {one["metadata"]["name"]: one for one in found}

    def pods(self) -> Objects:
        """Return the job's pods by name."""
        return self.objects("pods")

    def phases(self) -> dict[str, str]:
        """Return the phases of the job's pods."""
        return {name: str(pod["status"].get("phase")) for name, pod in self.pods().items()}

    def wait_for_phase(self, phase: str, pods: int) -> Objects:
        """Wait until the job has so many pods of a phase, and return all of its pods."""
        wait_until(lambda: list(self.phases().values()).count(phase) == pods, SECONDS, f"{pods} pods to be {phase}")
        return self.pods()

    def log(self, pod: str) -> str:
        """Return what a pod's container said; empty while there is no such pod, or it has no container yet."""
        try:
            return self._run("logs", pod)
        except subprocess.CalledProcessError:
            return ""

    def execute(self, pod: str, *command: str) -> str:
        """Run a command in a pod's container."""
        return self._run("exec", pod, "--", *command)

    def events(self) -> dict[str, str]:
        """Return what was said about the job itself, by reason."""
        found = self.objects("events").values()
        return {one["reason"]: one["message"] for one in found if one["involvedObject"]["name"] == self.name}

    def reasons(self, type_: str = "Warning") -> dict[str, str]:
        """Return what was said of this type about anything in the job's namespace, by reason."""
        found = self.objects("events").values()
        return {one["reason"]: one["message"] for one in found if one["type"] == type_}

    def kill_container(self, pod: str) -> None:
        """Kill the one container of a pod, wherever it is."""
        where = self.pods()[pod]["spec"]["nodeName"]
        self.node.on(where, Worker.kill_container, pod)

    def _left(self) -> list[str]:
        found = self.kubectl.get(_OWNED, f"--namespace={self.namespace}")
        names = [f"{one['kind']} {one['metadata']['name']}" for one in found]
        return [name for name in names if name.rpartition(" ")[2] not in _OF_EACH_NAMESPACE]

    def _describe(self) -> str:
        """Return what helps to understand why a job did not end as it should."""
        lines = [json.dumps(self.object().get("status"))]
        lines += [f"{name}: {json.dumps(pod['status'])}" for name, pod in self.pods().items()]
        lines += [f"{name}: {self.log(name)[-500:]}" for name in self.pods()]
        lines += [
            f"{one['involvedObject']['name']}: {one['reason']}: {one['message']}"
            for one in self.objects("events").values()
        ]
        return "\n".join(lines)

    def _run(self, *arguments: str) -> str:
        return self.kubectl.run(f"--namespace={self.namespace}", *arguments)


def spread_over_nodes(labels: Mapping[str, str] = SPREAD) -> dict[str, Any]:
    """Describe the constraint that no node has two pods with these labels more than another."""
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": dict(labels)},
    }
