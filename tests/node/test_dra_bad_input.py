"""Claims that are wrong, and what surrounds them damaged, away or slow: the pods that have no claim notice nothing, the others get words."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from railnet.apiserver.service_account import FOLDER
from railnet.kubelet.api import dra_pb2 as api
from railnet.kubelet.api import dra_pb2_grpc as grpc_api
from simnode.kubernetes.api_server import ApiServer
from simnode.kubernetes.dra_manager import PrepareFailed
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.node import Node
from tests.node.claims import (
    CDI,
    FIRST,
    SECOND,
    a_claim,
    a_pod,
    a_result,
    node_of_dra,
    remove,
    restart,
    run,
    settle,
    start,
)
from tests.node.test_rails import links

_GONE = "pci-0000-03-00-7"  # the pool of an older generation had it, when the node had more VFs


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApiServer]:
    with ApiServer(FOLDER) as server:
        yield server


@pytest.fixture(scope="module")
def shared(cluster: ApiServer) -> Iterator[Node]:
    with node_of_dra(cluster) as node:
        yield node


@pytest.fixture
def node(shared: Node, cluster: ApiServer) -> Iterator[Node]:
    yield shared
    assert settle(shared, cluster) == []


def _with_parameters(source: str) -> Callable[[dict[str, Any]], None]:
    def change(devices: dict[str, Any]) -> None:
        opaque = {"driver": "rdma.railnet.io", "parameters": {"mtu": 9000}}
        devices["config"] = [{"source": source, "requests": ["rail"], "opaque": opaque}]

    return change


def _with_results(*results: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda devices: devices.update(results=list(results))


REFUSED = {
    "a parameter": (_with_parameters("FromClaim"), "the parameters that the claim has .* are not known: mtu"),
    "a parameter of the class": (_with_parameters("FromClass"), "remove opaque.parameters from its DeviceClass"),
    "a device that is gone": (
        _with_results(a_result(_GONE)),
        f"has device {_GONE}, which .* does not offer on this node",
    ),
    "one of two devices is gone": (_with_results(a_result(), a_result(_GONE)), f"has device {_GONE}, which"),
    "another node's pool": (_with_results(a_result(pool="node-b")), "of pool node-b, and this node's pool is node-a"),
    "no VF's name": (_with_results(a_result("nic-0")), "'nic-0' is not the name of a VF's device"),
    "a VF twice": (_with_results(a_result(), a_result(request="b")), r"has VF 0000:03:00\.1 twice"),
    "no object": (lambda devices: devices.update(results=7), "is not understood: TypeError"),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_claim_is_refused_in_words_and_its_vf_goes_to_the_next_claim(
    node: Node, cluster: ApiServer, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    identity, following = a_pod(), a_pod("following")
    claim = a_claim(cluster, identity, name="wrong")
    change(claim["status"]["allocation"]["devices"])

    with pytest.raises(PrepareFailed, match=words):
        node.kubelet.dra.prepare(identity.uid, claim)

    node.kubelet.dra.unprepare(identity.uid)
    remove(node, run(node, following, a_claim(cluster, following, devices=(FIRST, SECOND))))


def test_prepare_is_answered_in_words_when_the_api_server_does_not_answer(node: Node, cluster: ApiServer) -> None:
    identity = a_pod()
    claim, over = a_claim(cluster, identity), threading.Event()
    cluster.interfere = lambda received: over.wait(60) and None if received.path.endswith("/vf") else None

    with pytest.raises(PrepareFailed, match="the API server did not answer within 10 s; kubelet tries again"):
        node.kubelet.dra.prepare(identity.uid, claim)  # after 45 s it would be DEADLINE_EXCEEDED

    over.set()
    remove(node, run(node, identity, claim))


def test_container_with_two_requests_of_a_claim_gets_the_lists_of_all_vfs(node: Node, cluster: ApiServer) -> None:
    identity = a_pod()
    claim = a_claim(cluster, identity)
    claim["status"]["allocation"]["devices"]["results"] = [a_result(request="a"), a_result(SECOND, request="b")]

    devices = node.kubelet.dra.prepare(identity.uid, claim)
    (path,) = CDI.iterdir()
    edits = {device["name"]: device["containerEdits"] for device in json.loads(path.read_text())["devices"]}
    pod = node.run_sandbox(identity)
    names = {name for name in links(pod) if name.startswith("net")}
    remove(node, pod)

    ids = [id_ for device in devices for id_ in device.cdi_device_ids]
    assert [id_.partition("=")[2] for id_ in ids] == list(edits)
    for edit in edits.values():
        environment = dict(pair.split("=", 1) for pair in edit["env"])
        assert environment["PCIDEVICE_RDMA_IB_VF"] == "0000:03:00.1,0000:03:00.2"
        assert len(environment["NCCL_IB_HCA"].split(",")) == len(names) == 2
        assert len(edit["deviceNodes"]) == 2  # its own VF's, and rdma_cm


# Kubelet's `dra_manager_state`.

DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "another checksum": lambda whole: whole.replace(b"default", b"defaulT"),
    "half-written": lambda whole: whole[: len(whole) // 2],
    "empty": lambda _: b"",
    "huge": lambda whole: whole + bytes(16 << 20),
}
damaged = pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())


@contextmanager
def damage_done(path: Path, damage: Callable[[bytes], bytes]) -> Iterator[None]:
    """Damage a file, in the block."""
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    yield
    path.write_bytes(whole)


def run_plain_pod(node: Node) -> None:
    """Run a pod without a rail."""
    plain = node.run_pod("plain")
    names = {name for name in links(plain) if name.startswith("net")}
    node.remove_pod(plain)
    assert names == set()


def refused_sandbox(node: Node, identity: PodIdentity) -> str:
    """Have a pod's sandbox refused, to be tried again, and return the words."""
    with pytest.raises(CniFailed) as refused:
        node.run_sandbox(identity)
    assert refused.value.code == 11
    return f"{refused.value.msg} {refused.value.details}"


