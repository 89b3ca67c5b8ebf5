"""A whole daemon labels its node, tells `railnet status` why it knows no leaf, and takes the labels back when it leaves the node.

The simulated umad device has no driver, so no leaf can be known here: tests/railnet/kernel/umad asks a simulated fabric.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.service_account import FOLDER
from railnet.fabric.topology_labels import LEAF, RAILS, RATE, leaf_of_rail
from simnode.kubernetes.api_server import ApiServer, Received, Reply
from simnode.node import Node
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until

_SECONDS = 60.0
_LEFT = {"zone": "z1", LEAF: "00000000000000a1", leaf_of_rail(0): "00000000000000a1"}


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer(FOLDER) as server:
        server.nodes["", "node-a"] = {"metadata": {"name": "node-a", "labels": {"zone": "z1"}}}
        yield server


@pytest.fixture
def node(cluster: ApiServer) -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:
        document = json.loads(CONFIGURATION.read_text())
        CONFIGURATION.write_text(json.dumps({**document, "publish": {"topologyLabels": True}}))
        node.daemon.environment = {**cluster.environment, "NODE_NAME": "node-a"}
        node.install()
        yield node


def railnet(cluster: ApiServer, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **cluster.environment, "NODE_NAME": "node-a"}
    program = [sys.executable, "-m", "railnet", *command]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60, check=False)


def status(cluster: ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(railnet(cluster, "status", "--json").stdout)
    return found


def labels(cluster: ApiServer) -> dict[str, str]:
    return dict(cluster.nodes["", "node-a"]["metadata"]["labels"])


def test_node_is_labelled_soon_after_the_start_and_status_says_what_is_missing(node: Node, cluster: ApiServer) -> None:
    node.start_daemon()
    cluster.wait_until(lambda: RAILS in labels(cluster))
    told = status(cluster)

    assert labels(cluster) == {"zone": "z1", RAILS: "1", RATE: "400"}
    assert told["rails"][0]["leaf"] is None
    assert told["rails"][0]["leafReason"].startswith("/dev/infiniband/umad")
    assert told["topology"] is None


def test_node_without_the_right_serves_pods_and_status_names_the_value(node: Node, cluster: ApiServer) -> None:
    cluster.interfere = lambda received: Reply(403, "no") if "/nodes/" in received.path else None
    node.start_daemon()
    wait_until(lambda: status(cluster)["topology"], _SECONDS, "the refusal")
    pod = node.run_pod("train", vfs=1)
    node.remove_pod(pod)

    assert "set topologyLabels.enabled=true of the chart" in status(cluster)["topology"]
    assert status(cluster)["reasons"] == []


def test_labels_are_gone_when_railnet_has_left_the_node(node: Node, cluster: ApiServer) -> None:
    cluster.nodes["", "node-a"]["metadata"]["labels"] = dict(_LEFT)
    done = railnet(cluster, "uninstall", "--config", str(CONFIGURATION))

    assert (node.daemon.process, done.returncode) == (None, 0), done.stderr
    assert labels(cluster) == {"zone": "z1"}


def test_railnet_leaves_a_node_whose_api_server_does_not_answer(node: Node, cluster: ApiServer) -> None:
    def fail(_received: Received) -> Reply:
        return Reply(503, "no leader")

    cluster.interfere = fail
    done = railnet(cluster, "uninstall", "--config", str(CONFIGURATION))

    assert (node.daemon.process, done.returncode) == (None, 0), done.stderr
