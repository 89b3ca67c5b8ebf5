"""A job of the plain templates in an API server in memory, with the Kubernetes controllers that make and end its pods."""

from collections.abc import Iterator
from typing import Any

from tests.railnet.controllers.cluster_in_memory import Cluster

JsonObject = dict[str, Any]
LONG_AGO, JUST_NOW = "2026-03-01T10:00:00Z", "2026-03-01T11:59:50Z"
NOW = 1772366400.0  # 2026-03-01T12:00:00Z
_APIS = {
    "Deployment": ("apps/v1", "deployments"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Job": ("batch/v1", "jobs"),
    "Pod": ("v1", "pods"),
    "Service": ("v1", "services"),
    "TFJob": ("kubeflow.org/v1", "tfjobs"),
    "ConfigMap": ("v1", "configmaps"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
}


def path(kind: str, name: str, namespace: str = "ml") -> str:
    version, resource = _APIS[kind]
    return f"{'/apis' if '/' in version else '/api'}/{version}/namespaces/{namespace}/{resource}/{name}"


def owned_by(kind: str, name: str) -> JsonObject:
    return {
        "apiVersion": _APIS[kind][0],
        "kind": kind,
        "name": name,
        "uid": f"uid-of-{kind}-{name}",
        "controller": True,
    }


class TemplateJob:
    """The objects of the job `mnist` as its author and Kubernetes write them."""

    def __init__(self, cluster: Cluster, workers: int = 3, servers: int = 2) -> None:
        self.cluster, self.workers, self.servers = cluster, workers, servers
        self.created, self.annotations, self.env = LONG_AGO, dict[str, str](), list[JsonObject]()
        self.owner: JsonObject | None = None
        cluster.put("/api/v1/namespaces/ml", {"metadata": {"name": "ml", "labels": {}}})

    def make(self) -> "TemplateJob":
        for role, rank in self.tasks():
            self.make_task(role, rank)
        return self

    def tasks(self) -> Iterator[tuple[str, int]]:
        yield from (("ps", rank) for rank in range(self.servers))
        yield from (("worker", rank) for rank in range(self.workers))

    def make_task(self, role: str, rank: int, service: bool = True) -> None:
        name, labels = f"mnist-{role}-{rank}", {"name": "mnist", "job": role, "task": str(rank)}
        if service:
            self.put("Service", name, owner=self.owner, spec={"clusterIP": "None", "selector": labels})
        if role == "ps":
            self.put(
                "Deployment", name, owner=self.owner, spec={"replicas": 1, "template": self._template(name, labels)}
            )
            self.put(
                "ReplicaSet",
                f"{name}-5d",
                owner=owned_by("Deployment", name),
                spec={"template": self._template(name, labels)},
            )
            self.pod(f"{name}-5d-x", labels, name, owned_by("ReplicaSet", f"{name}-5d"))
        else:
            self.put("Job", name, owner=self.owner, spec={"template": self._template(name, labels)}, status={})
            self.pod(f"{name}-x", labels, name, owned_by("Job", name))

    def pod(
        self, name: str, labels: JsonObject, container: str, owner: JsonObject | None, phase: str = "Running"
    ) -> None:
        template = self._template(container, labels)
        metadata = {"labels": labels, "annotations": self.annotations}
        self.put("Pod", name, owner=owner, spec=template["spec"], status={"phase": phase}, **metadata)

    def put(self, kind: str, name: str, owner: JsonObject | None = None, **fields: Any) -> None:
        metadata = {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-of-{kind}-{name}",
            "creationTimestamp": self.created,
            **{key: fields.pop(key) for key in ("labels", "annotations") if key in fields},
            **({} if owner is None else {"ownerReferences": [owner]}),
        }
        self.cluster.put(path(kind, name), {"metadata": metadata, **fields})

    def _template(self, container: str, labels: JsonObject) -> JsonObject:
        containers = [{"name": container, "image": "train:1", "env": self.env}]
        return {"metadata": {"labels": labels, "annotations": self.annotations}, "spec": {"containers": containers}}

    # What Kubernetes' controllers do.

    def end(self, rank: int, condition: str = "Complete") -> None:
        """Set a worker's Job to its end, and its pod."""
        name = f"mnist-worker-{rank}"
        phase = "Succeeded" if condition == "Complete" else "Failed"
        self._change(path("Job", name), {"conditions": [{"type": condition, "status": "True"}]})
        if path("Pod", f"{name}-x") in self.cluster.objects:
            self._change(path("Pod", f"{name}-x"), {"phase": phase})

    def _change(self, where: str, status: JsonObject) -> None:
        self.cluster.put(where, {**self.cluster.objects[where], "status": status})

    def collect_garbage(self) -> None:
        """Delete what belongs to objects that are gone."""
        while dead := [where for where, one in self.cluster.objects.items() if self._is_orphan(one)]:
            for where in dead:
                self.cluster.remove(where)

    def _is_orphan(self, found: JsonObject) -> bool:
        uids = {one["metadata"]["uid"] for one in self.cluster.objects.values()}
        references = found["metadata"].get("ownerReferences") or []
        return any(one["uid"] not in uids and one["kind"] != "ConfigMap" for one in references)

    # What a test asks.

    def left(self, kind: str) -> list[str]:
        """Return the names of what is left of a kind."""
        return [one["metadata"]["name"] for one in self.cluster.of(_APIS[kind][1])]
