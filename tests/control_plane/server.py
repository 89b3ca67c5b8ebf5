"""A whole control plane, and kwok for the nodes that a test makes; run by scripts/with-control-plane. No pod's program runs."""

import base64
import http.client
import json
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from tests.cluster.control_plane import ADMIN, ControlPlane
from tests.cluster.ground import NODE_ADDRESS, RUN
from tests.cluster.manifests import ROOT
from tests.cluster.process import logs, wait_until
from tests.control_plane.api import Api, JsonObject
from tests.control_plane.kwok import Kwok

_ETCD = "127.0.0.1:2379"
_SECONDS = 120.0
_GONE_SECONDS = 180.0  # a namespace waits for all that is in it
_NAMESPACES = {"default", "kube-node-lease", "kube-public", "kube-system", "railnet"}  # Kubernetes' own, and Railnet's
_POD_GROUPS = "--runtime-config=scheduling.k8s.io/v1beta1=true"
_POD_GROUP_GATES = "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true"
_LAST_LINES = 30
_MOST_PUTS = 100  # etcd takes 128 operations in one transaction
# Where the API server stores the objects of a resource, and their kind (k8s.io/kubernetes/pkg/registry/core).
_STORED = {"pods": ("pods", "Pod"), "nodes": ("minions", "Node")}
_FLAGS = {
    "etcd": ["--unsafe-no-fsync", "--quota-backend-bytes=8589934592"],
    # The nodes of these tests have no network, and are more than there are subnets. What is not measured has no limit of requests.
    # A kwok that gets no processor for a while is no node that is lost.
    "kube-controller-manager": [
        "--allocate-node-cidrs=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--node-monitor-grace-period=600s",
    ],
    "kube-scheduler": ["--kube-api-qps=500", "--kube-api-burst=1000"],
}


