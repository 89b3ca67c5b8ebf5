"""A whole daemon says of its node that a rail was lost, serves pods meanwhile, and takes condition and taint back when it leaves."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.service_account import FOLDER
from railnet.fabric.rails_condition import TAINT, TYPE
from railnet.kernel.netlink.rtnetlink import links
from simnode.hardware.pf_properties import SimulatedPf
from simnode.kubernetes.api_server import ApiServer, Received, Reply
from simnode.node import Node
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until

READY = {"type": "Ready", "status": "True"}
FOREIGN = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
_SECONDS = 60.0  # a port that is lost counts after ten


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer(FOLDER) as server:
        server.nodes["", "node-a"] = {
            "metadata": {"name": "node-a", "resourceVersion": "7"},
            "spec": {"taints": [FOREIGN]},
            "status": {"conditions": [READY]},
        }
        yield server


@pytest.fixture
def node(cluster: ApiServer) -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:
        document = json.loads(CONFIGURATION.read_text())
        publish = {"railsCondition": True, "railsTaint": True}
        CONFIGURATION.write_text(json.dumps({**document, "publish": publish}))
        node.daemon.environment = {**cluster.environment, "NODE_NAME": "node-a"}
        node.install()
        yield node


def of_node(cluster: ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = cluster.nodes["", "node-a"]
    return found


def condition(cluster: ApiServer) -> dict[str, str]:
    found = [one for one in of_node(cluster)["status"]["conditions"] if one["type"] == TYPE]
    return found[0] if found else {}


def lose_the_port(node: Node) -> None:
    pf = SimulatedPf()
    with links() as route:
        ifindex = route.ifindex(pf.netdev)
        assert ifindex is not None
        route.set_up(ifindex)
    node.hca.set_port(pf.address, active=False)


def railnet(cluster: ApiServer, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **cluster.environment, "NODE_NAME": "node-a"}
    program = [sys.executable, "-m", "railnet", *command]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60, check=False)


def status(cluster: ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(railnet(cluster, "status", "--json").stdout)
    return found


def test_lost_port_is_said_of_the_node_and_told_to_its_pods_and_a_daemon_that_leaves_takes_it_back(
    node: Node, cluster: ApiServer
) -> None:
    node.start_daemon()
    cluster.wait_until(lambda: condition(cluster).get("status") == "True")
    train = node.run_pod("train", vfs=1)
    lose_the_port(node)
    wait_until(lambda: condition(cluster)["status"] == "False", _SECONDS, "the condition")
    wait_until(lambda: len(of_node(cluster)["spec"]["taints"]) == 2, _SECONDS, "the taint")
    wait_until(lambda: len(cluster.events) == 2, _SECONDS, "the events")
    lost, taints = condition(cluster), of_node(cluster)["spec"]["taints"]
    node.remove_pod(train)
    node.stop_daemon()
    done = railnet(cluster, "uninstall", "--config", str(CONFIGURATION))

    assert lost["reason"] == "RailNotActive"
    assert lost["message"].startswith("rail 0 is not ACTIVE since ")
    assert taints == [FOREIGN, {"key": TAINT, "effect": "NoSchedule"}]
    assert {(event["involvedObject"]["kind"], event["reason"]) for event in cluster.events.values()} == {
        ("Node", "RailnetRailNotActive"),
        ("Pod", "RailnetRailNotActive"),
    }
    assert done.returncode == 0, done.stderr
    assert (of_node(cluster)["status"]["conditions"], of_node(cluster)["spec"]["taints"]) == ([READY], [FOREIGN])


@pytest.mark.parametrize("failure", ["forbidden", "hanging"])
def test_pods_get_their_rails_while_the_api_server_refuses_the_condition(
    node: Node, cluster: ApiServer, failure: str, request: pytest.FixtureRequest
) -> None:
    answer = threading.Event()
    request.addfinalizer(answer.set)

    def refuse(received: Received) -> Reply | None:
        if "/nodes/" not in received.path:
            return None
        if failure == "hanging":
            answer.wait(_SECONDS)
        return Reply(403, "no")

    cluster.interfere = refuse
    node.start_daemon()
    cluster.wait_until(lambda: any("/nodes/" in received.path for received in cluster.received))
    if failure == "forbidden":
        wait_until(lambda: status(cluster)["condition"], _SECONDS, "the refusal")
        assert "set railsCondition.enabled=true of the chart; it is tried again" in status(cluster)["condition"]
    pod = node.run_pod("train", vfs=1)
    (sandbox,) = status(cluster)["sandboxes"]
    node.remove_pod(pod)

    assert ([rail["ifname"] for rail in sandbox["rails"]], sandbox["stage"]) == (["net1"], "attached")
    assert condition(cluster) == {}
