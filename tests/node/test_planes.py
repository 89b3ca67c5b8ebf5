"""A card with several planes has twelve ports and its data on four of them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simnode.hardware.pf_properties import SimulatedPf
from simnode.node import RESOURCE, Node
from tests.node.primaries import left_over
from tests.node.test_counters import DEVICES, WORD, transmitted
from tests.waiting import until

_PATIENCE_SECONDS = 60.0
_PLANES = SimulatedPf(ports=tuple(range(1, 13)), data_ports=(3, 6, 9, 12))


@pytest.fixture
def node() -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), (_PLANES,), vfs=2) as node:
        node.install()
        node.start_daemon()
        yield node
        assert left_over(node) == []


def railnet(*command: str) -> dict[str, Any]:
    program = [sys.executable, "-m", "railnet", *command, "--json"]
    answer: dict[str, Any] = json.loads(
        subprocess.run(program, capture_output=True, text=True, timeout=60, check=False).stdout
    )
    return answer


def test_card_whose_data_are_on_ports_3_6_9_and_12_serves_a_pod_and_says_which_ports(node: Node) -> None:
    pod, peer = node.run_pod("train", vfs=1), node.run_pod("peer", vfs=1)
    (vf,) = pod.device_ids
    (device,) = (path.name for path in (DEVICES / vf / "infiniband").iterdir())
    answered = node.ping(peer, "10.56.3.1", "net1")
    before = transmitted("pod", 'pod="train"')
    for port in _PLANES.data_ports:
        (DEVICES / vf / "infiniband" / device / f"ports/{port}/counters/port_xmit_data").write_text("1000\n")
    until(lambda: transmitted("pod", 'pod="train"') == 4000 * WORD, _PATIENCE_SECONDS, "the bytes of all ports")
    rails, findings = railnet("status")["rails"], names(railnet("doctor"))
    node.hca.set_port(_PLANES.address, active=False)
    node.kubelet.wait_for_devices(RESOURCE, 0, _PATIENCE_SECONDS)
    seen = {finding["name"]: finding["seen"] for finding in railnet("doctor")["findings"]}
    node.hca.set_port(_PLANES.address, active=True)
    node.kubelet.wait_for_devices(RESOURCE, 2, _PATIENCE_SECONDS)
    node.remove_pod(pod)
    node.remove_pod(peer)

    assert pod.env["NCCL_IB_HCA"] == f"={device}:3,{device}:6,{device}:9,{device}:12"
    assert pod.env["UCX_NET_DEVICES"] == f"{device}:3,{device}:6,{device}:9,{device}:12"
    assert answered
    assert before == 0
    assert [(rail["port"], rail["ports"]) for rail in rails] == [("4: ACTIVE", [3, 6, 9, 12])]
    assert not {"port-down", "vf-unhealthy", "vf-ports-down"} & findings
    assert seen["port-down"].startswith("none of its 12 ports is ACTIVE; port 1: state '1: DOWN'")
    assert "none of the 12 ports of PF 0000:03:00.0 (mlx5_0) is ACTIVE" in seen["vf-unhealthy"]


def names(report: dict[str, Any]) -> set[str]:
    return {finding["name"] for finding in report["findings"]}
