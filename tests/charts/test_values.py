"""Each feature of the chart has one value, which switches all that the feature needs: objects, rights, arguments and keys of node.yaml."""

import itertools
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml

from railnet import VERSION
from railnet.__main__ import _parser
from railnet.configuration import parse
from tests.charts import features
from tests.charts.rendered import ROOT, JsonObject, Right, by_name, node_yaml, rendered, rights

pytestmark = pytest.mark.slow

WORKLOADS = {"DaemonSet", "Deployment", "Job"}
HEAD = {"apiVersion": "railnet.io/v1alpha1", "kind": "NodeConfiguration"}


class Feature(NamedTuple):
    """What a value changes where all that it needs is switched on: the names of added objects by kind, and what is changed.

    Attributes:
        value: the path of the value.
        values: it, and what it needs.
        added: kinds and names of objects.
        removed: kinds and names of objects.
        rights: by account; None: the account gets some, which another module compares with the code.
        arguments: by workload.
        configuration: the keys of node.yaml.
    """

    value: str
    values: features.Values
    added: AbstractSet[tuple[str, str]]
    removed: AbstractSet[tuple[str, str]] = frozenset()
    rights: Mapping[str, AbstractSet[Right] | None] = MappingProxyType({})
    arguments: Mapping[str, list[str]] = MappingProxyType({})
    configuration: Mapping[str, Any] = MappingProxyType({})


def objects(name: str, *kinds: str) -> set[tuple[str, str]]:
    return {(kind, name) for kind in kinds}


