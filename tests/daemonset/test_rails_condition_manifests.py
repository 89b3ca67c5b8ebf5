"""The manifests of the condition RailnetRails: each right comes with the policy that bounds it, and the taint with the condition."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.configuration import Publish, parse
from railnet.fabric.rails_condition import TAINT, TYPE
from tests.daemonset.kustomized import ROOT, kustomized

CONDITION, TAINTED, UNINSTALL = (
    "overlays/rails-condition",
    "overlays/rails-condition-taint",
    "overlays/rails-condition-uninstall",
)
POLICIES = ("overlays/rails-condition/condition/policy.yaml", "overlays/topology-labels/labels/policy.yaml")


def by_name(folder: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in kustomized(folder)}


def added(folder: str) -> set[tuple[str, str]]:
    names = by_name(folder).keys() - by_name("overlays/own-node").keys()
    return {(kind, name) for kind, name in names if kind != "ConfigMap"}


def published(folder: str) -> Publish:
    (text,) = (one["data"]["node.yaml"] for one in kustomized(folder) if one["kind"] == "ConfigMap")
    return parse(text, "node.yaml").publish


OF_CONDITION = {
    (kind, "railnet-rails-condition")
    for kind in ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
}
OF_TAINT = {(kind, "railnet-rails-taint") for kind in ("ClusterRole", "ClusterRoleBinding")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "objects", "publish"),
    [
        (CONDITION, OF_CONDITION, Publish(rails_condition=True)),
        (TAINTED, OF_CONDITION | OF_TAINT, Publish(rails_condition=True, rails_taint=True)),
        (UNINSTALL, OF_CONDITION | OF_TAINT, Publish(rails_condition=True, rails_taint=True)),
    ],
)
def test_overlay_adds_its_rights_the_policy_and_the_switches(
    folder: str, objects: set[tuple[str, str]], publish: Publish
) -> None:
    assert (added(folder), published(folder)) == (objects, publish)


@pytest.mark.parametrize(
    ("name", "resource"), [("railnet-rails-condition", "nodes/status"), ("railnet-rails-taint", "nodes")]
)
def test_right_is_to_patch_one_resource_and_belongs_to_the_daemon(name: str, resource: str) -> None:
    found = by_name(TAINTED)

    assert found["ClusterRole", name]["rules"] == [{"apiGroups": [""], "resources": [resource], "verbs": ["patch"]}]
    assert found["ClusterRoleBinding", name]["roleRef"]["name"] == name
    assert found["ClusterRoleBinding", name]["subjects"] == found["ClusterRoleBinding", "railnet"]["subjects"]


def test_daemon_is_as_in_own_node() -> None:
    of_condition, of_own_node = (
        by_name(folder)["DaemonSet", "railnet"]["spec"]["template"]["spec"]["containers"]
        for folder in (TAINTED, "overlays/own-node")
    )

    assert of_condition == of_own_node


def test_uninstall_runs_in_the_mode_that_leaves_the_node() -> None:
    (container,) = by_name(UNINSTALL)["DaemonSet", "railnet"]["spec"]["template"]["spec"]["containers"]

    assert container["args"] == ["uninstall", "--stay"]


def test_two_policies_about_nodes_demand_the_same() -> None:
    """The API server asks both where both are applied, so what one of them allows alone would be refused by the other."""
    first, second = (next(yaml.safe_load_all((ROOT / path).read_text()))["spec"] for path in POLICIES)

    assert first == second


def test_policy_and_code_name_the_same_condition_and_taint() -> None:
    text = (ROOT / POLICIES[0]).read_text()

    assert set(re.findall(r"one[.]type != '([^']+)'", text)) == {TYPE}
    assert set(re.findall(r"one[.]key != '([^']+)'", text)) == {TAINT}


@pytest.mark.parametrize("component", ["condition", "taint"])
def test_users_overlay_takes_the_components_of_condition_and_labels(tmp_path: Path, component: str) -> None:
    def from_here(path: str) -> str:
        return os.path.relpath(ROOT / "overlays" / path, tmp_path.resolve())

    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [from_here("own-node-admission")],
        "components": [from_here("topology-labels/labels"), from_here(f"rails-condition/{component}")],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    found = by_name(str(tmp_path))

    assert found.keys() >= OF_CONDITION
    assert ("ValidatingAdmissionPolicy", "railnet-topology-labels") in found
    assert (found.keys() >= OF_TAINT) == (component == "taint")
