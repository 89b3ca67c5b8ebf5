"""Railnet changes nothing for a pod without a rail, in every state of the daemon."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni.host.netconf import ANNOTATIONS
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node
from tests.node.primaries import OURS, RUN, primary_of, write_stub

GATEWAY = "10.244.3.1"
# Odd spacing, key order, unknown keys, escapes, a number that no float holds, and no newline at the end.
ODD = '{ "ips":[ {"address" :"10.9.9.9/24","x-unknown":1.10} ],\n\t"zeta": 12345678901234567890, "cniVersion":"0.4.0" ,"name": "a\\u0062"}'


def test_plain_pod_gets_exactly_the_primarys_bytes(node: Node, daemon: str) -> None:
    write_stub("stub", f"cat >/dev/null; [ $CNI_COMMAND = DEL ] || printf '%s' '{ODD}'")
    primary_of({"type": "stub"})

    pod = node.run_pod("plain")
    node.remove_pod(pod)

    assert pod.result == ODD.encode()


def test_plain_pod_gets_flannels_result_up_to_mac_veth_and_ip(node: Node, daemon: str) -> None:
    through_railnet = node.run_pod("through-railnet")
    node.remove_pod(through_railnet)
    conflist = OURS.read_bytes()
    OURS.unlink()

    plain = node.run_pod("plain-chain")
    node.remove_pod(plain)
    OURS.write_bytes(conflist)

    assert masked(through_railnet.result) == masked(plain.result)


def test_second_add_of_a_plain_pod_fails_and_leaves_the_first_one_whole(node: Node, daemon: str) -> None:
    pod = node.run_pod("plain")
    address = json.loads(pod.result)["ips"][0]["address"].partition("/")[0]

    with pytest.raises(CniFailed, match="already exists"):
        node.runtime.add(pod.sandbox)

    pings = node.ping(pod, GATEWAY, "eth0")
    reserved = Path("/var/lib/cni/networks/cbr0", address).exists()
    node.remove_pod(pod)
    assert (pings, reserved) == (True, True)


@pytest.fixture
def pending(node: Node) -> Iterator[PodIdentity]:
    """Admit a pod with a device whose sandbox does not exist yet."""
    identity = PodIdentity("pending", "default", "uid-pending")
    node.kubelet.allocate(identity, RESOURCE, 1)
    yield identity
    node.kubelet.remove(identity)


def test_plain_pod_makes_no_kubelet_connection_while_another_pods_device_is_pending(
    node: Node, pending: PodIdentity, daemon: str
) -> None:
    before = node.kubelet.pod_resources.use

    pod = node.run_pod("plain")
    node.remove_pod(pod)

    assert node.kubelet.pod_resources.use == before


def test_plain_pod_has_no_record(node: Node, daemon: str) -> None:
    pod = node.run_pod("plain")
    records = list((RUN / "journal").iterdir())
    node.remove_pod(pod)

    assert records == []


def test_plain_pod_keeps_its_port_mappings(node: Node) -> None:
    write_stub("portmap", 'cat >/run/stub-portmap; [ $CNI_COMMAND = DEL ] || printf \'{"cniVersion":"0.4.0"}\'')
    write_stub("stub", 'cat >/dev/null; [ $CNI_COMMAND = DEL ] || printf \'{"cniVersion":"0.4.0"}\'')
    primary_of({"type": "stub"}, {"type": "portmap", "capabilities": {"portMappings": True}})
    mappings = [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]

    pod = node.run_pod("mapped", capability_args={"portMappings": mappings})
    conf = json.loads(Path("/run/stub-portmap").read_text())
    node.remove_pod(pod)

    assert conf["runtimeConfig"] == {"portMappings": mappings}


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0", "1.0.0"])
def test_plain_pod_works_in_each_cni_version(node: Node, version: str) -> None:
    write_stub("stub", f'cat >/run/stub-conf; [ $CNI_COMMAND = DEL ] || printf \'{{"cniVersion":"{version}"}}\'')
    primary_of({"type": "stub"}, version=version)

    pod = node.run_pod("versioned")
    node.remove_pod(pod)

    assert json.loads(pod.result) == {"cniVersion": version}


CHECKPOINT = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")


@pytest.fixture
def no_daemon(node: Node) -> Iterator[None]:
    node.stop_daemon()
    yield
    node.start_daemon()


@pytest.fixture
def unknown_checkpoint(node: Node) -> Iterator[None]:
    """Show kubelet's checkpoint in a format that Railnet does not know; it names the pod that has a device."""
    known = CHECKPOINT.read_bytes() if CHECKPOINT.exists() else None
    CHECKPOINT.write_text(json.dumps({"version": "v9", "claims": {"uid-pending": {"rdma/ib_vf": ["0000:03:00.1"]}}}))
    yield
    CHECKPOINT.unlink() if known is None else CHECKPOINT.write_bytes(known)