POLICY = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
CLUSTER, OWN = ("ClusterRole", "ClusterRoleBinding"), ("Role", "RoleBinding")
PROCESS = ("ServiceAccount", "Deployment", "PodDisruptionBudget")
HELPER, CONTROLLERS, AUTOSCALER = "railnet-admission", "railnet-controllers", "railnet-dns-autoscaler"
VALIDATE = "railnet-validate"
UNINSTALL = "railnet-uninstall"  # a hook of Helm
OWN_CA: set[Right] = {
    *(("", "secrets", verb) for verb in ("create", "get", "update")),
    *(("admissionregistration.k8s.io", "mutatingwebhookconfigurations", verb) for verb in ("get", "patch")),
}
FEATURES = [
    Feature(
        "ownNode.enabled",
        features.OWN_NODE,
        objects("railnet-own-node-pods", *POLICY)
        | objects("railnet-own-node-events", *POLICY)
        | objects("railnet-network-status", *POLICY)
        | objects("railnet-own-node-resourceslices", *POLICY),
        rights={"railnet": {("resource.k8s.io", "resourceslices", verb) for verb in ("list", "delete")}},
    ),
    Feature(
        "topologyLabels.enabled",
        features.TOPOLOGY_LABELS,
        objects("railnet-own-node-nodes", *POLICY),
        rights={"railnet": {("", "nodes", "patch")}},
        configuration={"publish": {"topologyLabels": True}},
    ),
    Feature(
        "railsCondition.enabled",
        features.RAILS_CONDITION,
        objects("railnet-own-node-nodes", *POLICY),
        rights={"railnet": {("", "nodes/status", "patch")}},
        configuration={"publish": {"railsCondition": True}},
    ),
    Feature(
        "railsCondition.taint",
        features.RAILS_TAINT,
        set(),
        rights={"railnet": {("", "nodes", "patch")}},
        configuration={"publish": {"railsTaint": True}},
    ),
    Feature(
        "railsCondition.kernelMessages",
        features.KERNEL_MESSAGES,
        set(),
        configuration={"publish": {"kernelMessages": True}},
    ),
    Feature(
        "offer",
        features.DRA,
        objects("railnet-own-node-resourceclaims", *POLICY)
        | {("DeviceClass", name) for name in ("rdma.railnet.io", "rdma-ib-vf")},
        rights={"railnet": None},  # tests/charts/test_dra.py
        configuration={"offer": "dra"},
    ),
    Feature(
        "webhook.enabled",
        features.WEBHOOK,
        objects(HELPER, *PROCESS, "Service", "MutatingWebhookConfiguration", *CLUSTER, *OWN)
        | objects(UNINSTALL, *CLUSTER),
        rights={
            HELPER: OWN_CA,
            UNINSTALL: {
                ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", verb) for verb in ("get", "delete")
            },
        },
        arguments={HELPER: ["admission"]},
    ),
    Feature(
        "webhook.priorityClass",
        features.PRIORITY_CLASS,
        set(),
        configuration={"admission": {"priorityClass": "iteration"}},
    ),
    Feature(
        "webhook.environment",
        {**features.WEBHOOK, "webhook.environment": False},
        set(),
        configuration={"admission": {"environment": False}},
    ),
    Feature(
        "webhook.certManager.enabled",
        features.CERT_MANAGER,
        objects(f"{HELPER}-root", "Issuer")
        | objects(f"{HELPER}-ca", "Issuer", "Certificate")
        | objects(HELPER, "Certificate"),
        removed=objects(HELPER, *CLUSTER, *OWN),
        arguments={HELPER: ["--certificates=/run/certificates"]},
    ),
    Feature(
        "webhook.hostNetwork.enabled",
        features.HOST_NETWORK,
        objects(f"{HELPER}-host-ports", *CLUSTER),
        rights={HELPER: {("", "pods", verb) for verb in ("list", "watch")}},
        arguments={HELPER: ["--host-ports=20000-29999"]},
    ),
    Feature(
        "controllers.enabled",
        features.CONTROLLERS,
        objects(CONTROLLERS, *PROCESS, *CLUSTER, *OWN),
        rights={CONTROLLERS: None},
        arguments={CONTROLLERS: ["controllers"]},
    ),
    Feature(
        "controllers.stickyAddresses.enabled",
        features.STICKY,
        objects(f"{CONTROLLERS}-sticky", *CLUSTER, *OWN),
        rights={CONTROLLERS: None},
        configuration={
            "networks": {"staying": {"ipam": {"type": "sticky", "range": "10.58.0.0/16", "rails": 1}}},
            "limits": {"*": {"networks": ["default", "staying"]}},
        },
    ),
    Feature(
        "controllers.cleanUp.enabled",
        features.CLEAN_UP,
        objects(f"{CONTROLLERS}-clean-up", *CLUSTER),
        rights={CONTROLLERS: None},
        arguments={CONTROLLERS: ["--clean-up"]},
    ),
    Feature(
        "gangs.enabled",
        features.GANGS,
        objects(f"{CONTROLLERS}-gangs", *CLUSTER)
        | objects("railnet-gangs", *POLICY)
        | objects(f"{HELPER}-gangs", *OWN),
        rights={
            HELPER: {("scheduling.k8s.io", "podgroups", "create")},
            CONTROLLERS: None,
            UNINSTALL: {("", "pods", "patch"), ("scheduling.k8s.io", "podgroups", "create")},
        },
        arguments={HELPER: ["--gangs", "--gang-engine=auto"], CONTROLLERS: ["--gangs"]},
    ),
    Feature(
        "monitoring.enabled",
        {**features.WEBHOOK, **features.CONTROLLERS, **features.MONITORING},
        objects("railnet", "PrometheusRule")
        | objects("railnet-dashboard", "ConfigMap")
        | {("PodMonitor", name) for name in (HELPER, CONTROLLERS)},
    ),
    Feature(
        "validate.idle.schedule",
        features.IDLE,
        objects(VALIDATE, "ServiceAccount", "CronJob", "Namespace", "PriorityClass", *CLUSTER, *OWN, *POLICY)
        | objects(f"{VALIDATE}-pods", *POLICY),
        rights={VALIDATE: None},  # tests/charts/test_validate_idle.py
    ),
    Feature(
        "priorityClasses.enabled",
        features.PRIORITIES,
        {("PriorityClass", name) for name in ("production", "iteration", "ptr")},
    ),
    Feature(
        "dnsAutoscaler.enabled",
        features.AUTOSCALER,
        objects(AUTOSCALER, "ServiceAccount", "Deployment", "ConfigMap", *CLUSTER, *OWN),
        rights={AUTOSCALER: None},
    ),
]
EACH = pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.value)
# What a value is without its feature.
OFF = {"validate.idle.schedule": "", "offer": "device-plugin", "webhook.priorityClass": "", "webhook.environment": True}


