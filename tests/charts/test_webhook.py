"""The webhook as the chart renders it: its objects fit each other and the code."""

import re

import pytest

from railnet import VERSION
from railnet.__main__ import _parser
from railnet.admission import webhook_scope
from railnet.admission.certificates.cluster_objects import NAME, ROTATE, SECRET
from railnet.admission.server.server import GANG_JOBS, GANGS, PATHS, SERVICES
from railnet.configuration import parse
from railnet.webhook.program import _DRAIN_SECONDS, names
from tests.charts import features
from tests.charts import rendered as chart
from tests.charts.rendered import NAMESPACE, JsonObject, rendered
from tests.railnet.admission.api_server import FakeApiServer
from tests.railnet.admission.clock import Clock
from tests.railnet.admission.cluster_in_memory import Replica, in_memory

pytestmark = pytest.mark.slow

WHOLE: dict[str, features.Values] = {
    "alone": features.WEBHOOK,
    "with cert-manager": features.CERT_MANAGER,
    "with all of its features": {**features.PRIORITY_CLASS, **features.HOST_NETWORK, **features.GANGS},
}
DRA: features.Values = {**features.WEBHOOK, **features.DRA}
EACH = pytest.mark.parametrize("values", WHOLE.values(), ids=WHOLE.keys())
OWN_CA = pytest.mark.parametrize("values", [features.WEBHOOK, WHOLE["with all of its features"]], ids=["alone", "all"])
CERT_MANAGER = features.CERT_MANAGER


def of_kind(values: features.Values, kind: str, name: str = NAME) -> JsonObject:
    return chart.of_kind(rendered(**values), kind, name)


def pod(values: features.Values) -> JsonObject:
    return chart.pod(rendered(**values), "Deployment", NAME)


def container(values: features.Values) -> JsonObject:
    return chart.container(rendered(**values), "Deployment", NAME)


def volumes(values: features.Values) -> dict[str, JsonObject]:
    sources = {volume["name"]: volume for volume in pod(values)["volumes"]}
    return {mount["mountPath"]: sources[mount["name"]] | mount for mount in container(values)["volumeMounts"]}


def test_webhook_changes_nothing_of_the_node() -> None:
    alone, documents = rendered(), rendered(**features.WEBHOOK)

    def without_hook(rendering: list[JsonObject]) -> list[JsonObject]:
        return [one for one in rendering if one["metadata"]["name"] != "railnet-uninstall"]

    assert [one for one in without_hook(alone) if one not in documents] == []
    added = [one for one in without_hook(documents) if one not in alone]
    assert {one["metadata"]["name"] for one in added} == {NAME}
    assert {one["metadata"].get("namespace", NAMESPACE) for one in added} == {NAMESPACE}
    assert {one["metadata"]["labels"]["app.kubernetes.io/name"] for one in added} == {NAME}


def test_another_configuration_is_a_rolling_update_of_daemons_and_webhook() -> None:
    hashes = [
        {
            kind: chart.of_kind(documents, kind, name)["spec"]["template"]["metadata"]["annotations"]
            for kind, name in (("DaemonSet", "railnet"), ("Deployment", NAME))
        }
        for documents in (
            rendered(**features.WEBHOOK),
            rendered(**features.WEBHOOK, **{"node.configuration": {"publish": {"events": False}}}),
        )
    ]

    assert [one["DaemonSet"] == one["Deployment"] for one in hashes] == [True, True]
    assert hashes[0] != hashes[1]


@EACH
def test_configuration_is_the_nodes_and_mounted_read_only(values: features.Values) -> None:
    volume = volumes(values)["/etc/railnet"]
    config_map = of_kind(values, "ConfigMap", volume["configMap"]["name"])

    parse(config_map["data"]["node.yaml"], "node.yaml")
    assert volume["readOnly"]


