"""Nodes, pods, a scheduler and a Job controller in memory, and a leader that works when the test says so.

The scheduler and the Job controller are stand-ins: they know selectors, resources and owners, as far as these tests need them.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from railnet.apiserver.client import RequestFailed, StreamingApiServer
from railnet.apiserver.outbox import Message
from railnet.apiserver.request import Request
from railnet.controllers.events import JobEvents
from railnet.controllers.gangs.placement import GangPlacement
from railnet.controllers.work_queue import WorkQueue
from railnet.gangs.device_claims import device_claim
from railnet.gangs.life_cycle import GangEvent, GangState
from railnet.gangs.placement.node import Node, node
from railnet.gangs.pod import GangPod
from railnet.gangs.slice_devices import pool_slice
from railnet.jobs.gang.engine import pod_group_name
from railnet.jobs.reported_pod import ReportedPod
from tests.railnet.controllers.cluster_in_memory import Cluster, Refusal
from tests.railnet.controllers.gangs.scheduler import chosen_nodes

JsonObject = dict[str, Any]
GATE = "railnet.io/gang"
NAME = "pod-group.scheduling.sigs.k8s.io/name"
LEAST = "pod-group.scheduling.sigs.k8s.io/min-available"
CONSTRAINT = "alibabacloud.com/topology-aware-constraint"
LEAF = "railnet.io/leaf"
IN_ONE_LEAF = '{"name":"leaf","required":{"topologies":[{"key":"railnet.io/leaf"}]}}'


class GangCluster(Cluster):
    """The API server with nodes and pods of gangs.

    Attributes:
        now: the clock of leaders, in seconds.
        reasons: reason and text of each event.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.events: list[tuple[str, str, str]] = []

    def add_node(self, name: str, leaf: str | None = None, gpus: int = 8, **labels: str) -> None:
        given = {"kubernetes.io/hostname": name, **({} if leaf is None else {LEAF: leaf}), **labels}
        has = {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"}
        status = {"allocatable": has, "capacity": has, "conditions": [{"type": "Ready", "status": "True"}]}
        self.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name, "labels": given}, "spec": {}, "status": status})

    def add_job(self, name: str, pods: int, job_spec: JsonObject | None = None, **fields: Any) -> JsonObject:
        """Add a Job that ignores evictions, and return the reference of its pods to it.

        `job_spec` replaces parts of its specification, and `fields` are those of its pods.
        """
        found = pod_of(name, "", **fields)
        spec = {
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": {"labels": found["metadata"]["labels"]}, "spec": found["spec"]},
        }
        for key in ("schedulingGates", "schedulingGroup"):
            found["spec"].pop(key, None)
        found["spec"]["restartPolicy"] = "Never"
        rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        spec |= {"podFailurePolicy": {"rules": [rule]}, **(job_spec or {})}
        job = self.put(
            f"/apis/batch/v1/namespaces/ml/jobs/{name}", {"metadata": {"namespace": "ml", "name": name}, "spec": spec}
        )
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": job["metadata"]["uid"],
            "controller": True,
        }

    def add_stateful_set(self, name: str, pods: int, policy: str = "OrderedReady", **fields: Any) -> JsonObject:
        """Add a StatefulSet, and return the reference of its pods to it. `fields` are those of its pods."""
        pod = pod_of(name, "", **fields)
        del pod["spec"]["schedulingGates"]
        template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
        stateful_set = self.put(
            f"/apis/apps/v1/namespaces/ml/statefulsets/{name}",
            {
                "metadata": {"namespace": "ml", "name": name},
                "spec": {"replicas": pods, "podManagementPolicy": policy, "template": template},
            },
        )
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": name,
            "uid": stateful_set["metadata"]["uid"],
            "controller": True,
        }

    def add_gang(self, name: str, pods: int, **fields: Any) -> None:
        """Add a Job and its gated pods."""
        owner = self.add_job(name, pods, **fields)
        for rank in range(pods):
            self.add_pod(f"{name}-{rank}", name, owner=owner, **fields)

    def add_pod(self, pod: str, gang: str, *, owner: JsonObject | None = None, **fields: Any) -> None:
        found = pod_of(gang, pod, **fields)
        if owner is not None:
            found["metadata"]["ownerReferences"] = [owner]
        self.put(path(pod), found)

    def pods(self) -> dict[str, JsonObject]:
        return {one["metadata"]["name"]: one for one in self.of("pods")}

    def pod_groups(self) -> dict[str, JsonObject]:
        return {one["metadata"]["name"]: one for one in self.of("podgroups")}

    def gated(self) -> list[str]:
        return [
            name for name, one in self.pods().items() if {"name": GATE} in (one["spec"].get("schedulingGates") or ())
        ]

    def leaves(self) -> dict[str, str | None]:
        """Return the leaf that each pod's selector names."""
        return {name: (one["spec"].get("nodeSelector") or {}).get(LEAF) for name, one in self.pods().items()}

    def nodes(self) -> dict[str, str]:
        """Return the node of each bound pod."""
        return {name: one["spec"]["nodeName"] for name, one in self.pods().items() if one["spec"].get("nodeName")}

    def change(self, name: str, change: Callable[[JsonObject], object]) -> None:
        """Change a pod, as another client does."""
        found = copy.deepcopy(self.objects[path(name)])
        change(found)
        self.put(path(name), found)

    def bind(self, name: str, node_name: str) -> None:
        def bound(found: JsonObject) -> None:
            found["spec"]["nodeName"] = node_name
            found["status"] = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}

        self.change(name, bound)

    def _patch(self, path: str, patch: JsonObject | list[JsonObject]) -> JsonObject:
        """Refuse what kube-apiserver refuses: a gated pod's node selector can only be added to."""
        before, objects = copy.deepcopy(self.objects.get(path, {})), dict(self.objects)
        after = super()._patch(path, patch)
        selector = before["spec"].get("nodeSelector") or {}
        if not selector.items() <= (after["spec"].get("nodeSelector") or {}).items():
            self.objects = objects
            raise Refusal(422, "spec.nodeSelector: Invalid value: only additions are allowed")
        return after

    def refuse(self, verb: str, statuses: list[int], message: str = "refused") -> None:
        """Answer the next requests of a verb by these statuses."""

        def interfere(request: Request) -> None:
            if request.verb.right == verb and statuses:
                raise Refusal(statuses.pop(0), message)

        self.interfere = interfere

    def schedule(self) -> None:
        """Bind what the scheduler may bind, and what fits; what does not fit is unschedulable."""
        for name, at in chosen_nodes(self.of("nodes"), self.of("pods"), self.pod_groups()).items():
            if at is None:
                condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                self.change(name, partial(_add_condition, condition))
            else:
                self.bind(name, at)

    def end_leaving(self) -> None:
        """Have the pods go that are being deleted, as kubelets do."""
        for name, one in self.pods().items():
            if "deletionTimestamp" in one["metadata"]:
                self.remove(path(name))

    def make_again(self, gang: str, pods: int, **fields: Any) -> None:
        """Make the pods of a Job that are missing, with other names, as its controller does."""
        about = f"/apis/batch/v1/namespaces/ml/jobs/{gang}"
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": gang,
            "uid": self.objects[about]["metadata"]["uid"],
            "controller": True,
        }
        living = [
            one
            for one in self.of("pods")
            if one["metadata"]["labels"].get(NAME) == gang and "deletionTimestamp" not in one["metadata"]
        ]
        for _ in range(pods - len(living)):
            self._version += 1
            self.add_pod(f"{gang}-again-{self._version}", gang, owner=owner, **fields)