class ApiServer:
    """The API server, whose other programs are around it, with a client (`api`) and `kubectl` for the tests; a context manager."""

    def __init__(self) -> None:
        self.plane = ControlPlane(_FLAGS)
        self.kwok = Kwok()
        self._made = ExitStack()

    def __enter__(self) -> Self:
        subprocess.run(["ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", "lo"], check=True)
        with ExitStack() as made:
            made.callback(self.plane.stop)
            self.plane.start()
            self.plane.wait()
            self.api = Api(ADMIN)
            made.callback(self.api.close)
            made.callback(self.kwok.stop)
            self.kwok.start()
            self.kubectl("apply", "--filename=daemonset/namespace.yaml")  # the chart does not make it
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    def described(self) -> Iterator[tuple[str, str]]:
        """Yield a title and a text: the nodes and the tests' pods of now, and the last lines of each program's log."""
        with suppress(OSError, http.client.HTTPException):  # it may be the API server that has failed
            yield "nodes", "\n".join(map(_node_in_words, self.api.items("/api/v1/nodes")))
            yield "pods", "\n".join(map(_pod_in_words, self.api.items("/api/v1/pods")))
        for path in logs():
            yield f"log of {path.stem}", "\n".join(path.read_text(errors="replace").splitlines()[-_LAST_LINES:])

    def restart(self) -> None:
        """Kill the API server, which cuts all connections, and start it again with the objects and without their old versions."""
        self.api.close()
        self.plane.apiserver.stop(
            signal.SIGKILL
        )  # by SIGTERM it would wait for the watches, until the leader's Lease runs out
        revision = self._etcd_answer("maintenance/status", {})["header"]["revision"]
        self._etcd_answer("kv/compaction", {"revision": revision, "physical": True})
        self.plane.apiserver.start()
        self.plane.apiserver.wait(self._is_ready, _SECONDS)

    @contextmanager
    def serving_pod_groups(self) -> Iterator[None]:
        """Have Kubernetes' own gangs in the block, as an upgrade brings them, and not any more after it."""
        self._restart_with([_POD_GROUPS], [_POD_GROUP_GATES])
        try:
            yield
        finally:
            self._restart_with([], [])

    @contextmanager
    def scheduling_by(self, configuration: JsonObject) -> Iterator[None]:
        """Have the scheduler go by a KubeSchedulerConfiguration in the block, as a client of this API server without a limit of requests."""
        path, scheduler = RUN / "scheduler.json", self.plane.scheduler
        client = {"kubeconfig": str(ADMIN), "qps": 500, "burst": 1000}
        path.write_text(json.dumps({**configuration, "clientConnection": client}))
        options = scheduler.options
        scheduler.options = [*options, f"--config={path}"]
        scheduler.restart()
        try:
            yield
        finally:
            scheduler.options = options
            scheduler.restart()

    @contextmanager
    def refusing_pod_groups(self) -> Iterator[None]:
        """Have the API server alone not serve PodGroups in the block, in a block that has them."""
        options, self.plane.apiserver.options = self.plane.apiserver.options, []
        self.restart()
        try:
            yield
        finally:
            self.plane.apiserver.options = options
            self.restart()

    def _restart_with(self, api: Sequence[str], gates: Sequence[str]) -> None:
        plane = self.plane
        plane.apiserver.options = [*api, *gates]
        plane.controllers.options = plane.scheduler.options = gates
        self.restart()
        for program in (plane.controllers, plane.scheduler):
            program.restart()

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Make a namespace if there is none of this name; pods can be made in it."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(lambda: self.api.get(account).status == http.client.OK, _SECONDS, f"an account in {name}")

    def remove_namespaces(self) -> None:
        """Delete the namespaces that tests have made, and all pods, and wait until they are gone."""
        for name in self._namespaces_of_tests():
            self.api.delete(f"/api/v1/namespaces/{name}")
        wait_until(lambda: not self._namespaces_of_tests(), _GONE_SECONDS, "the tests' namespaces to be gone")
        pods = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in self.api.items("/api/v1/pods")]
        for namespace, name in pods:
            self.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")
        what = f"all pods to be gone and not to be made again: {pods}"
        wait_until(lambda: not self.api.items("/api/v1/pods"), _GONE_SECONDS, what)

    def token(self, namespace: str, account: str, pod: JsonObject | None = None) -> str:
        """Return a token of a service account, as kubelet gets it: it is bound to a pod, and with it to the pod's node."""
        about = {} if pod is None else {"boundObjectRef": _reference(pod)}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        made = self.api.create(path, {"spec": {"expirationSeconds": 7200, **about}})
        assert made.status == http.client.CREATED, made.message
        found: str = made.object["status"]["token"]
        return found

    def put_all(self, resource: str, objects: Sequence[JsonObject]) -> None:
        """Store objects of a resource of the core group in etcd: at once, complete as they are, and without admission; watches report it."""
        for first in range(0, len(objects), _MOST_PUTS):
            puts = [_put(resource, one) for one in objects[first : first + _MOST_PUTS]]
            self._etcd_answer("kv/txn", {"success": puts})

    def delete_all(self, resource: str) -> None:
        """Delete all objects of a resource of the core group, at once and without admission; watches report it."""
        first = f"/registry/{_STORED[resource][0]}/".encode()
        last = first[:-1] + bytes([first[-1] + 1])  # the first key that does not begin so
        self._etcd_answer("kv/deleterange", {"key": _base64(first), "range_end": _base64(last)})

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl at the root of the repository; it may fail."""
        command = ["kubectl", f"--kubeconfig={ADMIN}", *arguments]
        return subprocess.run(
            command, cwd=ROOT, input=stdin, capture_output=True, text=True, check=False, timeout=2 * _SECONDS
        )

    def _namespaces_of_tests(self) -> set[str]:
        return {one["metadata"]["name"] for one in self.api.items("/api/v1/namespaces")} - _NAMESPACES

    @staticmethod
    def _etcd_answer(path: str, body: JsonObject) -> JsonObject:
        """Ask etcd by HTTP (etcd.io/docs, "gRPC gateway")."""
        with closing(http.client.HTTPConnection(_ETCD, timeout=_SECONDS)) as connection:
            connection.request("POST", f"/v3/{path}", json.dumps(body))
            response = connection.getresponse()
            found: JsonObject = json.load(response)
            assert response.status == http.client.OK, found
            return found

    def _is_ready(self) -> bool:
        try:
            return self.api.text("/readyz") == "ok"
        except OSError:
            return False


def _reference(pod: JsonObject) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
    }


def _put(resource: str, found: JsonObject) -> JsonObject:
    """Return the part of a transaction that stores an object where the API server does; it reads JSON as well as its own form."""
    folder, kind = _STORED[resource]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": now, **found["metadata"]}
    name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    stored = {"apiVersion": "v1", "kind": kind, **found, "metadata": metadata}
    put = {"key": _base64(f"/registry/{folder}/{name}".encode()), "value": _base64(json.dumps(stored).encode())}
    return {"request_put": put}


def _base64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def _node_in_words(node: JsonObject) -> str:
    conditions = {one["type"]: one["status"] for one in node["status"].get("conditions", ())}
    return f"{node['metadata']['name']}: Ready {conditions.get('Ready')}, taints {node['spec'].get('taints', [])}"


def _pod_in_words(pod: JsonObject) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    what = [
        pod["status"].get("phase", ""),
        f"on {spec.get('nodeName', 'no node')}",
        f"gates {[gate['name'] for gate in spec.get('schedulingGates', ())]}",
        f"selects {spec.get('nodeSelector', {})}",
        f"deleted {metadata.get('deletionTimestamp', 'never')}",
        f"finalizers {metadata.get('finalizers', [])}",
    ]
    return f"{metadata['namespace']}/{metadata['name']}: {', '.join(what)}"
