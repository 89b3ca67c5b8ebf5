"""The overlays of host-network mode: they add to the admission helper one option, one right, and reviews of operators' Services."""

import os
from typing import Any

import pytest
import yaml

from railnet.__main__ import _parser
from railnet.admission import webhook_configuration
from railnet.admission.certificates.cluster_objects import NAME
from railnet.admission.server import SERVICES
from railnet.jobs.host_ports import parse
from tests.daemonset.kustomized import ROOT, kustomized

JsonObject = dict[str, Any]
FOLDER, BASE = "overlays/host-network", "overlays/admission"
RIGHTS = "railnet-admission-host-ports"


def by_name(folder: str) -> dict[tuple[str, str], JsonObject]:
    return {(one["kind"], one["metadata"]["name"]): one for one in kustomized(folder)}


@pytest.mark.slow
def test_mode_adds_an_option_a_right_and_reviews_and_nothing_else() -> None:
    mode, base = by_name(FOLDER), by_name(BASE)

    assert {name for _, name in mode.keys() - base.keys()} == {RIGHTS}
    changed = {kind for (kind, name), one in base.items() if mode[kind, name] != one}
    assert changed == {"Deployment", "MutatingWebhookConfiguration"}


def test_option_is_a_range_and_the_only_change_of_the_server() -> None:
    mode, base = by_name(FOLDER)["Deployment", NAME], by_name(BASE)["Deployment", NAME]
    (container,) = mode["spec"]["template"]["spec"]["containers"]
    (before,) = base["spec"]["template"]["spec"]["containers"]

    options = _parser().parse_args(container["args"])

    assert container["args"][:-1] == before["args"]
    assert parse(options.host_ports).size == 10_000
    (variable,) = container["env"]
    assert variable == {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert {key: value for key, value in container.items() if key != "env"} | {"args": before["args"]} == before


def test_reviews_of_services_follow_those_of_pods() -> None:
    entries = by_name(FOLDER)["MutatingWebhookConfiguration", NAME]["webhooks"]

    assert entries == [
        *by_name(BASE)["MutatingWebhookConfiguration", NAME]["webhooks"],
        *webhook_configuration.services(),
    ]
    assert {one["clientConfig"]["service"]["path"] for one in webhook_configuration.services()} == {SERVICES}
    assert len({one["name"] for one in entries}) == len(entries)


def test_right_is_to_read_pods() -> None:
    documents = by_name(FOLDER)

    assert documents["ClusterRole", RIGHTS]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    ]
    binding = documents["ClusterRoleBinding", RIGHTS]
    assert binding["roleRef"]["name"] == RIGHTS
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "railnet"}]


@pytest.mark.slow
def test_component_gives_the_server_its_token_with_cert_manager(tmp_path: Any) -> None:
    relative = {
        one: os.path.relpath(ROOT / "overlays" / one, tmp_path)
        for one in ("admission-cert-manager", "host-network/mode")
    }
    kustomization = {"resources": [relative["admission-cert-manager"]], "components": [relative["host-network/mode"]]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))

    documents = {(one["kind"], one["metadata"]["name"]): one for one in kustomized(tmp_path)}

    assert documents["ServiceAccount", NAME]["automountServiceAccountToken"] is True
    (container,) = documents["Deployment", NAME]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["admission", "--certificates", "/run/certificates", "--host-ports=20000-29999"]


MARKS = {
    "KubeDL": {"group-name": "training.kubedl.io", "job-name": "mnist", "replica-type": "worker", "replica-index": "0"},
    "Kubeflow": {
        "training.kubeflow.org/operator-name": "tfjob-controller",
        "training.kubeflow.org/job-name": "mnist",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "0",
    },
    "the label": {"railnet.io/network-mode": "host"},
}


def asked(labels: dict[str, str], namespace: dict[str, str]) -> int:
    """Return how many entries the API server calls for a Service."""

    def holds(selector: JsonObject, of: dict[str, str]) -> bool:
        rules = {
            "In": lambda one: of.get(one["key"]) in one["values"],
            "NotIn": lambda one: of.get(one["key"]) not in one["values"],
            "Exists": lambda one: one["key"] in of,
        }
        return all(rules[one["operator"]](one) for one in selector["matchExpressions"])

    return sum(
        holds(entry["objectSelector"], labels) and holds(entry["namespaceSelector"], namespace)
        for entry in webhook_configuration.services()
    )


@pytest.mark.parametrize("labels", MARKS.values(), ids=MARKS.keys())
def test_service_of_an_operator_or_with_the_label_causes_one_call(labels: dict[str, str]) -> None:
    assert asked(labels, {}) == 1
    assert asked(labels, {"railnet.io/net1": "true"}) == 1


@pytest.mark.parametrize("labels", MARKS.values(), ids=MARKS.keys())
def test_service_that_lacks_one_mark_causes_no_call(labels: dict[str, str]) -> None:
    for missing in labels:
        if not missing.endswith("replica-index"):
            assert asked({key: value for key, value in labels.items() if key != missing}, {}) == 0
    assert asked({"app": "web"}, {}) == 0


@pytest.mark.parametrize("labels", MARKS.values(), ids=MARKS.keys())
def test_service_in_a_namespace_without_reviews_causes_no_call(labels: dict[str, str]) -> None:
    for namespace in ({"railnet.io/net1": "false"}, {"kubernetes.io/metadata.name": "railnet"}):
        assert asked(labels, namespace) == 0
