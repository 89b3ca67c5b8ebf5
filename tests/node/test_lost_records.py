"""A record is unreadable or missing: the daemon learns from the kernel what the sandbox has."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni.host.daemon import SOCKET
from railnet.status import status_command
from railnet.vf.record import decode, encode
from simnode.linux import netns
from simnode.node import RESOURCE, Node, Pod
from simnode.ping import ping
from tests.node.primaries import RUN, left_over, node_links

JOURNAL, QUARANTINE = RUN / "journal", RUN / "quarantine"
HELD = Path("/run/netns/held")


@pytest.fixture(autouse=True)
def _quarantine_is_looked_at() -> Iterator[None]:
    yield
    for path in QUARANTINE.glob("*"):
        path.unlink()


def without_record(node: Node, pod: Pod, how: str) -> None:
    """Restart the daemon after the record of a pod was damaged or deleted."""
    path = record_of(pod)
    node.kill_daemon()
    content = path.read_bytes()
    match how:
        case "deleted":
            path.unlink()
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "of another version":
            path.write_bytes(content.replace(b'"version": 3', b'"version": 4'))
    node.start_daemon()


def record_of(pod: Pod) -> Path:
    return JOURNAL / f"{pod.container_id}@eth0.json"


def records() -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in JOURNAL.glob("*.json")]


def inside(path: Path, *command: str) -> str:
    return subprocess.run(["nsenter", f"--net={path}", *command], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("how", ["truncated", "of another version", "deleted"])
def test_vf_of_a_living_pod_whose_record_was_lost_stays_its_own_until_its_del(node: Node, how: str) -> None:
    pod = node.run_pod("train", vfs=1)
    before = json.loads(record_of(pod).read_text())

    without_record(node, pod, how)

    (after,) = records()
    node.kubelet.pre_start(pod.identity)  # a container of the pod may start again
    other = node.run_pod("other", vfs=1)
    answered = ping(other.netns, "10.56.3.1", ifname="net1")
    node.remove_pod(other)
    node.remove_pod(pod)
    assert answered
    known = ("version", "sha256", "primary", "network", "pod", "id")
    for attachment in before["attachments"]:
        del attachment["before"]  # the kernel shows what the settings are, not what they were
    assert {key: value for key, value in after.items() if key not in known} == {
        key: value for key, value in before.items() if key not in known
    }
    if how != "deleted":
        assert [after[key] for key in ("id", "pod")] == [before[key] for key in ("id", "pod")]
    assert left_over(node) == []


def test_vf_whose_record_was_lost_is_free_when_its_namespace_ends_without_a_del(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    without_record(node, pod, "deleted")
    (made,) = records()

    node.kill_daemon()
    node.destroy_netns(pod)
    node.start_daemon()

    left = records()
    node.remove_pod(pod)
    assert (made["stage"], left) == ("attached", [])
    assert "ibs5v0" in node_links()


def test_vf_whose_record_was_lost_and_whose_namespace_has_ended_is_free_and_has_its_name(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    node.kill_daemon()
    record_of(pod).write_bytes(b"")
    node.destroy_netns(pod)
    until(lambda: "net1" in node_links())
    node.hca.settle()

    node.start_daemon()

    found = node_links(), records()
    node.remove_pod(pod)
    assert "ibs5v0" in found[0]
    assert found[1] == []
    assert [path.name for path in QUARANTINE.iterdir()] == [f"{pod.container_id}@eth0.json"]


@pytest.mark.parametrize("inode", ["its own inode", "the inode given again"])
@pytest.mark.parametrize("name", ["0", "z"], ids=["read first", "read last"])
def test_old_record_that_is_put_back_does_not_take_a_running_pods_vf(node: Node, name: str, inode: str) -> None:
    ended = node.run_pod("ended", vfs=1)
    old = record_of(ended).read_bytes()
    node.remove_pod(ended)
    pod = node.run_pod("train", vfs=1)
    kept = QUARANTINE / f"{name * 64}@eth0.json"

    if inode == "the inode given again":  # the kernel does that with the inode of a namespace that has ended
        old = of_inode(old, json.loads(record_of(pod).read_text())["netns"]["inode"])
    node.kill_daemon()
    (JOURNAL / kept.name).write_bytes(of_container(old, name * 64))
    node.start_daemon()

    answered = ping(pod.netns, "10.56.3.1", ifname="net1")
    log, report = node.daemon.log(), status_command.ask(Path(SOCKET))
    left, quarantined = [record["id"] for record in records()], list(QUARANTINE.iterdir())
    node.kubelet.pre_start(pod.identity)
    node.remove_pod(pod)
    assert (left, quarantined) == ([pod.container_id], [kept])
    assert answered
    assert f"sandbox {pod.container_id}@eth0 has VF 0000:03:00.1, whose netdev is in it" in log
    assert report["quarantine"] == [str(kept)]
    assert left_over(node) == []


def of_container(record: bytes, container_id: str) -> bytes:
    """Return a record of another container."""
    return encode(replace(decode(record), container_id=container_id))


def of_inode(record: bytes, inode: int) -> bytes:
    """Return a record whose namespace had this inode."""
    found = decode(record)
    return encode(replace(found, netns=found.netns._replace(inode=inode)))


def test_vf_in_a_foreign_namespace_is_not_offered_and_the_log_says_why(node: Node) -> None:
    netns.create(HELD)
    node.kill_daemon()
    # ADD writes this alias on a netdev, because the kernel knows no PCI device of a simulated netdev.
    subprocess.run(["ip", "link", "set", "ibs5v3", "alias", "railnet 0000:03:00.4 ibs5v3"], check=True)
    subprocess.run(["ip", "link", "set", "ibs5v3", "netns", "held"], check=True)
    try:
        node.start_daemon(wait=False)
        until(lambda: len(node.kubelet.healthy(RESOURCE)) == node.vfs - 1)
        log = node.daemon.log()
        node.kill_daemon()
        inside(HELD, "ip", "link", "set", "ibs5v3", "netns", str(os.getpid()))
        node.hca.settle()
        node.start_daemon()
    finally:
        netns.remove(HELD)

    assert "VF 0000:03:00.4 is in network namespace /run/netns/held" in log
    assert left_over(node) == []


def test_netdev_that_was_moved_out_of_its_pod_is_found_at_del(node: Node) -> None:
    netns.create(HELD)
    try:
        pod = node.run_pod("train", vfs=1)
        subprocess.run(
            ["nsenter", f"--net={pod.netns}", "ip", "link", "set", "net1", "netns", "held", "name", "x"], check=True
        )
        node.remove_pod(pod)
        remaining = inside(HELD, "ip", "-brief", "link", "show")
    finally:
        netns.remove(HELD)

    assert " x" not in remaining
    assert "ibs5v0" in node_links()


def test_namespace_without_a_mount_point_lives_as_long_as_its_processes(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    with subprocess.Popen(["nsenter", f"--net={pod.netns}", "sleep", "600"]) as process:
        try:
            own = Path(f"/proc/{process.pid}/ns/net")
            until(lambda: own.stat().st_ino == pod.netns.stat().st_ino)
            node.kill_daemon()
            node.destroy_netns(pod)
            node.start_daemon()
            (record,) = records()
            still = inside(own, "ip", "-brief", "link", "show", "net1")
        finally:
            process.kill()
    node.kill_daemon()
    node.start_daemon()
    left = records()
    node.remove_pod(pod)

    assert (record["netns"]["path"], record["stage"]) == (str(own), "attached")
    assert still.startswith("net1")
    assert left == []


def test_driver_is_bound_again_for_a_vf_without_a_netdev_anywhere(node: Node) -> None:
    """The test takes ten seconds. A missing netdev may be on its way, so only the sweep after the next counts it as lost."""
    path = Path("/run/nowhere")  # no daemon searches here
    netns.create(path)
    node.kill_daemon()
    try:
        subprocess.run(["ip", "link", "set", "ibs5v7", "netns", str(path)], check=True)
        node.hca.settle()
        node.start_daemon(wait=False)
        until(lambda: len(node.kubelet.healthy(RESOURCE)) == node.vfs - 1)
        until(lambda: len(node.kubelet.healthy(RESOURCE)) == node.vfs)
    finally:
        netns.remove(path)

    assert "VF 0000:03:01.0 has no netdev in any namespace: binding mlx5_core again" in node.daemon.log()
    assert "ibs5v7" in node_links()


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "the condition did not come true in time"
        time.sleep(0.02)
