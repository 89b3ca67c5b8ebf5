"""Primary configurations that are more than a list: with a folder of plugins, and with Multus whose default network is Railnet."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from simnode.node import Node, Pod
from simnode.waiting import wait_until
from tests.node.primaries import PLUGINS

NETWORKS = Path("/etc/cni/net.d")
OURS = NETWORKS / "00-railnet.conflist"
AT_ONCE_SECONDS = 10  # the pod's own start included; a delegate may take 30 s

# Multus with a NetworkAttachmentDefinition as its default network, which is Railnet's configuration. It runs a delegate with its own
# environment, as thin Multus does (k8snetworkplumbingwg/multus-cni v4.3.0, pkg/multus/multus.go: confAdd, DelegateAdd).
MULTUS = f"""#!{sys.executable} -I
import json, os, subprocess, sys

conf = json.load(sys.stdin)
network = json.load(open("{OURS}"))
delegate = {{**network["plugins"][0], "name": network["name"], "cniVersion": network["cniVersion"]}}
if os.environ["CNI_COMMAND"] == "DEL" and "prevResult" in conf:
    delegate["prevResult"] = conf["prevResult"]
run = subprocess.run(["{PLUGINS}/" + delegate["type"]], input=json.dumps(delegate).encode(), capture_output=True)
sys.stdout.buffer.write(run.stdout)
sys.exit(run.returncode)
"""


@pytest.fixture
def node() -> Iterator[Node]:
    """Provide a node with flannel, and without Railnet."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:
        yield node


def somaxconn(pod: Pod) -> str:
    command = ["nsenter", f"--net={pod.netns}", "cat", "/proc/sys/net/core/somaxconn"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("vfs", [0, 1], ids=["plain", "rail"])
def test_plugins_of_the_networks_folder_run_with_railnet(node: Node, vfs: int) -> None:
    (NETWORKS / "cbr0").mkdir()
    (NETWORKS / "cbr0/50-tuning.conf").write_text('{"type": "tuning", "sysctl": {"net.core.somaxconn": "511"}}')
    node.install()
    node.start_daemon()

    pod = node.run_pod("tuned", vfs=vfs)
    value = somaxconn(pod)
    node.remove_pod(pod)

    assert value == "511"


def test_plugins_of_the_networks_folder_run_without_the_daemon(node: Node) -> None:
    (NETWORKS / "cbr0").mkdir()
    (NETWORKS / "cbr0/50-tuning.conf").write_text('{"type": "tuning", "sysctl": {"net.core.somaxconn": "511"}}')
    node.install()
    node.start_daemon()
    node.stop_daemon()

    pod = node.run_pod("tuned")
    value = somaxconn(pod)
    node.remove_pod(pod)

    assert value == "511"


def test_multus_whose_file_leads_back_to_railnet_is_passed_over(node: Node) -> None:
    multus = {"cniVersion": "0.3.1", "name": "multus-cni-network", "type": "multus", "clusterNetwork": str(OURS)}
    (NETWORKS / "05-multus.conf").write_text(json.dumps(multus))
    node.install()
    node.start_daemon()

    pod = node.run_pod("plain")
    node.remove_pod(pod)

    assert json.loads(OURS.read_bytes())["plugins"][0]["primary"] == f"{NETWORKS}/10-flannel.conflist"


@pytest.mark.parametrize("daemon", ["running", "absent"])
def test_circle_that_no_file_tells_ends_at_once_with_what_to_change(node: Node, daemon: str) -> None:
    (PLUGINS / "multus").write_text(MULTUS)
    (PLUGINS / "multus").chmod(0o755)
    (NETWORKS / "05-multus.conf").write_text('{"cniVersion": "0.4.0", "name": "multus-cni-network", "type": "multus"}')
    node.install()
    node.start_daemon()
    wait_until(lambda: "05-multus" in OURS.read_text(), 10, "Railnet before Multus")
    if daemon == "absent":
        node.stop_daemon()

    began = time.monotonic()
    with pytest.raises(CniFailed, match="set Multus' clusterNetwork") as failure:
        node.run_pod("plain")
    took = time.monotonic() - began

    assert took < AT_ONCE_SECONDS
    assert not hasattr(failure.value, "__notes__")  # its DEL succeeded
