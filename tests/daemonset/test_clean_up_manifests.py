"""The manifests of the clean-up: they switch it on, and give exactly the rights that it uses beyond those of the controllers."""

from collections.abc import Mapping
from typing import Any

from railnet.__main__ import _parser
from railnet.apiserver.client import Answer
from railnet.apiserver.request import ApiGroup, Request
from railnet.controllers.owners import known_kinds
from tests.daemonset.kustomized import ROOT, kustomized
from tests.railnet.controllers.clean_up import test_namespace_clean_up, test_server_clean_up
from tests.railnet.controllers.cluster_in_memory import Cluster
from tests.railnet.controllers.template_job import NOW, TemplateJob, owned_by, path

JsonObject = dict[str, Any]
FOLDER, BELOW = "overlays/controllers-clean-up", "overlays/controllers"
ACCOUNT, NAME = "railnet-controllers", "railnet-controllers-clean-up"
Right = tuple[str, str, str]


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
    servers = test_server_clean_up.Leader(cluster)
    servers.look()
    job.collect_garbage()
    assert job.left("Deployment") == job.left("ReplicaSet") == job.left("StatefulSet") == []
    test_namespace_clean_up.label(cluster, **{"railnet.io/ttl": "24h"})
    test_namespace_clean_up.end(job, 0)
    test_namespace_clean_up.Leader(cluster, NOW + 24 * 3600).look()
    assert path("Job", "mnist-worker-0") in cluster.objects
    assert "/api/v1/namespaces/ml" not in cluster.objects
    watched = {("batch", "jobs", "watch"), ("", "pods", "watch"), ("", "namespaces", "watch")}
    return cluster.rights | watched


def rights(folder: str, *kinds: str) -> set[Right]:
    return {
        (group, resource, verb)
        for one in kustomized(folder)
        if one["kind"] in kinds
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_overlay_adds_exactly_the_rights_that_the_clean_up_uses() -> None:
    given = rights(BELOW, "ClusterRole")

    assert rights(FOLDER, "ClusterRole") - given == used() - given
    assert rights(FOLDER, "Role") == rights(BELOW, "Role")


def test_without_the_overlay_nothing_but_services_and_slices_can_be_deleted() -> None:
    deleted = {resource for _, resource, verb in rights(BELOW, "ClusterRole", "Role") if verb == "delete"}

    assert deleted == {"services", "endpointslices"}


def test_rights_are_bound_to_the_controllers_account() -> None:
    (binding,) = (
        one for one in kustomized(FOLDER) if (one["kind"], one["metadata"]["name"]) == ("ClusterRoleBinding", NAME)
    )

    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", NAME)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "railnet"}]


def test_overlay_switches_it_on_and_changes_nothing_else() -> None:
    below, with_it = (
        {(one["kind"], one["metadata"]["name"]): one for one in kustomized(folder)} for folder in (BELOW, FOLDER)
    )
    changed = [key for key, one in below.items() if with_it[key] != one]
    (container,) = with_it["Deployment", ACCOUNT]["spec"]["template"]["spec"]["containers"]
    (before,) = below["Deployment", ACCOUNT]["spec"]["template"]["spec"]["containers"]

    assert changed == [("Deployment", ACCOUNT)]
    assert container == {**before, "args": ["controllers", "--clean-up"]}
    assert _parser().parse_args(container["args"]).clean_up is True
    assert _parser().parse_args(before["args"]).clean_up is False


def test_each_right_has_its_reason_beside_it() -> None:
    text = (ROOT / FOLDER / "rights/role.yaml").read_text()
    deleting = [line for line in text.splitlines() if "delete" in line and not line.startswith("#")]

    assert deleting
    assert [line for line in deleting if "#" not in line] == []
