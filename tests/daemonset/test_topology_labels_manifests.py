"""The manifests of topology labels: the daemon gets the right to patch nodes together with the policy that bounds it, and umad devices."""

import copy
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.configuration import parse
from railnet.fabric.topology_labels import LEAF, RAILS, RATE, is_ours, leaf_of_rail
from tests.daemonset.kustomized import ROOT, kustomized

LABELS = Path("overlays/topology-labels/labels")
WITH, WITHOUT = "overlays/topology-labels", "overlays/own-node"


def by_name(folder: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["kind"], one["metadata"]["name"]): one for one in kustomized(folder)}


def daemon(folder: str) -> dict[str, Any]:
    (found,) = by_name(folder)["DaemonSet", "railnet"]["spec"]["template"]["spec"]["containers"]
    return copy.deepcopy(found)  # type: ignore[no-any-return]


def configuration(folder: str) -> Any:
    (text,) = (one["data"]["node.yaml"] for one in kustomized(folder) if one["kind"] == "ConfigMap")
    return parse(text, "node.yaml")


def test_overlay_adds_one_right_its_policy_and_the_switch_in_the_configuration() -> None:
    added = by_name(WITH).keys() - by_name(WITHOUT).keys()

    assert {(kind, name) for kind, name in added if kind != "ConfigMap"} == {
        (kind, "railnet-topology-labels")
        for kind in (
            "ClusterRole",
            "ClusterRoleBinding",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        )
    }
    assert (configuration(WITH).publish.topology_labels, configuration(WITHOUT).publish.topology_labels) == (
        True,
        False,
    )


def test_right_is_to_patch_nodes_and_belongs_to_the_daemon() -> None:
    role, binding = (by_name(WITH)[kind, "railnet-topology-labels"] for kind in ("ClusterRole", "ClusterRoleBinding"))

    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]
    assert binding["subjects"] == by_name(WITH)["ClusterRoleBinding", "railnet"]["subjects"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]


def test_right_never_comes_without_its_policy() -> None:
    """No folder that kubectl could apply alone has the role and not the policy: role.yaml is in a component with both."""
    component = yaml.safe_load((ROOT / LABELS / "kustomization.yaml").read_text())

    assert component["kind"] == "Component"
    assert component["resources"] == ["role.yaml", "policy.yaml"]
    others = [path for path in ROOT.glob("overlays/**/kustomization.yaml") if "labels/role.yaml" in path.read_text()]
    assert others == []


def test_daemon_alone_is_privileged_for_the_umad_devices_and_differs_in_nothing_else() -> None:
    with_labels, without = daemon(WITH), daemon(WITHOUT)

    assert with_labels["securityContext"].pop("privileged", None) is True
    assert with_labels == without
    spec = by_name(WITH)["DaemonSet", "railnet"]["spec"]["template"]["spec"]
    assert all("privileged" not in one["securityContext"] for one in spec["initContainers"])


@pytest.mark.slow
def test_uninstall_has_the_same_rights_and_configuration() -> None:
    folder = "overlays/topology-labels-uninstall"

    assert daemon(folder)["args"] == ["uninstall", "--stay"]
    assert configuration(folder) == configuration(WITH)
    assert ("ClusterRole", "railnet-topology-labels") in by_name(folder)


@pytest.mark.parametrize("base", ["own-node", "own-node-admission"])
def test_users_overlay_takes_the_component_beside_its_own_configuration(tmp_path: Path, base: str) -> None:
    def from_here(path: str) -> str:
        return os.path.relpath(ROOT / "overlays" / path, tmp_path.resolve())

    generator = {"name": "railnet-node", "namespace": "railnet", "behavior": "replace", "files": ["node.yaml"]}
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [from_here(base)],
        "components": [from_here("topology-labels/labels")],
        "configMapGenerator": [generator],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    (tmp_path / "node.yaml").write_text("publish: {topologyLabels: true, events: false}\n")
    documents = by_name(str(tmp_path))

    assert daemon(str(tmp_path))["securityContext"]["privileged"] is True
    assert {("ClusterRole", "railnet-topology-labels"), ("ValidatingAdmissionPolicy", "railnet-topology-labels")} <= (
        documents.keys()
    )
    assert (configuration(str(tmp_path)).publish.topology_labels, configuration(str(tmp_path)).publish.events) == (
        True,
        False,
    )


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        *((key, True) for key in (LEAF, RAILS, RATE, leaf_of_rail(0), leaf_of_rail(127))),
        *(
            (key, False)
            for key in ("railnet.io/net1", "railnet.io/leafs", "xrailnet.io/leaf", "railnet-io/leaf", "zone")
        ),
    ],
)
def test_policy_and_code_name_the_same_keys(key: str, ours: bool) -> None:
    text = (ROOT / LABELS / "policy.yaml").read_text()
    (pattern,) = re.findall(r"key\.matches\('([^']+)'\)", text)

    assert (re.search(pattern, key) is not None, is_ours(key)) == (ours, ours)