@EACH
def test_selectors_find_the_pods(values: features.Values) -> None:
    deployment = of_kind(values, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]

    selecting = [
        of_kind(values, "Service")["spec"]["selector"],
        of_kind(values, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        deployment["spec"]["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in pod(values)["topologySpreadConstraints"]),
    ]

    assert selecting == [labels] * 5
    daemons = of_kind(values, "DaemonSet", "railnet")["spec"]["selector"]["matchLabels"]
    assert not daemons.items() <= labels.items()


@EACH
def test_api_servers_calls_reach_the_https_port_by_the_service(values: features.Values) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(values)["ports"]}
    (port,) = of_kind(values, "Service")["spec"]["ports"]
    services = [entry["clientConfig"]["service"] for entry in webhooks(values)]

    assert {(one["namespace"], one["name"], one["port"]) for one in services} == {(NAMESPACE, NAME, port["port"])}
    assert {one["path"] for one in services} <= {*PATHS, SERVICES, GANGS, GANG_JOBS}
    assert {one["path"] for one in services} >= PATHS.keys()
    assert port["targetPort"] == "https"
    assert "https" in ports


def webhooks(values: features.Values) -> list[JsonObject]:
    found: list[JsonObject] = of_kind(values, "MutatingWebhookConfiguration")["webhooks"]
    return found


@pytest.mark.parametrize("values", [*WHOLE.values(), DRA], ids=[*WHOLE.keys(), "with DRA"])
def test_entries_are_those_of_the_features_in_one_list(values: features.Values) -> None:
    entries = webhook_scope.pods(by_claims="offer" in values)
    entries += webhook_scope.services() if "webhook.hostNetwork.enabled" in values else []
    entries += webhook_scope.gangs() if "gangs.enabled" in values else []

    assert webhooks(values) == entries
    assert len({entry["name"] for entry in entries}) == len(entries)


@EACH
def test_containers_arguments_fit_the_command_line(values: features.Values) -> None:
    arguments = _parser().parse_args(container(values)["args"])
    ports = {port["name"]: port["containerPort"] for port in container(values)["ports"]}

    assert (arguments.command, arguments.verb) == ("admission", None)
    assert ports == {"https": arguments.port, "health": arguments.health_port}
    assert str(arguments.config.parent) == "/etc/railnet"
    assert (arguments.certificates is None) is (values is not CERT_MANAGER)
    assert pod(values)["terminationGracePeriodSeconds"] > arguments.leave_seconds + _DRAIN_SECONDS


@EACH
def test_image_has_this_version(values: features.Values) -> None:
    assert container(values)["image"] == f"railnet.io/railnet-admission:{VERSION}"


@EACH
def test_probes_use_the_health_port(values: features.Values) -> None:
    probes = [container(values)[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]

    assert probes == [{"path": "/healthz", "port": "health"}, {"path": "/readyz", "port": "health"}]


@EACH
def test_container_has_no_privilege(values: features.Values) -> None:
    spec, context = pod(values), container(values)["securityContext"]

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
        "hostPath" not in volume and mount["readOnly"] for mount in volumes(values).values() for volume in [mount]
    )


@EACH
def test_one_of_two_replicas_is_always_available(values: features.Values) -> None:
    deployment = of_kind(values, "Deployment")["spec"]

    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert of_kind(values, "PodDisruptionBudget")["spec"]["minAvailable"] == 1
    assert pod(values)["priorityClassName"] == "system-cluster-critical"
    spread = pod(values)["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert {one["whenUnsatisfiable"] for one in spread} == {"ScheduleAnyway"}


@EACH
def test_memory_is_reserved_and_cpu_is_not_limited(values: features.Values) -> None:
    resources = container(values)["resources"]

    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert re.fullmatch(r"\d{1,3}m", resources["requests"]["cpu"])
    assert "cpu" not in resources["limits"]


@EACH
def test_unready_pods_may_be_evicted(values: features.Values) -> None:
    budget = of_kind(values, "PodDisruptionBudget")

    assert (budget["apiVersion"], budget["spec"]["unhealthyPodEvictionPolicy"]) == ("policy/v1", "AlwaysAllow")


def test_one_replica_alone_may_be_evicted() -> None:
    kinds = {one["kind"] for one in rendered(**features.WEBHOOK, **{"webhook.replicas": 1})}

    assert "PodDisruptionBudget" not in kinds


VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}


def needed() -> set[tuple[str, str]]:
    """Return the kinds and verbs that the server uses in the API, from an empty cluster to a new authority."""
    fake = FakeApiServer()
    fake.add_webhooks(None, None)
    replica = Replica(in_memory(fake), Clock()).look()
    fake.put_secret(fake.data, annotations={ROTATE: "now"})
    replica.look()
    return {(kind, VERBS[method]) for method, kind in (request.split() for request in fake.requests)}


@OWN_CA
def test_account_has_exactly_the_rights_that_the_server_uses(values: features.Values) -> None:
    allowed = {
        (resource.replace("mutatingwebhookconfigurations", "webhooks"), verb)
        for kind in ("Role", "ClusterRole")
        for rule in of_kind(values, kind)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert allowed == needed()


@OWN_CA
def test_rights_are_limited_to_one_secret_and_one_webhook_configuration(values: features.Values) -> None:
    rules = of_kind(values, "Role")["rules"] + of_kind(values, "ClusterRole")["rules"]

    named = {(tuple(rule["resources"]), tuple(rule.get("resourceNames", ()))) for rule in rules}
    assert named == {(("secrets",), ()), (("secrets",), (SECRET,)), (("mutatingwebhookconfigurations",), (NAME,))}
    (anywhere,) = (rule for rule in rules if "resourceNames" not in rule)
    assert anywhere["verbs"] == ["create"]  # a request to create has no name to check
    assert of_kind(values, "MutatingWebhookConfiguration")["metadata"]["name"] == NAME


@OWN_CA
def test_rights_are_bound_to_the_pods_account(values: features.Values) -> None:
    for kind in ("Role", "ClusterRole"):
        binding = of_kind(values, f"{kind}Binding")
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == (kind, NAME)
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    assert pod(values)["serviceAccountName"] == of_kind(values, "ServiceAccount")["metadata"]["name"]


def test_with_cert_manager_the_account_has_no_rights() -> None:
    documents = rendered(**CERT_MANAGER)

    assert chart.rights(documents, NAME) == set()
    roles = {one["metadata"]["name"] for one in documents if one["kind"] in ("Role", "ClusterRole")}
    assert roles == {"railnet", "railnet-rail-reach", "railnet-uninstall"}
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
    documents = rendered(**CERT_MANAGER)
    issuers = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Issuer"}
    certificates = {one["metadata"]["name"]: one["spec"] for one in documents if one["kind"] == "Certificate"}

    served, ca = certificates[NAME], certificates[f"{NAME}-ca"]
    assert issuers[served["issuerRef"]["name"]] == {"ca": {"secretName": ca["secretName"]}}
    assert issuers[ca["issuerRef"]["name"]] == {"selfSigned": {}}
    assert ca["isCA"] is True
    assert "duration" not in served  # cert-manager's default: 90 days
