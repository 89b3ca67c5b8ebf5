"""The controllers in the cluster as their users have them: the chart with clean-up and sticky addresses, applied by kubectl.

Here their rights meet Kubernetes' own authoriser, and its garbage collector deletes what belongs to an object that is gone.
"""

import re
import urllib.request
from types import TracebackType
from typing import Any, Self

from tests.cluster.chart import ENABLED
from tests.cluster.manifests import NAMESPACE
from tests.cluster.node import STAYING, ClusterNode

NAME = "railnet-controllers"
TABLE = "railnet-sticky-addresses"
_VALUES = {
    "controllers": {
        **ENABLED,
        "cleanUp": ENABLED,
        "stickyAddresses": {**ENABLED, "range": STAYING["range"], "rails": STAYING["rails"]},
    }
}
_OURS = f"--selector=app.kubernetes.io/name={NAME}"
_KINDS = "deployment,poddisruptionbudget,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding"
_HEALTH_PORT = 8080
_SECONDS = 240.0
_REQUESTS = re.compile(
    r'^railnet_controllers_requests_total\{verb="(\w+)",resource="(\w+)",result="(\w+)"\} (\d+)', re.MULTILINE
)


class Controllers:
    """A context manager: installed for as long as it lasts. The image is the admission helper's, which must be on the node."""

    def __init__(self, node: ClusterNode) -> None:
        self._node, self._kubectl = node, node.kubectl
        self._objects = node.railnet.objects(_VALUES)

    def __enter__(self) -> Self:
        self._kubectl.apply(*self._objects)
        self._kubectl.run(
            "rollout", "status", f"deployment/{NAME}", f"--namespace={NAMESPACE}", f"--timeout={_SECONDS:g}s"
        )
        # The sticky addresses are a configuration of the nodes, too: each daemon is replaced, and fails a pod that is bound meanwhile.
        self._node.railnet.roll_out()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take all of it away, and do not wait for the pods; table and Lease are the controllers' own, and have no label."""
        self._kubectl.run("delete", _KINDS, f"--namespace={NAMESPACE}", _OURS)
        # Not left to the garbage collector: see `admission_on_node`.
        self._kubectl.run("delete", "replicasets,pods", f"--namespace={NAMESPACE}", _OURS, "--wait=false")
        own = (f"configmap/{TABLE}", f"lease/{NAME}")
        self._kubectl.run("delete", *own, f"--namespace={NAMESPACE}", "--ignore-not-found")

    def requests(self) -> dict[tuple[str, str, str], int]:
        """Count the requests of all replicas by verb, resource and result; `failed` is neither absence nor conflict."""
        found: dict[tuple[str, str, str], int] = {}
        for pod in self._pods():
            with urllib.request.urlopen(
                f"http://{pod['status']['podIP']}:{_HEALTH_PORT}/metrics", timeout=60
            ) as answer:
                for verb, resource, result, count in _REQUESTS.findall(answer.read().decode()):
                    key = verb, resource, result
                    found[key] = found.get(key, 0) + int(count)
        return found

    def log(self) -> str:
        """Give what all replicas said."""
        pods = [pod["metadata"]["name"] for pod in self._pods()]
        return "".join(self._kubectl.run("logs", pod, f"--namespace={NAMESPACE}") for pod in pods)

    def table(self) -> dict[str, str]:
        """Give the table of sticky addresses; empty if there is none."""
        found = self._kubectl.get("configmaps", f"--namespace={NAMESPACE}", f"--field-selector=metadata.name={TABLE}")
        return dict(found[0].get("data") or {}) if found else {}

    def _pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._kubectl.get("pods", f"--namespace={NAMESPACE}", _OURS)
        return found
