"""The manifests of the admission helper: they fit each other and the code."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet import VERSION
from railnet.__main__ import _parser
from railnet.admission import webhook_configuration
from railnet.admission.certificates.cluster_objects import NAME, ROTATE, SECRET
from railnet.configuration import parse
from railnet.webhook.program import _DRAIN_SECONDS, names
from tests.daemonset.kustomized import FOLDERS, ROOT, kustomized
from tests.railnet.admission.api_server import FakeApiServer
from tests.railnet.admission.clock import Clock
from tests.railnet.admission.cluster_in_memory import Replica, in_memory

JsonObject = dict[str, Any]
CERT_MANAGER = "overlays/admission-cert-manager"
DAEMONS = {
    "overlays/admission": "daemonset",
    CERT_MANAGER: "daemonset",
    "overlays/kubernetes-1.30-admission": "overlays/kubernetes-1.30",
    "overlays/own-node-admission": "overlays/own-node",
}
"""Of each overlay of the helper, the folder of the daemon that it contains."""
WHOLE = list(DAEMONS)
OWN_CA = [folder for folder in WHOLE if folder != CERT_MANAGER]
NAMESPACE = "railnet"
EACH = pytest.mark.parametrize("folder", WHOLE)


def of_kind(folder: str, kind: str, name: str = NAME) -> JsonObject:
    (found,) = (one for one in kustomized(folder) if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def pod(folder: str) -> JsonObject:
    found: JsonObject = of_kind(folder, "Deployment")["spec"]["template"]["spec"]
    return found


def container(folder: str) -> JsonObject:
    (found,) = pod(folder)["containers"]
    return dict(found)


def volumes(folder: str) -> dict[str, JsonObject]:
    sources = {volume["name"]: volume for volume in pod(folder)["volumes"]}
    return {mount["mountPath"]: sources[mount["name"]] | mount for mount in container(folder)["volumeMounts"]}


def test_these_are_all_overlays_of_the_helper() -> None:
    assert [folder for folder in FOLDERS if "admission" in folder and folder.count("/") == 1] == WHOLE


@pytest.mark.slow
@EACH
def test_one_install_contains_the_unchanged_daemon_and_the_helper(folder: str) -> None:
    documents, alone = kustomized(folder), kustomized(DAEMONS[folder])

    assert [one for one in alone if one not in documents] == []
    added = [one for one in documents if one not in alone]
    assert {one["metadata"]["name"] for one in added if one["kind"] not in ("Issuer", "Certificate")} == {NAME}
    assert {one["metadata"].get("namespace", NAMESPACE) for one in added} == {NAMESPACE}
    assert {one["metadata"]["labels"]["app.kubernetes.io/name"] for one in added} == {NAME}


@pytest.mark.parametrize(
    "bases",
    [["admission"], ["own-node-admission"], ["own-node", "admission/server", "admission/own-ca", "admission/webhook"]],
    ids=["alone", "with own-node", "with the folders of the helper"],
)
def test_users_overlay_changes_the_configuration_of_daemon_and_helper(tmp_path: Path, bases: list[str]) -> None:
    generator = {"name": "railnet-node", "namespace": NAMESPACE, "behavior": "replace", "files": ["node.yaml"]}
    write(tmp_path, bases, configMapGenerator=[generator])
    (tmp_path / "node.yaml").write_text("publish: {events: false}\n")

    documents = kustomized(tmp_path)

    (config_map,) = (one for one in documents if one["kind"] == "ConfigMap")
    assert config_map["data"]["node.yaml"] == "publish: {events: false}\n"
    mounted = [
        volume["configMap"]["name"]
        for one in documents
        if one["kind"] in ("DaemonSet", "Deployment")
        for volume in one["spec"]["template"]["spec"]["volumes"]
        if "configMap" in volume
    ]
    assert mounted == [config_map["metadata"]["name"]] * 2


def test_users_overlay_names_a_registry_for_both_images(tmp_path: Path) -> None:
    """The example's entry for `railnet` must not match `railnet-admission`."""
    images = yaml.safe_load((ROOT / "overlays/example/kustomization.yaml").read_text())["images"]
    write(tmp_path, ["admission"], images=images)

    documents = kustomized(tmp_path)

    found = [
        one["spec"]["template"]["spec"]["containers"][0]["image"]
        for one in documents
        if one["kind"] in ("DaemonSet", "Deployment")
    ]
    registry = "registry.example.com/hpc"
    assert sorted(found) == [f"{registry}/railnet-admission:{VERSION}", f"{registry}/railnet:{VERSION}"]


