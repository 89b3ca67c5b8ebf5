"""The admission helper in the cluster as its users have it: the image in containerd, the chart applied by kubectl.

It lies between the API server and every pod of a training job, so nothing else may be tested meanwhile.
"""

import base64
import contextlib
import http.client
import os
import re
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from railnet import VERSION
from tests.cluster import training_pods
from tests.cluster.admission_load import is_patched
from tests.cluster.api_requests import ApiRequests
from tests.cluster.chart import WEBHOOK, Values
from tests.cluster.ground import NODE
from tests.cluster.manifests import NAMESPACE
from tests.cluster.node import ClusterNode
from tests.cluster.process import wait_until
from tests.cluster.training_pods import GPU

NAME = "railnet-admission"
IMAGE = f"railnet.io/{NAME}:{VERSION}"
REPLICAS = 2
_PORT, _HEALTH_PORT = 8443, 8080
GPUS, RAILS, OFF = "team-gpus", "team-rails", "team-off"
"""Namespaces: one without the label railnet.io/net1, whose pods ask for GPUs; one where it is "true"; one where it is "false"."""

_OURS = f"--selector=app.kubernetes.io/name={NAME}"
_KINDS = "deployment,service,poddisruptionbudget,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding"
_CALLS = re.compile(
    r'^apiserver_admission_webhook_admission_duration_seconds_count\{name="[^"]*railnet\.io".*\} (\d+)$', re.MULTILINE
)
_NAMESPACES = {GPUS: {}, RAILS: {"railnet.io/net1": "true"}, OFF: {"railnet.io/net1": "false"}}
_SECONDS = 240.0  # of an installation, while a load takes both processors
_ANSWER_SECONDS = 60.0  # of a replica that is asked while a load takes both processors


