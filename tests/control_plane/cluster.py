"""The admission helper, installed by one command, and called by the API server; creates pods, and counts the calls."""

import http.client
import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from railnet.admission.certificates.cluster_objects import SECRET
from railnet.jobs.railnet_labels import NET1
from tests.cluster.chart import Values
from tests.cluster.manifests import NAMESPACE
from tests.cluster.process import wait_until
from tests.control_plane.api import ApiAnswer, JsonObject
from tests.control_plane.manifests import applied
from tests.control_plane.replica import Replica, endpoints
from tests.control_plane.server import ApiServer
from tests.railnet.admission.goldens import GOLDENS

UNWATCHED = "kube-system"
EXPLAINED = "railnet.io/explain"
TRAINING = next(one for one in GOLDENS if one.page == "jobset" and one.expected.get("patch") and one.net1 is None)
_SECONDS = 120.0
_CALLS = "apiserver_admission_webhook_admission_duration_seconds"


class Cluster:
    """Replicas that the API server reaches by the Service; all are ready inside the `with` block."""

    def __init__(
        self, server: ApiServer, values: Values, files: Path, replicas: int = 1, options: Sequence[str] = ()
    ) -> None:
        """Install the chart with these values; `files` is the folder for the replicas' files, `options` are theirs."""
        self.server, self._values = server, values
        self.replicas = [Replica(server, files, number, options) for number in range(replicas)]
        self._namespaces: set[str] = set()
        self._accounts: set[tuple[str, str]] = set()
        self._made = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            made.callback(self._wait_until_forgotten)
            made.enter_context(applied(self.server, self._values))
            made.callback(self._forget)
            self.server.kubectl("apply", "--filename=-", stdin=json.dumps(endpoints(self.replicas)))
            made.callback(self.stop)
            self.start()
            self._wait_for_the_plugins()
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._made.close()

    def _forget(self) -> None:
        """Delete what the replicas have made, and what led to them."""
        self.server.api.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}")
        self.server.api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices")

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
        self._make_account(namespace, pod["spec"].get("serviceAccountName"))
        metadata = {key: value for key, value in pod["metadata"].items() if key != "namespace"}
        if not metadata.get("generateName"):
            metadata.setdefault("name", "pod")
        body = pod | {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        return self.server.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)

    def _make_account(self, namespace: str, name: str | None) -> None:
        """Have the account that a pod names, which its operator would have made."""
        if name is not None and (namespace, name) not in self._accounts:
            self.server.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
            self._accounts.add((namespace, name))

    def namespace(self, name: str, net1: bool | None) -> str:
        """Return a namespace with the label; each label has its own namespace, since the plugins see a changed label late."""
        found = name if net1 is None else f"{name}-{net1}".lower()
        if found not in self._namespaces:
            self.server.namespace(found, {} if net1 is None else {NET1: str(net1).lower()})
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

    def _wait_until_forgotten(self) -> None:
        """Wait until the plugins have no webhook configuration: else pods of other tests are refused."""
        wait_until(lambda: self._is_explained() is False, _SECONDS, "a pod that is not patched")

    def trains(self) -> bool:
        """Return whether a training pod gets its additions."""
        return self._is_explained() is True

    def _is_explained(self) -> bool | None:
        """Return whether a training pod is patched; None if it is refused."""
        answer = self.create(TRAINING.pod, self.namespace(TRAINING.namespace, None))
        if answer.status != http.client.CREATED:
            return None
        return EXPLAINED in (answer.object["metadata"].get("annotations") or {})


def _value(sample: str) -> float:
    return float(sample.rpartition(" ")[2])


_OF_ACCOUNT = re.compile(r"kube-api-access-\w+")


def essence(answer: ApiAnswer) -> JsonObject:
    """Return the parts of a pod that are the same each time: the volume with the account's token has another name for each pod."""
    metadata = answer.object["metadata"]
    found = {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "spec": answer.object["spec"],
    }
    same: JsonObject = json.loads(_OF_ACCOUNT.sub("kube-api-access", json.dumps(found)))
    return same
