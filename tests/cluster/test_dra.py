"""The same VFs through DRA on a real Kubernetes: unchanged pods, claims, taints, and restarts."""

import json
from typing import Any

from railnet.kubelet.dra_driver_name import DRIVER
from tests.cluster.claims import claim, claim_of, claims, devices, pod_with_claim, request, template, untainted
from tests.cluster.dra_examples import shown
from tests.cluster.dra_node import (
    ALL,
    SECONDS,
    WAY,
    allocated,
    environment,
    names_of,
    vfs,
)
from tests.cluster.ground import NODE
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.pods import pod
from tests.cluster.process import wait_until

FIRST = "0000:03:00.1"
"""The VF that docs/dra.md shows."""


def metadata(node: ClusterNode, name: str, request: str) -> dict[str, Any]:
    """Return what a container reads of the devices of a request: the newest version in its file (KEP-5304)."""
    path = f"/var/run/kubernetes.io/dra-device-attributes/{request}/{DRIVER}-metadata.json"
    newest: dict[str, Any] = json.JSONDecoder().raw_decode(node.execute(name, "cat", path))[0]
    return newest


def test_unchanged_pod_gets_its_rails_through_dra(dra: ClusterNode) -> None:
    one, other = dra.run("one", 2), dra.run("other", 1)
    addresses = dra.addresses(one)

    assert set(addresses) == {"eth0", "net1", "net2"}
    assert names_of(vfs(dra, one)) == allocated(one)
    assert names_of(vfs(dra, other)) == allocated(other)
    assert not vfs(dra, one) & vfs(dra, other)
    hcas = environment(dra, one)["NCCL_IB_HCA"].removeprefix("=").split(",")
    assert len(hcas) == 2
    assert dra.execute(one, "ls", "/dev/infiniband").split().count("rdma_cm") == 1


def test_plain_pods_beside_dra_have_eth0_alone(dra: ClusterNode) -> None:
    plain = dra.run("plain")

    assert set(dra.addresses(plain)) == {"eth0"}
    assert claims() == []


def test_container_with_a_whole_claim_of_two_requests_is_told_all_vfs(dra: ClusterNode) -> None:
    rails = [
        request(f"rail-{rail}", selector=f'device.attributes["rdma.railnet.io"].rail == {rail}')
        for rail in range(len(PFS))
    ]
    dra.kubectl.apply(template("each-rail", rails), pod_with_claim("both", of_template="each-rail"))
    dra.wait_until_ready("both")
    told = environment(dra, "both")["NCCL_IB_HCA"].removeprefix("=").split(",")

    assert set(dra.addresses("both")) == {"eth0", "net1", "net2"}
    assert len(set(told)) == len(PFS)
    for rail, interface in enumerate(("net1", "net2")):
        (device,) = metadata(dra, "both", f"resourceclaimtemplates/rails/rail-{rail}")["requests"][0]["devices"]
        assert device["attributes"]["rail"] == {"int": rail}
        assert device["networkData"] == {"interfaceName": interface, "ips": [dra.addresses("both")[interface]]}


def test_status_of_a_claim_names_interface_and_addresses(dra: ClusterNode) -> None:
    name = dra.run("told", 1)
    address = dra.addresses(name)["net1"]
    wait_until(lambda: bool(claim_of(name)["status"].get("devices")), SECONDS, "the claim's devices to be told of")
    (device,) = claim_of(name)["status"]["devices"]

    assert device["networkData"]["interfaceName"] == "net1"
    assert device["networkData"]["ips"] == [address]
    assert "hardwareAddress" not in device["networkData"]  # a simulated netdev has none
    assert [(one["type"], one["status"]) for one in device["conditions"]] == [("Ready", "True")]


def test_page_shows_what_the_api_server_has(dra: ClusterNode) -> None:
    expected, in_claim = shown()
    dra.kubectl.apply(
        template(
            "shown", [request("vf", selector=f'device.attributes["resource.kubernetes.io"].pciBusID == "{FIRST}"')]
        ),
        pod_with_claim("shown", of_template="shown"),
    )
    dra.wait_until_ready("shown")
    wait_until(lambda: bool(claim_of("shown")["status"].get("devices")), SECONDS, "the claim's devices to be told of")
    (told,) = claim_of("shown")["status"]["devices"]

    assert expected in devices(NODE)
    for either in (told, in_claim):
        either["networkData"].pop("ips")
        either["conditions"][0].pop("lastTransitionTime")
    assert told == in_claim


def test_second_pod_of_one_claim_is_refused_in_words(dra: ClusterNode) -> None:
    dra.kubectl.apply(claim("shared", [request("rail")]), pod_with_claim("first", claim_name="shared"))
    dra.wait_until_ready("first")
    dra.create(pod_with_claim("second", claim_name="shared"))
    words = dra.wait_for_event("second", "claim default/shared")

    assert "one pod at a time" in words
    assert "net1" in dra.addresses("first")
    dra.delete("first")
    dra.wait_until_ready("second")
    assert "net1" in dra.addresses("second")


def test_pods_keep_their_rails_over_restarts_of_daemon_and_kubelet(dra: ClusterNode) -> None:
    one = dra.run("one", 2)
    before = vfs(dra, one)
    dra.railnet.restart()
    dra.railnet.roll_out()
    late = dra.run("late", 1)
    dra.restart_kubelet()
    wait_until(lambda: untainted(NODE) == ALL, SECONDS, "the slices to be written again")
    last = dra.run("last", 1)

    assert vfs(dra, one) == before
    assert len(before | vfs(dra, late) | vfs(dra, last)) == 4


def test_pods_that_start_while_the_daemon_is_replaced_get_their_rails(dra: ClusterNode) -> None:
    names = [dra.bring("early", 1)]
    dra.railnet.restart()
    names += [dra.bring("during", 1) for _ in range(4)]
    dra.railnet.roll_out()
    dra.wait_until_ready(*names)

    assert all("net1" in dra.addresses(name) for name in names)
    assert len(set().union(*(vfs(dra, name) for name in names))) == len(names)


def test_unhealthy_vfs_are_tainted_until_their_rail_is_back(dra: ClusterNode) -> None:
    dra.set_port(1, active=False)
    try:
        wait_until(lambda: untainted(NODE) == VFS, SECONDS, "the devices of the rail to be tainted")
        tainted = [device for device in devices(NODE) if device.get("taints")]
        waiting = dra.bring("waiting", ALL)
        dra.wait_for_event(waiting, "cannot allocate all claims")
    finally:
        dra.set_port(1, active=True)
    dra.wait_until_ready(waiting)

    assert {device["attributes"]["rail"]["int"] for device in tainted} == {1}
    assert all(taint["effect"] == "NoSchedule" for device in tainted for taint in device["taints"])
    assert untainted(NODE) == ALL


def test_one_manifest_runs_on_nodes_of_either_way(dra: ClusterNode) -> None:
    dra.kubectl.run("label", "node", *dra.others, f"{WAY}=old")
    try:
        with dra.all_nodes():
            names = []
            for where in dra.nodes():
                described = pod(f"on-{where}", 1)
                described["spec"]["nodeSelector"] = {"kubernetes.io/hostname": where}
                dra.create(described)
                names.append(described["metadata"]["name"])
            dra.wait_until_ready(*names)

            assert all("net1" in dra.addresses(name) for name in names)
            assert len(claims()) == 1
            dra.delete(*names)
    finally:
        dra.kubectl.run("label", "node", *dra.others, f"{WAY}-")
