"""The daemon reports real pods to the API server. No ADD waits for an API server that hangs, refuses, or is absent."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.service_account import FOLDER
from railnet.kernel.netlink.sandbox_link_state import hardware_addresses
from railnet.objects.network_status import ANNOTATION
from railnet.vf.pci_address import PciAddress
from simnode.kubernetes.api_server import ApiServer, Received, Reply
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node, Pod
from simnode.waiting import wait_until
from tests.node.host_state import link_of

_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApiServer]:
    with ApiServer(FOLDER) as server:
        yield server


@pytest.fixture(scope="module")
def shared(cluster: ApiServer) -> Iterator[Node]:
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:
        node.daemon.environment = {**cluster.environment, "NODE_NAME": "node-a"}
        node.install()
        node.start_daemon()
        yield node


@pytest.fixture
def node(shared: Node, cluster: ApiServer) -> Iterator[Node]:
    yield shared
    cluster.interfere = lambda _: None
    cluster.received.clear()
    cluster.pods.clear()
    cluster.events.clear()


@pytest.fixture
def held(cluster: ApiServer) -> Iterator[Callable[[], None]]:
    """Make the API server accept requests without an answer, until the returned function is called."""
    release = threading.Event()

    def hang(_received: Received) -> Reply | None:
        assert release.wait(_SECONDS)
        return None

    cluster.interfere = hang
    yield release.set
    release.set()


def known(cluster: ApiServer, name: str, node: Node, vfs: int) -> PodIdentity:
    """Create a pod in the API server and let kubelet admit it."""
    identity = PodIdentity(name, "default", f"uid-of-{name}")
    cluster.add_pod("default", name, identity.uid)
    if vfs:
        node.kubelet.allocate(identity, RESOURCE, vfs)
    return identity


def status(cluster: ApiServer, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cluster.annotations("default", name).get(ANNOTATION, "[]"))
    return found


def annotated(cluster: ApiServer, pod: Pod) -> list[dict[str, Any]]:
    cluster.wait_until(lambda: status(cluster, pod.name))
    return status(cluster, pod.name)


def test_pod_with_two_rails_has_its_network_status(node: Node, cluster: ApiServer) -> None:
    pod = node.run_sandbox(known(cluster, "train", node, 2))

    eth0, net1, net2 = annotated(cluster, pod)
    links = {name: link_of(pod.netns, name) for name in ("eth0", "net1", "net2")}
    node.remove_pod(pod)

    result = json.loads(pod.result)
    assert (eth0["name"], eth0["interface"], eth0["default"]) == ("cbr0", "eth0", True)
    assert eth0["ips"] == [entry["address"].partition("/")[0] for entry in result["ips"]]
    assert eth0["mac"] == links["eth0"]["address"]
    for element, name, device in ((net1, "net1", "0000:03:00.1"), (net2, "net2", "0000:03:00.2")):
        assert (element["name"], element["interface"]) == ("railnet/default", name)
        assert element["mtu"] == links[name]["mtu"]
        assert element["ips"] == [one["local"] for one in links[name]["addr_info"] if one["scope"] == "global"]
        assert element["device-info"]["type"] == "pci"
        assert element["device-info"]["pci"]["pci-address"] == device
        assert element["device-info"]["pci"]["rdma-device"].startswith("mlx5_")


def test_hardware_addresses_are_those_of_the_links_that_have_one(node: Node, cluster: ApiServer) -> None:
    pod = node.run_sandbox(known(cluster, "train", node, 1))
    fd = os.open(pod.netns, os.O_RDONLY)
    found = hardware_addresses(("eth0", "net1", "net9"), fd)
    os.close(fd)
    expected = {name: link_of(pod.netns, name).get("address") for name in ("eth0", "net1")}
    annotated(cluster, pod)  # otherwise the next test may receive this request
    node.remove_pod(pod)

    assert found == {name: address for name, address in expected.items() if address}
    assert "eth0" in found


def test_pod_without_a_rail_makes_no_request(node: Node, cluster: ApiServer) -> None:
    plain = node.run_sandbox(known(cluster, "plain", node, 0))
    pod = node.run_sandbox(known(cluster, "train", node, 1))  # its request comes after any of the plain pod
    annotated(cluster, pod)
    for each in (plain, pod):
        node.remove_pod(each)

    assert [received.path for received in cluster.received] == ["/api/v1/namespaces/default/pods/train/status"]


def test_add_is_answered_while_the_api_server_holds_the_request(
    node: Node, cluster: ApiServer, held: Callable[[], None]
) -> None:
    first = node.run_sandbox(known(cluster, "first", node, 1))
    cluster.wait_until(lambda: cluster.received)
    # The API server holds the first request while these pods are made.
    second = node.run_sandbox(known(cluster, "second", node, 1))
    plain = node.run_sandbox(known(cluster, "plain", node, 0))
    meanwhile = (len(cluster.received), status(cluster, "first"))
    held()

    interfaces = [annotated(cluster, pod)[1]["interface"] for pod in (first, second)]
    for pod in (first, second, plain):
        node.remove_pod(pod)

    assert meanwhile == (1, [])
    assert interfaces == ["net1", "net1"]


def test_status_arrives_when_the_api_server_answers_again(node: Node, cluster: ApiServer) -> None:
    cluster.interfere = lambda _: Reply(503, "etcdserver: leader changed")
    pod = node.run_sandbox(known(cluster, "train", node, 1))
    cluster.wait_until(lambda: len(cluster.received) >= 2)
    before = status(cluster, "train")
    cluster.interfere = lambda _: None

    after = annotated(cluster, pod)
    node.remove_pod(pod)

    assert (before, len(after)) == ([], 2)


def test_refused_rail_is_an_event_that_counts_kubelets_attempts(node: Node, cluster: ApiServer) -> None:
    def counted(count: int) -> bool:
        return [event["count"] for event in cluster.events.values()] == [count]

    vf = PciAddress.parse("0000:03:00.1")
    node.hca.set_port(vf, active=False)
    identity = known(cluster, "train", node, 1)
    errors = []
    for attempt in (1, 2):
        with pytest.raises(CniFailed) as failure:
            node.run_sandbox(identity)
        errors.append(failure.value)
        cluster.wait_until(lambda attempt=attempt: counted(attempt))
    node.hca.set_port(vf, active=True)
    node.kubelet.remove(identity)

    (event,) = cluster.events.values()
    assert (event["type"], event["reason"]) == ("Warning", "RailnetAttachFailed")
    assert event["involvedObject"]["uid"] == identity.uid
    assert event["source"] == {"component": "railnet", "host": "node-a"}
    assert errors[-1].code == 102
    assert event["message"] == errors[-1].msg
    assert "subnet manager" in event["message"]


def test_daemon_ends_while_the_api_server_hangs(node: Node, cluster: ApiServer, held: Callable[[], None]) -> None:
    pod = node.run_sandbox(known(cluster, "train", node, 1))
    cluster.wait_until(lambda: cluster.received)

    ended = node.stop_daemon()
    meanwhile = status(cluster, "train")

    held()
    node.start_daemon()
    node.remove_pod(pod)
    assert (ended, meanwhile) == (0, [])


def test_status_that_a_killed_daemon_did_not_send_is_sent_by_the_next_one(node: Node, cluster: ApiServer) -> None:
    cluster.interfere = lambda _: Reply(503, "etcdserver: leader changed")
    pod = node.run_sandbox(known(cluster, "train", node, 2))
    cluster.wait_until(lambda: cluster.received)
    node.kill_daemon()
    before = status(cluster, "train")
    cluster.interfere = lambda _: None

    node.start_daemon()
    after = annotated(cluster, pod)
    links = {name: link_of(pod.netns, name) for name in ("eth0", "net1", "net2")}
    node.remove_pod(pod)

    assert before == []
    assert [element["interface"] for element in after] == ["eth0", "net1", "net2"]
    assert after[0]["mac"] == links["eth0"]["address"]
    assert after[1]["ips"] == [one["local"] for one in links["net1"]["addr_info"] if one["scope"] == "global"]


def test_daemon_sends_waiting_reports_before_it_ends(node: Node, cluster: ApiServer) -> None:
    cluster.interfere = lambda _: Reply(429, "too many requests", {"Retry-After": "60"})
    pod = node.run_sandbox(known(cluster, "train", node, 1))
    wait_until(lambda: "too many requests" in node.daemon.log(), _SECONDS, "the first failure")
    cluster.interfere = lambda _: None

    node.stop_daemon()
    published = status(cluster, "train")

    node.start_daemon()
    node.remove_pod(pod)
    assert len(published) == 2
