"""An address that stays with a rank, on two nodes: a pod waits for its address, and peers reach its successor on another node."""

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from simnode.cluster import Cluster
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node, Pod
from simnode.remote_node import RemoteNode
from tests.node.primaries import left_over
from tests.simnode.two_machines import MACHINES

CONFIGURATION = Path("/etc/railnet/node.yaml")
NETWORKS = {"staying": {"ipam": {"type": "sticky", "range": "10.58.0.0/24"}}}
STICKY, ADDRESS = "railnet.io/sticky", "railnet.io/net1-ip"


# Functions that run on a node.


def configure(node: Node) -> None:
    node.install()
    document = json.loads(CONFIGURATION.read_text())
    document |= {"networks": NETWORKS, "limits": {"*": {"networks": ["default", "staying"]}}}
    CONFIGURATION.write_text(json.dumps(document))
    node.start_daemon()


def admit(node: Node, name: str) -> PodIdentity:
    identity = PodIdentity(name, "ml", str(uuid.uuid4()))
    node.kubelet.allocate(identity, RESOURCE, 1)
    return identity


def attempt(node: Node, identity: PodIdentity, address: str | None) -> Pod:
    """Run a pod's sandbox as kubelet does at each attempt: with the annotations that the pod has now."""
    annotations = {STICKY: "true"} | ({} if address is None else {ADDRESS: address})
    return node.run_sandbox(identity, {"io.kubernetes.cri.pod-annotations": annotations})


def refused(node: Node, identity: PodIdentity) -> tuple[int | None, str, list[str]]:
    """Attempt to run a pod that has no address yet; return the error's code and words, and what is left over."""
    with pytest.raises(CniFailed) as raised:
        attempt(node, identity, None)
    return raised.value.code, raised.value.msg, left_over(node)


def failed(node: Node, annotations: dict[str, str]) -> tuple[int | None, str, list[str]]:
    identity = admit(node, "failed")
    with pytest.raises(CniFailed) as raised:
        node.run_sandbox(identity, {"io.kubernetes.cri.pod-annotations": annotations})
    node.kubelet.remove(identity)
    return raised.value.code, raised.value.msg, left_over(node)


def address_of(node: Node, pod: Pod) -> str:
    command = ["ip", "-json", "-netns", pod.netns.name, "address", "show", "dev", "net1"]
    (found,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    (address,) = (one for one in found["addr_info"] if one["scope"] == "global")
    return f"{address['local']}/{address['prefixlen']}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    machines = [replace(one, pfs=one.pfs[:1]) for one in MACHINES]
    with Cluster(Path(os.environ["RAILNET_CNI_PLUGINS"]), machines) as cluster:
        cluster.everywhere(configure)
        yield cluster


def run(node: RemoteNode[Node], name: str, address: str) -> Pod:
    return node.call(attempt, node.call(admit, name), address)


def test_pod_waits_for_its_address_and_its_successor_on_another_node_has_the_same(cluster: Cluster) -> None:
    """The simulated fabric has no ARP, and learns the new place from a packet; test_gratuitous_arp.py has the announcement."""
    first, second = cluster.nodes
    peer = run(second, "worker-1", "10.58.0.2/24")
    identity = first.call(admit, "worker-0")
    code, words, left = first.call(refused, identity)
    pod = first.call(attempt, identity, "10.58.0.1/24")
    address, answered = first.call(address_of, pod), second.call(Node.ping, peer, "10.58.0.1", "net1")
    first.call(Node.remove_pod, pod)
    between = second.call(Node.ping, peer, "10.58.0.1", "net1")
    again = run(second, "worker-0", "10.58.0.1/24")
    moved, dialled = second.call(address_of, again), second.call(Node.ping, again, "10.58.0.2", "net1")
    answered_again = second.call(Node.ping, peer, "10.58.0.1", "net1")
    for one in (peer, again):
        second.call(Node.remove_pod, one)

    assert (code, "waits for its address on network 'staying'" in words, left) == (11, True, [])
    assert (address, moved) == ("10.58.0.1/24",) * 2
    assert (answered, between, dialled, answered_again) == (True, False, True, True)


@pytest.mark.parametrize(
    ("annotations", "code", "words"),
    [
        ({STICKY: "true", ADDRESS: "10.58.0.9/16"}, 104, "whose prefix is wider than the network's range"),
        ({STICKY: "true", ADDRESS: "10.58.0.9/25"}, 104, "only railnet-controllers writes the addresses"),
        ({STICKY: "true", "railnet.io/network": "default"}, 7, "network 'default' has no addresses that stay"),
        (
            {"railnet.io/network": "staying", ADDRESS: "10.58.0.9/24"},
            7,
            'annotate the pod with railnet.io/sticky: "true"',
        ),
    ],
)
def test_refused_pod_gets_a_message(cluster: Cluster, annotations: dict[str, str], code: int, words: str) -> None:
    found, text, left = cluster.nodes[0].call(failed, annotations)

    assert (found, left) == (code, [])
    assert words in text
