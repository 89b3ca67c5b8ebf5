"""Jobs and StatefulSets whose pods are a gang: the real controllers make the pods, and make them again."""

import http.client
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.server import ApiServer
from tests.control_plane.watched import Watched

GROUP = "pod-group.scheduling.sigs.k8s.io"
CONSTRAINT = "alibabacloud.com/topology-aware-constraint"
_VERSIONS = {"jobs": "/apis/batch/v1", "statefulsets": "/apis/apps/v1"}
_SECONDS = 120.0


class GangJob:
    """A Job, or a StatefulSet (`resource`), in the `with` block; it is gone with its pods when the block ends.

    A StatefulSet makes a pod that was evicted again at once. The Job controller waits for ten seconds and longer.
    """

    def __init__(  # noqa: PLR0913 - what a user writes into a Job
        self,
        server: ApiServer,
        name: str,
        pods: int,
        constraint: str | None = None,
        *,
        resource: str = "jobs",
        namespace: str = "",
        gang: tuple[str, int] | None = None,
        requests: Mapping[str, str] | None = None,
        spec: JsonObject | None = None,
        pod_spec: JsonObject | None = None,
    ) -> None:
        """Describe it.

        Args:
            server: the API server.
            name: its name, and that of its namespace where no other is given.
            pods: how many pods it has.
            constraint: where the gang may be: the text of the annotation.
            resource: `jobs` or `statefulsets`.
            namespace: its namespace.
            gang: name and size of the gang; those of the Job if it is the whole gang.
            requests: what each pod requests, beside one VF.
            spec: more of the object's specification.
            pod_spec: more of the pods' specification.
        """
        self.name, self.namespace, self.count = name, namespace or name, pods
        gang_name, least = gang or (name, pods)
        self.labels = {f"{GROUP}/name": gang_name, f"{GROUP}/min-available": str(least)}
        self.pods_path = f"/api/v1/namespaces/{self.namespace}/pods"
        self._server, self._resource = server, resource
        self._path = f"{_VERSIONS[resource]}/namespaces/{self.namespace}/{resource}"
        self._annotations = {} if constraint is None else {CONSTRAINT: constraint}
        self._requests, self._spec, self._pod_spec = {"rdma/ib_vf": "1", **(requests or {})}, spec or {}, pod_spec or {}
        self._watched = Watched(server.api, self.pods_path)
        self._made = ExitStack()

    def __enter__(self) -> Self:
        self._server.namespace(self.namespace)
        with ExitStack() as made:
            made.enter_context(self._watched)
            self.root = self._server.api.create(self._path, self.body())
            assert self.root.status == http.client.CREATED, self.root.message
            made.callback(self.finish)
            self._made = made.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._made.close()
        except TimeoutError as late:
            if error is None:
                raise
            error.add_note(f"and then: {late}")  # the error in the block is the first one

    def body(self) -> JsonObject:
        """Return the object as a user creates it."""
        container = {
            "name": "main",
            "image": "train:1",
            "resources": {"requests": self._requests, "limits": self._requests},
        }
        metadata = {"labels": {**self.labels, "of": self.name}, "annotations": self._annotations}
        template: JsonObject = {"metadata": metadata, "spec": {"containers": [container], **self._pod_spec}}
        own: JsonObject
        if self._resource == "jobs":
            template["spec"]["restartPolicy"] = "Never"
        template["spec"] |= self._pod_spec
        if self._resource == "jobs":
            own = {"completions": self.count, "parallelism": self.count, "completionMode": "Indexed"}
        else:
            own = {"replicas": self.count, "podManagementPolicy": "Parallel", "serviceName": self.name}
            own["selector"] = {"matchLabels": {"of": self.name}}
        return {"metadata": {"name": self.name}, "spec": {**own, "template": template, **self._spec}}

    def status(self) -> JsonObject:
        """Return the status that the object's controller reports."""
        found: JsonObject = self._server.api.get(f"{self._path}/{self.name}").object["status"]
        return found

    def pods(self) -> list[JsonObject]:
        """Return the pods that exist."""
        return [one for one in self._server.api.items(self.pods_path) if one["metadata"]["labels"]["of"] == self.name]

    def made(self) -> int:
        """Return how many pods there have been in the namespace."""
        return len(self._watched.uids())

    def finish(self) -> None:
        """Delete the object, and wait until its pods are gone."""
        gone = self._server.api.delete(f"{self._path}/{self.name}?propagationPolicy=Background")
        assert gone.status in (http.client.OK, http.client.ACCEPTED, http.client.NOT_FOUND), gone.message
        wait_until(lambda: not self.pods(), _SECONDS, f"the pods of {self.name} to be gone")
