"""The chart with controllers.cleanUp: it switches the clean-up on, and gives exactly the rights that it uses beyond those of the controllers."""

from collections.abc import Mapping
from typing import Any

import pytest

from railnet.apiserver.client import Answer
from railnet.apiserver.request import ApiGroup, Request
from railnet.controllers.owners import known_kinds
from tests.charts import features
from tests.charts.rendered import CHART, Right, rendered, rights
from tests.railnet.controllers.clean_up import test_idle_namespace_clean_up, test_parameter_server_clean_up
from tests.railnet.controllers.cluster_in_memory import Cluster
from tests.railnet.controllers.template_job import NOW, TemplateJob, owned_by, path

JsonObject = dict[str, Any]
ACCOUNT = "railnet-controllers"


class Used(Cluster):
    """The API server in memory, which also notes the right that each request needs; finding out what is served needs none."""

    def __init__(self) -> None:
        super().__init__()
        self.rights: set[Right] = set()
        kinds = {**known_kinds(), ("batch", "CronJob"): "cronjobs"}
        self.groups |= {group: ["v1"] for group, _ in kinds}
        self.resources = {
            f"/apis/{group}/v1": [resource for (of, _), resource in kinds.items() if of == group] for group, _ in kinds
        }

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        about = request.about
        if not isinstance(about, ApiGroup):
            group = about.api_version.rpartition("/")[0]
            self.rights.add((group, about.resource, request.verb.right))
        return super().exchange(request, headers, most_bytes)


def parameter_servers_of_each_kind(cluster: Cluster) -> TemplateJob:
    job = TemplateJob(cluster, workers=1, servers=1).make()
    labels = {"name": "mnist", "job": "ps"}
    job.pod("bare", {**labels, "task": "1"}, "mnist-ps-1", None)
    for rank, kind in enumerate(("ReplicaSet", "StatefulSet", "Job"), start=2):
        task = {**labels, "task": str(rank)}
        job.put(kind, f"ps-{rank}", spec={"template": job._template("tensorflow", task)})
        job.pod(f"ps-{rank}-x", task, f"mnist-ps-{rank}", owned_by(kind, f"ps-{rank}"))
    job.end(0)
    return job


def used() -> set[Right]:
    """Return the rights that the clean-up needs, from the last worker's end to the namespace's."""
    cluster = Used()
    job = parameter_servers_of_each_kind(cluster)
    servers = test_parameter_server_clean_up.Leader(cluster)
    servers.look()
    job.collect_garbage()
    assert job.left("Deployment") == job.left("ReplicaSet") == job.left("StatefulSet") == []
    test_idle_namespace_clean_up.label(cluster, **{"railnet.io/ttl": "24h"})
    test_idle_namespace_clean_up.end(job, 0)
    test_idle_namespace_clean_up.Leader(cluster, NOW + 24 * 3600).look()
    assert path("Job", "mnist-worker-0") in cluster.objects
    assert "/api/v1/namespaces/ml" not in cluster.objects
    watched = {("batch", "jobs", "watch"), ("", "pods", "watch"), ("", "namespaces", "watch")}
    return cluster.rights | watched


@pytest.mark.slow
def test_value_adds_exactly_the_rights_that_the_clean_up_uses() -> None:
    given = rights(rendered(**features.CONTROLLERS), ACCOUNT)

    assert rights(rendered(**features.CLEAN_UP), ACCOUNT) - given == used() - given


@pytest.mark.slow
def test_without_the_value_nothing_but_services_and_slices_can_be_deleted() -> None:
    given = rights(rendered(**features.CONTROLLERS), ACCOUNT)

    assert {resource for _, resource, verb in given if verb == "delete"} == {"services", "endpointslices"}


def test_each_right_has_its_reason_beside_it() -> None:
    text = (CHART / "templates/controllers/clean-up-role.yaml").read_text()
    deleting = [line for line in text.splitlines() if "delete" in line and not line.startswith("#")]

    assert deleting
    assert [line for line in deleting if "#" not in line] == []
