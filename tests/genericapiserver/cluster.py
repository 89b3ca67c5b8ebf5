"""An API server with the admission helper installed by one command; creates pods, and counts the API server's calls."""

import http.client
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.admission.goldens import GOLDENS
from tests.cluster.process import wait_until
from tests.genericapiserver.api import ApiAnswer, JsonObject
from tests.genericapiserver.replica import NAME, Replica, endpoints
from tests.genericapiserver.server import ApiServer
from training.railnet_labels import NET1

UNWATCHED = "kube-system"
EXPLAINED = "railnet.io/explain"
TRAINING = next(one for one in GOLDENS if one.page == "jobset" and one.expected.get("patch") and one.net1 is None)
_SECONDS = 30.0
_CALLS = "apiserver_admission_webhook_admission_duration_seconds"


class Cluster:
    """Replicas that the API server reaches by the Service; all are ready inside the `with` block."""

    def __init__(
        self, server: ApiServer, folder: str, files: Path, replicas: int = 1, options: Sequence[str] = ()
    ) -> None:
        """Install a folder of manifests; `files` is the folder for the replicas' files, `options` are theirs."""
        self.server, self.folder = server, folder
        self.replicas = [Replica(server, files, number, options) for number in range(replicas)]
        self._namespaces: set[str] = set()

    def __enter__(self) -> Self:
        done = self.server.kubectl("apply", "--kustomize", self.folder, "--validate=strict")
        assert done.returncode == 0, done.stderr
        self.server.kubectl("apply", "--filename=-", stdin=json.dumps(endpoints(self.replicas)))
        try:
            self.start()
            self._wait_for_the_plugins()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self.server.kubectl("delete", "mutatingwebhookconfiguration", NAME)
        self.server.kubectl("delete", "secret", f"{NAME}-tls", "--namespace=railnet")
        self.server.kubectl("delete", "endpointslices", "--all", "--namespace=railnet")

    def start(self, configuration: JsonObject | None = None) -> None:
        """Start all replicas at once, and wait until they are ready."""
        for replica in self.replicas:
            replica.start(configuration)
        for replica in self.replicas:
            replica.wait()

    def stop(self) -> None:
        for replica in self.replicas:
            replica.stop()

    def create(self, pod: JsonObject, namespace: str) -> ApiAnswer:
        """Create a pod as a dry run, in `namespace` instead of its own namespace."""
        metadata = {key: value for key, value in pod["metadata"].items() if key != "namespace"}
        if not metadata.get("generateName"):
            metadata.setdefault("name", "pod")
        body = pod | {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        return self.server.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)

    def namespace(self, name: str, net1: bool | None) -> str:
        """Return a namespace with the label; each label has its own namespace, since the plugins see a changed label late."""
        found = name if net1 is None else f"{name}-{net1}".lower()
        if found not in self._namespaces:
            labels = {} if net1 is None else {NET1: str(net1).lower()}
            self.server.api.create("/api/v1/namespaces", {"metadata": {"name": found, "labels": labels}})
            self._namespaces.add(found)
        return found

    def configure(self, configuration: JsonObject | None) -> None:
        """Restart the replicas if their configuration differs."""
        if any(replica.configuration != (configuration or {}) for replica in self.replicas):
            self.stop()
            self.start(configuration)

    def calls(self) -> Counter[str]:
        """Return the number of the API server's calls so far, by webhook."""
        found: Counter[str] = Counter()
        for sample in self.metric(f"{_CALLS}_count"):
            name = re.search(r'name="([^"]+)"', sample)
            assert name is not None
            found[name[1]] += int(_value(sample))
        return found

    def milliseconds_of_calls(self) -> str:
        return self._mean(_CALLS)

    def milliseconds_of_conditions(self) -> str:
        return self._mean("apiserver_admission_match_condition_evaluation_seconds")

    def _mean(self, histogram: str) -> str:
        seconds, count = (sum(map(_value, self.metric(f"{histogram}_{part}"))) for part in ("sum", "count"))
        return f"{1000 * seconds / count:.2f} ms, the mean of {count:.0f}"

    def metric(self, name: str) -> list[str]:
        """Return a metric's samples."""
        lines = self.server.api.text("/metrics").splitlines()
        return [line for line in lines if line.partition("{")[0] == name]

    def _wait_for_the_plugins(self) -> None:
        """Wait until the API server's plugins have the webhook configuration and the Service's endpoints, which they get by watch."""
        self.namespace(UNWATCHED, None)
        wait_until(self.trains, _SECONDS, "a pod that is patched")

    def trains(self) -> bool:
        """Return whether a training pod gets its additions."""
        answer = self.create(TRAINING.pod, self.namespace(TRAINING.namespace, None))
        return answer.status == http.client.CREATED and EXPLAINED in answer.object["metadata"]["annotations"]


def _value(sample: str) -> float:
    return float(sample.rpartition(" ")[2])


def essence(answer: ApiAnswer) -> JsonObject:
    """Return the parts of a pod that the API server itself does not set."""
    metadata = answer.object["metadata"]
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "spec": answer.object["spec"],
    }
