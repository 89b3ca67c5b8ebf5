"""Networks that a pod can choose: the addresses of its rails, which namespaces may use them, and that nothing is left over."""

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node, Pod
from simnode.ping import ping
from simnode.waiting import wait_until
from tests.node.primaries import left_over

CONFIGURATION = Path("/etc/railnet/node.yaml")
HOST_LOCAL = Path("/var/lib/cni/networks/railnet-leased")
NETWORKS = {
    "verbs": {"ipam": {"type": "none"}},
    "fixed": {"ipam": {"type": "static", "range": "10.60.0.0/16"}},
    "subnet": {"ipam": {"type": "static"}},
    "mixed": {"routing": "none", "ipam": {"type": "static", "range": "10.63.0.0/16"}},
    "leased": {
        "mtu": 2044,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": "10.61.0.0/29", "gateway": "10.61.0.1"}]],
            "routes": [{"dst": "10.62.0.0/16"}],
        },
    },
    "missing": {"ipam": {"type": "no-such-plugin"}},
    "partition": {"pkey": "0x8001", "wait": "100ms", "ipam": {"type": "none"}},
}


@pytest.fixture(scope="module")
def _configured(shared_node: Node) -> Iterator[None]:
    before = CONFIGURATION.read_text()
    document = json.loads(before)
    document["networks"] = NETWORKS
    document["limits"] = {
        "*": {"networks": ["default", *NETWORKS], "static": False},
        "team-a": {"networks": ["fixed", "subnet", "mixed"], "static": True},
        "no-rails": {"pools": []},
    }
    shared_node.stop_daemon()
    CONFIGURATION.write_text(json.dumps(document))
    shared_node.start_daemon()
    yield
    shared_node.stop_daemon()
    CONFIGURATION.write_text(before)
    shared_node.start_daemon()


@pytest.fixture
def configured(_configured: None, node: Node) -> Node:
    return node


def run_pod(node: Node, network: str, vfs: int = 1, namespace: str = "default", **annotations: str) -> Pod:
    return node.run_pod(f"on-{network}", vfs, namespace, annotated(network, annotations))


def annotated(network: str, annotations: dict[str, str]) -> dict[str, Any]:
    keys = {"railnet.io/network": network, **{f"railnet.io/{key}": value for key, value in annotations.items()}}
    return {"io.kubernetes.cri.pod-annotations": keys}


def refused(node: Node, network: str, namespace: str = "default", **annotations: str) -> CniFailed:
    """Run a pod that is refused and give its devices back. Return the failure."""
    identity = PodIdentity("refused", namespace, str(uuid.uuid4()))
    node.kubelet.allocate(identity, RESOURCE, 1)
    with pytest.raises(CniFailed) as raised:
        node.run_sandbox(identity, annotated(network, annotations))
    node.kubelet.remove(identity)
    return raised.value


