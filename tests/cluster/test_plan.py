"""`railnet plan` on two kinds of nodes: what it proposes is applied, and pods get their rails by it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.chart import render
from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import NODE
from tests.cluster.manifests import NAMESPACE, on_simulated_cards
from tests.cluster.node import PFS, VFS, ClusterNode, configuration
from tests.cluster.pods import pod
from tests.cluster.process import wait_until
from tests.cluster.worker import SYSFS, Worker, storage_of

_SECONDS = 240.0
ADDRESSES = [str(pf.address) for pf in PFS]
OWN = {key: value for key, value in configuration().items() if key != "provision"}
"""What the nodes of this cluster need beside the proposal: paths, and networks of other tests."""


@pytest.fixture
def other(shared_node: ClusterNode) -> Iterator[str]:
    """The name of another node, which has a storage card beside the cards of the first one; both have Railnet."""
    name = next(iter(shared_node.others))
    shared_node.railnet.start()
    shared_node.on(name, Worker.plug_in_storage)
    try:
        with shared_node.all_nodes():
            yield name
    finally:
        shared_node.on(name, Worker.pull_out_storage)


def plan(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "railnet", "plan", f"--kubeconfig={ADMIN}", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)


def daemon_pods(node: ClusterNode) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = node.kubectl.get(
        "pods", f"--namespace={NAMESPACE}", "--selector=app.kubernetes.io/name=railnet"
    )
    return pods


def groups_of(node: ClusterNode) -> dict[str, str | None]:
    """Return the group of the daemon of each node, while there is one daemon on each."""
    labels = [(each["spec"]["nodeName"], each["metadata"]["labels"]) for each in daemon_pods(node)]
    return (
        {name: each.get("railnet.io/node-group") for name, each in labels} if len(labels) == len(node.nodes()) else {}
    )


def apply(node: ClusterNode, values: Path, groups: dict[str, str]) -> None:
    """Apply a values file beside what the nodes of this cluster need; returns when each node has the daemon of its group."""
    node.kubectl.apply(*on_simulated_cards(render(values, {"node": {"configuration": OWN}}), SYSFS))
    wait_until(lambda: groups_of(node) == groups, _SECONDS, f"daemons of the groups {groups}")
    for name, group in groups.items():
        daemon_set = f"daemonset/railnet-{group}"
        try:
            node.kubectl.run("rollout", "status", daemon_set, f"--namespace={NAMESPACE}", "--timeout=200s")
        except subprocess.CalledProcessError as error:
            error.add_note(node.railnet.last_lines(name))
            raise


def take_back(node: ClusterNode, groups: dict[str, str]) -> None:
    """Have all nodes the daemon of no group again."""
    for group in groups.values():
        objects = (f"daemonset/railnet-{group}", f"configmap/railnet-node-{group}")
        node.kubectl.run("delete", *objects, f"--namespace={NAMESPACE}", "--ignore-not-found")
    node.kubectl.run("label", "node", *groups, "railnet.io/node-group-")
    node.railnet.apply()
    wait_until(lambda: set(groups_of(node).values()) == {None}, _SECONDS, "the daemons of no group")
    node.railnet.roll_out()
    for name in groups:
        node.wait_for_vfs(VFS * len(PFS), name)


def run_pods(node: ClusterNode, groups: dict[str, str]) -> list[str]:
    """Run a pod with all rails on a node of each group; return the names of the pods."""
    for name, group in groups.items():
        node.wait_for_vfs(VFS * len(PFS), name)
        train = pod(f"on-{group}", len(PFS))
        train["spec"]["nodeSelector"] = {"railnet.io/node-group": group}
        node.create(train)
    names = [f"on-{group}" for group in groups.values()]
    node.wait_until_ready(*names)
    return names


def test_what_is_proposed_for_two_kinds_of_nodes_gives_pods_their_rails(
    node: ClusterNode, other: str, tmp_path: Path, measured: Callable[[str], None]
) -> None:
    values = tmp_path / "values.yaml"
    done, told = plan(), json.loads(plan("-o", "json").stdout)
    values.write_text(done.stdout)
    measured(done.stdout)
    groups = {name: group["name"] for group in told["groups"] for name in group["nodes"]}

    assert (done.returncode, set(groups), len(set(groups.values()))) == (0, {NODE, other}, 2)
    assert yaml.safe_load(done.stdout) == told["values"]
    proposed = {group["name"]: group["configuration"] for group in told["values"]["node"]["groups"]}
    provision = [{"select": {"pfDevice": ["1021"]}, "vfs": VFS}]
    assert proposed == {
        groups[NODE]: {"rails": "auto", "provision": provision},
        groups[other]: {"rails": ADDRESSES, "provision": provision},  # it remembers the storage card as a rail
    }
    assert any(str(storage_of(other).address) in text and "storage" in text for text in told["assumed"])
    assert plan("--diff").returncode == 1

    try:
        for command in told["commands"]:
            node.kubectl.run(*command.split()[1:])
        apply(node, values, groups)
        names = run_pods(node, groups)
        addresses = [node.addresses(name) for name in names]
        for rail, prefix in enumerate(("10.56.0.0/17", "10.56.128.0/17"), start=1):
            assert [str(ip_interface(each[f"net{rail}"]).network) for each in addresses] == [prefix] * 2
            peer = addresses[1][f"net{rail}"].partition("/")[0]
            node.kubectl.run("exec", names[0], "--", "ping", "-c1", "-W5", peer)
        same = plan("--diff")
        node.delete(*names)
        wait_until(lambda: not node.kubectl.get("pods"), _SECONDS, "the pods to end")
    finally:
        take_back(node, groups)

    assert (same.returncode, same.stdout) == (0, "The proposal is what runs.\n")
