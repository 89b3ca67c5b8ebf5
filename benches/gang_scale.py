"""Measure what gangs cost: the leader at rest beside ten thousand pods, a gang of a thousand pods, and one of two hundred from Job to nodes.

Run by `scripts/bench gang-scale`, inside scripts/with-control-plane: a whole control plane, and nodes without a kubelet. Pods and nodes are written to
etcd: how fast an API server creates them is not the leader's. Fails if the leader sends a request that it need not send, places a gang in the
wrong leaf, or holds too much memory.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster.chart import GANGS
from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import GATE, LEAF, gating, is_gated, leaf, leaves_of, placements, required, runs
from tests.control_plane.gang_jobs import GROUP, GangJob
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes, without_kubelets
from tests.control_plane.process_use import used
from tests.control_plane.server import ApiServer
from tests.control_plane.watched import Watched

PODS, NODES, LEAF_NODES = 10_000, 1000, 32
GANG = 1000
SETTLE_SECONDS = 2.0  # what the first look at all gangs writes, and what must not be written
REST_SECONDS = 10.0
TARGET_MIB = 256
MOST_OTHER_WRITES = 10
_LONG_SECONDS = 300.0
_WRITES = ("create", "update", "patch", "delete")
_ASKS = (*_WRITES, "list", "get")

Figures = dict[str, float]
"""By what was measured, with its unit."""


def main() -> None:
    """Measure, print, and end with 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="scripts/bench gang-scale", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    figures: Figures = {}
    with ApiServer() as server, tempfile.TemporaryDirectory() as folder:
        missed = [
            *beside_many_pods(server, Path(folder), figures),
            *large_gang(server, Path(folder), figures),
            *whole_job(server, Path(folder), figures),
        ]
    report(figures, arguments.json)
    sys.exit("\n".join(missed) or None)


def report(figures: Figures, as_json: bool) -> None:
    """Print a line for each figure."""
    rounded = {name: round(value, 2) for name, value in figures.items()}
    print(json.dumps(rounded) if as_json else "\n".join(f"{name:<80}{value:>10g}" for name, value in rounded.items()))


def beside_many_pods(server: ApiServer, files: Path, figures: Figures) -> Iterator[str]:
    """Measure a leader that starts beside many pods and then rests; yield each target that is missed."""
    nodes = [node(f"node-{n}", {LEAF: f"leaf-{n // LEAF_NODES}"}, rdma_ib_vf="16") for n in range(NODES)]
    with stored(server), leader(server, files) as replica:
        server.put_all("nodes", without_kubelets(nodes))
        server.put_all("pods", [bound(number) for number in range(PODS)])
        began = time.monotonic()
        replica.start()
        replica.wait()
        figures[f"leader beside {PODS:,} pods and {NODES:,} nodes: all known after its start, s"] = (
            time.monotonic() - began
        )
        time.sleep(SETTLE_SECONDS)
        before, rested = replica.requests(), used(replica.program)
        time.sleep(REST_SECONDS)
        after = used(replica.program)
        asked = more(replica.requests(), before)
    figures["leader at rest: MiB"] = after.now
    figures["leader at rest: MiB at most"] = after.most
    figures["leader at rest: % of a processor"] = 100 * (after.seconds - rested.seconds) / REST_SECONDS
    figures["leader at rest: requests"] = sum(asked.values())
    if unneeded := {what: count for what, count in asked.items() if what.split()[0] in _ASKS}:
        yield f"at rest the leader has sent {unneeded}; target none"
    if after.now > TARGET_MIB:
        yield f"the leader holds {after.now} MiB; target {TARGET_MIB}"