def test_plain_pod_comes_and_goes_while_the_checkpoint_has_an_unknown_format(
    node: Node, daemon: str, unknown_checkpoint: None
) -> None:
    sandbox = node.runtime.create_sandbox("default", "plain", "uid-plain")
    node.runtime.add(sandbox)
    has_eth0 = subprocess.run(
        ["nsenter", f"--net={sandbox.netns}", "ip", "link", "show", "eth0"], check=False
    ).returncode
    node.runtime.tear_down(sandbox)

    assert has_eth0 == 0


def test_pod_with_a_rail_is_not_started_without_it_while_the_checkpoint_has_an_unknown_format(
    node: Node, no_daemon: None, unknown_checkpoint: None
) -> None:
    sandbox = node.runtime.create_sandbox("default", "pending", "uid-pending")

    with pytest.raises(CniFailed, match="is not understood") as failure:
        node.runtime.add(sandbox)

    node.runtime.tear_down(sandbox)
    assert failure.value.code == 11


LEGAL = {"example.com/markup": "<" * (256 * 1024 - 64)}  # all that the API server takes; each byte is six in Go's JSON


def test_plain_pod_with_the_longest_annotations_comes_and_goes(node: Node, daemon: str) -> None:
    pod = node.run_pod("annotated", capability_args={ANNOTATIONS: LEGAL})
    node.remove_pod(pod)

    assert json.loads(pod.result)["interfaces"]


def test_pod_with_a_rail_and_the_longest_annotations_comes_and_goes(node: Node) -> None:
    pod = node.run_pod("annotated", vfs=1, capability_args={ANNOTATIONS: LEGAL})
    size = (RUN / "journal" / f"{pod.container_id}@eth0.json").stat().st_size
    node.remove_pod(pod)

    assert size < 16384  # the record does not keep what no plugin takes


def test_plain_pod_whose_request_is_larger_than_the_daemon_takes_comes_and_goes(node: Node, daemon: str) -> None:
    pod = node.run_pod("huge", capability_args={ANNOTATIONS: {"example.com/markup": "<" * (1 << 20)}})
    node.remove_pod(pod)

    assert json.loads(pod.result)["interfaces"]


def test_pod_with_a_rail_whose_request_is_larger_than_the_daemon_takes_is_refused_at_once(node: Node) -> None:
    identity = PodIdentity("huge", "default", "uid-huge")
    node.kubelet.allocate(identity, RESOURCE, 1)

    with pytest.raises(CniFailed, match="shorten its annotations") as failure:
        node.run_sandbox(identity, {ANNOTATIONS: {"example.com/markup": "<" * (1 << 20)}})

    node.kubelet.remove(identity)
    assert failure.value.code == 6


def masked(result: bytes) -> str:
    """Replace MAC addresses, veth names, namespace paths and the pod's IP of a result by constants. Spacing and order stay."""
    text = re.sub(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", "MAC", result.decode())
    text = re.sub(r"veth[0-9a-f]+", "VETH", text)
    text = re.sub(r"/run/netns/[-\w]+", "NETNS", text)
    return re.sub(r"10\.244\.3\.\d+/24", "IP", text)
