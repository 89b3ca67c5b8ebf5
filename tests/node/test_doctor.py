"""`railnet doctor` on a simulated node: nothing on a sound one, and the broken thing on a broken one, with a daemon and without."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simnode.node import Node
from tests.waiting import until

LEASE = Path("/run/flannel/subnet.env")
OF_THE_MACHINE = ("memlock-limited", "pod-memlock-limited", "clock-not-synchronised")


def doctor() -> tuple[int, dict[str, str]]:
    """Return the exit status, and where each finding of the cards and the daemon is. The runtime's limits and the clock are the machine's."""
    command = [sys.executable, "-m", "railnet", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in {0, 1}, done.stderr
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {one["name"]: one["where"] for one in found if one["name"] not in OF_THE_MACHINE}


def test_sound_node_has_no_finding_while_a_pod_has_a_rail(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    found = doctor()
    node.remove_pod(pod)

    assert found == (0, {})


CHECKPOINT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")


def test_rail_that_kubelet_has_forgotten_is_found(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    written = CHECKPOINT.read_text()
    CHECKPOINT.write_text(re.sub(r"0000:03:00\.\d", "0000:99:00.1", written))
    found = doctor()
    CHECKPOINT.write_text(written)
    node.remove_pod(pod)

    assert found == (0, {"kubelet-disagrees": "default/train"})


def test_missing_daemon_is_one_finding(node: Node) -> None:
    node.stop_daemon()
    found = doctor()
    node.start_daemon()

    assert found == (1, {"daemon-silent": "daemon"})


def test_lease_that_has_changed_is_found(node: Node) -> None:
    node.remove_pod(node.run_pod("plain"))  # the bridge is there from now on
    lease = LEASE.read_text()
    LEASE.write_text(re.sub("FLANNEL_SUBNET=.*", "FLANNEL_SUBNET=10.244.77.1/24", lease))
    found = doctor()
    LEASE.write_text(lease)

    assert found == (0, {"bridge-of-another-lease": "cni0"})
    assert doctor() == (0, {})


ARP_IGNORE = Path("/proc/sys/net/ipv4/conf/all/arp_ignore")  # of the simulated node's own namespace


def test_arp_ignore_of_the_node_that_silences_rails_is_found(node: Node) -> None:
    before = ARP_IGNORE.read_text()
    ARP_IGNORE.write_text("8\n")
    found = doctor()
    ARP_IGNORE.write_text(before)

    assert found == (0, {"arp-ignore-unsuitable": "network default"})


@contextmanager
def port_down(node: Node) -> Iterator[str]:
    address = node.pfs[0].address
    node.hca.set_port(address, active=False)
    yield str(address)
    node.hca.set_port(address, active=True)


def test_port_that_is_down_is_found(node: Node) -> None:
    with port_down(node) as address:
        until(lambda: "vf-unhealthy" in doctor()[1], 30, "the daemon knows that the port is down")
        status, found = doctor()

    assert status == 1
    assert found["port-down"].startswith(address)
    assert set(found) == {"port-down", "vf-unhealthy"}
