"""One tenant's pods, each as costly to the controllers as a pod can be, and beside them a gang of another tenant."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import Controllers
from tests.control_plane.gang_cluster import GATE, gating, leaf, required, runs
from tests.control_plane.gang_jobs import CONSTRAINT, GROUP, GangJob
from tests.control_plane.nodes import some_nodes
from tests.control_plane.process_use import used
from tests.control_plane.server import ApiServer

MOST_MIB = 256  # of the chart
MOST_SECONDS = 20.0  # from a gang's creation until its pods run, beside any crowd, on a machine that does much else
_NAMESPACE = "crowd"
_AT_ONCE = 20  # pods of 20 KB in one request to etcd, which takes 1.5 MB
_LONG_SECONDS = 600.0


class BesideCrowd(NamedTuple):
    """What was measured: of the leader its memory at most, and until when all pods were known; of another tenant's gang, until it ran."""

    pods: int
    peak_mib: int
    known_seconds: float
    gang_seconds: float

    def missed(self) -> list[str]:
        """Return what is not as it must be."""
        return [
            *([f"the leader had {self.peak_mib} MiB; permitted {MOST_MIB}"] * (self.peak_mib > MOST_MIB)),
            *(
                [f"the gang ran after {self.gang_seconds:.1f} s; permitted {MOST_SECONDS:g}"]
                * (self.gang_seconds > MOST_SECONDS)
            ),
        ]


def beside_crowd(server: ApiServer, files: Path, count: int) -> BesideCrowd:
    """Start a leader beside so many pods of one tenant, and then create a gang of another one."""
    replica = Controllers(server, files, options=["--gangs"])
    with gating(server, files), some_nodes(server.api, leaf("one", 4, 2)), _crowd(server, count):
        began = time.monotonic()
        replica.start()
        try:
            replica.program.wait(replica.leads, _LONG_SECONDS)
            known = time.monotonic() - began
            began = time.monotonic()
            with GangJob(server, "beside-a-crowd", 4, required()) as job:
                wait_until(lambda: runs(job), _LONG_SECONDS, "the gang to run")
                took = time.monotonic() - began
            return BesideCrowd(count, used(replica.program).most, known, took)
        finally:
            replica.stop()


@contextmanager
def _crowd(server: ApiServer, count: int) -> Iterator[None]:
    server.namespace(_NAMESPACE)
    try:
        for first in range(0, count, _AT_ONCE):
            server.put_all("pods", [costly_pod(number) for number in range(first, min(count, first + _AT_ONCE))])
        yield
    finally:
        server.delete_all("pods")
        server.api.delete(f"/api/v1/namespaces/{_NAMESPACE}")


def costly_pod(number: int) -> JsonObject:
    """Return a pod that waits for its own gang, and that is like no other one."""
    values = [f"{number}-{of}" for of in range(900)]
    selectors = [{"matchExpressions": [{"key": "k", "operator": "In", "values": values}]}]
    constraint = {"required": {"topologies": [{"key": "kubernetes.io/hostname"}], "nodeSelectors": selectors}}
    metadata = {
        "name": f"costly-{number}",
        "namespace": _NAMESPACE,
        "labels": {f"{GROUP}/name": f"costly-{number}", "railnet.io/net1": "true"},
        "annotations": {CONSTRAINT: json.dumps(constraint, separators=(",", ":"))},
    }
    amounts = {"requests": {"rdma/ib_vf": "1"}, "limits": {"rdma/ib_vf": "1"}}
    container = {"name": "main", "image": "train:1", "resources": amounts}
    spec = {"containers": [container], "schedulingGates": [{"name": GATE}], **_REQUIREMENTS[number % 3](number)}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _affinity(number: int) -> JsonObject:
    terms = [{"matchExpressions": [{"key": f"k{of}-{number}", "operator": "Exists"}]} for of in range(80)]
    required_terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required_terms}}


def _tolerations(number: int) -> JsonObject:
    return {"tolerations": [{"key": f"k{of}-{number}", "operator": "Exists"} for of in range(150)]}


def _selector(number: int) -> JsonObject:
    return {"nodeSelector": {f"k{of}-{number}": "v" for of in range(240)}}


_REQUIREMENTS = (_affinity, _tolerations, _selector)
