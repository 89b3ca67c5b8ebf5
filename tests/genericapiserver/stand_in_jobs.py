"""A stand-in for the controller of a job whose pods are a gang; tests/stand_ins/gang_job.py decides which pods it makes."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from tests.genericapiserver.api import Api, ApiAnswer, JsonObject
from tests.genericapiserver.server import PORT, ApiServer
from tests.genericapiserver.stand_in import StandIn
from tests.stand_ins.gang_job import GangJob

GROUP = "pod-group.scheduling.sigs.k8s.io"
CONSTRAINT = "alibabacloud.com/topology-aware-constraint"
_CREATED, _CONFLICT = 201, 409
_THREADS = 4


class JobController(StandIn):
    """Makes the pods of one Job, in a namespace of its name.

    Attributes:
        refusals: the last answer to each pod that could not be made.
        made: the name of each pod that was made, once for each time.
    """

    def __init__(
        self,
        server: ApiServer,
        job: GangJob,
        constraint: str | None = None,
        requests: Mapping[str, Mapping[str, str]] | None = None,
        spec: JsonObject | None = None,
    ) -> None:
        """Create the Job.

        Args:
            server: the API server.
            job: the job.
            constraint: where the gang may be: the text of the annotation.
            requests: by role, what a pod requests; for other roles, of `rdma/ib_vf` one.
            spec: more of each pod's specification.
        """
        self.job, self._constraint, self._requests, self._spec = job, constraint, requests or {}, spec or {}
        self._asking = server.api
        self.pods_path = f"/api/v1/namespaces/{job.name}/pods"
        super().__init__(server, [self.pods_path])
        self.refusals: dict[str, ApiAnswer] = {}
        self.made: list[str] = []
        self._finished = False
        self.labels = {f"{GROUP}/name": job.name, f"{GROUP}/min-available": str(sum(job.roles.values()))}
        self._asking.create("/api/v1/namespaces", {"metadata": {"name": job.name}})
        template = {"metadata": {"labels": self.labels}, "spec": self._pod_spec(next(iter(job.roles)))}
        root = {"metadata": {"name": job.name}, "spec": {"parallelism": sum(job.roles.values()), "template": template}}
        self.root = self._asking.create(f"/apis/batch/v1/namespaces/{job.name}/jobs", root).object

    def look(self, *lists: list[JsonObject]) -> bool:
        missing = [] if self._finished else self.job.missing(lists[0])
        shares = [missing[first::_THREADS] for first in range(min(_THREADS, len(missing)))]
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._make, shares))
        return bool(self.refusals)

    def pods(self) -> list[JsonObject]:
        """Return the pods that exist; for the thread of the test."""
        found: list[JsonObject] = self._asking.get(self.pods_path).object["items"]
        return found

    def finish(self) -> None:
        """Delete the Job with its pods, and make no more."""
        self._finished = True
        self._asking.send("DELETE", f"/apis/batch/v1/namespaces/{self.job.name}/jobs/{self.job.name}")
        self._asking.send("DELETE", self.pods_path)

    def _make(self, missing: list[tuple[str, int]]) -> None:
        """Make pods by a connection of this thread."""
        with closing(Api(PORT, self.api.authority)) as api:
            for role, index in missing:
                pod = self.pod(role, index)
                made = api.create(self.pods_path, pod)
                name = pod["metadata"]["name"]
                if made.status in (_CREATED, _CONFLICT):  # a conflict: the watch has not reported it yet
                    self.made.extend([name] * (made.status == _CREATED))
                    self.refusals.pop(name, None)
                else:
                    self.refusals[name] = made

    def pod(self, role: str, index: int) -> JsonObject:
        """Return a pod of the job."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.job.name, "controller": True}
        metadata: dict[str, Any] = {
            "name": self.job.pod_name(role, index),
            "labels": {**self.labels, "role": role},
            "ownerReferences": [{**owner, "uid": self.root["metadata"]["uid"]}],
        }
        if self._constraint is not None:
            metadata["annotations"] = {CONSTRAINT: self._constraint}
        return {"metadata": metadata, "spec": self._pod_spec(role)}

    def _pod_spec(self, role: str) -> JsonObject:
        requested = self._requests.get(role, {"rdma/ib_vf": "1"})
        container = {"name": "main", "image": "train:1", "resources": {"requests": requested, "limits": requested}}
        return {"containers": [container], **self._spec}
