"""A file of one function that does not answer: that function is unhealthy, and the daemon serves all others and ends when it is told to."""

import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simnode.node import RESOURCE, Node, Pod
from tests.node.test_bad_hardware import BAD, BAD_VF, DEVICES, OTHER_VF, PATIENCE_SECONDS, reasons, status, two_cards
from tests.waiting import until

__all__ = ["two_cards"]
END_SECONDS = 30.0  # the daemon's normal end takes less than one; one that waits for a read never comes to an end

# file of the bad card → how many of the node's four VFs stay healthy
FILES = [
    (f"{BAD_VF}/vendor", 3),
    (f"{BAD_VF}/net/*/mtu", 3),
    (f"{BAD_VF}/infiniband/*/ports/1/state", 3),
    (f"{BAD.address}/vendor", 2),
    (f"{BAD.address}/sriov_totalvfs", 2),
    (f"{BAD.address}/infiniband/*/ports/1/state", 2),
]


@contextmanager
def hung(file: Path) -> Iterator[None]:
    """Put a FIFO in place of a file: its open hangs, for nothing writes to it."""
    good = file.read_text()
    file.unlink()
    os.mkfifo(file)
    try:
        yield
    finally:
        reader = os.open(file, os.O_RDWR | os.O_NONBLOCK)  # the daemon's opens return
        file.unlink()
        file.write_text(good)
        os.close(reader)


