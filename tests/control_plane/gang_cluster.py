"""What the tests of gangs share: the webhook, gangs' constraints, and where the pods of a gang are."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.chart import GANGS
from tests.cluster.process import wait_until
from tests.control_plane.api import Api, ApiAnswer, JsonObject
from tests.control_plane.cluster import Cluster
from tests.control_plane.controllers import NAME, Controllers
from tests.control_plane.gang_jobs import GROUP, GangJob
from tests.control_plane.nodes import node
from tests.control_plane.proxy import ApiProxy
from tests.control_plane.server import ApiServer

SECONDS = 120.0
GATE, PLACEMENT = "railnet.io/gang", "railnet.io/placement"
LEAF = "fabric.topograph.run/tier-0"
CONTAINERS = {"containers": [{"name": "main", "image": "i"}]}
STRANGERS, _PROBED = "strangers", "gang-probe"


@contextmanager
def gating(server: ApiServer, files: Path) -> Iterator[Cluster]:
    """Have the webhook gate gangs, and the rights of the controllers."""
    with Cluster(server, GANGS, files, options=["--gangs"]) as found:
        server.namespace(_PROBED)
        wait_until(lambda: is_gated(probe(server.api).object), SECONDS, "the webhook to gate a gang's pod")
        yield found


@contextmanager
def leader(server: ApiServer, files: Path, proxy: ApiProxy | None = None, number: int = 0) -> Iterator[Controllers]:
    """Have a leader that places gangs, in the block. Where several lead at one time, each has another `number`."""
    replica = Controllers(server, files, options=["--gangs"], number=number)
    replica.start(proxy)
    try:
        replica.wait()
        yield replica
    finally:
        replica.stop()


def required(*keys: str) -> str:
    """Return a constraint: all members in one domain; of the leaf, where no label is given."""
    return json.dumps({"name": "test", "required": {"topologies": [{"key": key} for key in keys or (LEAF,)]}})


def preferred(key: str = LEAF, seconds: int = 600) -> str:
    """Return a constraint: rather in one domain, for so many seconds."""
    return json.dumps({"name": "test", "preferred": {"topologies": [{"key": key}]}, "relaxAfterSeconds": seconds})


def leaf(name: str, nodes: int, vfs: int) -> list[JsonObject]:
    """Return the nodes of one leaf."""
    return [node(f"{name}-{number}", {LEAF: name}, rdma_ib_vf=str(vfs)) for number in range(nodes)]


@contextmanager
def occupied(server: ApiServer, name: str, vfs: str) -> Iterator[None]:
    """Have a pod of no gang on a node in the block."""
    path = occupy(server, name, vfs)
    try:
        yield
    finally:
        server.api.delete(f"{path}?gracePeriodSeconds=0")


def occupy(server: ApiServer, name: str, vfs: str) -> str:
    """Create a pod of no gang on a node, as a DaemonSet of old did; return its path."""
    amounts = {"rdma/ib_vf": vfs}
    container = {"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    body = {"metadata": {"name": f"on-{name}"}, "spec": {"nodeName": name, "containers": [container]}}
    server.namespace(STRANGERS)
    made = server.api.create(f"/api/v1/namespaces/{STRANGERS}/pods", body)
    assert made.status == 201, made.message
    return f"/api/v1/namespaces/{STRANGERS}/pods/on-{name}"


def runs(job: GangJob) -> bool:
    """Return whether all pods of a job exist and run."""
    pods = job.pods()
    return len(pods) == job.count and all(
        one["status"].get("phase") == "Running" and not one["metadata"].get("deletionTimestamp") for one in pods
    )


def nodes_of(job: GangJob) -> Counter[str]:
    """Return how many pods are on each node; the empty text is for pods that are on none."""
    return Counter(one["spec"].get("nodeName", "") for one in job.pods())


def leaves_of(job: GangJob) -> set[str]:
    """Return the leaves of a job's pods, by their nodes."""
    return {name.rpartition("-")[0] for name in nodes_of(job)}


def is_gated(pod: JsonObject) -> bool:
    return {"name": GATE} in pod["spec"].get("schedulingGates", [])


def placements(job: GangJob) -> list[JsonObject]:
    """Return what the annotations of a job's pods say beside the node, without repetition; of a pod without it, nothing."""
    without_node = {json.dumps({**placed, "node": ""}): placed for placed in map(placement, job.pods()) if placed}
    return [{key: said for key, said in without_node[text].items() if key != "node"} for text in sorted(without_node)]


def seats(job: GangJob) -> Counter[str]:
    """Return how many pods of a job were given each node, by their annotations."""
    return Counter(placed["node"] for placed in map(placement, job.pods()) if placed)


def placement(pod: JsonObject) -> JsonObject:
    """Return what the annotation of a pod says; nothing of a pod without it."""
    found: JsonObject = json.loads(pod["metadata"].get("annotations", {}).get(PLACEMENT, "{}"))
    return found


def events(server: ApiServer, job: GangJob) -> Counter[str]:
    """Return how many events of Railnet's there are, by reason; all must be about the object that makes the pods."""
    found = _of_railnet(server, job)
    assert {one["involvedObject"]["kind"] for one in found} <= {"Job", "StatefulSet"}
    assert all(len(one["message"].encode()) <= 1024 for one in found)
    return Counter(one["reason"] for one in found)


def messages(server: ApiServer, job: GangJob, reason: str) -> str:
    """Return the texts of all events of Railnet's with a reason, one a line."""
    return "\n".join(one["message"] for one in _of_railnet(server, job) if one["reason"] == reason)


def _of_railnet(server: ApiServer, job: GangJob) -> list[JsonObject]:
    found = server.api.items(f"/api/v1/namespaces/{job.namespace}/events")
    return [one for one in found if one["source"].get("component") == NAME]


def probe(api: Api) -> ApiAnswer:
    """Create a pod of a gang as a dry run."""
    pod = {"metadata": {"name": "probe", "labels": {f"{GROUP}/name": "probe"}}, "spec": CONTAINERS}
    made = api.create(f"/api/v1/namespaces/{_PROBED}/pods?dryRun=All", pod)
    assert made.status == 201, made.message
    return made