class Leader:
    """One leader. It learns of changes, decides and writes when the test says so, in this thread.

    Attributes:
        impossible: the pairs of a state and an event that may happen although the table of a gang's life does not have them.
    """

    def __init__(self, cluster: GangCluster, address: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.impossible: set[tuple[GangState, GangEvent]] = set()
        self._addresses = address or {}
        api = StreamingApiServer(cluster, lambda: "a-token", "test")
        self.gangs = GangPlacement(
            api,
            JobEvents(self._put, clock=lambda: cluster.now),
            lambda pod: self._addresses.get(pod.name),
            clock=lambda: cluster.now,
            wall=lambda: cluster.now,
        )
        self._pods: dict[tuple[str, str], GangPod] = {}
        self._nodes: dict[str, Node] = {}
        self._off: set[str] = set()
        self._slices: dict[str, Any] = {}
        self._claims: dict[str, Any] = {}

    def learn(self) -> None:
        """Bring what the leader knows up to date, as its watches do."""
        nodes = {one["metadata"]["name"]: node(one) for one in self.cluster.of("nodes")}
        for name in sorted(self._nodes.keys() | nodes.keys()):
            if self._nodes.get(name) != nodes.get(name):
                self.gangs._node_changed(self._nodes.get(name), nodes.get(name))
        reduced = [self.gangs.reduce(ReportedPod(one)) for one in self.cluster.of("pods")]
        pods = {one.name[:2]: one for one in reduced if one is not None}
        for key in sorted(self._pods.keys() | pods.keys()):
            if self._pods.get(key) != pods.get(key):
                self.gangs.pod_changed(self._pods.get(key), pods.get(key))
        off = {
            one["metadata"]["name"]
            for one in self.cluster.of("namespaces")
            if one["metadata"]["labels"].get(GATE) == "off"
        }
        self._learn_devices()
        for namespace in sorted(off ^ self._off):
            self.gangs._namespace_changed(*((None, namespace) if namespace in off else (namespace, None)))
        self._nodes, self._pods, self._off = nodes, pods, off

    def _learn_devices(self) -> None:
        """Bring slices and claims up to date; claims only from the moment at which there is a slice."""
        gangs = self.gangs
        self._slices = _changed(self._slices, self.cluster.of("resourceslices"), pool_slice, gangs._slice_changed)
        if self._slices:
            self._claims = _changed(self._claims, self.cluster.of("resourceclaims"), device_claim, gangs._claim_changed)
            if not self.gangs._planning.observed._claiming.is_watched:
                self.gangs._claims_listed()

    def look(self) -> float | None:
        """Decide once, and do all of it."""
        again = self.gangs.reconcile("all gangs")
        while len(self.gangs.roots.queue):
            work(self.gangs.roots.queue, self.gangs.roots.reconcile)
            again = self.gangs.reconcile("all gangs")
        work(self.gangs.writes.queue, self.gangs.writes.reconcile)
        work(self.gangs.groups.queue, self.gangs.groups.reconcile)
        assert self.gangs._planning._logged <= self.impossible
        return again

    def settle(self) -> float | None:
        """Learn and look until nothing changes."""
        while True:
            before = self.cluster._version
            self.learn()
            again = self.look()
            if self.cluster._version == before:
                return again

    def _put(self, message: Message) -> None:
        for request in message.requests():
            assert isinstance(request.body, dict)
            about = request.body["involvedObject"]
            assert len(request.body["message"].encode()) <= 1024
            self.cluster.events.append(
                (request.body["reason"], f"{about['kind']}/{about['name']}", request.body["message"])
            )


def _changed(
    before: dict[str, Any],
    documents: list[JsonObject],
    read: Callable[[JsonObject], Any],
    tell: Callable[[Any, Any], None],
) -> dict[str, Any]:
    """Tell what has changed, and return what there is."""
    after = {one["metadata"]["name"]: found for one in documents if (found := read(one)) is not None}
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            tell(before.get(name), after.get(name))
    return after


def work(queue: WorkQueue[Any], reconcile: Callable[[Any], object]) -> None:
    """Do once what waits in a queue; what fails waits for the next time."""
    keys = []
    while len(queue) > len(keys):
        key = queue.get()
        keys.append(key)
    for key in keys:
        try:
            reconcile(key)
        except RequestFailed:
            queue.done(key, 0.0)
        else:
            queue.done(key)


def path(pod: str) -> str:
    return f"/api/v1/namespaces/ml/pods/{pod}"


def pod_of(gang: str, name: str, **fields: Any) -> JsonObject:
    """Return a gated pod of a gang that asks for GPUs."""
    least = fields.get("least")
    labels = {NAME: gang, **({} if least is None else {LEAST: str(least)}), **fields.get("labels", {})}
    constraint = fields.get("constraint", IN_ONE_LEAF)
    annotations = {"railnet.io/explain": "…", **({} if constraint is None else {CONSTRAINT: constraint})}
    asks = {"nvidia.com/gpu": str(fields.get("gpus", 8))}
    held = {"schedulingGates": [{"name": GATE}, *fields.get("gates", ())]}
    if fields.get("grouped"):
        held = {"schedulingGroup": {"podGroupName": pod_group_name(gang)}}
    spec = {
        "containers": [{"name": "main", "resources": {"requests": asks, "limits": asks}}],
        **held,
        "priority": fields.get("priority", 0),
        **fields.get("spec", {}),
    }
    metadata = {
        "namespace": "ml",
        "name": name,
        "labels": labels,
        "annotations": annotations,
        "creationTimestamp": fields.get("created", "1970-01-01T00:10:00Z"),
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _add_condition(condition: JsonObject, pod: JsonObject) -> None:
    pod["status"] = {**pod["status"], "phase": "Pending", "conditions": [condition]}
