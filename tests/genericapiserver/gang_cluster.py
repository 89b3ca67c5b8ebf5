"""What the tests of gangs share: the webhook, gangs' constraints, and where the pods of a gang are."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.process import wait_until
from tests.genericapiserver.api import Api, ApiAnswer, JsonObject
from tests.genericapiserver.cluster import Cluster
from tests.genericapiserver.server import ApiServer
from tests.genericapiserver.stand_in_jobs import GROUP, JobController
from tests.genericapiserver.stand_in_nodes import node

SECONDS = 60.0
FOLDER = "overlays/gangs"
GATE, PLACEMENT = "railnet.io/gang", "railnet.io/placement"
LEAF = "fabric.topograph.run/tier-0"
CONTAINERS = {"containers": [{"name": "main", "image": "i"}]}
STRANGERS, _PROBED = "strangers", "gang-probe"


@contextmanager
def gating(server: ApiServer, files: Path) -> Iterator[Cluster]:
    """Have the webhook gate gangs; begins with no pods and nodes, as it ends."""
    clear(server)
    with Cluster(server, FOLDER, files, options=["--gangs"]) as found:
        server.api.create("/api/v1/namespaces", {"metadata": {"name": _PROBED}})
        wait_until(lambda: is_gated(probe(server.api).object), SECONDS, "the webhook to gate a gang's pod")
        yield found
    clear(server)


def clear(server: ApiServer) -> None:
    """Delete all pods and nodes."""
    server.delete_all("pods")
    server.delete_all("nodes")
    wait_until(
        lambda: not any(server.api.get(f"/api/v1/{one}").object["items"] for one in ("pods", "nodes")),
        SECONDS,
        "no pods",
    )


def required(key: str = LEAF) -> str:
    """Return a constraint: all members in one domain."""
    return json.dumps({"name": "test", "required": {"topologies": [{"key": key}]}})


def leaf(name: str, nodes: int, vfs: int) -> list[JsonObject]:
    """Return the nodes of one leaf."""
    return [node(f"{name}-{number}", {LEAF: name}, rdma_ib_vf=str(vfs)) for number in range(nodes)]


def occupy(api: Api, name: str, vfs: str) -> str:
    """Create a pod of no gang on a node; return its path."""
    container = {"name": "main", "image": "i", "resources": {"requests": {"rdma/ib_vf": vfs}}}
    body = {"metadata": {"name": f"on-{name}"}, "spec": {"nodeName": name, "containers": [container]}}
    api.create("/api/v1/namespaces", {"metadata": {"name": STRANGERS}})
    made = api.create(f"/api/v1/namespaces/{STRANGERS}/pods", body)
    assert made.status == 201, made.message
    return f"/api/v1/namespaces/{STRANGERS}/pods/on-{name}"


def runs(jobs: JobController) -> bool:
    """Return whether all pods of a job exist and run."""
    pods = jobs.pods()
    return len(pods) == sum(jobs.job.roles.values()) and all(one["status"].get("phase") == "Running" for one in pods)


def nodes_of(jobs: JobController) -> Counter[str]:
    """Return how many pods are on each node; the empty text is for pods that are on none."""
    return Counter(one["spec"].get("nodeName", "") for one in jobs.pods())


def leaves_of(jobs: JobController) -> set[str]:
    """Return the leaves of a job's pods, by their nodes."""
    return {name.rpartition("-")[0] for name in nodes_of(jobs)}


def is_gated(pod: JsonObject) -> bool:
    return {"name": GATE} in pod["spec"].get("schedulingGates", [])


def placements(jobs: JobController) -> list[JsonObject]:
    """Return what the annotations of a job's pods say, without repetition; of a pod without it, nothing."""
    texts = {one["metadata"].get("annotations", {}).get(PLACEMENT) for one in jobs.pods()}
    return [json.loads(text) for text in sorted(filter(None, texts))]


def events(server: ApiServer, jobs: JobController) -> Counter[str]:
    """Return how many events there are, by reason; all must be about the Job."""
    found = server.api.get(f"/api/v1/namespaces/{jobs.job.name}/events").object["items"]
    assert {one["involvedObject"]["kind"] for one in found} <= {"Job"}
    assert all(len(one["message"].encode()) <= 1024 for one in found)
    return Counter(one["reason"] for one in found)


def messages(server: ApiServer, jobs: JobController, reason: str) -> str:
    """Return the texts of all events with a reason, one a line."""
    found = server.api.get(f"/api/v1/namespaces/{jobs.job.name}/events").object["items"]
    return "\n".join(one["message"] for one in found if one["reason"] == reason)


def probe(api: Api) -> ApiAnswer:
    """Create a pod of a gang as a dry run."""
    pod = {"metadata": {"name": "probe", "labels": {f"{GROUP}/name": "probe"}}, "spec": CONTAINERS}
    made = api.create(f"/api/v1/namespaces/{_PROBED}/pods?dryRun=All", pod)
    assert made.status == 201, made.message
    return made
