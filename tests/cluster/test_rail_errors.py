"""A storm of errors on a rail's port, as the cluster sees it: condition, taint, no new pod there, and healthy again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.fabric.rails_condition import TAINT, TYPE
from tests.cluster.ground import NODE
from tests.cluster.node import PFS, ClusterNode
from tests.cluster.pods import pod
from tests.cluster.process import wait_until
from tests.cluster.worker import SYSFS

_SECONDS = 240.0
_VALUES = {"railsCondition": {"enabled": True, "taint": True, "kernelMessages": True}}
_UNREAD = "Why the kernel's log is not read"


def condition(node: ClusterNode) -> dict[str, str]:
    conditions: list[dict[str, str]] = node.kubectl.get("node", NODE)["status"]["conditions"]
    return next((one for one in conditions if one["type"] == TYPE), {})


def is_tainted(node: ClusterNode) -> bool:
    taints: list[dict[str, Any]] = node.kubectl.get("node", NODE)["spec"].get("taints", [])
    return any(taint["key"] == TAINT for taint in taints)


@pytest.fixture
def watched(node: ClusterNode) -> Iterator[ClusterNode]:
    node.railnet.values = _VALUES
    node.railnet.apply(portThresholds={"symbol_error": "100/10s", "recovery": "1m"})
    node.railnet.roll_out()
    wait_until(lambda: condition(node).get("status") == "True", _SECONDS, "the condition to be True")
    yield node
    node.railnet.values = {}
    if is_tainted(node):
        node.kubectl.run("taint", "node", NODE, f"{TAINT}-")


def symbol_errors(rail: int) -> Path:
    (file,) = SYSFS.glob(f"bus/pci/devices/{PFS[rail].address}/infiniband/*/ports/1/counters/symbol_error")
    return file


def test_storm_of_symbol_errors_keeps_new_pods_away_until_it_is_over(watched: ClusterNode) -> None:
    running = watched.run("running", 1)
    file = symbol_errors(1)
    before = int(file.read_text())
    file.write_text(f"{before + 5000}\n")
    wait_until(lambda: condition(watched)["status"] == "False", _SECONDS, "the condition to be False")
    said = condition(watched)
    wait_until(lambda: is_tainted(watched), _SECONDS, "the taint")
    status = watched.railnet.status()
    late = pod("late", 1)
    late["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    watched.create(late)
    watched.wait_for_event("late", "untolerated taint")
    wait_until(lambda: condition(watched)["status"] == "True", _SECONDS, "the condition to be True again")
    watched.wait_until_ready("late")
    file.write_text(f"{before}\n")

    assert said["reason"] == "PortErrors"
    assert said["message"].startswith("rail 1: port 1 of mlx5_")
    assert "rail 0" not in said["message"]
    assert said["message"] in status
    assert _UNREAD not in status  # a privileged container has /dev/kmsg
    assert watched.status(running)["phase"] == "Running"
    assert not is_tainted(watched)
