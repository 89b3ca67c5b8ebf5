"""`railnet controllers --clean-up`: what it deletes of finished jobs, and what it leaves.

Kubernetes' controllers make the pods, complete the Jobs and empty the namespaces. The tests end the pods, which kubelets do.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from tests.cluster.chart import ENABLED
from tests.cluster.process import wait_until
from tests.control_plane.api import JsonObject
from tests.control_plane.controllers import Controllers
from tests.control_plane.manifests import applied
from tests.control_plane.nodes import node, some_nodes
from tests.control_plane.server import ApiServer

_SECONDS = 60.0
_STAYS_SECONDS = 3.0


@pytest.fixture(scope="module")
def replica(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    with applied(server, {"controllers": {**ENABLED, "cleanUp": ENABLED}}), some_nodes(server.api, [node("node-a")]):
        yield Controllers(server, tmp_path_factory.mktemp("clean-up"), options=["--clean-up"])


@pytest.fixture
def controllers(replica: Controllers) -> Iterator[Controllers]:
    replica.start()
    try:
        replica.wait()
        yield replica
    finally:
        replica.stop()


class TemplateJob:
    """A job of the plain templates in a namespace of its own: two parameter servers and three workers that run."""

    def __init__(self, server: ApiServer, name: str, annotations: JsonObject | None = None) -> None:
        self.name, self._api, self._annotations = name, server.api, annotations or {}
        server.namespace(name)
        for role, number in (("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1), ("worker", 2)):
            self._make(role, number)
        wait_until(lambda: self._phases() == ["Running"] * 5, _SECONDS, "all pods to run")

    def _make(self, role: str, number: int) -> None:
        task, labels = f"{self.name}-{role}-{number}", {"name": self.name, "job": role, "task": str(number)}
        template: JsonObject = {
            "metadata": {"labels": labels, "annotations": self._annotations},
            "spec": {"containers": [{"name": task, "image": "train:1"}]},
        }
        self._create("/api/v1", "services", task, {"clusterIP": "None", "selector": labels})
        if role == "ps":
            self._create(
                "/apis/apps/v1", "deployments", task, {"selector": {"matchLabels": labels}, "template": template}
            )
        else:
            template["spec"]["restartPolicy"] = "Never"
            self._create("/apis/batch/v1", "jobs", task, {"backoffLimit": 0, "template": template})

    def _create(self, version: str, resource: str, name: str, spec: JsonObject) -> None:
        made = self._api.create(self._path(version, resource), {"metadata": {"name": name}, "spec": spec})
        assert made.status == 201, made.message

    def _path(self, version: str, resource: str) -> str:
        return f"{version}/namespaces/{self.name}/{resource}"

    def _phases(self) -> list[str]:
        return [one["status"]["phase"] for one in self._api.items(self._path("/api/v1", "pods"))]

    def end(self, number: int, phase: str = "Succeeded") -> None:
        """End a worker's pod, as kubelet does, and wait until the Job controller has ended the Job."""
        task = f"{self.name}-worker-{number}"
        (pod,) = self._api.items(self._path("/api/v1", f"pods?labelSelector=job-name={task}"))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        terminated = {"exitCode": 0 if phase == "Succeeded" else 1, "startedAt": now, "finishedAt": now}
        (container,) = pod["status"]["containerStatuses"]
        ended = {**container, "ready": False, "state": {"running": None, "terminated": terminated}}
        path = self._path("/api/v1", f"pods/{pod['metadata']['name']}/status")
        done = self._api.merge(path, {"status": {"phase": phase, "containerStatuses": [ended]}})
        assert done.status == 200, done.message
        job = self._path("/apis/batch/v1", f"jobs/{task}")
        wanted = "Complete" if phase == "Succeeded" else "Failed"

        def has_ended() -> bool:
            conditions = self._api.get(job).object["status"].get("conditions", ())
            return wanted in [one["type"] for one in conditions if one["status"] == "True"]

        wait_until(has_ended, _SECONDS, f"{task} to have ended")

    def left(self) -> list[str]:
        """Return the names of the Deployments and Services that are left."""
        return [*self._names("/apis/apps/v1", "deployments"), *self._names("/api/v1", "services")]

    def events(self) -> list[tuple[str, str, str]]:
        """Return the events of Railnet's."""
        return [
            (one["involvedObject"]["name"], one["reason"], one["message"])
            for one in self._api.items(self._path("/api/v1", "events"))
            if one["source"].get("component") == "railnet-controllers"
        ]

    def remove_all(self) -> None:
        self._api.delete(f"{self._path('/apis/batch/v1', 'jobs')}?propagationPolicy=Background")

    def _names(self, version: str, resource: str) -> list[str]:
        found = self._api.get(self._path(version, resource)).object["items"]
        return [f"{resource}/{one['metadata']['name']}" for one in found]