def write(folder: Path, bases: list[str], **keys: Any) -> None:
    """Write an overlay on overlays of the checkout, by relative paths since kustomize refuses absolute ones."""
    overlays = [os.path.relpath(ROOT / "overlays" / base, folder) for base in bases]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": overlays, **keys}))


@EACH
def test_configuration_is_the_nodes_and_mounted_read_only(folder: str) -> None:
    volume = volumes(folder)["/etc/railnet"]
    config_map = of_kind(folder, "ConfigMap", volume["configMap"]["name"])

    parse(config_map["data"]["node.yaml"], "node.yaml")
    assert volume["readOnly"]


@EACH
def test_selectors_find_the_pods(folder: str) -> None:
    deployment = of_kind(folder, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]

    selecting = [
        of_kind(folder, "Service")["spec"]["selector"],
        of_kind(folder, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        deployment["spec"]["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in pod(folder)["topologySpreadConstraints"]),
    ]

    assert selecting == [labels] * 5
    daemons = of_kind(folder, "DaemonSet", "railnet")["spec"]["selector"]["matchLabels"]
    assert not daemons.items() <= labels.items()


@EACH
def test_api_servers_calls_reach_the_https_port_by_the_service(folder: str) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(folder)["ports"]}
    (port,) = of_kind(folder, "Service")["spec"]["ports"]
    services = [entry["clientConfig"]["service"] for entry in webhooks(folder)]

    assert {(one["namespace"], one["name"], one["port"]) for one in services} == {(NAMESPACE, NAME, port["port"])}
    paths = (webhook_configuration.PLAIN, webhook_configuration.LABELLED)
    assert {one["path"] for one in services} == {*paths, *(path + webhook_configuration.STICKY_PATH for path in paths)}
    assert port["targetPort"] == "https"
    assert "https" in ports


def webhooks(folder: str) -> list[JsonObject]:
    found: list[JsonObject] = of_kind(folder, "MutatingWebhookConfiguration")["webhooks"]
    return found


@EACH
def test_webhooks_are_those_of_the_code(folder: str) -> None:
    assert webhooks(folder) == webhook_configuration.configuration()["webhooks"]


@EACH
def test_containers_arguments_fit_the_command_line(folder: str) -> None:
    arguments = _parser().parse_args(container(folder)["args"])
    ports = {port["name"]: port["containerPort"] for port in container(folder)["ports"]}

    assert (arguments.command, arguments.verb) == ("admission", None)
    assert ports == {"https": arguments.port, "health": arguments.health_port}
    assert str(arguments.config.parent) == "/etc/railnet"
    assert (arguments.certificates is None) is (folder in OWN_CA)
    assert pod(folder)["terminationGracePeriodSeconds"] > arguments.leave_seconds + _DRAIN_SECONDS


@EACH
def test_image_has_this_version(folder: str) -> None:
    assert container(folder)["image"] == f"railnet.io/railnet-admission:{VERSION}"


@EACH
def test_probes_use_the_health_port(folder: str) -> None:
    probes = [container(folder)[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]

    assert probes == [{"path": "/healthz", "port": "health"}, {"path": "/readyz", "port": "health"}]


@EACH
def test_container_has_no_privilege(folder: str) -> None:
    spec, context = pod(folder), container(folder)["securityContext"]

    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(
        "hostPath" not in volume and mount["readOnly"] for mount in volumes(folder).values() for volume in [mount]
    )


@EACH
def test_one_of_two_replicas_is_always_available(folder: str) -> None:
    deployment = of_kind(folder, "Deployment")["spec"]

    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert of_kind(folder, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert pod(folder)["priorityClassName"] == "system-cluster-critical"
    spread = pod(folder)["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert {one["whenUnsatisfiable"] for one in spread} == {"ScheduleAnyway"}


@EACH
def test_memory_is_reserved_and_cpu_is_not_limited(folder: str) -> None:
    resources = container(folder)["resources"]

    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert re.fullmatch(r"\d{1,3}m", resources["requests"]["cpu"])
    assert "cpu" not in resources["limits"]


@EACH
def test_unready_pods_may_be_evicted(folder: str) -> None:
    budget = of_kind(folder, "PodDisruptionBudget")

    assert (budget["apiVersion"], budget["spec"]["unhealthyPodEvictionPolicy"]) == ("policy/v1", "AlwaysAllow")


VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}


def needed() -> set[tuple[str, str]]:
    """Return the kinds and verbs that the server uses in the API, from an empty cluster to a new authority."""
    fake = FakeApiServer()
    fake.add_webhooks(None, None)
    replica = Replica(in_memory(fake), Clock()).look()
    fake.put_secret(fake.data, annotations={ROTATE: "now"})
    replica.look()
    return {(kind, VERBS[method]) for method, kind in (request.split() for request in fake.requests)}


@pytest.mark.parametrize("folder", OWN_CA)
def test_account_has_exactly_the_rights_that_the_server_uses(folder: str) -> None:
    allowed = {
        (resource.replace("mutatingwebhookconfigurations", "webhooks"), verb)
        for kind in ("Role", "ClusterRole")
        for rule in of_kind(folder, kind)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert allowed == needed()


@pytest.mark.parametrize("folder", OWN_CA)
def test_rights_are_limited_to_one_secret_and_one_webhook_configuration(folder: str) -> None:
    rules = of_kind(folder, "Role")["rules"] + of_kind(folder, "ClusterRole")["rules"]

    named = {(tuple(rule["resources"]), tuple(rule.get("resourceNames", ()))) for rule in rules}
    assert named == {(("secrets",), ()), (("secrets",), (SECRET,)), (("mutatingwebhookconfigurations",), (NAME,))}
    (anywhere,) = (rule for rule in rules if "resourceNames" not in rule)
    assert anywhere["verbs"] == ["create"]  # a request to create has no name to check
    assert of_kind(folder, "MutatingWebhookConfiguration")["metadata"]["name"] == NAME


@pytest.mark.parametrize("folder", OWN_CA)
def test_rights_are_bound_to_the_pods_account(folder: str) -> None:
    for kind in ("Role", "ClusterRole"):
        binding = of_kind(folder, f"{kind}Binding")
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, NAME)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    assert pod(folder)["serviceAccountName"] == of_kind(folder, "ServiceAccount")["metadata"]["name"]


def test_with_cert_manager_the_account_has_no_rights() -> None:
    documents = kustomized(CERT_MANAGER)

    bound = [one["subjects"] for one in documents if one["kind"].endswith("Binding")]
    assert [subject["name"] for subjects in bound for subject in subjects] == ["railnet"]
    assert {one["metadata"]["name"] for one in documents if one["kind"] in ("Role", "ClusterRole")} == {"railnet"}
    assert of_kind(CERT_MANAGER, "ServiceAccount")["automountServiceAccountToken"] is False


def test_with_cert_manager_the_server_presents_its_certificate() -> None:
    certificate = of_kind(CERT_MANAGER, "Certificate")
    volume = volumes(CERT_MANAGER)[str(_parser().parse_args(container(CERT_MANAGER)["args"]).certificates)]

    assert volume["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert pod(CERT_MANAGER)["securityContext"]["fsGroup"] == pod(CERT_MANAGER)["securityContext"]["runAsGroup"]
    assert volume["secret"]["defaultMode"] == 0o440
    assert certificate["spec"]["dnsNames"] == [names(NAMESPACE)[0]]
    annotations = of_kind(CERT_MANAGER, "MutatingWebhookConfiguration")["metadata"]["annotations"]
    assert annotations == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/{NAME}"}


def test_with_cert_manager_the_ca_outlives_the_certificate() -> None:
    documents = kustomized(CERT_MANAGER)
    issuers = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Issuer"}
    certificates = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Certificate"}

    served, ca = certificates[NAME], certificates[f"{NAME}-ca"]
    assert issuers[served["issuerRef"]["name"]] == {"ca": {"secretName": ca["secretName"]}}
    assert issuers[ca["issuerRef"]["name"]] == {"selfSigned": {}}
    assert ca["isCA"] is True
    assert "duration" not in served  # cert-manager's default: 90 days


def test_webhook_folder_contains_only_the_webhook_configuration() -> None:
    assert [one["kind"] for one in kustomized("overlays/admission/webhook")] == ["MutatingWebhookConfiguration"]
