"""Kueue as a process that the API server calls, with the rights of its manifests: topology-aware scheduling of batch Jobs."""

import base64
import http.client
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from tests.cluster.ground import NODE_ADDRESS
from tests.cluster.process import Program, wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.manifests import as_list, delete
from tests.control_plane.server import ApiServer

NAMESPACE = "kueue-system"
QUEUE = "gangs"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
_HOSTNAME = "kubernetes.io/hostname"
_RESOURCE = "rdma/ib_vf"
_WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/workloads"
_SERVICE, _SECRET, _PORT, _HEALTH = "kueue-webhook-service", "kueue-webhook-server-cert", 9443, 8081
_VERSION = "kueue.x-k8s.io/v1beta2"
_SECONDS = 120.0
# What has no pod here, and what other kinds than Job need.
_KIND = "CustomResourceDefinition"
_LEFT_OUT = ("Deployment", "APIService")
_REVIEWED = ("kueue-x-k8s-io", "batch-v1-job")
# As Kueue ships it (config/components/manager), but that only Jobs are looked at, one replica needs no Lease, and requests have the limit that
# the scheduler and the controller manager have here. Its own is 50 a second.
_CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": f":{_HEALTH}"},
    "metrics": {"bindAddress": "0"},
    "leaderElection": {"leaderElect": False},
    "controller": {
        "groupKindConcurrency": {
            "Job.batch": 5,
            "Pod": 5,
            "Workload.kueue.x-k8s.io": 5,
            "LocalQueue.kueue.x-k8s.io": 1,
            "Cohort.kueue.x-k8s.io": 1,
            "ClusterQueue.kueue.x-k8s.io": 1,
            "ResourceFlavor.kueue.x-k8s.io": 1,
        }
    },
    "clientConnection": {"qps": 500, "burst": 1000},
    "integrations": {"frameworks": ["batch/job"]},
    "featureGates": {"VisibilityOnDemand": False},
}


class Kueue:
    """One replica, ready in the `with` block, after which Kueue's kinds stay; with a queue for the namespace that `queue` names."""

    def __init__(self, server: ApiServer, folder: Path, leaf: str) -> None:
        """Describe it; `leaf` is the label of nodes that says their leaf."""
        self._server, self._leaf = server, leaf
        self._queues: list[JsonObject] = []
        self._certificates = folder / "certificates"
        self._kubeconfig, self._config = folder / "kueue.kubeconfig", folder / "kueue.yaml"
        self.program = Program(
            ["kueue", f"--config={self._config}", f"--kubeconfig={self._kubeconfig}", "--zap-log-level=info"]
        )
        self._made = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            objects = _objects()
            kinds = [thing for thing in objects if thing["kind"] == _KIND]
            others = [thing for thing in objects if thing["kind"] != _KIND]
            self._apply(*kinds)
            self._wait_until_served(kinds)
            made.callback(delete, self._server, others)
            self._apply(*others)
            self._apply(_endpoints())
            self._write_files()
            made.callback(self.program.stop)
            self.program.start()
            self._mount_certificate()
            self.program.wait(self._is_ready, _SECONDS)
            made.callback(self._remove_queues)
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    def queue(self, namespace: str, amount: int) -> None:
        """Have a queue in a namespace, which may use so many VFs of all nodes."""
        self._server.namespace(namespace)
        self._queues = _queue(namespace, amount, self._leaf)
        wait_until(lambda: self._applied(*self._queues), _SECONDS, "a queue of Kueue's")

    def workloads(self) -> int:
        """Return how many Workloads there are."""
        return len(self._server.api.items(_WORKLOADS))

    def _remove_queues(self) -> None:
        """Delete the queue while the program runs, which removes its finalizers."""
        delete(self._server, list(reversed(self._queues)))

    def _write_files(self) -> None:
        self._certificates.mkdir(exist_ok=True)
        self._config.write_text(json.dumps({**_CONFIGURATION, "webhook": self._webhook()}))
        config = json.loads(self._server.api.kubeconfig.read_text())
        config["users"][0]["user"]["token"] = self._server.token(NAMESPACE, "kueue-controller-manager")
        self._kubeconfig.write_text(json.dumps(config))

    def _webhook(self) -> JsonObject:
        return {"port": _PORT, "certDir": str(self._certificates)}

    def _mount_certificate(self) -> None:
        """Write the Secret that Kueue fills into the folder where it waits for it, as kubelet does."""
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{_SECRET}"
        self.program.wait(lambda: "tls.crt" in (self._server.api.get(path).object.get("data") or {}), _SECONDS)
        for name, content in self._server.api.get(path).object["data"].items():
            (self._certificates / name).write_bytes(base64.b64decode(content))

    def _apply(self, *objects: JsonObject) -> None:
        done = self._server.kubectl("apply", "--server-side", "--filename=-", stdin=as_list(list(objects)))
        assert done.returncode == 0, done.stderr

    def _applied(self, *objects: JsonObject) -> bool:
        return (
            self._server.kubectl("apply", "--server-side", "--filename=-", stdin=as_list(list(objects))).returncode == 0
        )

    def _wait_until_served(self, kinds: list[JsonObject]) -> None:
        names = [f"customresourcedefinition/{thing['metadata']['name']}" for thing in kinds]
        command = ("wait", *names, "--for=condition=Established", "--timeout=10s")
        wait_until(lambda: self._server.kubectl(*command).returncode == 0, _SECONDS, "Kueue's kinds to be served")

    @staticmethod
    def _is_ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{_HEALTH}/readyz", timeout=5) as answer:
                return bool(answer.status == http.client.OK)
        except (urllib.error.HTTPError, OSError):
            return False