def test_parameter_servers_and_services_are_deleted_after_the_last_worker(
    server: ApiServer, controllers: Controllers, measured: Callable[[str], None]
) -> None:
    job = TemplateJob(server, "done")
    for number in range(2):
        job.end(number)
    time.sleep(_STAYS_SECONDS)
    assert len(job.left()) == 7
    job.end(2)
    began = time.monotonic()
    wait_until(lambda: job.left() == [], _SECONDS, "Deployments and Services to be deleted")
    took = time.monotonic() - began

    measured(
        f"{took * 1000:.0f} ms from the last worker's condition, as a test sees it, until 2 Deployments and 5 Services are deleted"
    )
    wait_until(job.events, _SECONDS, "an event")
    ((about, reason, text),) = job.events()
    assert (about, reason) == ("done-worker-0", "ParameterServersDeleted")
    assert text.startswith("all 3 workers are complete; deleted Service done-ps-0,")
    assert "Deployment done-ps-1" in text


def test_failed_worker_keeps_them(server: ApiServer, controllers: Controllers) -> None:
    job = TemplateJob(server, "failed")
    job.end(0)
    job.end(1, "Failed")
    job.end(2)
    wait_until(job.events, _SECONDS, "an event")
    time.sleep(_STAYS_SECONDS)

    assert len(job.left()) == 7
    text = "the parameter servers of failed stay: Job failed-worker-1 failed; start the worker again, or delete the job"
    assert job.events() == [("failed-worker-0", "ParameterServersStay", text)]


def test_annotation_keeps_them(server: ApiServer, controllers: Controllers) -> None:
    job = TemplateJob(server, "kept", {"railnet.io/ps-cleanup": "false"})
    for number in range(3):
        job.end(number)
    time.sleep(_STAYS_SECONDS)

    assert (len(job.left()), job.events()) == (7, [])


def test_next_leader_finishes_a_job_that_ended_without_one(server: ApiServer, replica: Controllers) -> None:
    job = TemplateJob(server, "unattended")
    for number in range(3):
        job.end(number)
    replica.start()
    try:
        wait_until(lambda: job.left() == [], _SECONDS, "Deployments and Services to be deleted")
    finally:
        replica.stop()


def test_training_namespace_goes_when_nothing_goes_on_in_it(server: ApiServer, controllers: Controllers) -> None:
    job = TemplateJob(server, "over")
    metadata = {"labels": {"railnet.io/training-namespace": "true"}, "annotations": {"railnet.io/ttl": "5s"}}
    server.api.merge("/api/v1/namespaces/over", {"metadata": metadata})
    for number in range(2):
        job.end(number)
    time.sleep(2 * 5 + _STAYS_SECONDS)
    assert exists(server, "over")
    began = time.monotonic()  # the last moment at which something surely goes on: after it, the test may come late
    job.end(2)
    wait_until(lambda: job.left() == [], _SECONDS, "Deployments and Services to be deleted")
    job.remove_all()
    wait_until(lambda: not exists(server, "over"), _SECONDS, "the namespace to be deleted")

    assert time.monotonic() - began >= 4.0
    wait_until(lambda: said(server, "over"), _SECONDS, "an event")
    assert said(server, "over") == ["nothing in it has gone on for 5s; deleted namespace over"]


def test_malformed_time_keeps_the_namespace(server: ApiServer, controllers: Controllers) -> None:
    metadata = {
        "name": "malformed",
        "labels": {"railnet.io/training-namespace": "true"},
        "annotations": {"railnet.io/ttl": "soon"},
    }
    server.api.create("/api/v1/namespaces", {"metadata": metadata})

    wait_until(lambda: said(server, "malformed"), _SECONDS, "an event")
    assert said(server, "malformed")[0].startswith("railnet.io/ttl is 'soon'; it should be a number")
    assert exists(server, "malformed")


def exists(server: ApiServer, namespace: str) -> bool:
    return server.api.get(f"/api/v1/namespaces/{namespace}").status == 200


def said(server: ApiServer, namespace: str) -> list[str]:
    """Return the texts of the events about a namespace."""
    events = server.api.get("/api/v1/namespaces/default/events").object["items"]
    about = {"kind": "Namespace", "name": namespace}
    return [one["message"] for one in events if about.items() <= one["involvedObject"].items()]
