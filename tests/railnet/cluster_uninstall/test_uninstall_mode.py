"""The patch that puts a DaemonSet into the uninstall mode is that of the overlays, and only what is missing of it."""

import copy
import json
import re
from typing import Any

import pytest

from railnet.cluster_uninstall.uninstall_mode import steps
from railnet.vf.errors import Misconfigured
from tests.daemonset.kustomized import kustomized
from tests.railnet.cluster_uninstall.uninstalling_cluster import APPARMOR, daemon_set
from tests.railnet.controllers.cluster_in_memory import _apply

JsonObject = dict[str, Any]


def rendered(folder: str) -> JsonObject:
    """Return a folder's DaemonSet; the hash in the name of its ConfigMap, which two kubectls compute differently, is left out."""
    (found,) = (one for one in kustomized(folder) if one["kind"] == "DaemonSet")
    without_hash: JsonObject = json.loads(re.sub(r"railnet-node-\w+", "railnet-node", json.dumps(found)))
    return without_hash


def patched(before: JsonObject) -> JsonObject:
    after = copy.deepcopy(before)
    _apply(after, steps(after))
    return after


@pytest.mark.parametrize(
    ("serving", "uninstalling"),
    [
        ("daemonset", "overlays/uninstall-1.20"),
        ("daemonset", "overlays/uninstall"),
        ("overlays/kubernetes-1.30", "overlays/kubernetes-1.30-uninstall"),
        ("overlays/topology-labels", "overlays/topology-labels-uninstall"),
        ("overlays/rails-condition", "overlays/rails-condition-uninstall"),
    ],
)
def test_patched_daemon_set_is_that_of_the_overlay(serving: str, uninstalling: str) -> None:
    expected = rendered(uninstalling)
    expected["spec"]["template"]["spec"] = {
        key: value for key, value in expected["spec"]["template"]["spec"].items() if value != []
    }

    assert patched(rendered(serving)) == expected


@pytest.mark.parametrize("folder", ["overlays/uninstall", "overlays/kubernetes-1.30-uninstall"])
def test_daemon_set_in_the_mode_is_not_patched(folder: str) -> None:
    assert steps(rendered(folder)) == []


def test_patched_daemon_set_is_not_patched_again() -> None:
    assert steps(patched(daemon_set())) == []


@pytest.mark.parametrize(
    "strategy",
    [
        {"type": "OnDelete"},
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 1}},
        {},
    ],
)
def test_each_strategy_becomes_that_of_all_nodes_at_once(strategy: JsonObject) -> None:
    before = daemon_set()
    before["spec"]["updateStrategy"] = strategy

    assert patched(before)["spec"]["updateStrategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "100%"},
    }


def test_other_containers_and_annotations_stay() -> None:
    before = daemon_set()
    template = before["spec"]["template"]
    template["spec"]["initContainers"].insert(0, {"name": "other"})
    template["spec"]["containers"].insert(0, {"name": "proxy", "args": ["node"]})

    after = patched(before)["spec"]["template"]

    assert after["spec"]["initContainers"] == [{"name": "other"}]
    assert [one["args"] for one in after["spec"]["containers"]] == [["node"], ["uninstall", "--stay"]]
    assert after["metadata"]["annotations"] == {f"{APPARMOR}/railnet": "unconfined"}


def test_daemon_set_without_the_daemons_container_is_refused() -> None:
    before = daemon_set()
    before["spec"]["template"]["spec"]["containers"] = [{"name": "other"}]

    with pytest.raises(Misconfigured, match="DaemonSet railnet has Railnet's label and no container railnet"):
        steps(before)
