"""CHECK finds each difference from the record, passes the plain chain's errors about eth0 on, and changes nothing."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CheckUnsupported, CniFailed
from simnode.node import RESOURCE, Node, Pod
from tests.node.primaries import OURS, point_to, primary_of, set_seconds, write_stub

BRIDGE = {
    "type": "bridge",
    "bridge": "cni0",
    "isDefaultGateway": True,
    "ipam": {"type": "host-local", "subnet": "10.244.3.0/24"},
}
RESULTS = Path("/var/lib/cni/results")
VF_DRIVER, VF = Path("/sys/bus/pci/drivers/mlx5_core"), "0000:03:00.1"


@pytest.fixture
def train(node: Node) -> Iterator[Pod]:
    """Run a pod with one rail. The version of its primary network has CHECK, and so do the plugins."""
    primary_of(BRIDGE)
    pod = node.run_pod("train", vfs=1)
    yield pod
    node.remove_pod(pod)


def inside(pod: Pod, *command: str) -> None:
    subprocess.run(["nsenter", f"--net={pod.netns}", *command], check=True)


def failure(node: Node, pod: Pod) -> CniFailed:
    with pytest.raises(CniFailed) as raised:
        node.runtime.check(pod.sandbox)
    return raised.value


def test_pod_that_is_as_add_made_it_passes(node: Node, train: Pod) -> None:
    (invocation,) = node.runtime.check(train.sandbox)

    assert invocation.stdout == b""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("ip link set net1 down", "its state is down; it should be up"),
        ("ip link set net1 mtu 2044", "its MTU is 2044; it should be 4092"),
        ("ip address flush dev net1", "its address is missing; it should be 10.56.3.1/16"),
        ("ip link set net1 down name other", "its name is other; it should be net1"),
        ("ip link set net1 netns 1", "the netdev of VF 0000:03:00.1 is not in the sandbox"),
    ],
    ids=["down", "mtu", "address", "name", "moved"],
)
def test_change_of_net1_is_code_107_and_named(node: Node, train: Pod, change: str, says: str) -> None:
    inside(train, *change.split())

    found = failure(node, train)

    assert (found.code, says in found.msg) == (107, True), found


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("sysctl -qw net.ipv4.conf.net2.arp_ignore=0", "its arp_ignore is 0; it should be 1"),
        ("ip rule del from 10.56.3.2", "its rule from 10.56.3.2 is missing; it should be table 5602"),
        ("ip route flush table 5602", "its route to 10.56.0.0/16 is missing; it should be in table 5602"),
    ],
    ids=["ARP", "rule", "route"],
)
def test_change_of_what_keeps_two_rails_apart_is_code_107_and_named(node: Node, change: str, says: str) -> None:
    primary_of(BRIDGE)
    pod = node.run_pod("wide", vfs=2)
    node.runtime.check(pod.sandbox)
    inside(pod, *change.split())

    found = failure(node, pod)

    node.remove_pod(pod)
    assert (found.code, "net2" in found.msg, says in found.msg) == (107, True, True), found


def test_address_that_the_pod_added_is_no_difference(node: Node, train: Pod) -> None:
    inside(train, "ip", "address", "add", "192.0.2.1/24", "dev", "net1")

    node.runtime.check(train.sandbox)


def test_vf_whose_driver_was_unbound_is_code_107_and_named(node: Node, train: Pod) -> None:
    (VF_DRIVER / "unbind").write_text(f"{VF}\n")
    node.hca.settle()

    found = failure(node, train)

    (VF_DRIVER / "bind").write_text(f"{VF}\n")
    node.hca.settle()
    assert (found.code, f"the netdev of VF {VF} is not in the sandbox" in found.msg) == (107, True), found


def test_fault_of_eth0_is_the_plugins_own_error_byte_for_byte(node: Node, train: Pod) -> None:
    inside(train, "ip", "address", "flush", "dev", "eth0")

    found = failure(node, train)

    assert found.code not in (None, 107)
    assert found.invocation.stdout == plain_chains_failure(node, train).invocation.stdout


def test_pod_with_a_device_and_no_record_is_code_107(node: Node) -> None:
    primary_of(BRIDGE)
    pod = node.run_pod("train")
    node.kubelet.allocate(pod.identity, RESOURCE, 1)

    found = failure(node, pod)

    node.remove_pod(pod)
    assert (found.code, f"gave this pod {VF}, but its sandbox has no rail" in found.msg) == (107, True), found


def test_plain_pod_gets_the_chains_check(node: Node, daemon: str) -> None:
    write_stub("stub", 'cat >/run/stub-conf; [ $CNI_COMMAND = ADD ] || exit 0; printf \'{"cniVersion":"0.4.0"}\'')
    primary_of({"type": "stub"})
    pod = node.run_pod("plain")

    node.runtime.check(pod.sandbox)
    conf = json.loads(Path("/run/stub-conf").read_text())
    node.remove_pod(pod)

    assert conf["prevResult"] == {"cniVersion": "0.4.0"}


def test_plain_pods_failed_check_is_the_plugins_own_error(node: Node, daemon: str) -> None:
    error = '{"code": 4711, "msg": "odd" }'
    write_stub(
        "stub", f"cat >/dev/null; [ $CNI_COMMAND = CHECK ] && {{ printf '%s' '{error}'; exit 1; }}; printf '{{}}'"
    )
    primary_of({"type": "stub"})
    pod = node.run_pod("plain")

    found = failure(node, pod)
    node.remove_pod(pod)

    assert found.invocation.stdout == error.encode()


def test_disable_check_of_the_primary_applies_to_eth0_only(node: Node) -> None:
    write_stub("stub", "cat >/dev/null; [ $CNI_COMMAND = CHECK ] && exit 1; printf '{}'")
    disabled = {"cniVersion": "0.4.0", "name": "stubs", "disableCheck": True, "plugins": [{"type": "stub"}]}
    Path("/run/stub-primary.conflist").write_text(json.dumps(disabled))
    point_to("/run/stub-primary.conflist")
    plain, train = node.run_pod("plain"), node.run_pod("train", vfs=1)

    node.runtime.check(plain.sandbox)
    node.runtime.check(train.sandbox)
    inside(train, "ip", "link", "set", "net1", "mtu", "2044")
    found = failure(node, train)

    node.remove_pod(plain)
    node.remove_pod(train)
    assert found.code == 107


def test_check_of_a_rail_without_a_daemon_is_code_11(node: Node, train: Pod) -> None:
    set_seconds(daemon=0.3)
    node.stop_daemon()

    found = failure(node, train)

    node.start_daemon()
    assert (found.code, "did not answer within 0.3 s" in found.msg) == (11, True), found


def test_check_after_a_restart_of_the_daemon_knows_the_record(node: Node, train: Pod) -> None:
    node.kill_daemon()
    node.start_daemon()

    node.runtime.check(train.sandbox)


def test_check_in_a_version_without_check_is_code_1(node: Node, daemon: str) -> None:
    write_stub("stub", 'cat >/dev/null; printf \'{"cniVersion":"0.3.1"}\'')
    primary_of({"type": "stub"}, version="0.3.1")
    pod = node.run_pod("old")
    with pytest.raises(CheckUnsupported):
        node.runtime.check(pod.sandbox)
    conflist = json.loads(OURS.read_text())
    conf = {**conflist["plugins"][0], "name": conflist["name"], "cniVersion": conflist["cniVersion"]}

    answer = node.runtime.invoke(
        "CHECK", "railnet", node.runtime.environment("CHECK", pod.sandbox), json.dumps(conf).encode()
    )
    node.remove_pod(pod)

    assert (answer.status, json.loads(answer.stdout)["code"]) == (1, 1)


def plain_chains_failure(node: Node, pod: Pod) -> CniFailed:
    """Run CHECK of the primary network directly, as if Railnet were not installed."""
    ours, plain = OURS.read_bytes(), OURS.with_name("01-plain.conflist")
    plain.write_text(json.dumps({"cniVersion": "0.4.0", "name": "stubs", "plugins": [BRIDGE]}))
    (cached,) = RESULTS.glob(f"*-{pod.container_id}-eth0")
    copy = cached.with_name(f"stubs-{pod.container_id}-eth0")
    copy.write_bytes(cached.read_bytes())
    OURS.unlink()
    try:
        return failure(node, pod)
    finally:
        OURS.write_bytes(ours)
        copy.unlink()
        plain.unlink()
