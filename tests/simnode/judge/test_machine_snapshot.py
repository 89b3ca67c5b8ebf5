import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simnode.cluster import Cluster
from simnode.judge import machine_snapshot
from simnode.linux import libc, netns
from simnode.node import Node
from simnode.remote_node import RemoteFailed
from simnode.waiting import until_empty, wait_until
from tests.simnode.two_machines import MACHINES, die


def take_snapshot(*roots):
    arguments = [argument for root in roots for argument in ("--root", str(root))]
    done = subprocess.run(
        [sys.executable, "-m", "simnode.judge.machine_snapshot", *arguments], capture_output=True, check=True
    )
    return json.loads(done.stdout)


def left_over(before, *roots):
    return machine_snapshot.difference(before, take_snapshot(*roots))


def test_two_snapshots_of_an_unchanged_machine_do_not_differ(tmp_path):
    assert left_over(take_snapshot(tmp_path), tmp_path) == []


def test_snapshot_leaves_out_the_terminals_of_other_programs():
    terminals = Path("/dev/pts")
    master, slave = os.openpty()
    name = os.ttyname(slave)
    before = take_snapshot(terminals)
    os.close(slave)
    os.close(master)

    assert Path(name).parent == terminals
    assert left_over(before, terminals) == []


def test_snapshot_has_a_new_link(tmp_path):
    before = take_snapshot()
    subprocess.run(["ip", "link", "add", "planted", "type", "bridge"], check=True)
    found = left_over(before)
    subprocess.run(["ip", "link", "del", "planted"], check=True)

    assert [item.split()[:2] for item in found] == [["link", "planted"]]


def test_snapshot_has_a_named_network_namespace_with_its_mount_and_links(pod_netns):
    before = take_snapshot()
    pod_netns("planted")

    kinds = {item.split("(")[0].split("/")[0].split()[0] for item in left_over(before)}
    assert kinds == {"link", "mount", "network"}


def test_snapshot_has_the_path_of_a_network_namespace_that_exists_longest(pod_netns):
    planted = pod_netns("planted")
    inside = subprocess.Popen(["nsenter", f"--net={planted}", "sleep", "60"])
    outside = subprocess.Popen(["sleep", "60"])
    wait_until(lambda: netns.inode(f"/proc/{inside.pid}/ns/net") == netns.inode(planted), 60, "nsenter")
    found = machine_snapshot.take([])["network namespace"]
    for process in (inside, outside):
        process.kill()
        process.wait()

    assert found[str(netns.inode())] == "/proc/self/ns/net"
    assert found[str(netns.inode(planted))] == str(planted)


def test_snapshot_has_a_network_namespace_that_only_a_descriptor_keeps(pod_netns):
    before = take_snapshot()
    path = pod_netns("planted")
    netns_fd = os.open(path, os.O_RDONLY)
    netns.remove(path)
    found = left_over(before)
    os.close(netns_fd)

    assert any(item.startswith("network namespace") for item in found)


def test_snapshot_has_a_mount_over_another_mount(tmp_path):
    libc.mount("tmpfs", str(tmp_path), fstype="tmpfs")
    before = take_snapshot()
    libc.mount("tmpfs", str(tmp_path), fstype="tmpfs")
    found = left_over(before)
    libc.unmount(str(tmp_path))
    libc.unmount(str(tmp_path))

    assert found == [f"mount {tmp_path} (number 2) (tmpfs) is left over"]


def test_snapshot_has_a_new_process():
    before = take_snapshot()
    planted = subprocess.Popen(["sleep", "60"])
    found = left_over(before)
    planted.kill()
    planted.wait()

    assert len(found) == 1
    assert f"process {planted.pid} " in found[0]
    assert "(sleep 60)" in found[0]


ORPHAN = """
import os, subprocess, sys, time
from pathlib import Path
from simnode.linux import libc
libc.adopt_orphans()
subprocess.run(["sh", "-c", "unshare --net sleep 60 &"])
while [Path(f"/proc/{pid}/comm").read_text() for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()] != ["sleep\\n"]:
    time.sleep(0.01)  # unshare(1) has not yet made its namespace and executed its command
sys.stdout.buffer.write(subprocess.run([sys.executable, "-m", "simnode.judge.machine_snapshot", "--below", str(os.getpid())], stdout=-1).stdout)
subprocess.run(["kill", *open(f"/proc/self/task/{os.getpid()}/children").read().split()])
"""


def test_snapshot_below_a_process_has_its_orphans_and_no_other_process():
    other = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, check=True)
    other.kill()
    other.wait()

    seen = json.loads(done.stdout)
    assert [(what, str(other.pid) in name) for name, what in seen["process"].items()] == [("sleep 60", False)]
    assert len(seen["network namespace"]) == 2  # this namespace and the orphan's


def test_difference_has_a_new_file_and_a_missing_file(tmp_path):
    (tmp_path / "old").touch()
    before = take_snapshot(tmp_path)
    (tmp_path / "old").rename(tmp_path / "new")

    assert left_over(before, tmp_path) == [
        f"file {tmp_path}/new (below {tmp_path}) is left over",
        f"file {tmp_path}/old (below {tmp_path}) is missing",
    ]


ROOTS = [
    Path(root)
    for root in ("/run", "/sys", "/dev", "/etc/cni", "/etc/railnet", "/var/lib/cni", "/var/lib/kubelet", "/opt/cni")
]


def test_node_runs_plain_pods_and_leaves_nothing_over(cni_plugins):
    before = take_snapshot(*ROOTS)
    with Node(cni_plugins) as node:
        one, two = node.run_pod("one"), node.run_pod("two")
        address = json.loads(two.result)["ips"][0]["address"]
        node.remove_pod(one)
        node.destroy_netns(two)
        node.remove_pod(two)
        leases = [lease.name for lease in Path("/var/lib/cni/networks/cbr0").iterdir()]

    assert address.startswith("10.244.3.")
    assert sorted(leases) == ["last_reserved_ip.0", "lock"]
    assert left_over(before, *ROOTS) == []


def run_failing_node(cni_plugins):
    with Node(cni_plugins) as node:
        node.run_pod("one")
        node.runtime.create_sandbox("default", "made-by-a-test-itself", "uid-1")
        raise RuntimeError("planted")


def test_failing_node_leaves_nothing_over(cni_plugins):
    before = take_snapshot(*ROOTS)
    with pytest.raises(RuntimeError, match="planted"):
        run_failing_node(cni_plugins)

    assert left_over(before, *ROOTS) == []


def run_cluster_with_a_dying_node(cni_plugins):
    with Cluster(cni_plugins, MACHINES) as cluster:
        cluster.nodes[0].call(Node.run_pod, "one")
        cluster.nodes[1].call(die)


def test_cluster_with_a_dead_node_leaves_nothing_over(cni_plugins):
    before = take_snapshot(*ROOTS)
    with pytest.raises(RemoteFailed, match="node-b"):
        run_cluster_with_a_dying_node(cni_plugins)

    # The kernel deletes a node's port with its other end, and cleans that end's namespace up later.
    assert until_empty(lambda: left_over(before, *ROOTS), 10, every=0.05) == []