def both(feature: Feature) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the documents without the feature, but with what it needs, and those with it."""
    without = {**feature.values, feature.value: OFF.get(feature.value, False)}
    return rendered(**without), rendered(**feature.values)


def arguments(documents: list[JsonObject]) -> dict[str, list[str]]:
    """Return the arguments of the Deployments of Railnet."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["args"]
        for one in documents
        if one["kind"] == "Deployment" and one["metadata"]["name"] != AUTOSCALER
    }


def configuration(documents: list[JsonObject]) -> JsonObject:
    whole: JsonObject = yaml.safe_load(node_yaml(documents))
    assert HEAD.items() <= whole.items()
    return {key: value for key, value in whole.items() if key not in HEAD}


def test_table_has_every_switch_of_the_values() -> None:
    def switches(values: Any, path: str) -> list[str]:
        if not isinstance(values, dict):
            return [path] if isinstance(values, bool) else []
        return [one for key, value in values.items() for one in switches(value, f"{path}.{key}" if path else key)]

    named = switches(yaml.safe_load((ROOT / "charts/railnet/values.yaml").read_text()), "")
    assert sorted({*named, *OFF}) == sorted(feature.value for feature in FEATURES)


@EACH
def test_value_adds_the_objects_of_the_feature(feature: Feature) -> None:
    without, with_it = (by_name(documents) for documents in both(feature))

    assert with_it.keys() - without.keys() == feature.added
    assert without.keys() - with_it.keys() == feature.removed


@EACH
def test_value_adds_the_rights_of_the_feature(feature: Feature) -> None:
    without, with_it = both(feature)
    accounts = {one["metadata"]["name"] for one in with_it if one["kind"] == "ServiceAccount"}
    added = {account: rights(with_it, account) - rights(without, account) for account in accounts}
    expected = {account: added[account] if allowed is None else allowed for account, allowed in feature.rights.items()}

    assert {account: allowed for account, allowed in added.items() if allowed} == expected
    assert all(expected.values())


@EACH
def test_value_adds_the_arguments_of_the_feature(feature: Feature) -> None:
    without, with_it = (arguments(documents) for documents in both(feature))

    assert {
        name: [one for one in args if one not in without.get(name, ())]
        for name, args in with_it.items()
        if args != without.get(name)
    } == feature.arguments


@EACH
def test_value_adds_the_keys_of_the_feature(feature: Feature) -> None:
    without, with_it = (configuration(documents) for documents in both(feature))

    assert merged(without, feature.configuration) == with_it
    assert (with_it == without) is (not feature.configuration)


def merged(below: JsonObject, above: Mapping[str, Any]) -> JsonObject:
    """Return two mappings as one; a key of both must have mappings there, or the same value."""
    whole = dict(below)
    for key, value in above.items():
        if isinstance(whole.get(key), dict):
            whole[key] = merged(whole[key], value)
        else:
            assert whole.get(key, value) == value
            whole[key] = value
    return whole


SUBSETS = [subset for size in (0, 1, 2) for subset in itertools.combinations(features.ALL, size)]


