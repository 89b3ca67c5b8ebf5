"""overlays/monitoring: its PrometheusRule has the rules, its PodMonitors find the Deployments' ports, and its ConfigMap has the dashboard."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.daemonset.kustomized import kustomized
from tests.monitoring.dashboard import DASHBOARD
from tests.monitoring.exported import ROOT

FOLDER = "overlays/monitoring"
RULE = f"{FOLDER}/prometheusrule.yaml"
DEPLOYMENTS = {"railnet-admission": "overlays/admission", "railnet-controllers": "overlays/controllers"}
JsonObject = dict[str, Any]


def of_kind(folder: str, kind: str) -> dict[str, JsonObject]:
    return {one["metadata"]["name"]: one for one in kustomized(folder) if one["kind"] == kind}


@pytest.mark.slow
def test_generate_writes_the_rule_of_the_tree(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts/generate", tmp_path], check=True)

    assert (tmp_path / RULE).read_text() == (ROOT / RULE).read_text()


def test_rule_has_the_groups_of_the_file() -> None:
    (rule,) = of_kind(FOLDER, "PrometheusRule").values()

    assert rule["spec"] == yaml.safe_load((ROOT / FOLDER / "rules.yaml").read_text())


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pod_monitor_finds_the_pods_of_its_deployment(name: str) -> None:
    monitor = of_kind(FOLDER, "PodMonitor")[name]["spec"]
    template = of_kind(DEPLOYMENTS[name], "Deployment")[name]["spec"]["template"]
    labels = template["metadata"]["labels"]
    ports = {port["name"] for one in template["spec"]["containers"] for port in one.get("ports", ())}
    (endpoint,) = monitor["podMetricsEndpoints"]

    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["jobLabel"]] == name
    assert endpoint["port"] in ports


def test_operator_takes_every_object_of_its_kinds_by_one_label() -> None:
    found = [one for kind in ("PrometheusRule", "PodMonitor") for one in of_kind(FOLDER, kind).values()]

    assert len(found) == 3
    assert {one["metadata"]["labels"]["release"] for one in found} == {"kube-prometheus-stack"}


def test_sidecar_takes_the_dashboard_whole() -> None:
    (found,) = of_kind(FOLDER, "ConfigMap").values()

    assert (found["metadata"]["name"], found["metadata"]["labels"]["grafana_dashboard"]) == ("railnet-dashboard", "1")
    assert json.loads(found["data"]["railnet.json"]) == DASHBOARD


def test_overlay_adds_nothing_but_what_monitoring_reads() -> None:
    assert sorted(one["kind"] for one in kustomized(FOLDER)) == [
        "ConfigMap",
        "PodMonitor",
        "PodMonitor",
        "PrometheusRule",
    ]
