"""What gangs cost: the leader at rest beside ten thousand pods, a gang of a thousand pods, and one of two hundred from Job to nodes.

What is asserted is generous, or a number of requests; the figures are printed. This is no part of a tier, since it needs a machine that does
nothing else: `scripts/bench gang-scale` runs it.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.chart import GANGS
from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import (
    GATE,
    LEAF,
    gating,
    is_gated,
    leaf,
    leaves_of,
    placements,
    required,
    runs,
)
from tests.control_plane.gang_jobs import GROUP, GangJob
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes, without_kubelets
from tests.control_plane.server import ApiServer
from tests.control_plane.watched import Watched

_REST_SECONDS = 10.0
_LONG_SECONDS = 300.0
_WRITES = ("create", "update", "patch", "delete")
_MOST_MIB = 256


@pytest.fixture
def replica(server: ApiServer, tmp_path: Path) -> Iterator[Controllers]:
    with applied(server, GANGS):
        yield Controllers(server, tmp_path, options=["--gangs"])


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
    nodes = [node(f"node-{n}", {LEAF: f"leaf-{n // 32}"}, rdma_ib_vf="16") for n in range(1000)]
    try:
        server.put_all("nodes", without_kubelets(nodes))
        server.put_all("pods", [bound(number) for number in range(10_000)])
        began = time.monotonic()
        replica.start()
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
        server.delete_all("pods")
        server.delete_all("nodes")

    assert not [what for what in asked if what.split()[0] in (*_WRITES, "list", "get")]
    assert now < _MOST_MIB


def test_gang_of_a_thousand_pods_is_admitted_by_one_patch_for_each(
    server: ApiServer, replica: Controllers, measured: Callable[[str], None]
) -> None:
    """The pods come at once, as the webhook leaves them: how fast an API server creates them is not the leader's."""
    nodes = without_kubelets([*leaf("small", 124, 8), *leaf("large", 126, 8)])
    job = GangJob(server, "thousand-pods", 1000, required(), spec={"managedBy": "railnet.io/tests"})
    replica.start()
    try:
        replica.wait()
        with job:
            pods = [gated(job, index) for index in range(1000)]
            server.put_all("nodes", nodes)
            before, used = replica.requests(*_WRITES), process(replica)[2]
            with Watched(server.api, job.pods_path) as watched:
                server.put_all("pods", pods)
                wait_until(
                    lambda: len(first(watched, gated=False)) == 1000, _LONG_SECONDS, "a thousand pods without a gate"
                )
            time.sleep(2.0)  # for what must not be written
            sent = {what: count - before.get(what, 0) for what, count in replica.requests(*_WRITES).items()}
            took = process(replica)[2] - used
            placed = placements(job)
            server.delete_all("pods")
    finally:
        replica.stop()
        server.delete_all("pods")
        server.delete_all("nodes")
    seen, opened = first(watched, gated=True), first(watched, gated=False)
    begin, last, end = min(seen.values()), max(seen.values()), max(opened.values())
    measured(
        f"a gang of 1,000 pods: all without a gate {end - begin:.2f} s after the first and {end - last:.2f} s after the last was created; "
        f"{took:.1f} s of a processor; requests that write: {sent}"
    )

    assert placed == [{"domain": {LEAF: "large"}, "attempt": 1}]
    assert sent["patch pods"] == 1000
    assert sum(sent.values()) - sent["patch pods"] <= 10


def first(watched: Watched, *, gated: bool) -> dict[str, float]:
    """Return when each pod was first reported, with or without the gate."""
    found: dict[str, float] = {}
    for one in tuple(watched.reported):
        if is_gated(one.object) is gated:
            found.setdefault(one.object["metadata"]["name"], one.at)
    return found


def gated(job: GangJob, index: int) -> JsonObject:
    """Return a pod of a Job as it is stored after the webhook has gated it."""
    root, template = job.root.object, job.body()["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": root["metadata"]["uid"]}
    metadata = {
        **template["metadata"],
        "name": f"{job.name}-{index}",
        "namespace": job.namespace,
        "ownerReferences": [{**owner, "controller": True}],
    }
    spec = {**template["spec"], "schedulingGates": [{"name": GATE}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def test_job_of_two_hundred_pods_runs_on_one_leaf(
    server: ApiServer, tmp_path_factory: pytest.TempPathFactory, measured: Callable[[str], None]
) -> None:
    """All of the way: the Job controller creates the pods, the webhook gates them, the leader admits them, the scheduler binds them."""
    files = tmp_path_factory.mktemp("files")
    leader = Controllers(server, files, options=["--gangs"])
    made = [one for name in ("small", "large") for one in leaf(name, {"small": 24, "large": 26}[name], 8)]
    with gating(server, files), some_nodes(server.api, made):
        leader.start()
        try:
            leader.wait()
            began = time.monotonic()
            with GangJob(server, "two-hundred", 200, required()) as job:
                wait_until(lambda: runs(job), _LONG_SECONDS, "two hundred pods to run")
                measured(
                    f"a Job of 200 pods with one VF each: all run {time.monotonic() - began:.1f} s after it was created"
                )
                assert leaves_of(job) == {"large"}
                assert job.made() == 200
        finally:
            leader.stop()
