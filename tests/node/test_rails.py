"""A pod that asked for a rail has it, or does not run."""

import json
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from railnet.vf.pci_address import PciAddress
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node, Pod
from simnode.ping import ping
from tests.node.primaries import OURS, RUN, left_over, node_links, set_seconds

FIRST = PciAddress.parse("0000:03:00.1")


def test_rail_is_net1_with_mtu_address_and_link_type(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    net1 = links(pod)["net1"]
    node.remove_pod(pod)

    assert (net1["mtu"], net1["link_type"], "UP" in net1["flags"]) == (4092, "infiniband", True)
    assert [(entry["local"], entry["prefixlen"]) for entry in net1["addr_info"]] == [("10.56.3.1", 16)]


def test_rail_carries_packets_between_two_pods(node: Node) -> None:
    one, other = node.run_pod("one", vfs=1), node.run_pod("other", vfs=1)
    answered = ping(one.netns, address(other), ifname="net1")
    node.remove_pod(one)
    node.remove_pod(other)

    assert answered


def test_rails_of_one_pod_are_named_in_pci_order(node: Node) -> None:
    pod = node.run_pod("wide", vfs=3)
    attachments = record(pod)["attachments"]
    node.remove_pod(pod)

    assert [(one["ifname"], one["vf"]) for one in attachments] == [
        ("net1", "0000:03:00.1"),
        ("net2", "0000:03:00.2"),
        ("net3", "0000:03:00.3"),
    ]


def test_del_returns_the_netdev_under_its_old_name(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    missing = "ibs5v0" not in node_links()
    node.remove_pod(pod)

    assert missing
    assert "ibs5v0" in node_links()


def test_del_is_idempotent(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    node.runtime.delete(pod.sandbox)
    node.runtime.delete(pod.sandbox)
    node.remove_pod(pod)

    assert left_over(node) == []


def test_late_del_changes_nothing_for_the_next_pod_of_the_same_vf(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    node.kubelet.remove(pod.identity)
    node.runtime.delete(pod.sandbox)
    following = node.run_pod("following", vfs=1)

    node.runtime.tear_down(pod.sandbox)

    before, after = pod.device_ids, following.device_ids
    (net1,) = [link for name, link in links(following).items() if name == "net1"]
    stage = record(following)["stage"]
    node.remove_pod(following)
    assert (before == after, "UP" in net1["flags"], stage) == (True, True, "attached")
    assert left_over(node) == []


def test_guid_is_derived_from_the_pf_and_shown_by_sysfs(node: Node) -> None:
    pf = Path("/sys/class/infiniband/mlx5_0/node_guid").read_text().strip()
    # Several VFs are probed at once, so the number in the device's name varies.
    (device,) = Path("/sys/bus/pci/devices/0000:03:00.1/infiniband").iterdir()

    assert pf == "b859:9f03:00f9:8f86"
    assert (device / "node_guid").read_text().strip() == "ba59:9f03:01f9:8f86"


def test_add_waits_for_the_del_of_the_sandbox_that_still_has_the_vf(node: Node) -> None:
    wide = node.run_pod("wide", vfs=node.vfs)
    node.kubelet.remove(wide.identity)  # kubelet frees the devices before the DEL begins
    timer = threading.Timer(1.0, node.remove_pod, (wide,))

    began = time.monotonic()
    timer.start()
    pod = node.run_pod("next", vfs=1)
    waited = time.monotonic() - began
    timer.join()
    node.remove_pod(pod)

    assert waited > 0.9


def test_vfs_stay_owned_over_a_restart_of_the_daemon(node: Node) -> None:
    one = node.run_pod("one", vfs=1)
    node.kill_daemon()
    node.start_daemon()
    other = node.run_pod("other", vfs=1)
    answered = ping(one.netns, address(other), ifname="net1")
    node.remove_pod(one)
    node.remove_pod(other)

    assert answered


def test_del_without_a_daemon_succeeds_and_the_next_start_takes_the_vf_back(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    node.kill_daemon()
    node.remove_pod(pod)
    node.start_daemon()

    assert left_over(node) == []


def test_vf_of_a_namespace_that_died_without_del_comes_back_at_del(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    node.destroy_netns(pod)
    node.remove_pod(pod)

    assert left_over(node) == []


@pytest.mark.parametrize("how", ["absent", "stopped"])
def test_add_with_a_rail_waits_for_the_daemon_and_fails_with_code_11(node: Node, how: str) -> None:
    set_seconds(daemon=1.5)
    identity = allocated(node)
    node.stop_daemon() if how == "absent" else node.daemon.process.send_signal(signal.SIGSTOP)

    began = time.monotonic()
    with pytest.raises(CniFailed) as failure:
        node.run_sandbox(identity)
    waited = time.monotonic() - began

    resume(node, how)
    node.kubelet.remove(identity)
    assert failure.value.code == 11
    assert "rdma/ib_vf" in failure.value.msg
    assert waited > 1.5


def test_add_with_a_rail_succeeds_when_the_daemon_comes_in_time(node: Node) -> None:
    identity = allocated(node)
    node.kill_daemon()
    timer = threading.Timer(1.0, node.daemon.start)
    timer.start()

    added = node.runtime.add(box := node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid))
    timer.join()
    stage = json.loads((RUN / "journal" / f"{box.container_id}@eth0.json").read_text())["stage"]
    node.kubelet.remove(identity)
    node.runtime.tear_down(box)

    assert json.loads(added.result)["ips"]
    assert stage == "attached"


def test_failed_attach_undoes_eth0_and_frees_the_vf(node: Node) -> None:
    identity = allocated(node)
    box = node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
    subprocess.run(["nsenter", f"--net={box.netns}", "ip", "link", "add", "net1", "type", "veth"], check=True)

    with pytest.raises(CniFailed) as failure:
        node.runtime.add(box)
    remaining = left_over(node)
    foreign = subprocess.run(
        ["nsenter", f"--net={box.netns}", "ip", "link", "show", "net1"], capture_output=True, check=False
    )

    node.runtime.remove_sandbox(box)
    node.kubelet.remove(identity)
    assert failure.value.code == 5
    assert "net1" in failure.value.msg
    assert foreign.returncode == 0
    assert remaining == []


def test_container_of_a_sandbox_made_without_railnet_is_refused(node: Node) -> None:
    identity = allocated(node)
    conflist = OURS.read_bytes()
    OURS.unlink()
    box = node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
    node.runtime.set_up(box)

    with pytest.raises(grpc.RpcError) as refusal:
        node.kubelet.pre_start(identity)

    node.runtime.tear_down(box)
    node.kubelet.remove(identity)
    OURS.write_bytes(conflist)
    assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "is not attached to a pod" in refusal.value.details()


@pytest.mark.parametrize(
    ("content", "says"), [(None, "subnet.env"), ("FLANNEL_SUBNET=nonsense\nFLANNEL_NETWORK=x\n", "malformed")]
)
def test_rail_without_flannels_lease_is_refused_with_code_103_and_nothing_done(
    node: Node, content: str | None, says: str
) -> None:
    lease = Path("/run/flannel/subnet.env")
    good = lease.read_text()
    identity = allocated(node)
    lease.unlink() if content is None else lease.write_text(content)

    with pytest.raises(CniFailed) as failure:
        node.run_sandbox(identity)

    lease.write_text(good)
    node.kubelet.remove(identity)
    assert failure.value.code == 103
    assert says in failure.value.msg


def test_add_waits_for_the_port_of_its_vf(node: Node) -> None:
    node.hca.set_port(FIRST, active=False)
    timer = threading.Timer(0.7, lambda: node.hca.set_port(FIRST, active=True))

    began = time.monotonic()  # this includes the steps before the ADD, which may take long, too
    timer.start()
    pod = node.run_pod("train", vfs=1)
    waited = time.monotonic() - began
    timer.join()
    node.remove_pod(pod)

    assert waited > 0.6


def test_add_of_a_vf_whose_port_stays_down_is_code_102_and_undone(node: Node) -> None:
    node.hca.set_port(FIRST, active=False)
    identity = allocated(node)
    box = node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)

    with pytest.raises(CniFailed) as failure:
        node.runtime.add(box)

    remaining = left_over(node)
    node.hca.set_port(FIRST, active=True)
    node.runtime.tear_down(box)
    node.kubelet.remove(identity)
    assert failure.value.code == 102
    assert "subnet manager" in failure.value.msg
    assert remaining == []


def allocated(node: Node, count: int = 1) -> PodIdentity:
    identity = PodIdentity("train", "default", f"uid-{time.monotonic_ns()}")
    node.kubelet.allocate(identity, RESOURCE, count)
    return identity


def resume(node: Node, how: str) -> None:
    node.start_daemon() if how == "absent" else node.daemon.process.send_signal(signal.SIGCONT)


def record(pod: Pod) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RUN / "journal" / f"{pod.container_id}@eth0.json").read_text())
    return found


def address(pod: Pod) -> str:
    return str(record(pod)["attachments"][0]["addresses"][0]).split("/")[0]


def links(pod: Pod) -> dict[str, dict[str, Any]]:
    shown = subprocess.run(
        ["nsenter", f"--net={pod.netns}", "ip", "-json", "address"], capture_output=True, check=True
    ).stdout
    return {link["ifname"]: link for link in json.loads(shown)}
