import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simnode.cluster import Cluster
from simnode.judge import snapshot
from simnode.linux import libc, netns
from simnode.node import Node
from simnode.remote import RemoteFailed
from tests.simnode.machines import MACHINES, die


def take(*roots):
    arguments = [argument for root in roots for argument in ("--root", str(root))]
    done = subprocess.run([sys.executable, "-m", "simnode.judge.snapshot", *arguments], capture_output=True, check=True)
    return json.loads(done.stdout)


def left_over(before, *roots):
    return snapshot.difference(before, take(*roots))


def test_nothing_happened_nothing_differs(tmp_path):
    assert left_over(take(tmp_path), tmp_path) == []


def test_link_is_seen(tmp_path):
    before = take()
    subprocess.run(["ip", "link", "add", "planted", "type", "bridge"], check=True)
    found = left_over(before)
    subprocess.run(["ip", "link", "del", "planted"], check=True)

    assert [item.split()[:2] for item in found] == [["link", "planted"]]


def test_named_network_namespace_is_seen_with_its_mount_and_links(pod_netns):
    before = take()
    pod_netns("planted")

    kinds = {item.split("(")[0].split("/")[0].split()[0] for item in left_over(before)}
    assert kinds == {"link", "mount", "network"}


def test_network_namespace_is_entered_by_the_path_that_lives_longest(pod_netns):
    planted = pod_netns("planted")
    inside = subprocess.Popen(["nsenter", f"--net={planted}", "sleep", "60"])
    beside = subprocess.Popen(["sleep", "60"])
    while netns.inode(f"/proc/{inside.pid}/ns/net") != netns.inode(planted):
        time.sleep(0.01)
    found = snapshot.take([])["network namespace"]
    for process in (inside, beside):
        process.kill()
        process.wait()

    assert found[str(netns.inode())] == "/proc/self/ns/net"
    assert found[str(netns.inode(planted))] == str(planted)


def test_network_namespace_kept_by_a_descriptor_is_seen(pod_netns):
    before = take()
    path = pod_netns("planted")
    netns_fd = os.open(path, os.O_RDONLY)
    netns.remove(path)
    found = left_over(before)
    os.close(netns_fd)

    assert any(item.startswith("network namespace") for item in found)


def test_mount_is_seen_also_over_another(tmp_path):
    libc.mount("tmpfs", str(tmp_path), fstype="tmpfs")
    before = take()
    libc.mount("tmpfs", str(tmp_path), fstype="tmpfs")
    found = left_over(before)
    libc.unmount(str(tmp_path))
    libc.unmount(str(tmp_path))

    assert found == [f"mount {tmp_path} (number 2) (tmpfs) is left over"]


def test_process_is_seen():
    before = take()
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
    time.sleep(0.01)  # unshare(1) has not made its namespace and become what it runs
sys.stdout.buffer.write(subprocess.run([sys.executable, "-m", "simnode.judge.snapshot", "--below", str(os.getpid())], stdout=-1).stdout)
subprocess.run(["kill", *open(f"/proc/self/task/{os.getpid()}/children").read().split()])
"""


def test_below_a_process_its_orphans_are_seen_and_strangers_are_not():
    stranger = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    done = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, check=True)
    stranger.kill()
    stranger.wait()

    seen = json.loads(done.stdout)
    assert [(what, str(stranger.pid) in name) for name, what in seen["process"].items()] == [("sleep 60", False)]
    assert len(seen["network namespace"]) == 2  # this one and the orphan's


def test_file_is_seen_and_a_missing_one_too(tmp_path):
    (tmp_path / "old").touch()
    before = take(tmp_path)
    (tmp_path / "old").rename(tmp_path / "new")

    assert left_over(before, tmp_path) == [
        f"file {tmp_path}/new (below {tmp_path}) is left over",
        f"file {tmp_path}/old (below {tmp_path}) is missing",
    ]


ROOTS = [
    Path(root)
    for root in ("/run", "/sys", "/dev", "/etc/cni", "/etc/railnet", "/var/lib/cni", "/var/lib/kubelet", "/opt/cni")
]


def test_node_runs_plain_pods_and_leaves_nothing(cni_plugins):
    before = take(*ROOTS)
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


def fail_midway(cni_plugins):
    with Node(cni_plugins) as node:
        node.run_pod("one")
        node.runtime.create_sandbox("default", "made-by-a-test-itself", "uid-1")
        raise RuntimeError("planted")


def test_node_that_fails_midway_leaves_nothing(cni_plugins):
    before = take(*ROOTS)
    with pytest.raises(RuntimeError, match="planted"):
        fail_midway(cni_plugins)

    assert left_over(before, *ROOTS) == []


def lose_a_node(cni_plugins):
    with Cluster(cni_plugins, MACHINES) as cluster:
        cluster.nodes[0].call(Node.run_pod, "one")
        cluster.nodes[1].call(die)


def test_cluster_leaves_nothing_also_when_a_node_dies(cni_plugins):
    before = take(*ROOTS)
    with pytest.raises(RemoteFailed, match="node-b"):
        lose_a_node(cni_plugins)

    give_up = time.monotonic() + 10  # a node's port goes with its other end, whose namespace the kernel cleans up later
    while (found := left_over(before, *ROOTS)) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert found == []