def _objects() -> list[JsonObject]:
    """Return what Kueue's own manifests describe, without its pod, which is a process here."""
    program = shutil.which("kueue")
    if program is None:
        raise RuntimeError("there is no kueue: scripts/build-cluster-programs kueue prints its folder")
    folder = Path(program).parent / "manifests/config/default"
    text = subprocess.run(["kubectl", "kustomize", folder], check=True, capture_output=True, text=True).stdout
    return [_reviewing_jobs(thing) for thing in yaml.safe_load_all(text) if thing and thing["kind"] not in _LEFT_OUT]


def _reviewing_jobs(thing: JsonObject) -> JsonObject:
    """Leave out of a configuration the reviews of other kinds than Jobs and Kueue's own; a configuration of pods would delay all."""
    if thing["kind"] not in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        return thing
    kept = [
        webhook
        for webhook in thing["webhooks"]
        if any(kind in webhook["clientConfig"]["service"]["path"] for kind in _REVIEWED)
    ]
    return {**thing, "webhooks": kept}


def _endpoints() -> JsonObject:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": _SERVICE,
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": _SERVICE},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": _PORT}],
        "endpoints": [{"addresses": [NODE_ADDRESS]}],
    }


def _queue(namespace: str, amount: int, leaf: str) -> list[JsonObject]:
    quota = {"name": _RESOURCE, "nominalQuota": str(amount)}
    flavors = [{"name": "nodes", "resources": [quota]}]
    group = {"coveredResources": [_RESOURCE], "flavors": flavors}
    return [
        _object("Topology", "fabric", {"levels": [{"nodeLabel": leaf}, {"nodeLabel": _HOSTNAME}]}),
        _object("ResourceFlavor", "nodes", {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": "fabric"}),
        _object("ClusterQueue", QUEUE, {"namespaceSelector": {}, "resourceGroups": [group]}),
        _object("LocalQueue", QUEUE, {"clusterQueue": QUEUE}, namespace),
    ]


def _object(kind: str, name: str, spec: JsonObject, namespace: str = "") -> JsonObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": _VERSION, "kind": kind, "metadata": metadata, "spec": spec}
