"""Pods that have VFs by claims of DRA: from Prepare by ADD and DEL to Unprepare, with the real daemon and executable."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from railnet.apiserver.service_account import FOLDER
from simnode.kubernetes.api_server import ApiServer, Reply
from simnode.kubernetes.dra_manager import PrepareFailed
from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node
from tests.node.claims import (
    CDI,
    FIRST,
    SECOND,
    a_claim,
    a_pod,
    node_of_dra,
    offer,
    remove,
    restart,
    run,
    settle,
    start,
)
from tests.node.primaries import RUN
from tests.node.test_rails import links, record
from tests.waiting import until


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


def test_claim_is_prepared_attached_detached_and_unprepared(node: Node, cluster: ApiServer) -> None:
    identity = a_pod()
    claim = a_claim(cluster, identity, devices=(FIRST, SECOND))
    devices = node.kubelet.dra.prepare(identity.uid, claim)
    (path,) = CDI.iterdir()
    (device,) = json.loads(path.read_text())["devices"]

    pod = node.run_sandbox(identity)
    attachments = record(pod)["attachments"]
    remove(node, pod)

    rdma = {attachment["vf"]: attachment["rdma"] for attachment in attachments}
    assert list(rdma) == ["0000:03:00.1", "0000:03:00.2"]
    assert devices[0].cdi_device_ids == [f"rdma.railnet.io/claim={device['name']}"]
    assert f"NCCL_IB_HCA=={','.join(f'{name}:1' for name in rdma.values())}" in device["containerEdits"]["env"]
    assert {node["path"] for node in device["containerEdits"]["deviceNodes"]} > {"/dev/infiniband/rdma_cm"}


def test_containers_are_told_of_their_devices_by_a_file_until_the_claim_is_unprepared(
    node: Node, cluster: ApiServer
) -> None:
    identity = a_pod()
    node.kubelet.dra.prepare(identity.uid, a_claim(cluster, identity))
    (mount,) = json.loads(next(CDI.iterdir()).read_text())["devices"][0]["containerEdits"]["mounts"]
    path = Path(mount["hostPath"])

    def told() -> Any:
        return json.JSONDecoder().raw_decode(path.read_text())[0]

    prepared = told()
    pod = node.run_sandbox(identity)
    until(lambda: told()["metadata"]["generation"] == 2, 60, "the file to have the pod's network")
    (device,) = told()["requests"][0]["devices"]
    (attachment,) = record(pod)["attachments"]
    remove(node, pod)

    assert prepared["metadata"]["generation"] == 1
    assert (device["name"], device["attributes"]["pf"]) == (FIRST, {"string": "0000:03:00.0"})
    assert device["networkData"] == {"interfaceName": "net1", "ips": attachment["addresses"]}
    assert not path.exists()


def test_node_that_offers_by_dra_lists_no_device_to_kubelet(node: Node) -> None:
    assert node.kubelet.healthy(RESOURCE) == []


def test_plain_pod_gets_no_rail_beside_a_pod_with_a_claim(node: Node, cluster: ApiServer) -> None:
    identity = a_pod()
    pod = run(node, identity, a_claim(cluster, identity))
    plain = node.run_pod("plain")

    names = {name for name in links(plain) if name.startswith("net")}
    node.remove_pod(plain)
    remove(node, pod)
    assert names == set()


def test_second_claim_for_the_same_vf_is_refused_until_the_first_has_ended(node: Node, cluster: ApiServer) -> None:
    first, second = a_pod("first"), a_pod("second")
    pod = run(node, first, a_claim(cluster, first))
    other = a_claim(cluster, second, name="other")

    with pytest.raises(PrepareFailed, match="which is not free: claim default/vf has it"):
        node.kubelet.dra.prepare(second.uid, other)
    remove(node, pod)

    remove(node, run(node, second, other))


def test_second_pod_of_a_shared_claim_waits_for_the_first(node: Node, cluster: ApiServer) -> None:
    first, second = a_pod("first"), a_pod("second")
    claim = a_claim(cluster, first, second)
    pod = run(node, first, claim)

    with pytest.raises(CniFailed) as refused:
        run(node, second, claim)
    remove(node, pod)
    following = run(node, second, claim)
    remove(node, following)

    assert refused.value.code == 11
    assert f"which this pod shares with pod {first.uid}" in refused.value.msg


def test_claim_that_was_made_again_is_refused(node: Node, cluster: ApiServer) -> None:
    identity = a_pod()
    old = a_claim(cluster, identity)
    a_claim(cluster, identity)

    with pytest.raises(PrepareFailed, match=f"kubelet asks for {old['metadata']['uid']}: the claim was deleted"):
        node.kubelet.dra.prepare(identity.uid, old)
    node.kubelet.dra.unprepare(identity.uid)


def test_unprepare_is_refused_while_a_sandbox_has_the_vf(node: Node, cluster: ApiServer) -> None:
    identity = a_pod()
    pod = run(node, identity, a_claim(cluster, identity))

    with pytest.raises(PrepareFailed, match=f"attached to sandbox {pod.container_id}"):
        node.kubelet.dra.unprepare(pod.uid)
    remove(node, pod)


def test_recorded_claim_is_prepared_again_while_the_api_server_is_away(node: Node, cluster: ApiServer) -> None:
    identity, other = a_pod(), a_pod("other")
    claim, new = a_claim(cluster, identity), a_claim(cluster, other, devices=(SECOND,), name="new")
    node.kubelet.dra.prepare(identity.uid, claim)
    cluster.interfere = lambda _: Reply(503, "etcdserver: leader changed")
    restart(node)
    node.kubelet.dra.start()

    pod = run(node, identity, claim)
    with pytest.raises(PrepareFailed, match="leader changed; kubelet tries again"):
        node.kubelet.dra.prepare(other.uid, new)

    node.kubelet.dra.unprepare(other.uid)
    remove(node, pod)


@pytest.mark.parametrize("before", ["attach", "detach", "unprepare"])
def test_daemon_that_is_killed_finds_its_claims_again(node: Node, cluster: ApiServer, before: str) -> None:
    identity = a_pod()
    claim = a_claim(cluster, identity)
    node.kubelet.dra.prepare(identity.uid, claim)
    if before == "attach":
        restart(node)
    pod = node.run_sandbox(identity)
    if before == "detach":
        restart(node)
    node.remove_pod(pod)
    if before == "unprepare":
        restart(node)

    node.kubelet.dra.unprepare(pod.uid)


def test_cdi_file_without_a_record_is_removed_at_the_start(node: Node) -> None:
    CDI.mkdir(exist_ok=True)
    (CDI / "rdma.railnet.io-claim_gone.json").write_text("{}")

    restart(node)

    assert list(CDI.iterdir()) == []


def test_pod_with_a_claim_is_refused_without_a_daemon_and_a_plain_pod_is_not(node: Node, cluster: ApiServer) -> None:
    identity = a_pod()
    node.kubelet.dra.prepare(identity.uid, a_claim(cluster, identity))
    node.stop_daemon()

    plain = node.run_pod("plain")
    with pytest.raises(CniFailed) as refused:
        node.run_sandbox(identity)

    node.remove_pod(plain)
    start(node)
    node.kubelet.dra.unprepare(identity.uid)
    assert refused.value.code == 11
    assert "or a claim of rdma.railnet.io" in refused.value.msg


def test_node_is_switched_with_pods_running_both_ways(node: Node, cluster: ApiServer) -> None:
    identity, late = a_pod(), a_pod("late")
    by_claim = run(node, identity, a_claim(cluster, identity))
    try:
        offer(node, "device-plugin", 1)
        by_plugin = node.run_pod("old", vfs=1)
        with pytest.raises(PrepareFailed, match="this node offers its VFs by the device plugin"):
            node.kubelet.dra.prepare(late.uid, a_claim(cluster, late, devices=(SECOND,), name="late"))
        node.kubelet.dra.unprepare(late.uid)
        offer(node, "dra")
        node.kubelet.pre_start(by_plugin.identity)
        with pytest.raises(PrepareFailed, match=f"device checkpoint gives it to pod {by_plugin.uid}"):
            node.kubelet.dra.prepare(late.uid, a_claim(cluster, late, devices=(SECOND,), name="late"))
        node.kubelet.dra.unprepare(late.uid)
        names = [{name for name in links(pod) if name.startswith("net")} for pod in (by_claim, by_plugin)]
        node.remove_pod(by_plugin)
    finally:
        remove(node, by_claim)

    assert by_plugin.device_ids == ("0000:03:00.2",)
    assert names == [{"net1"}, {"net1"}]


def test_claims_are_unprepared_after_a_reboot_of_a_node_that_went_back_to_the_device_plugin(
    node: Node, cluster: ApiServer
) -> None:
    identity = a_pod()
    node.kubelet.dra.prepare(identity.uid, a_claim(cluster, identity))
    node.stop_daemon()
    for file in (RUN / "claims").iterdir():  # /run is empty after a reboot, and kubelet's file is not
        file.unlink()
    try:
        offer(node, "device-plugin", 2)
        node.kubelet.dra.unprepare(identity.uid)
    finally:
        offer(node, "dra")
