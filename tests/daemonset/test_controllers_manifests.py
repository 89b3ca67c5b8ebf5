"""The manifests of the controllers: they fit each other and the code, and the account has the rights that the code uses."""

import re
from collections.abc import Mapping
from typing import Any

from railnet import VERSION
from railnet.__main__ import _parser
from railnet.apiserver.client import Answer
from railnet.apiserver.request import ApiGroup, Request
from railnet.controllers import owners
from railnet.controllers.training_pod import Job
from railnet.controllers_process import program
from tests.daemonset.kustomized import kustomized
from tests.railnet.controllers.builders import pod
from tests.railnet.controllers.cluster_in_memory import Cluster
from tests.railnet.controllers.net1_names.test_net1_services import Leader, a_job, add

JsonObject = dict[str, Any]
FOLDER = "overlays/controllers"
NAME = "railnet-controllers"


def of_kind(kind: str) -> JsonObject:
    (found,) = (one for one in kustomized(FOLDER) if (one["kind"], one["metadata"]["name"]) == (kind, NAME))
    return found


def spec() -> JsonObject:
    found: JsonObject = of_kind("Deployment")["spec"]["template"]["spec"]
    return found


def container() -> JsonObject:
    (found,) = spec()["containers"]
    return dict(found)


def rights() -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for kind in ("Role", "ClusterRole")
        for rule in of_kind(kind)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Used(Cluster):
    """The in-memory API server, which also notes the right that each request needs."""

    def __init__(self) -> None:
        super().__init__()
        self.rights: set[tuple[str, str, str]] = set()

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        about = request.about
        assert not isinstance(about, ApiGroup)
        group = about.api_version.rpartition("/")[0]
        self.rights.add((group, about.resource, request.verb.right))
        return super().exchange(request, headers, most_bytes)


def used_for_names() -> set[tuple[str, str, str]]:
    """Return the rights that names on net1 need, from the first member to the last, with a Service of another owner in between."""
    cluster = Used()
    a_job(cluster)
    add(cluster, pod("w-0", "10.56.0.1"))
    add(cluster, pod("w-1", "10.56.0.2", rank=1, annotations={"railnet.io/names": "task"}))
    taken = {"metadata": {"namespace": "ml", "name": "mnist-worker-1", "labels": {}}, "spec": {"clusterIP": "10.0.0.1"}}
    cluster.put("/api/v1/namespaces/ml/services/mnist-worker-1", taken)
    leader = Leader(cluster)
    leader.look()
    add(cluster, pod("w-0", "10.56.0.9"))
    service = cluster.objects["/api/v1/namespaces/ml/services/mnist-net1"]
    cluster.put(
        "/api/v1/namespaces/ml/services/mnist-net1", {**service, "spec": {**service["spec"], "selector": {"a": "b"}}}
    )
    leader.look()
    for name in ("w-0", "w-1"):
        cluster.remove(f"/api/v1/namespaces/ml/pods/{name}")
    leader.look()
    assert leader.names.services.of(Job("ml", "mnist")) == []
    return cluster.rights


def test_account_has_exactly_the_rights_that_the_controllers_use() -> None:
    used = used_for_names()
    roots = {(group, resource, "get") for (group, _), resource in owners._RESOURCES.items()}
    watched = {(group, resource, "watch") for group, resource, verb in used if verb == "list"}
    events = {("", "events", verb) for verb in ("create", "patch")}  # railnet/apiserver/event.py
    lease = {
        ("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")
    }  # railnet/apiserver/lease.py
    # A slice that another owner has under our slice's name is read as a Service is.
    foreign = {("discovery.k8s.io", "endpointslices", "get")}

    assert rights() == used | roots | watched | events | lease | foreign


def test_only_the_lease_is_written_by_name() -> None:
    named = {
        (tuple(rule["resources"]), tuple(rule["resourceNames"]))
        for rule in of_kind("Role")["rules"]
        if "resourceNames" in rule
    }

    assert named == {(("leases",), (program._NAME,))}


def test_rights_are_bound_to_the_pods_account() -> None:
    for kind in ("Role", "ClusterRole"):
        binding = of_kind(f"{kind}Binding")
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, NAME)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "railnet"}]
    assert spec()["serviceAccountName"] == of_kind("ServiceAccount")["metadata"]["name"]


def test_selectors_find_the_pods() -> None:
    deployment = of_kind("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selecting = [
        of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        deployment["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in spec()["topologySpreadConstraints"]),
    ]

    assert selecting == [labels] * 4


def test_containers_arguments_fit_the_command_line() -> None:
    arguments = _parser().parse_args(container()["args"])
    (port,) = container()["ports"]
    probes = [container()[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]

    assert arguments.command == "controllers"
    assert (port["name"], port["containerPort"]) == ("health", arguments.health_port)
    assert probes == [{"path": "/healthz", "port": "health"}, {"path": "/readyz", "port": "health"}]
    assert container()["image"] == f"railnet.io/railnet-admission:{VERSION}"
    assert spec()["terminationGracePeriodSeconds"] > program._END_SECONDS


def test_container_has_no_privilege() -> None:
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "volumes"} & spec().keys()
    assert spec()["securityContext"]["runAsNonRoot"] is True
    assert spec()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_one_of_two_replicas_is_always_available_and_memory_is_reserved() -> None:
    deployment, resources = of_kind("Deployment")["spec"], container()["resources"]

    assert (deployment["replicas"], deployment["strategy"]["rollingUpdate"]) == (
        2,
        {"maxUnavailable": 0, "maxSurge": 1},
    )
    assert of_kind("PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert re.fullmatch(r"\d{1,3}m", resources["requests"]["cpu"])
    assert "cpu" not in resources["limits"]
