"""A running pod loses its rail when a driver is loaded again: status, doctor, metrics and the pod's events say so, until the pod is deleted."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.service_account import FOLDER
from simnode.kubernetes.api_server import ApiServer
from simnode.node import Node
from simnode.waiting import wait_until

_DRIVER = Path("/sys/bus/pci/drivers/mlx5_core")
_METRICS = "http://127.0.0.1:9474/metrics"
_SECONDS = 60.0


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer(FOLDER) as server:
        yield server


@pytest.fixture
def node(cluster: ApiServer) -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:
        node.daemon.environment = {**cluster.environment, "NODE_NAME": "node-a"}
        node.install()
        node.start_daemon()
        yield node


def railnet(*command: str) -> dict[str, Any]:
    program = [sys.executable, "-m", "railnet", *command, "--json"]
    answer: dict[str, Any] = json.loads(
        subprocess.run(program, capture_output=True, text=True, timeout=60, check=False).stdout
    )
    return answer


def stages() -> dict[str, str]:
    return {sandbox["pod"]["name"]: sandbox["stage"] for sandbox in railnet("status")["sandboxes"]}


def lost_rails() -> list[str]:
    with urllib.request.urlopen(_METRICS, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return [line for line in lines if line.startswith("railnet_lost_rails{")]


def test_driver_that_is_loaded_again_takes_a_rail_and_everything_says_so(node: Node, cluster: ApiServer) -> None:
    lost, other = node.run_pod("lost", vfs=1), node.run_pod("other", vfs=1)
    before = stages(), lost_rails()
    (vf,) = lost.device_ids

    (_DRIVER / "unbind").write_text(f"{vf}\n")
    (_DRIVER / "bind").write_text(f"{vf}\n")
    wait_until(lambda: stages()["lost"] == "lost", _SECONDS, "the state lost")
    wait_until(lambda: len(cluster.events) == 2, _SECONDS, "the events")
    after, metric = stages(), lost_rails()
    findings = [finding for finding in railnet("doctor")["findings"] if finding["name"] == "rail-lost"]
    node.remove_pod(lost)
    wait_until(lambda: lost_rails() == [], _SECONDS, "the end of the metric")
    again = node.run_pod("again", vfs=1)
    answered = node.ping(other, "10.56.3.1", "net1") or node.ping(again, "10.56.3.2", "net1")
    at_the_end = stages()
    node.remove_pod(again)
    node.remove_pod(other)

    assert before == ({"lost": "attached", "other": "attached"}, [])
    assert after == {"lost": "lost", "other": "attached"}
    assert metric == ['railnet_lost_rails{rail="0"} 1']
    assert [finding["where"] for finding in findings] == ["default/lost"]
    assert {(event["involvedObject"]["kind"], event["reason"]) for event in cluster.events.values()} == {
        ("Node", "RailnetRailLost"),
        ("Pod", "RailnetRailLost"),
    }
    assert at_the_end == {"again": "attached", "other": "attached"}
    assert answered