class Admission:
    """A context manager: installed for as long as it lasts, with namespaces of each kind and a node that says it has GPUs."""

    def __init__(self, node: ClusterNode, values: Values = WEBHOOK) -> None:
        """Install the chart with these values."""
        self._node, self._kubectl = node, node.kubectl
        self._objects = node.railnet.objects(values)

    def __enter__(self) -> Self:
        self._node.containerd.load(Path(os.environ["RAILNET_ADMISSION_IMAGE"]))
        self._kubectl.apply(*self._objects)
        self._kubectl.apply(*(_namespace(name, labels) for name, labels in _NAMESPACES.items()))
        with ApiRequests() as api:
            api.merge_status(NODE, {"capacity": {GPU: "8"}})
        self.wait_until_ready()
        wait_until(self._has_accounts, _SECONDS, "the namespaces to have their service accounts")
        wait_until(
            _is_asked, _SECONDS, "the API server to know the webhooks, their authority and their Service's addresses"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Take all of it away; the Secret is the server's own, and has no label."""
        self._kubectl.run("delete", "mutatingwebhookconfiguration", _OURS)
        self._kubectl.run("delete", _KINDS, f"--namespace={NAMESPACE}", _OURS)
        # Not left to the garbage collector: it stands still for up to a minute when a kind of object is new in the cluster.
        self._kubectl.run("delete", "replicasets,pods", f"--namespace={NAMESPACE}", _OURS, "--wait=false")
        self._kubectl.run("delete", f"secret/{NAME}-tls", f"--namespace={NAMESPACE}", "--ignore-not-found")
        for namespace in _NAMESPACES:
            self._kubectl.run("delete", "jobs,pods", "--all", "--wait=false", f"--namespace={namespace}")
        with ApiRequests() as api:
            api.merge_status(NODE, {"capacity": {GPU: None}})
        wait_until(lambda: not self._exists(), _SECONDS, "the admission helper's and the jobs' pods to be gone")
        self._kubectl.run("delete", "namespace", *_NAMESPACES)  # only now: with pods in it, it is looked at seldom
        self._node.containerd.forget(IMAGE)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Have both replicas killed, and none until the end of the block."""
        self._scale(0)
        try:
            wait_until(self._is_down, _SECONDS, "both replicas to be down")
            yield
        finally:
            self._scale(REPLICAS)
            self.wait_until_ready()

    def delete_webhooks(self) -> None:
        """Delete the webhooks alone, which an uninstall begins with."""
        self._kubectl.run("delete", "mutatingwebhookconfiguration", NAME)

    def delete(self) -> None:
        """Delete what the chart rendered, with the nodes' daemon in it; returns when the API server has forgotten all of it."""
        self._kubectl.delete(*self._objects)
        self._node.railnet.delete()

    def running(self) -> int:
        """Count the replicas that run; without the webhooks they are not ready."""
        return sum(pod["status"]["phase"] == "Running" for pod in self._pods())

    def webhooks(self) -> list[str]:
        """Name the webhooks, which depend on the values."""
        return [one["name"] for one in self._kubectl.get("mutatingwebhookconfiguration", NAME)["webhooks"]]

    def wait_until_ready(self) -> None:
        """Wait until every replica is, and until requests are sent to each."""
        self._kubectl.run(
            "rollout", "status", f"deployment/{NAME}", f"--namespace={NAMESPACE}", f"--timeout={_SECONDS:g}s"
        )
        # The controller of Endpoints is another than those of the Deployment.
        wait_until(lambda: len(self.addresses()) == REPLICAS, _SECONDS, "both replicas to be the Service's")

    def addresses(self) -> list[str]:
        """Give the addresses of the replicas that are ready."""
        found = self._kubectl.get(f"endpoints/{NAME}", f"--namespace={NAMESPACE}")
        return [one["ip"] for subset in found.get("subsets", ()) for one in subset.get("addresses", ())]

    def calls(self) -> int:
        """Count what the API server has asked, by its own metric."""
        return sum(map(int, _CALLS.findall(self._kubectl.run("get", "--raw=/metrics"))))

    def reviews(self) -> dict[str, float]:
        """Count what each replica has answered, by address."""
        return {address: _reviews(address) for address in self.addresses()}

    def rotate(self) -> None:
        """Ask for a new authority, as docs/operations.md says; returns at once."""
        secret = f"secret/{NAME}-tls"
        self._kubectl.run("annotate", secret, "railnet.io/rotate=now", f"--namespace={NAMESPACE}")

    def bundle(self) -> str:
        """Give the authorities that the API server trusts, as PEM.

        Raises:
            ValueError: the webhooks do not all have the same.
        """
        found = self._kubectl.get("mutatingwebhookconfiguration", NAME)
        (bundle,) = {webhook["clientConfig"].get("caBundle", "") for webhook in found["webhooks"]}
        return base64.b64decode(bundle).decode()

    def shown(self) -> set[str]:
        """Give the certificates that the replicas show, as PEM; each must be one that the API server can verify.

        Raises:
            ssl.SSLError: it is not.
        """
        addresses = self.addresses()
        # Last: a replica shows a certificate of a new authority five seconds after the bundle has it.
        context = ssl.create_default_context(cadata=self.bundle())
        return {_shown(address, context) for address in addresses}

    def _scale(self, replicas: int) -> None:
        self._kubectl.run("scale", f"deployment/{NAME}", f"--replicas={replicas}", f"--namespace={NAMESPACE}")

    def _is_down(self) -> bool:
        """Tell whether every process has ended and no request is sent to one; their pods are listed up to ten seconds longer."""
        statuses = [one for pod in self._pods() for one in pod["status"].get("containerStatuses", ())]
        return not any("running" in one["state"] for one in statuses) and not self.addresses()

    def _pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._kubectl.get("pods", f"--namespace={NAMESPACE}", _OURS)
        return found

    def _exists(self) -> bool:
        return bool(self._pods()) or any(self._kubectl.get("pods", f"--namespace={one}") for one in _NAMESPACES)

    def _has_accounts(self) -> bool:
        account = ("get", "serviceaccount/default")
        return all(self._kubectl.answers(*account, f"--namespace={one}") for one in _NAMESPACES)


def _is_asked() -> bool:
    """Tell whether a pod is reviewed: the API server learns from watches of its own what the others have written."""
    with ApiRequests() as api:
        answer = api.create(training_pods.of("kubedl/tfjob-worker", GPUS), dry_run=True)
    return answer.status == http.client.CREATED and is_patched(answer.document)


def _namespace(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}}


def _shown(address: str, context: ssl.SSLContext) -> str:
    connection = socket.create_connection((address, _PORT), timeout=_ANSWER_SECONDS)
    with context.wrap_socket(connection, server_hostname=f"{NAME}.{NAMESPACE}.svc") as verified:
        return ssl.DER_cert_to_PEM_cert(verified.getpeercert(binary_form=True) or b"")


def _reviews(address: str) -> float:
    with urllib.request.urlopen(f"http://{address}:{_HEALTH_PORT}/metrics", timeout=_ANSWER_SECONDS) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("railnet_admission_reviews_total"))
