"""Pods, their roots and the table of addresses in memory: what the controller of sticky addresses asks the API server for."""

import copy
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from railnet.apiserver.client import Absent, Conflict
from railnet.apiserver.outbox import Message
from railnet.apiserver.request import JsonObject, Request
from railnet.controllers.events import JobEvents
from railnet.controllers.job_pods import JobPods
from railnet.controllers.owners import Owners
from railnet.controllers.sticky_addresses import StickyAddresses
from railnet.controllers.training_pod import TrainingPod, training_pod
from railnet.jobs.reported_pod import ReportedPod
from railnet.vf.permitted_networks import Networks

TABLE = "/api/v1/namespaces/railnet/configmaps/railnet-sticky-addresses"


def job(name: str, uid: str = "") -> JsonObject:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid or f"uid-of-{name}", "controller": True}


class Cluster:
    """The objects by path; each write has a new `resourceVersion`, and a write of an older one is a conflict.

    Attributes:
        requests: how many requests there were, as "patch pods".
        interfere: called with each request before it is done; what it raises is the answer.
    """

    def __init__(self) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.requests: Counter[str] = Counter()
        self.interfere: Callable[[Request], None] = lambda request: None
        self._version = 0

    def put(self, path: str, found: JsonObject) -> JsonObject:
        self._version += 1
        self.objects[path] = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self._version)}}
        return copy.deepcopy(self.objects[path])

    def make_job(self, name: str, uid: str = "", namespace: str = "ml") -> JsonObject:
        root = job(name, uid)
        self.put(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", {"metadata": {"name": name, "uid": root["uid"]}})
        return root

    def make_pod(self, name: str, rank: int | None, root: JsonObject | None, **fields: Any) -> JsonObject:
        labels = {"railnet.io/net1": "true", "railnet.io/job": fields.pop("job", "mnist")}
        ranked = {} if rank is None else {"railnet.io/rank": str(rank)}
        vfs = {"rdma/ib_vf": str(fields.pop("vfs", 1))}
        annotations = {"railnet.io/sticky": "true", **fields.pop("annotations", {})}
        namespace = fields.pop("namespace", "ml")
        metadata = {
            "namespace": namespace,
            "name": name,
            "uid": fields.pop("uid", f"uid-of-{name}"),
            "labels": labels | ranked,
            "annotations": annotations,
            **({} if root is None else {"ownerReferences": [root]}),
            **fields.pop("metadata", {}),
        }
        spec = {"containers": [{"name": "main", "resources": {"limits": vfs, "requests": vfs}}], "nodeName": "node-a"}
        spec |= fields.pop("spec", {})
        return self.put(
            f"/api/v1/namespaces/{namespace}/pods/{name}",
            {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}},
        )

    def pods(self) -> list[TrainingPod]:
        found = [training_pod(ReportedPod(one)) for path, one in sorted(self.objects.items()) if "/pods/" in path]
        return [one for one in found if one is not None]

    def net1(self) -> dict[str, str | None]:
        """Return the annotation of each pod by its name."""
        return {pod.name: pod.annotations.get("railnet.io/net1-ip") for pod in self.pods()}

    def send(self, request: Request) -> JsonObject:
        self.requests[f"{request.verb.right} {request.about.resource}"] += 1
        self.interfere(request)
        path = request.path.removesuffix("/status")
        body: Any = copy.deepcopy(request.body)
        if request.verb.right == "create":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise Conflict(f"{path} exists", 409)
            return self.put(path, body)
        if path not in self.objects:
            raise Absent(f"no {path}", 404)
        found = self.objects[path]
        if request.verb.right == "get":
            return copy.deepcopy(found)
        if request.verb.right == "update":
            if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                raise Conflict(f"{path} has changed", 409)
            return self.put(path, body)
        assert request.verb.right == "patch"
        if body["metadata"]["uid"] != found["metadata"]["uid"]:
            raise Conflict(f"{path} is another one", 409)
        metadata = {
            **found["metadata"],
            "annotations": found["metadata"]["annotations"] | body["metadata"]["annotations"],
        }
        return self.put(path, {**found, "metadata": metadata})


class Leader:
    """One leader: it learns of pods when the test says so, and works when the test says so."""

    def __init__(self, cluster: Cluster, networks: Networks, *, gangs: bool = False) -> None:
        self.cluster = cluster
        self.pods = JobPods()
        self.now = 0.0
        self.events: list[tuple[str, str, str]] = []
        self._known: dict[str, TrainingPod] = {}
        api: Any = cluster
        self.sticky = StickyAddresses(
            api=api,
            namespace="railnet",
            networks=networks,
            resources=frozenset({"rdma/ib_vf"}),
            pods=self.pods,
            owners=Owners(api),
            events=JobEvents(self._put),
            clock=lambda: self.now,
            gangs=gangs,
        )

    def learn(self) -> None:
        """Bring what the leader knows of the pods up to date, as its watch does."""
        found = {pod.name: pod for pod in self.cluster.pods()}
        for name in self._known.keys() | found.keys():
            before, after = self._known.get(name), found.get(name)
            if before != after:
                self.pods.change(before, after)
        self._known = found

    def look(self) -> float | None:
        return self.sticky.reconcile("the table")

    def annotate(self) -> None:
        """Write all annotations that are due."""
        while len(self.sticky.patches):
            pod = self.sticky.patches.get()
            assert pod is not None
            self.sticky.annotate(pod)
            self.sticky.patches.done(pod)

    def work(self) -> float | None:
        """Learn, assign, and annotate."""
        self.learn()
        again = self.look()
        self.annotate()
        self.learn()
        return again

    def reasons(self) -> list[str]:
        return [reason for reason, _, _ in self.events]

    def _put(self, message: Message) -> None:
        for request in message.requests():
            assert isinstance(request.body, dict)
            about = request.body["involvedObject"]
            self.events.append((request.body["reason"], f"{about['kind']}/{about['name']}", request.body["message"]))


def table(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Return the numbers of the stored table by the root's name."""
    lines = [line for text in cluster.objects[TABLE]["data"].values() for line in text.splitlines()]
    jobs = [json.loads(line) for line in lines]
    return {job["root"]["name"] if job["root"] else job["job"]: job["numbers"] for job in jobs}