@damaged
def test_all_pods_start_beside_a_damaged_file_while_kubelet_lists_claims(
    node: Node, cluster: ApiServer, damage: Callable[[bytes], bytes]
) -> None:
    identity = a_pod()
    node.kubelet.dra.prepare(identity.uid, a_claim(cluster, identity))

    with damage_done(node.kubelet.dra.path, damage):
        run_plain_pod(node)
        pod = node.run_sandbox(identity)
        names = {name for name in links(pod) if name.startswith("net")}
        node.remove_pod(pod)

    node.kubelet.dra.unprepare(identity.uid)
    assert names == {"net1"}


@damaged
@pytest.mark.parametrize("daemon", ["running", "absent"])
def test_plain_pod_starts_beside_a_damaged_file_where_no_claim_is_prepared(
    node: Node, damage: Callable[[bytes], bytes], daemon: str
) -> None:
    node.kubelet.dra.are_listed = False
    if daemon == "absent":
        node.stop_daemon()

    with damage_done(node.kubelet.dra.path, damage):
        run_plain_pod(node)


@damaged
@pytest.mark.parametrize("daemon", ["running", "absent"])
def test_pod_with_a_claim_is_refused_in_words_beside_a_damaged_file(
    node: Node, cluster: ApiServer, damage: Callable[[bytes], bytes], daemon: str
) -> None:
    node.kubelet.dra.are_listed = False
    identity = a_pod()
    node.kubelet.dra.prepare(identity.uid, a_claim(cluster, identity))
    if daemon == "absent":
        node.stop_daemon()

    with damage_done(node.kubelet.dra.path, damage):
        words = refused_sandbox(node, identity)

    if daemon == "absent":
        start(node)
    node.kubelet.dra.unprepare(identity.uid)
    assert "unknown whether this pod asked for a rail" in words
    assert "dra_manager_state" in words


@pytest.mark.parametrize("daemon", ["running", "absent"])
def test_plain_pod_starts_when_kubelet_lists_no_claims_and_the_file_is_json(
    node: Node, cluster: ApiServer, daemon: str
) -> None:
    node.kubelet.dra.are_listed = False
    identity = a_pod()
    node.kubelet.dra.prepare(identity.uid, a_claim(cluster, identity))
    if daemon == "absent":
        node.stop_daemon()

    with damage_done(node.kubelet.dra.path, DAMAGED["another checksum"]):
        run_plain_pod(node)

    if daemon == "absent":
        start(node)
    node.kubelet.dra.unprepare(identity.uid)


# Another program has registered a driver of the same name.


class OtherDriver(grpc_api.DRAPluginServicer):
    """Prepares every claim with one device."""

    def __init__(self, device: str) -> None:
        self._device = device

    def NodePrepareResources(self, request: Any, context: object) -> api.NodePrepareResourcesResponse:
        device = api.Device(request_names=["rail"], pool_name="node-a", device_name=self._device)
        answer = api.NodePrepareResourceResponse(devices=[device])
        return api.NodePrepareResourcesResponse(claims={claim.uid: answer for claim in request.claims})

    def NodeUnprepareResources(self, request: Any, context: object) -> api.NodeUnprepareResourcesResponse:
        answers = {claim.uid: api.NodeUnprepareResourceResponse() for claim in request.claims}
        return api.NodeUnprepareResourcesResponse(claims=answers)


@contextmanager
def other_driver(node: Node, device: str) -> Iterator[None]:
    """Have another driver registered in the block, as the last one, so that kubelet uses it."""
    path = "/run/simnode/other-driver.sock"
    server = grpc.server(futures.ThreadPoolExecutor(1))
    grpc_api.add_DRAPluginServicer_to_server(OtherDriver(device), server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    node.kubelet.dra.register("rdma.railnet.io", path, ["v1.DRAPlugin"])
    try:
        yield
    finally:
        restart(node)
        server.stop(None).wait()


def test_device_of_another_driver_of_this_name_is_refused_in_words(node: Node, cluster: ApiServer) -> None:
    identity = a_pod()
    with other_driver(node, "nic-0"):
        node.kubelet.dra.prepare(identity.uid, a_claim(cluster, identity))
        with pytest.raises(CniFailed, match="kubelet names a device of another driver under ours: 'nic-0'"):
            node.run_sandbox(identity)

    node.kubelet.dra.unprepare(identity.uid)


def test_vf_that_another_driver_of_this_name_gave_again_stays_where_it_is(node: Node, cluster: ApiServer) -> None:
    first, second = a_pod("first"), a_pod("second")
    pod = run(node, first, a_claim(cluster, first))
    with other_driver(node, FIRST):
        node.kubelet.dra.prepare(second.uid, a_claim(cluster, second, name="second"))
        with pytest.raises(CniFailed) as refused:
            node.run_sandbox(second)

    names = {name for name in links(pod) if name.startswith("net")}
    node.kubelet.dra.unprepare(second.uid)
    remove(node, pod)
    assert names == {"net1"}
    assert first.uid in f"{refused.value.msg} {refused.value.details}"