def large_gang(server: ApiServer, files: Path, figures: Figures) -> Iterator[str]:
    """Measure a gang whose pods come at once, as the webhook leaves them; yield each target that is missed."""
    nodes = without_kubelets([*leaf("small", 124, 8), *leaf("large", 126, 8)])
    job = GangJob(server, "large-gang", GANG, required(), spec={"managedBy": "railnet.io/tests"})
    with stored(server), leader(server, files) as replica:
        replica.start()
        replica.wait()
        with job:
            pods = [gated(job, index) for index in range(GANG)]
            server.put_all("nodes", nodes)
            before, rested = replica.requests(*_WRITES), used(replica.program)
            with Watched(server.api, job.pods_path) as watched:
                server.put_all("pods", pods)
                wait_until(lambda: len(first(watched, gated=False)) == GANG, _LONG_SECONDS, "the pods to have no gate")
            time.sleep(SETTLE_SECONDS)
            sent = more(replica.requests(*_WRITES), before)
            figures[f"gang of {GANG:,} pods: no gate after the last pod was created, s"] = max(
                first(watched, gated=False).values()
            ) - max(first(watched, gated=True).values())
            figures[f"gang of {GANG:,} pods: s of a processor"] = used(replica.program).seconds - rested.seconds
            figures[f"gang of {GANG:,} pods: requests that write"] = sum(sent.values())
            placed = placements(job)
            server.delete_all("pods")
    if placed != [{"domain": {LEAF: "large"}, "attempt": 1}]:
        yield f"the gang was placed at {placed}; target the large leaf, at the first attempt"
    if sent.get("patch pods", 0) != GANG or sum(sent.values()) - GANG > MOST_OTHER_WRITES:
        yield f"for the gang the leader has written {sent}; target one patch for each pod, {MOST_OTHER_WRITES} others at most"


def whole_job(server: ApiServer, files: Path, figures: Figures) -> Iterator[str]:
    """Measure all of the way: the Job controller creates the pods, the webhook gates them, the leader admits them, the scheduler binds them."""
    replica = Controllers(server, files, options=["--gangs"])
    nodes = [*leaf("small", 24, 8), *leaf("large", 26, 8)]
    with gating(server, files), some_nodes(server.api, nodes), ExitStack() as ending:
        ending.callback(replica.stop)
        replica.start()
        replica.wait()
        began = time.monotonic()
        with GangJob(server, "whole-job", 200, required()) as job:
            wait_until(lambda: runs(job), _LONG_SECONDS, "the Job's pods to run")
            figures["Job of 200 pods with one VF each: all run after it was created, s"] = time.monotonic() - began
            leaves, pods = leaves_of(job), job.made()
    if leaves != {"large"} or pods != job.count:
        yield f"the Job made {pods} pods, in the leaves {sorted(leaves)}; target {job.count}, in the large leaf"


@contextmanager
def stored(server: ApiServer) -> Iterator[None]:
    """Delete, after the block, all pods and nodes."""
    try:
        yield
    finally:
        server.delete_all("pods")
        server.delete_all("nodes")


@contextmanager
def leader(server: ApiServer, files: Path) -> Iterator[Controllers]:
    """Give the controllers, with the rights of their manifest; they are to be started, and end with the block."""
    with applied(server, GANGS), ExitStack() as ending:
        replica = Controllers(server, files, options=["--gangs"])
        ending.callback(replica.stop)
        yield replica


def bound(number: int) -> JsonObject:
    """Return a pod on a node; every fifth is a member of a gang of twenty."""
    requests = {"cpu": "4", "memory": "8Gi", "rdma/ib_vf": "1"}
    labels = {f"{GROUP}/name": f"gang-{number // 100}", f"{GROUP}/min-available": "20"} if number % 5 == 0 else {}
    container = {"name": "main", "image": "train:1", "resources": {"requests": requests, "limits": requests}}
    spec = {"nodeName": f"node-{number % NODES}", "containers": [container]}
    metadata = {"name": f"pod-{number}", "namespace": "many", "labels": labels}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


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


def first(watched: Watched, *, gated: bool) -> dict[str, float]:
    """Return when each pod was first reported, with or without the gate."""
    times: dict[str, float] = {}
    for event in tuple(watched.reported):
        if is_gated(event.object) is gated:
            times.setdefault(event.object["metadata"]["name"], event.at)
    return times


def more(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return what was counted since, without what was not."""
    return {what: count - before.get(what, 0) for what, count in after.items() if count != before.get(what, 0)}


if __name__ == "__main__":
    main()