@pytest.mark.parametrize("subset", SUBSETS, ids=" and ".join)
def test_any_two_features_are_beside_each_other(subset: tuple[str, ...]) -> None:
    values = {path: value for name in subset for path, value in features.ALL[name].items()}
    documents = rendered(**values)

    names = Counter((one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in documents)
    assert [name for name, count in names.items() if count > 1] == []
    for args in arguments(documents).values():
        _parser().parse_args(args)
    expected: JsonObject = {
        key: values[key] for key in values if key == "offer"
    }  # no switch: test_dra.py has its objects
    for feature in FEATURES:
        if feature.values.items() <= values.items():
            expected = merged(expected, feature.configuration)
    assert configuration(documents) == expected
    parse(node_yaml(documents), "node.yaml")


@pytest.mark.parametrize(
    "subset", [(), ("topology labels",), ("condition",), ("taint",), ("topology labels", "taint"), ("dra", "taint")]
)
def test_policies_bound_each_right_of_the_daemon(subset: tuple[str, ...]) -> None:
    documents = rendered(**{path: value for name in subset for path, value in features.ALL[name].items()})

    bounded = {
        resource
        for one in documents
        if one["kind"] == "ValidatingAdmissionPolicy"
        for rule in one["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    used = {resource for _, resource, _ in rights(documents, "railnet")}
    assert {one for one in used if one not in bounded and f"{one.partition('/')[0]}/*" not in bounded} == set()


@pytest.mark.parametrize("values", [features.EVERYTHING, {**features.EVERYTHING, "webhook.certManager.enabled": False}])
def test_no_object_has_a_ca_bundle(values: features.Values) -> None:
    """Each writer of the field would else undo what another one wrote: the server or cert-manager writes it."""
    documents = rendered(**values)

    assert "MutatingWebhookConfiguration" in {one["kind"] for one in documents}
    assert "caBundle" not in keys(documents)


def keys(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {*value, *(key for one in value.values() for key in keys(one))}
    return {key for one in value for key in keys(one)} if isinstance(value, list) else set()


def containers(documents: list[JsonObject]) -> list[JsonObject]:
    """Return the containers of Railnet's images."""
    specs = [one["spec"]["template"]["spec"] for one in documents if one["kind"] in WORKLOADS]
    found = [one for spec in specs for one in (*spec.get("initContainers", ()), *spec["containers"])]
    return [one for one in found if one["name"] != "autoscaler"]


def test_one_registry_is_that_of_each_image_of_railnet() -> None:
    values = {"image.registry": "registry.example.com:5000/hpc", "image.tag": "0.9.0", "image.pullPolicy": "Always"}
    before, after = (containers(rendered(**features.EVERYTHING, **changed)) for changed in (dict[str, Any](), values))

    assert {one["image"] for one in before} == {f"railnet.io/{name}:{VERSION}" for name in ("railnet", HELPER)}
    assert {one["image"] for one in after} == {
        f"registry.example.com:5000/hpc/{name}:0.9.0" for name in ("railnet", HELPER)
    }
    assert len(after) == len(before) == 5
    assert {one["imagePullPolicy"] for one in after} == {"Always"}


def test_secrets_of_the_registry_are_those_of_each_pod_of_railnet() -> None:
    documents = rendered(**features.EVERYTHING, **{"image.pullSecrets": ["first", "2"]})

    secrets = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"].get("imagePullSecrets")
        for one in documents
        if one["kind"] in WORKLOADS
    }
    assert secrets.pop(AUTOSCALER) is None
    assert secrets.keys() == {"railnet", HELPER, CONTROLLERS, "railnet-uninstall"}
    assert all(names == [{"name": "first"}, {"name": "2"}] for names in secrets.values())


def test_object_without_a_label_of_the_operator_is_rendered() -> None:
    documents = rendered(**features.EVERYTHING, **{"monitoring.labels": {"release": None}})

    (rule,) = (one for one in documents if one["kind"] == "PrometheusRule")
    assert rule["metadata"]["labels"].keys() == {"app.kubernetes.io/name"}