def addresses(pod: Pod, ifname: str = "net1") -> list[str]:
    command = ["ip", "-json", "-netns", pod.netns.name, "address", "show", "dev", ifname]
    (link,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return [f"{entry['local']}/{entry['prefixlen']}" for entry in link["addr_info"] if entry["scope"] == "global"]


def routes(pod: Pod) -> list[dict[str, Any]]:
    command = ["ip", "-json", "-netns", pod.netns.name, "route", "show", "dev", "net1"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def way(pod: Pod, destination: str, source: str) -> str:
    """Return the interface by which the pod's kernel sends a packet from one of the pod's addresses."""
    command = ["ip", "-json", "-netns", pod.netns.name, "route", "get", destination, "from", source]
    (route,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return str(route["dev"])


def test_network_without_addresses_gives_a_link_that_is_up(configured: Node) -> None:
    pod = run_pod(configured, "verbs")
    found = addresses(pod)
    configured.remove_pod(pod)

    assert found == []


def test_static_addresses_are_the_pods_own(configured: Node) -> None:
    pod = run_pod(configured, "fixed", 2, "team-a", **{"net1-ip": "10.60.1.5/24,10.60.2.5/24"})
    found = addresses(pod, "net1"), addresses(pod, "net2")
    configured.remove_pod(pod)

    assert found == (["10.60.1.5/24"], ["10.60.2.5/24"])


@pytest.mark.parametrize("named", ["10.60.1.5/24,10.60.1.6/24", "fd60::5/64,fd60::6/64"], ids=["IPv4", "IPv6"])
def test_static_addresses_of_one_subnet_have_a_way_for_each_rail(configured: Node, named: str) -> None:
    first, second = (text.split("/")[0] for text in named.split(","))
    neighbour = first[:-1] + "9"
    pod = run_pod(configured, "subnet", 2, "team-a", **{"net1-ip": named})
    ways = [way(pod, neighbour, source) for source in (first, second)]
    configured.remove_pod(pod)

    assert ways == ["net1", "net2"]


def test_static_addresses_of_one_subnet_are_refused_where_rails_are_not_kept_apart(configured: Node) -> None:
    identity = PodIdentity("refused", "team-a", str(uuid.uuid4()))
    configured.kubelet.allocate(identity, RESOURCE, 2)
    with pytest.raises(CniFailed, match=r"cannot have the same prefix.*networks\.mixed\.routing to auto"):
        configured.run_sandbox(identity, annotated("mixed", {"net1-ip": "10.63.1.5/24,10.63.1.6/24"}))
    configured.kubelet.remove(identity)


def test_network_without_routing_leaves_two_rails_as_the_kernel_makes_them(configured: Node) -> None:
    pod = run_pod(configured, "mixed", 2, "team-a", **{"net1-ip": "10.63.1.5/24,10.63.2.5/24"})
    command = ["nsenter", f"--net={pod.netns}", "cat", "/proc/sys/net/ipv4/conf/net2/arp_ignore"]
    arp_ignore = subprocess.run(command, check=True, capture_output=True).stdout
    configured.remove_pod(pod)

    assert arp_ignore == b"0\n"


def test_static_address_of_a_living_pod_is_refused(configured: Node) -> None:
    pod = run_pod(configured, "fixed", namespace="team-a", **{"net1-ip": "10.60.1.5/24"})
    error = refused(configured, "fixed", "team-a", **{"net1-ip": "10.60.1.5/24"})
    configured.remove_pod(pod)

    assert (error.code, "belongs to another pod of this node" in error.msg) == (103, True)


@pytest.mark.parametrize(
    ("network", "namespace", "annotations", "code", "words"),
    [
        ("verbs", "team-a", {}, 104, "pods of namespace 'team-a' may not use network 'verbs'"),
        ("fixed", "team-b", {"net1-ip": "10.60.1.5/24"}, 104, "may not name addresses"),
        ("fixed", "team-a", {"net1-ip": "10.70.1.5/24"}, 104, "is not in the network's range"),
        ("fixed", "team-a", {}, 7, "annotate it with railnet.io/net1-ip"),
        ("default", "no-rails", {}, 104, "pods of namespace 'no-rails' may not have rdma/ib_vf"),
        ("missing", "default", {}, 7, "plugin 'no-such-plugin' cannot be executed"),
        ("partition", "default", {}, 101, "is partition 0x8001: its port is in the partitions 0xffff"),
    ],
)
def test_refused_pod_gets_a_message_and_leaves_nothing(
    configured: Node, network: str, namespace: str, annotations: dict[str, str], code: int, words: str
) -> None:
    error = refused(configured, network, namespace, **annotations)

    assert error.code == code
    assert words in error.msg
    assert left_over(configured) == []


def test_ipam_plugin_gives_each_rail_an_address_and_routes_and_takes_them_back(configured: Node) -> None:
    one, other = run_pod(configured, "leased"), run_pod(configured, "leased", 2)
    found = addresses(one), addresses(other, "net1"), addresses(other, "net2")
    held = {path.name for path in HOST_LOCAL.glob("10.*")}
    answered = ping(one.netns, "10.61.0.3", ifname="net1")
    via = [(route["dst"], route.get("gateway")) for route in routes(one)]
    configured.remove_pod(one)
    configured.remove_pod(other)

    assert found == (["10.61.0.2/29"], ["10.61.0.3/29"], ["10.61.0.4/29"])
    assert held == {"10.61.0.2", "10.61.0.3", "10.61.0.4"}
    assert answered
    assert ("10.62.0.0/16", "10.61.0.1") in via
    assert list(HOST_LOCAL.glob("10.*")) == []


def test_leased_addresses_of_one_subnet_have_a_way_for_each_rail(configured: Node) -> None:
    pod = run_pod(configured, "leased", 2)
    sources = [addresses(pod, ifname)[0].split("/")[0] for ifname in ("net1", "net2")]
    ways = [way(pod, destination, source) for source in sources for destination in ("10.61.0.1", "10.62.0.7")]
    configured.remove_pod(pod)

    assert ways == ["net1", "net1", "net2", "net2"]


def test_ipam_plugin_without_a_free_address_fails_the_pod_with_its_own_message(configured: Node) -> None:
    pods = [run_pod(configured, "leased", 2) for _ in range(2)]  # .2 to .5
    last = run_pod(configured, "leased")
    error = refused(configured, "leased")
    for pod in (*pods, last):
        configured.remove_pod(pod)

    assert "no IP addresses available in range set" in error.msg
    assert list(HOST_LOCAL.glob("10.*")) == []


def test_ipam_address_of_a_namespace_that_died_is_given_back_by_del(configured: Node) -> None:
    pod = run_pod(configured, "leased")
    configured.destroy_netns(pod)
    configured.runtime.delete(pod.sandbox)
    configured.remove_pod(pod)

    assert list(HOST_LOCAL.glob("10.*")) == []
    assert left_over(configured) == []


def test_ipam_address_of_a_pod_deleted_without_a_daemon_is_given_back_by_the_next_start(configured: Node) -> None:
    pod = run_pod(configured, "leased")
    given = addresses(pod)
    configured.stop_daemon()
    configured.remove_pod(pod)
    held = [path.name for path in HOST_LOCAL.glob("10.*")]
    configured.start_daemon()
    wait_until(lambda: list(HOST_LOCAL.glob("10.*")) == [], 10, "the return of the address")
    wait_until(lambda: left_over(configured) == [], 10, "the removal of its record, which is last")

    assert [f"{address}/29" for address in held] == given
