"""A cluster in memory with DaemonSets of Railnet's, whose nodes the test moves on, and a clock that only rests advance."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from railnet.apiserver.request import Request
from railnet.cluster_uninstall.daemonset_uninstall import ClusterUninstall
from railnet.cluster_uninstall.deadline import Deadline, RetryingApiServer
from tests.railnet.controllers.cluster_in_memory import Cluster

JsonObject = dict[str, Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE = "railnet"
DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
APPARMOR = "container.apparmor.security.beta.kubernetes.io"


def daemon_set(name: str = "railnet", nodes: int = 0) -> JsonObject:
    """Return a DaemonSet that serves its nodes, as the API server returns it."""
    counts = dict.fromkeys(("desiredNumberScheduled", "updatedNumberScheduled", "numberReady"), nodes)
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "generation": 1,
            "labels": {"app.kubernetes.io/name": "railnet"},
        },
        "spec": {
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}},
            "template": {
                "metadata": {"annotations": {f"{APPARMOR}/install": "unconfined", f"{APPARMOR}/railnet": "unconfined"}},
                "spec": {
                    "initContainers": [{"name": "install", "args": ["install"]}],
                    "containers": [{"name": "railnet", "args": ["node"]}],
                },
            },
        },
        "status": {"observedGeneration": 1, **counts},
    }


def pod(
    node: str, *, owner: str = "railnet", uninstalls: bool = True, ready: bool = False, **status: Any
) -> JsonObject:
    """Return a pod that runs on a node since `BEGIN`; `status` replaces parts of its status."""
    return {
        "metadata": {
            "name": f"{owner}-{node}",
            "namespace": NAMESPACE,
            "creationTimestamp": at(0),
            "ownerReferences": [{"uid": f"uid-of-{owner}"}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "railnet", "args": ["uninstall", "--stay"] if uninstalls else ["node"]}],
        },
        "status": {
            "phase": "Running",
            "startTime": at(1),
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"ready": ready, "state": {"running": {}}}],
            **status,
        },
    }


def at(seconds: float) -> str:
    """Return the timestamp of a time after `BEGIN`."""
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class UninstallingCluster:
    """The objects in memory, and the command with a clock of its own.

    Attributes:
        on_rest: what happens in the cluster while the command rests, in turn; afterwards nothing.
        rested: the rests of the command, in seconds.
    """

    def __init__(self, seconds: float = 600.0, *, webhook: bool = False, gangs: bool = False) -> None:
        self.memory = Cluster()
        self.memory.interfere = self._count_generations
        self.on_rest: list[Callable[[], object]] = []
        self.rested: list[float] = []
        deadline = Deadline(seconds, lambda: sum(self.rested), self._rest)
        api = RetryingApiServer(self.memory, lambda: "token", "railnet-uninstall", deadline)
        self.command = ClusterUninstall(api, NAMESPACE, deadline, webhook=webhook, gangs=gangs, now=self._now)

    def put(self, daemon_set: JsonObject) -> None:
        self.memory.put(f"{DAEMON_SETS}/{daemon_set['metadata']['name']}", daemon_set)

    def put_pod(self, pod: JsonObject) -> None:
        self.memory.put(f"{PODS}/{pod['metadata']['name']}", pod)

    def daemon_set(self, name: str = "railnet") -> JsonObject:
        return self.memory.objects[f"{DAEMON_SETS}/{name}"]

    def roll(self, updated: int, ready: int, name: str = "railnet") -> None:
        """Say in the status what the DaemonSet controller says of so many nodes."""
        known = self.daemon_set(name)
        counts = {"updatedNumberScheduled": updated, "numberReady": ready}
        status = {**known["status"], "observedGeneration": known["metadata"]["generation"], **counts}
        self.put({**known, "status": status})

    def _count_generations(self, request: Request) -> None:
        if (request.verb.right, request.about.resource) == ("patch", "daemonsets"):
            self.memory.objects[request.path]["metadata"]["generation"] += 1

    def _now(self) -> datetime:
        return BEGIN + timedelta(seconds=sum(self.rested))

    def _rest(self, seconds: float) -> None:
        self.rested.append(seconds)
        if self.on_rest:
            self.on_rest.pop(0)()
