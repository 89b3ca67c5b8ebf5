"""The controllers as the chart renders them: their objects fit each other and the code, and the account has the rights that the code uses."""

import re
from collections.abc import Mapping

import pytest

from railnet import VERSION
from railnet.__main__ import _parser
from railnet.apiserver.client import Answer
from railnet.apiserver.request import ApiGroup, Request
from railnet.controllers import owners
from railnet.controllers.training_pod import Job
from railnet.controllers_process import program
from railnet.fabric import published_reach
from tests.charts import features
from tests.charts import rendered as chart
from tests.charts.rendered import JsonObject, Right, rendered
from tests.railnet.controllers.builders import pod
from tests.railnet.controllers.cluster_in_memory import Cluster
from tests.railnet.controllers.net1_names.test_net1_names_controller import Leader, a_job, add

pytestmark = pytest.mark.slow

NAME = "railnet-controllers"
WHOLE: dict[str, features.Values] = {
    "alone": features.CONTROLLERS,
    "with all of their features": {**features.STICKY, **features.CLEAN_UP, **features.GANGS},
}
EACH = pytest.mark.parametrize("values", WHOLE.values(), ids=WHOLE.keys())


def of_kind(values: features.Values, kind: str) -> JsonObject:
    return chart.of_kind(rendered(**values), kind, NAME)


def spec(values: features.Values) -> JsonObject:
    return chart.pod(rendered(**values), "Deployment", NAME)


def container(values: features.Values) -> JsonObject:
    return chart.container(rendered(**values), "Deployment", NAME)


class Used(Cluster):
    """The in-memory API server, which also notes the right that each request needs."""

    def __init__(self) -> None:
        super().__init__()
        self.rights: set[Right] = set()

    def exchange(self, request: Request, headers: Mapping[str, str], most_bytes: int) -> Answer:
        about = request.about
        assert not isinstance(about, ApiGroup)
        group = about.api_version.rpartition("/")[0]
        self.rights.add((group, about.resource, request.verb.right))
        return super().exchange(request, headers, most_bytes)


def used_for_names() -> set[Right]:
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

    reach = {("", "configmaps", "get")}  # railnet/apiserver/rail_reach.py

    assert (
        chart.rights(rendered(**features.CONTROLLERS), NAME)
        == used | roots | watched | events | lease | foreign | reach
    )


@EACH
def test_only_the_lease_is_written_by_name_and_only_the_reach_of_rails_is_read(values: features.Values) -> None:
    named = {
        (tuple(rule["resources"]), tuple(rule["resourceNames"]), tuple(rule["verbs"]))
        for rule in of_kind(values, "Role")["rules"]
        if "resourceNames" in rule
    }

    assert named == {
        (("leases",), (program._NAME,), ("get", "update")),
        (("configmaps",), (published_reach.NAME,), ("get",)),
    }


@EACH
def test_rights_are_bound_to_the_pods_account(values: features.Values) -> None:
    for kind in ("Role", "ClusterRole"):
        binding = of_kind(values, f"{kind}Binding")
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, NAME)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "railnet"}]
    assert spec(values)["serviceAccountName"] == of_kind(values, "ServiceAccount")["metadata"]["name"]


@EACH
def test_selectors_find_the_pods(values: features.Values) -> None:
    deployment = of_kind(values, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selecting = [
        of_kind(values, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        deployment["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in spec(values)["topologySpreadConstraints"]),
    ]

    assert selecting == [labels] * 4


@EACH
def test_containers_arguments_fit_the_command_line(values: features.Values) -> None:
    arguments = _parser().parse_args(container(values)["args"])
    (port,) = container(values)["ports"]
    probes = [container(values)[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]

    assert arguments.command == "controllers"
    assert (port["name"], port["containerPort"]) == ("health", arguments.health_port)
    assert probes == [{"path": "/healthz", "port": "health"}, {"path": "/readyz", "port": "health"}]
    assert container(values)["image"] == f"railnet.io/railnet-admission:{VERSION}"
    assert spec(values)["terminationGracePeriodSeconds"] > program._END_SECONDS


@EACH
def test_container_has_no_privilege(values: features.Values) -> None:
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec(values).keys()
    assert all("configMap" in volume for volume in spec(values).get("volumes", ()))
    assert spec(values)["securityContext"]["runAsNonRoot"] is True
    assert spec(values)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(values)["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


@EACH
def test_one_of_two_replicas_is_always_available_and_memory_is_reserved(values: features.Values) -> None:
    deployment, resources = of_kind(values, "Deployment")["spec"], container(values)["resources"]

    assert (deployment["replicas"], deployment["strategy"]["rollingUpdate"]) == (
        2,
        {"maxUnavailable": 0, "maxSurge": 1},
    )
    assert of_kind(values, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert re.fullmatch(r"\d{1,3}m", resources["requests"]["cpu"])
    assert "cpu" not in resources["limits"]


@EACH
def test_disruption_budget_is_of_two_replicas(values: features.Values) -> None:
    assert of_kind(values, "PodDisruptionBudget")["apiVersion"] == "policy/v1"
    alone = rendered(**features.CONTROLLERS, **{"controllers.replicas": 1})
    assert "PodDisruptionBudget" not in {one["kind"] for one in alone}


def test_controllers_change_nothing_of_the_node_and_the_webhook() -> None:
    below, documents = rendered(**features.WEBHOOK), rendered(**features.WEBHOOK, **features.CONTROLLERS)

    assert [one for one in below if one not in documents] == []
    assert {one["metadata"]["name"] for one in documents if one not in below} == {NAME}


@EACH
def test_controllers_read_the_configuration_of_the_nodes(values: features.Values) -> None:
    """Which addresses may be in a slice follows from the networks."""
    documents = rendered(**values)
    pods = [chart.pod(documents, "Deployment", NAME), chart.pod(documents, "DaemonSet", "railnet")]

    assert [one["configMap"]["name"] for pod in pods for one in pod["volumes"] if "configMap" in one] == [
        "railnet-node"
    ] * 2
    (mount,) = container(values)["volumeMounts"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/etc/railnet", True)
