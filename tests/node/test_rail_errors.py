"""A whole daemon says of its node which rail counts errors or has a broken card, and when that is over; pods come and go meanwhile."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.service_account import FOLDER
from railnet.fabric.rails_condition import TAINT
from simnode.hardware.pf_properties import SimulatedPf
from simnode.kubernetes.api_server import ApiServer
from simnode.node import Node
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until
from tests.node.test_bad_hardware import DEVICES
from tests.node.test_rails_condition import condition, of_node, status

PF = SimulatedPf()
_SECONDS = 90.0  # a storm is said after two readings, ten seconds apart
_THRESHOLDS = {"symbol_error": "100/10s", "recovery": "20s"}


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer(FOLDER) as server:
        server.nodes["", "node-a"] = {
            "metadata": {"name": "node-a", "resourceVersion": "7"},
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        yield server


@pytest.fixture
def start(cluster: ApiServer) -> Iterator[Callable[[Path], Node]]:
    """Return a function that starts a node whose kernel's log is at a path."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:

        def started(kernel_log: Path) -> Node:
            document = json.loads(CONFIGURATION.read_text())
            publish = {"railsCondition": True, "railsTaint": True, "kernelMessages": True}
            host = {**document.get("host", {}), "kernelLog": str(kernel_log)}
            changes = {"host": host, "publish": publish, "portThresholds": _THRESHOLDS}
            CONFIGURATION.write_text(json.dumps({**document, **changes}))
            node.daemon.environment = {**cluster.environment, "NODE_NAME": "node-a"}
            node.install()
            node.start_daemon()
            wait_until(lambda: condition(cluster).get("status") == "True", _SECONDS, "the first condition")
            return node

        yield started


def is_tainted(cluster: ApiServer) -> bool:
    taints: list[dict[str, Any]] = of_node(cluster)["spec"].get("taints", [])
    return any(taint["key"] == TAINT for taint in taints)


def says(cluster: ApiServer, status: str) -> Callable[[], bool]:
    return lambda: condition(cluster)["status"] == status and is_tainted(cluster) == (status == "False")


def test_storm_of_symbol_errors_is_said_of_the_node_and_is_over_by_itself(
    start: Callable[[Path], Node], cluster: ApiServer, tmp_path: Path
) -> None:
    node = start(tmp_path / "absent")
    train = node.run_pod("train", vfs=1)
    (file,) = DEVICES.glob(f"{PF.address}/infiniband/*/ports/1/counters/symbol_error")
    file.write_text("5000\n")
    wait_until(says(cluster, "False"), _SECONDS, "the storm")
    stormy, told = condition(cluster), status(cluster)
    other = node.run_pod("other", vfs=1)
    wait_until(says(cluster, "True"), _SECONDS, "the end of the storm")
    for pod in (train, other):
        node.remove_pod(pod)

    assert stormy["reason"] == "PortErrors"
    assert stormy["message"].startswith("rail 0: port 1 of mlx5_")
    assert told["errors"] == [stormy["message"]]
    assert told["kernelLog"].startswith(f"{tmp_path}/absent: No such file or directory: ")
    assert condition(cluster)["reason"] == "RailsActive"
    assert {(event["involvedObject"]["kind"], event["reason"]) for event in cluster.events.values()} == {
        (kind, f"RailnetPortErrors{over}") for kind in ("Node", "Pod") for over in ("", "Over")
    }


def test_broken_firmware_is_said_until_the_driver_has_recovered_the_card(
    start: Callable[[Path], Node], cluster: ApiServer, tmp_path: Path
) -> None:
    log = tmp_path / "kmsg"
    os.mkfifo(log)
    node = start(log)
    wait_until(lambda: status(cluster)["kernelLog"] is None, _SECONDS, "the log to be open")
    writer = os.open(log, os.O_WRONLY)
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_DIRECT)  # each write is a packet, as each read of the log is a record

    def kernel(text: str, facility: int = 0) -> None:
        os.write(writer, f"{facility << 3 | 3},1,2,-;mlx5_core {PF.address}: {text}\n SUBSYSTEM=pci\n".encode())

    kernel("poll_health:825:(pid 0): Fatal error 3 detected", facility=1)  # by a program
    kernel("poll_health:825:(pid 0): device's health compromised - reached miss count")
    wait_until(says(cluster, "False"), _SECONDS, "the message")
    broken = condition(cluster)
    kernel("mlx5_health_try_recover:344:(pid 9): health recovery succeeded")
    wait_until(says(cluster, "True"), _SECONDS, "the recovery")
    pod = node.run_pod("train", vfs=1)
    node.remove_pod(pod)
    os.close(writer)

    assert broken["reason"] == "KernelErrors"
    assert "device's health compromised" in broken["message"]
    assert "Fatal error" not in broken["message"]