def answers(path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:9474/{path}", timeout=30) as answer:
        return answer.read().decode()


def without_vfs(node: Node) -> None:
    """Remove the bad card's VFs while no daemon runs: the next daemon has to make them."""
    (DEVICES / str(BAD.address) / "sriov_numvfs").write_text("0\n")
    node.hca.settle()
    until(lambda: not list(DEVICES.glob(f"{BAD.address}/virtfn*")), 60, "the bad card has no VFs")


def pods_of_the_good_card_come_and_go(node: Node) -> None:
    pods = [node.run_pod(f"train{number}", vfs=1) for number in range(2)]
    for pod in pods:
        node.remove_pod(pod)


def end_in_time(node: Node) -> float:
    began = time.monotonic()
    node.daemon.process.send_signal(signal.SIGTERM)
    node.daemon.process.wait(END_SECONDS)
    node.daemon.process = None
    return time.monotonic() - began


@pytest.mark.parametrize(("pattern", "healthy"), FILES, ids=[pattern for pattern, _ in FILES])
def test_hung_file_costs_its_function_alone(two_cards: Node, pattern: str, healthy: int) -> None:
    (file,) = DEVICES.glob(pattern)
    with hung(file):
        two_cards.kubelet.wait_for_devices(RESOURCE, healthy, PATIENCE_SECONDS)
        found = reasons()
        ok, metrics = answers("healthz"), answers("metrics")
        pods_of_the_good_card_come_and_go(two_cards)
        threads = len(list(Path(f"/proc/{two_cards.daemon.process.pid}/task").iterdir()))
    two_cards.kubelet.wait_for_devices(RESOURCE, 4, PATIENCE_SECONDS)  # it recovers by itself

    assert found.keys() == ({BAD_VF} if healthy == 3 else {BAD_VF, OTHER_VF})
    assert all("have not answered for" in reason for reason in found.values())
    assert ok
    assert "railnet_hung_reads{card=" in metrics
    assert threads < 60


@pytest.mark.parametrize(
    "pattern", [f"{BAD_VF}/net/*/mtu", f"{BAD.address}/infiniband/*/ports/1/state", f"{BAD.address}/vendor"]
)
def test_daemon_starts_and_ends_while_a_file_hangs(two_cards: Node, pattern: str) -> None:
    (file,) = DEVICES.glob(pattern)
    healthy = 3 if BAD_VF in pattern else 2
    two_cards.stop_daemon()
    with hung(file):
        two_cards.start_daemon(wait=False)
        two_cards.kubelet.wait_for_devices(RESOURCE, healthy, PATIENCE_SECONDS)
        found = reasons()
        pods_of_the_good_card_come_and_go(two_cards)
        seconds = end_in_time(two_cards)
    two_cards.start_daemon()

    assert BAD_VF in found
    assert seconds < END_SECONDS


def test_pod_on_a_vf_that_hangs_keeps_it_and_ends_when_the_vf_answers(two_cards: Node) -> None:
    pods = [two_cards.run_pod(f"train{number}", vfs=1) for number in range(4)]
    (victim,) = [pod for pod in pods if BAD_VF in pod.device_ids]
    others = [pod for pod in pods if pod is not victim]
    (guid,) = DEVICES.glob(f"{BAD_VF}/infiniband/*/node_guid")
    with hung(guid):
        until(lambda: BAD_VF in reasons(), PATIENCE_SECONDS, "the VF that hangs is unhealthy")
        for pod in others:
            two_cards.remove_pod(pod)
        alive = answers("healthz")
    two_cards.kubelet.wait_for_devices(RESOURCE, 4, PATIENCE_SECONDS)
    two_cards.remove_pod(victim)

    assert alive


def test_write_that_hangs_costs_its_card_alone_and_the_card_gets_its_vfs_when_it_returns(two_cards: Node) -> None:
    two_cards.stop_daemon()
    without_vfs(two_cards)
    with hung(DEVICES / str(BAD.address) / "sriov_drivers_autoprobe"):
        two_cards.start_daemon(wait=False)
        two_cards.kubelet.wait_for_devices(RESOURCE, 2, PATIENCE_SECONDS)
        found = status()["reasons"]
        pods_of_the_good_card_come_and_go(two_cards)
        two_cards.remove_pod(two_cards.run_pod("plain"))
        alive, metrics = answers("healthz"), answers("metrics")
    two_cards.kubelet.wait_for_devices(RESOURCE, 4, PATIENCE_SECONDS)

    assert any(f"files of {BAD.address} has not been done" in reason for reason in found)
    assert alive
    assert f'railnet_hung_writes{{card="{BAD.address}"}} 1' in metrics
    assert status()["reasons"] == []


def test_daemon_ends_while_a_write_hangs(two_cards: Node) -> None:
    two_cards.stop_daemon()
    without_vfs(two_cards)
    with hung(DEVICES / str(BAD.address) / "sriov_drivers_autoprobe"):
        two_cards.start_daemon(wait=False)
        two_cards.kubelet.wait_for_devices(RESOURCE, 2, PATIENCE_SECONDS)
        seconds = end_in_time(two_cards)
    two_cards.start_daemon()

    assert seconds < END_SECONDS


def bytes_of(pod: Pod) -> list[str]:
    """Scrape; return the values of what a pod transmitted, none if the scrape lacks it."""
    start = f'railnet_pod_transmitted_bytes_total{{namespace="default",pod="{pod.name}",'
    return [line.rpartition(" ")[2] for line in answers("metrics").splitlines() if line.startswith(start)]


def test_counter_that_hangs_leaves_the_pod_its_vf_and_the_scrape_its_other_pods(two_cards: Node) -> None:
    pods = [two_cards.run_pod(f"train{number}", vfs=1) for number in range(4)]
    (victim,) = [pod for pod in pods if BAD_VF in pod.device_ids]
    (file,) = DEVICES.glob(f"{BAD_VF}/infiniband/*/ports/1/counters/port_xmit_data")
    until(lambda: all(bytes_of(pod) == ["0"] for pod in pods), PATIENCE_SECONDS, "the scrape has all pods")
    with hung(file):
        until(lambda: bytes_of(victim) == [], PATIENCE_SECONDS, "the scrape lacks the pod")
        others = [bytes_of(pod) for pod in pods if pod is not victim]
        unread = [line for line in answers("metrics").splitlines() if line.startswith("railnet_counters_unread{")]
        found = reasons()
    until(lambda: bytes_of(victim) == ["0"], PATIENCE_SECONDS, "the scrape has the pod again")
    for pod in pods:
        two_cards.remove_pod(pod)

    assert others == [["0"]] * 3
    assert sorted(line[-1] for line in unread) == ["0", "1"]
    assert found == {}
