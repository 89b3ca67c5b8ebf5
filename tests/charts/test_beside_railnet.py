"""What the chart can install beside Railnet: the PriorityClasses, and the autoscaler of the cluster's DNS."""

import json
import re

import pytest

from tests.charts import features
from tests.charts import rendered as chart
from tests.charts.rendered import CHART, ROOT, JsonObject, as_written, rendered

TEMPLATE = CHART / "templates/dns-autoscaler.yaml"
NAME, NAMESPACE = "railnet-dns-autoscaler", "kube-system"


def autoscaler() -> list[JsonObject]:
    return as_written("dns-autoscaler.yaml")


def of_kind(kind: str) -> JsonObject:
    return chart.of_kind(autoscaler(), kind, NAME)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "template"),
    [(features.PRIORITIES, "training-priorityclasses.yaml"), (features.AUTOSCALER, "dns-autoscaler.yaml")],
    ids=["priorities", "autoscaler"],
)
def test_value_adds_the_documents_of_the_template(values: features.Values, template: str) -> None:
    without, with_it = rendered(), rendered(**values)

    added = [one for one in with_it if one not in without]
    assert sorted(added, key=str) == sorted(as_written(template), key=str)
    assert len(added) == len(with_it) - len(without)


def test_classes_are_those_of_the_page_and_no_class_is_the_clusters_default() -> None:
    classes = {one["metadata"]["name"]: one for one in as_written("training-priorityclasses.yaml")}
    page = (ROOT / "docs/training/README.md").read_text()

    assert {one["kind"] for one in classes.values()} == {"PriorityClass"}
    assert {name: one["value"] for name, one in classes.items()} == {
        name: int(value) for name, value in re.findall(r"^\| `(\w+)` \| (\d+) \|", page, re.MULTILINE)
    }
    assert {name for name, one in classes.items() if one["preemptionPolicy"] == "Never"} == {"ptr"}
    assert not any("globalDefault" in one for one in classes.values())


def test_autoscaler_may_change_one_number_of_one_deployment() -> None:
    rights = {
        (one["kind"], *rule["resources"], *rule.get("resourceNames", ())): rule["verbs"]
        for one in autoscaler()
        if one["kind"] in ("Role", "ClusterRole")
        for rule in one["rules"]
    }

    assert rights == {
        ("ClusterRole", "nodes"): ["list", "watch"],
        ("Role", "deployments/scale", "coredns"): ["get", "update"],
        ("Role", "configmaps", NAME): ["get"],
    }


def test_each_right_of_the_autoscaler_has_its_reason_beside_it() -> None:
    lines = re.findall(r"^  resources: \[.*\](.*)$", TEMPLATE.read_text(), re.MULTILINE)

    assert len(lines) == 3
    assert all(re.fullmatch(r" # \w.+", line) for line in lines)


def test_each_number_of_the_autoscaler_has_its_reason() -> None:
    numbers = json.loads(of_kind("ConfigMap")["data"]["linear"])
    text = TEMPLATE.read_text()

    reasons = dict(re.findall(r"^#   (\w+) +(\w+)  +\w", text, re.MULTILINE))

    assert reasons == {name: json.dumps(value) for name, value in numbers.items()}


def test_autoscalers_objects_fit_each_other() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = dict(argument.removeprefix("--").split("=") for argument in container["command"][1:])
    bindings = [one for one in autoscaler() if one["kind"].endswith("Binding")]

    assert {one["metadata"]["name"] for one in autoscaler()} == {NAME}
    assert {one["metadata"].get("namespace", NAMESPACE) for one in autoscaler()} == {NAMESPACE}
    assert pod["serviceAccountName"] == of_kind("ServiceAccount")["metadata"]["name"]
    assert (options["namespace"], options["configmap"], options["target"]) == (NAMESPACE, NAME, "deployment/coredns")
    assert [(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings] == [
        ("ClusterRole", NAME),
        ("Role", NAME),
    ]
    assert [one["subjects"] for one in bindings] == [
        [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]
    ] * 2
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_autoscalers_selector_fits_its_pods() -> None:
    spec = of_kind("Deployment")["spec"]

    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
