"""The manifests of the controllers: they fit each other and the code, and the account has the rights that the code uses."""

import os
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from railnet import VERSION
from railnet.__main__ import _parser
from railnet.apiserver.client import Answer
from railnet.apiserver.request import ApiGroup, Request
from railnet.controllers import owners
from railnet.controllers.training_pod import Job
from railnet.controllers_process import program
from tests.daemonset.kustomized import ROOT, kustomized, rendered_by
from tests.railnet.controllers.builders import pod
from tests.railnet.controllers.cluster_in_memory import Cluster
from tests.railnet.controllers.net1_names.test_net1_services import Leader, a_job, add

JsonObject = dict[str, Any]
WHOLE = ["overlays/controllers", "overlays/controllers-1.20"]
NAME = "railnet-controllers"
EACH = pytest.mark.parametrize("folder", WHOLE)
PODS = [("Deployment", NAME), ("DaemonSet", "railnet")]


def of_kind(folder: str, kind: str) -> JsonObject:
    (found,) = (one for one in kustomized(folder) if (one["kind"], one["metadata"]["name"]) == (kind, NAME))
    return found


def spec(folder: str) -> JsonObject:
    found: JsonObject = of_kind(folder, "Deployment")["spec"]["template"]["spec"]
    return found


def container(folder: str) -> JsonObject:
    (found,) = spec(folder)["containers"]
    return dict(found)


def rights(folder: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for kind in ("Role", "ClusterRole")
        for rule in of_kind(folder, kind)["rules"]
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


@EACH
def test_account_has_exactly_the_rights_that_the_controllers_use(folder: str) -> None:
    used = used_for_names()
    roots = {(group, resource, "get") for (group, _), resource in owners._RESOURCES.items()}
    watched = {(group, resource, "watch") for group, resource, verb in used if verb == "list"}
    events = {("", "events", verb) for verb in ("create", "patch")}  # railnet/apiserver/event.py
    lease = {
        ("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")
    }  # railnet/apiserver/lease.py
    # A slice that another owner has under our slice's name is read as a Service is.
    foreign = {("discovery.k8s.io", "endpointslices", "get")}

    assert rights(folder) == used | roots | watched | events | lease | foreign


@EACH
def test_only_the_lease_is_written_by_name(folder: str) -> None:
    named = {
        (tuple(rule["resources"]), tuple(rule["resourceNames"]))
        for rule in of_kind(folder, "Role")["rules"]
        if "resourceNames" in rule
    }

    assert named == {(("leases",), (program._NAME,))}


@EACH
def test_rights_are_bound_to_the_pods_account(folder: str) -> None:
    for kind in ("Role", "ClusterRole"):
        binding = of_kind(folder, f"{kind}Binding")
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, NAME)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "railnet"}]
    assert spec(folder)["serviceAccountName"] == of_kind(folder, "ServiceAccount")["metadata"]["name"]


@EACH
def test_selectors_find_the_pods(folder: str) -> None:
    deployment = of_kind(folder, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    selecting = [
        of_kind(folder, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        deployment["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in spec(folder)["topologySpreadConstraints"]),
    ]

    assert selecting == [labels] * 4


@EACH
def test_containers_arguments_fit_the_command_line(folder: str) -> None:
    arguments = _parser().parse_args(container(folder)["args"])
    (port,) = container(folder)["ports"]
    probes = [container(folder)[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]

    assert arguments.command == "controllers"
    assert (port["name"], port["containerPort"]) == ("health", arguments.health_port)
    assert probes == [{"path": "/healthz", "port": "health"}, {"path": "/readyz", "port": "health"}]
    assert container(folder)["image"] == f"railnet.io/railnet-admission:{VERSION}"
    assert spec(folder)["terminationGracePeriodSeconds"] > program._END_SECONDS


@EACH
def test_container_has_no_privilege(folder: str) -> None:
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "volumes"} & spec(folder).keys()
    assert spec(folder)["securityContext"]["runAsNonRoot"] is True
    assert spec(folder)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(folder)["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


@EACH
def test_one_of_two_replicas_is_always_available_and_memory_is_reserved(folder: str) -> None:
    deployment, resources = of_kind(folder, "Deployment")["spec"], container(folder)["resources"]

    assert (deployment["replicas"], deployment["strategy"]["rollingUpdate"]) == (
        2,
        {"maxUnavailable": 0, "maxSurge": 1},
    )
    assert of_kind(folder, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert re.fullmatch(r"\d{1,3}m", resources["requests"]["cpu"])
    assert "cpu" not in resources["limits"]


def test_disruption_budget_has_a_version_that_the_api_server_has() -> None:
    versions = [of_kind(folder, "PodDisruptionBudget")["apiVersion"] for folder in WHOLE]

    assert versions == ["policy/v1", "policy/v1beta1"]


@pytest.mark.parametrize("nodes", ["daemonset", "overlays/admission-1.20"])
def test_own_overlay_for_old_kubectl_has_both_extras_and_one_configuration(nodes: str, tmp_path: Any) -> None:
    """As the comments of the two overlays say it: the bases, and a patch for each extra."""
    bases = [
        nodes,
        "overlays/controllers-1.20",
        *(f"overlays/controllers-{one}/rights" for one in ("sticky", "clean-up")),
    ]
    patches = {name: f"overlays/controllers-{name}-1.20/deployment.yaml" for name in ("sticky", "clean-up")}
    for name, path in patches.items():
        (tmp_path / f"{name}.yaml").write_text((ROOT / path).read_text())
    target = {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "railnet", "name": NAME}
    kustomization = {
        "bases": [os.path.relpath(ROOT / base, tmp_path) for base in bases],
        "patchesStrategicMerge": ["sticky.yaml"],
        "patchesJson6902": [{"target": target, "path": "clean-up.yaml"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))

    documents = {(one["kind"], one["metadata"]["name"]): one for one in rendered_by("kubectl", tmp_path)[0]}

    pods = {kind: documents[kind, name]["spec"]["template"]["spec"] for kind, name in PODS}
    assert pods["Deployment"]["containers"][0]["args"] == ["controllers", "--clean-up"]
    names = {one["configMap"]["name"] for spec in pods.values() for one in spec["volumes"] if "configMap" in one}
    assert len(names) == 1
    assert {name for kind, name in documents if kind == "ClusterRole"} >= {NAME, f"{NAME}-sticky", f"{NAME}-clean-up"}
