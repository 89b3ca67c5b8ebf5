"""Helm itself with the chart: releases that are installed, upgraded, rolled back and uninstalled, and one that takes over from kubectl."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.chart import CONTROLLERS, ENABLED, WEBHOOK, Values, render
from tests.cluster.control_plane import ADMIN
from tests.cluster.helm import Helm
from tests.cluster.manifests import NAMESPACE
from tests.control_plane.api import JsonObject
from tests.control_plane.manifests import delete
from tests.control_plane.server import ApiServer
from tests.node.versions import OLD_COMMITS, extract

Name = tuple[str, str, str]
A = {**WEBHOOK, "topologyLabels": ENABLED, "node": {"configuration": {"timeouts": {"daemon": "6s"}}}}
B = {
    "webhook": {**ENABLED, "replicas": 3, "hostNetwork": ENABLED},
    "controllers": {**ENABLED, "cleanUp": ENABLED},
    "gangs": ENABLED,
    "priorityClasses": ENABLED,
}
OLD = "0.5.1"
OLD_FEATURES = ("own-node", "topology-labels", "rails-condition-taint", "admission", "controllers-clean-up")
NEW_FEATURES = {
    **WEBHOOK,
    "topologyLabels": ENABLED,
    "railsCondition": {**ENABLED, "taint": True},
    "controllers": {**ENABLED, "cleanUp": ENABLED},
}
# docs/install.md: what is not the chart's any more is deleted, and no field of kubectl's stays.
TAKING_OVER = ("--take-ownership", "--server-side=false", "--force-replace")
NOT_OF_HELM = "--selector=app.kubernetes.io/name=railnet,app.kubernetes.io/managed-by!=Helm"
RENAMED = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
_KINDS = (
    "daemonsets,deployments,services,poddisruptionbudgets,serviceaccounts,configmaps,secrets,leases,roles,rolebindings,clusterroles,"
    "clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,priorityclasses"
)
_OF_KUBERNETES = {("ConfigMap", NAMESPACE, "kube-root-ca.crt"), ("ServiceAccount", NAMESPACE, "default")}
# Railnet's programs make these themselves, and other modules run them.
_OF_PROGRAMS = {
    ("Lease", NAMESPACE, "railnet-controllers"),
    ("Secret", NAMESPACE, "railnet-admission-tls"),
    ("ConfigMap", NAMESPACE, "railnet-sticky-addresses"),
}
_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/railnet-admission"
_BUNDLE = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()


@pytest.fixture
def helm(server: ApiServer) -> Iterator[Helm]:
    """Yield a Helm without a release; nothing of a release may be there afterwards."""
    assert objects(server) == {}
    yield Helm(ADMIN)
    assert objects(server) == {}


def objects(server: ApiServer) -> dict[Name, JsonObject]:
    """Return the objects of Railnet's namespace and those with its label, but for Helm's Secrets and what programs make."""
    everywhere = ("--all-namespaces", "--output=json", "--selector=app.kubernetes.io/name")
    listed = [
        *json.loads(server.kubectl("get", _KINDS, *everywhere).stdout)["items"],
        *json.loads(server.kubectl("get", _KINDS, f"--namespace={NAMESPACE}", "--output=json").stdout)["items"],
    ]
    found = {name_of(one): one for one in listed if is_railnets(one["metadata"])}
    return {name: one for name, one in found.items() if name not in _OF_KUBERNETES | _OF_PROGRAMS}


def is_railnets(metadata: JsonObject) -> bool:
    label = metadata.get("labels", {}).get("app.kubernetes.io/name", "")
    return label.startswith("railnet") or (
        metadata.get("namespace") == NAMESPACE and "sh.helm.release" not in metadata["name"]
    )


def name_of(one: JsonObject) -> Name:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def rendered(*values: Values) -> dict[Name, JsonObject]:
    return {name_of(one): one for one in render(*values)}


def differences(found: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Yield where an object of the API server differs from what the chart says; what the API server adds is no difference.

    Lists must be as long as the chart's: an element that another installer left counts.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            if value not in (None, {}, []):
                yield from differences(found.get(key), value, f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(found) == len(wanted):
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif found != wanted:
        yield f"{path}: {found!r} is not {wanted!r}"


def wrong(server: ApiServer, *values: Values) -> list[str]:
    """Say how the objects of the cluster differ from what the chart renders."""
    wanted, found = rendered(*values), objects(server)
    names = [f"{name} is there" for name in found.keys() - wanted.keys()]
    names += [f"{name} is missing" for name in wanted.keys() - found.keys()]
    return names + [
        f"{name}{words}"
        for name in wanted.keys() & found.keys()
        for words in differences(found[name] | {"apiVersion": wanted[name]["apiVersion"]}, wanted[name])
    ]


def trust(server: ApiServer) -> None:
    """Write caBundle as the webhook's server does."""
    count = len(server.api.get(_WEBHOOKS).object["webhooks"])
    patch = [
        {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": _BUNDLE} for number in range(count)
    ]
    answer = server.api.send("PATCH", _WEBHOOKS, patch, content_type="application/json-patch+json")
    assert answer.status == 200, answer.message


def untrusted(server: ApiServer) -> set[str]:
    """Return the names of webhooks without caBundle."""
    webhooks = server.api.get(_WEBHOOKS).object["webhooks"]
    return {one["name"] for one in webhooks if one["clientConfig"].get("caBundle") != _BUNDLE}


def webhooks_of(*values: Values) -> set[str]:
    documents = (one for one in render(*values) if one["kind"] == "MutatingWebhookConfiguration")
    return {webhook["name"] for one in documents for webhook in one["webhooks"]}


def test_release_is_what_its_values_render_after_upgrade_and_rollback(server: ApiServer, helm: Helm) -> None:
    helm.upgrade(A)
    first = wrong(server, A)
    trust(server)
    helm.upgrade(B)
    second, new = wrong(server, B), untrusted(server)
    trust(server)
    helm.rollback()
    third, lost = wrong(server, A), untrusted(server)
    helm.uninstall("--no-hooks")

    assert first == []
    assert second == []
    assert new == webhooks_of(B) - webhooks_of(A)
    assert third == []
    assert lost == set()


def versions(server: ApiServer) -> dict[Name, Any]:
    """Return what is another one when an object is changed; its status does not count."""
    metadata = {name: one["metadata"] for name, one in objects(server).items()}
    return {name: one.get("generation") or one["resourceVersion"] for name, one in metadata.items()}


def test_release_that_is_upgraded_without_a_change_changes_no_object(server: ApiServer, helm: Helm) -> None:
    helm.upgrade(A)
    before = versions(server)
    helm.upgrade(A)
    after = versions(server)
    helm.uninstall("--no-hooks")

    assert after == before
    assert len(after) > 10


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract(OLD_COMMITS[OLD], tmp_path_factory.mktemp("old")).source


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_release_takes_over_from_kubectl(server: ApiServer, helm: Helm, old: Path, how: tuple[str, ...]) -> None:
    applied = server.kubectl("apply", "--kustomize", str(old / "daemonset"), *how)
    helm.upgrade(more=TAKING_OVER)
    left = take_maps(server)
    found = wrong(server)
    annotations = objects(server)["DaemonSet", NAMESPACE, "railnet"]["spec"]["template"]["metadata"]["annotations"]
    helm.upgrade(A)
    later = wrong(server, A)
    helm.upgrade(B)
    last = wrong(server, B)
    helm.uninstall("--no-hooks")

    assert applied.returncode == 0
    assert len(left) == 1
    assert found == []
    assert annotations.keys() == {"railnet.io/configuration"}  # none of AppArmor's
    assert later == []
    assert last == []


def test_release_takes_over_features_from_kubectl_but_for_the_objects_that_had_other_names(
    server: ApiServer, helm: Helm, old: Path
) -> None:
    for folder in OLD_FEATURES:
        applied = server.kubectl("apply", "--kustomize", str(old / "overlays" / folder))
        assert applied.returncode == 0, applied.stderr
    helm.upgrade(NEW_FEATURES, more=TAKING_OVER)
    trust(server)
    left = objects(server).keys() - rendered(NEW_FEATURES).keys()
    deleted = server.kubectl("delete", RENAMED, NOT_OF_HELM)
    maps = take_maps(server)
    found = wrong(server, NEW_FEATURES)
    helm.upgrade(NEW_FEATURES, CONTROLLERS)
    lost = untrusted(server)
    helm.uninstall("--no-hooks")

    assert deleted.returncode == 0
    assert {name for kind, _, name in left if kind != "ConfigMap"} == {
        "railnet-topology-labels",
        "railnet-rails-condition",
        "railnet-rails-taint",
    }
    assert {name for kind, _, name in left if kind == "ConfigMap"} == maps
    assert found == []
    assert lost == set()


def take_maps(server: ApiServer) -> set[str]:
    """Delete the ConfigMaps of kubectl's, whose names end with a hash; return their names."""
    maps = [
        one
        for (kind, _, name), one in objects(server).items()
        if kind == "ConfigMap" and name.startswith("railnet-node-")
    ]
    delete(server, maps)
    return {one["metadata"]["name"] for one in maps}
