"""The chart with monitoring: its PrometheusRule has the rules, its PodMonitors find the Deployments' ports, and its ConfigMap has the dashboard."""

import json
from typing import Any

import pytest
import yaml

from tests.charts import features
from tests.charts.rendered import CHART, rendered
from tests.monitoring.dashboard import DASHBOARD

pytestmark = pytest.mark.slow

JsonObject = dict[str, Any]
DEPLOYMENTS = {"railnet-admission": features.WEBHOOK, "railnet-controllers": features.CONTROLLERS}
VALUES = {**features.WEBHOOK, **features.CONTROLLERS, **features.MONITORING}


def of_kind(kind: str, values: features.Values = VALUES) -> dict[str, JsonObject]:
    return {one["metadata"]["name"]: one for one in rendered(**values) if one["kind"] == kind}


def test_rule_has_the_groups_of_the_file() -> None:
    (rule,) = of_kind("PrometheusRule").values()

    assert rule["spec"] == yaml.safe_load((CHART / "files/rules.yaml").read_text())


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pod_monitor_finds_the_pods_of_its_deployment(name: str) -> None:
    monitor = of_kind("PodMonitor")[name]["spec"]
    template = of_kind("Deployment")[name]["spec"]["template"]
    labels = template["metadata"]["labels"]
    ports = {port["name"] for one in template["spec"]["containers"] for port in one.get("ports", ())}
    (endpoint,) = monitor["podMetricsEndpoints"]

    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["jobLabel"]] == name
    assert endpoint["port"] in ports


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pod_monitor_comes_with_its_deployment(name: str) -> None:
    assert of_kind("PodMonitor", {**DEPLOYMENTS[name], **features.MONITORING}).keys() == {name}


@pytest.mark.parametrize("labels", [{"release": "kube-prometheus-stack"}, {"release": "metrics", "team": "ml"}])
def test_operator_takes_every_object_of_its_kinds_by_the_labels_of_the_values(labels: dict[str, str]) -> None:
    values = {**VALUES, "monitoring.labels": labels}
    found = [one for kind in ("PrometheusRule", "PodMonitor") for one in of_kind(kind, values).values()]

    assert len(found) == 3
    assert all(labels.items() <= one["metadata"]["labels"].items() for one in found)


def test_operator_takes_the_objects_of_its_own_release_by_default() -> None:
    (rule,) = of_kind("PrometheusRule").values()

    assert rule["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_sidecar_takes_the_dashboard_whole() -> None:
    found = of_kind("ConfigMap")["railnet-dashboard"]

    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["railnet.json"]) == DASHBOARD
