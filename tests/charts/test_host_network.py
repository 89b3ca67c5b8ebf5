"""The chart with webhook.hostNetwork: it adds to the webhook one option, one right, and reviews of operators' Services."""

import pytest

from railnet.__main__ import _parser
from railnet.admission import webhook_scope
from railnet.admission.certificates.cluster_objects import NAME
from railnet.admission.server.server import SERVICES
from railnet.jobs.host_port_choice import parse
from tests.charts import features
from tests.charts.rendered import JsonObject, by_name, container, of_kind, rendered

RIGHTS = "railnet-admission-host-ports"


@pytest.mark.slow
@pytest.mark.parametrize("base", [features.WEBHOOK, features.CERT_MANAGER], ids=["own CA", "cert-manager"])
def test_option_is_a_range_and_the_only_change_of_the_server(base: features.Values) -> None:
    mode, before = (
        container(rendered(**values), "Deployment", NAME) for values in ({**base, **features.HOST_NETWORK}, base)
    )

    options = _parser().parse_args(mode["args"])

    assert mode["args"][:-1] == before["args"]
    assert parse(options.host_ports).size == 10_000
    (variable,) = mode["env"]
    assert variable == {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert {key: value for key, value in mode.items() if key != "env"} | {"args": before["args"]} == before


@pytest.mark.slow
def test_ports_of_the_values_are_those_of_the_server() -> None:
    documents = rendered(**features.HOST_NETWORK, **{"webhook.hostNetwork.ports": "30000-30099"})

    options = _parser().parse_args(container(documents, "Deployment", NAME)["args"])

    assert parse(options.host_ports).size == 100


@pytest.mark.slow
def test_reviews_of_services_follow_those_of_pods() -> None:
    entries, before = (
        of_kind(rendered(**values), "MutatingWebhookConfiguration", NAME)["webhooks"]
        for values in (features.HOST_NETWORK, features.WEBHOOK)
    )

    assert entries == [*before, *webhook_scope.services()]
    assert {one["clientConfig"]["service"]["path"] for one in webhook_scope.services()} == {SERVICES}


@pytest.mark.slow
def test_right_is_to_read_pods() -> None:
    documents = by_name(rendered(**features.HOST_NETWORK))

    assert documents["ClusterRole", RIGHTS]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    ]
    binding = documents["ClusterRoleBinding", RIGHTS]
    assert binding["roleRef"]["name"] == RIGHTS
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "railnet"}]


@pytest.mark.slow
def test_server_gets_its_token_with_cert_manager() -> None:
    documents = rendered(**{**features.HOST_NETWORK, **features.CERT_MANAGER})

    assert of_kind(documents, "ServiceAccount", NAME)["automountServiceAccountToken"] is True


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
        for entry in webhook_scope.services()
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
