"""What gangs cost in a new API server: the leader at rest beside ten thousand pods, and a gang of a thousand pods.

What is asserted is generous, or a number of requests; the figures are printed.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.cluster.process import wait_until
from tests.genericapiserver.api import Api, JsonObject
from tests.genericapiserver.controllers import Controllers
from tests.genericapiserver.gang_cluster import GATE, LEAF, SECONDS, clear, is_gated, leaf, placements, required
from tests.genericapiserver.server import PORT, ApiServer
from tests.genericapiserver.stand_in_jobs import GROUP, JobController
from tests.genericapiserver.stand_in_nodes import node
from tests.stand_ins.gang_job import GangJob

_REST_SECONDS = 10.0
_WRITES = ("create", "update", "patch", "delete")
_MOST_MIB = 256


@pytest.fixture
def replica(server: ApiServer, tmp_path: Path) -> Iterator[Controllers]:
    server.api.create("/api/v1/namespaces", {"metadata": {"name": "railnet"}})
    clear(server)
    yield Controllers(server, tmp_path, options=["--gangs"])
    clear(server)


def bound(number: int) -> JsonObject:
    """Return a pod on a node; every fifth is a member of a gang of twenty."""
    requests = {"cpu": "4", "memory": "8Gi", "rdma/ib_vf": "1"}
    labels = {f"{GROUP}/name": f"gang-{number // 100}", f"{GROUP}/min-available": "20"} if number % 5 == 0 else {}
    container = {"name": "main", "image": "train:1", "resources": {"requests": requests, "limits": requests}}
    spec = {"nodeName": f"node-{number % 1000}", "containers": [container]}
    metadata = {"name": f"pod-{number}", "namespace": "many", "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def process(replica: Controllers) -> tuple[int, int, float]:
    """Return a process's memory now and at most, in MiB, and the seconds of processor time that it has used."""
    assert replica.program.process is not None
    folder = Path(f"/proc/{replica.program.process.pid}")
    status = (folder / "status").read_text()
    now, most = (int(re.findall(rf"{key}:\s+(\d+)", status)[0]) // 1024 for key in ("VmRSS", "VmHWM"))
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return now, most, (int(fields[11]) + int(fields[12])) / 100


def test_leader_beside_ten_thousand_pods_asks_for_nothing_at_rest(
    server: ApiServer, replica: Controllers, measured: Callable[[str], None]
) -> None:
    server.put_all("nodes", [node(f"node-{n}", {LEAF: f"leaf-{n // 32}"}, rdma_ib_vf="16") for n in range(1000)])
    server.put_all("pods", [bound(number) for number in range(10_000)])
    began = time.monotonic()
    replica.start()
    try:
        replica.wait()
        listed = time.monotonic() - began
        time.sleep(2.0)  # what the first look at all gangs writes
        before, used = replica.requests(), process(replica)[2]
        time.sleep(_REST_SECONDS)
        now, most, after = process(replica)
        sent = {what: count - before.get(what, 0) for what, count in replica.requests().items()}
        asked = {what: count for what, count in sent.items() if count}
        measured(
            f"the leader beside 10,000 pods and 1,000 nodes: all known {listed:.1f} s after its start; {now} MiB at rest, "
            f"{most} MiB at most; in {_REST_SECONDS:g} s of rest {after - used:.2f} s of a processor, and requests: {asked}"
        )
    finally:
        replica.stop()

    assert not [what for what in asked if what.split()[0] in (*_WRITES, "list", "get")]
    assert now < _MOST_MIB


class Gates:
    """When a watch first reported each pod, and when it first reported the pod without a gate."""

    def __init__(self, api: Api, path: str) -> None:
        self.seen: dict[str, float] = {}
        self.opened: dict[str, float] = {}
        self._api, self._path = Api(PORT, api.authority), f"{path}?watch=true&timeoutSeconds=5"
        self._thread = threading.Thread(target=self._watch)
        self._ended = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended:
            with self._api._send("GET", self._path, None, {"Authorization": "Bearer admin"}) as answer:
                self._read(answer)
        self._api.close()

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            now, pod = time.monotonic(), json.loads(line)["object"]
            self.seen.setdefault(pod["metadata"]["name"], now)
            if not is_gated(pod):
                self.opened.setdefault(pod["metadata"]["name"], now)


def test_gang_of_a_thousand_pods_is_admitted_by_one_patch_for_each(
    server: ApiServer, replica: Controllers, measured: Callable[[str], None]
) -> None:
    """The pods come at once, as the webhook leaves them: how fast an API server creates them is not the leader's."""
    server.put_all("nodes", [*leaf("small", 124, 8), *leaf("large", 126, 8)])
    jobs = JobController(server, GangJob("thousand-pods", {"worker": 1000}), required())
    pods = [gated(jobs.pod("worker", index), jobs.job.name) for index in range(1000)]
    replica.start()
    try:
        replica.wait()
        before, used = replica.requests(*_WRITES), process(replica)[2]
        with Gates(server.api, jobs.pods_path) as gates:
            server.put_all("pods", pods)
            wait_until(lambda: len(gates.opened) == 1000, SECONDS, "a thousand pods without a gate")
        time.sleep(2.0)  # for what must not be written
        sent = {what: count - before.get(what, 0) for what, count in replica.requests(*_WRITES).items()}
        took = process(replica)[2] - used
    finally:
        replica.stop()
    first, last, end = min(gates.seen.values()), max(gates.seen.values()), max(gates.opened.values())
    measured(
        f"a gang of 1,000 pods: all without a gate {end - first:.2f} s after the first and {end - last:.2f} s after the last was created; "
        f"{took:.1f} s of a processor; requests that write: {sent}"
    )

    assert placements(jobs) == [{"domain": {LEAF: "large"}, "attempt": 1}]
    assert sent["patch pods"] == 1000
    assert sum(sent.values()) - sent["patch pods"] <= 10


def gated(pod: JsonObject, namespace: str) -> JsonObject:
    """Return a pod as it is stored after the webhook has gated it."""
    return {
        "metadata": {**pod["metadata"], "namespace": namespace},
        "spec": {**pod["spec"], "schedulingGates": [{"name": GATE}]},
        "status": {"phase": "Pending"},
    }
