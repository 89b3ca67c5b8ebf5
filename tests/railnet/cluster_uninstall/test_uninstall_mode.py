"""The patch that puts a DaemonSet into the uninstall mode is that of daemonset/uninstall-patch.yaml, and only what is missing of it."""

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from railnet.cluster_uninstall.uninstall_mode import steps
from railnet.errors import Misconfigured
from tests.railnet.cluster_uninstall.uninstalling_cluster import APPARMOR, daemon_set
from tests.railnet.controllers.cluster_in_memory import _apply

JsonObject = dict[str, Any]
FOLDER = Path(__file__).resolve().parents[3] / "daemonset"


def patched_by_kubectl() -> JsonObject:
    """Return the DaemonSet of daemonset/, as `kubectl patch` with the file there leaves it."""
    patch = ("--local", f"--filename={FOLDER}/daemonset.yaml", f"--patch-file={FOLDER}/uninstall-patch.yaml")
    command = ["kubectl", "patch", *patch, "--output=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: JsonObject = json.loads(done.stdout)
    return found


def patched(before: JsonObject) -> JsonObject:
    after = copy.deepcopy(before)
    _apply(after, steps(after))
    return after


def test_patched_daemon_set_is_that_of_the_file() -> None:
    expected = patched_by_kubectl()
    assert (
        expected["spec"]["template"]["spec"].pop("initContainers") == []
    )  # an API server stores it as if it were not there

    assert patched(yaml.safe_load((FOLDER / "daemonset.yaml").read_text())) == expected


def test_daemon_set_in_the_mode_is_not_patched() -> None:
    assert steps(patched_by_kubectl()) == []


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
