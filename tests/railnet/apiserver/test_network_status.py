"""The annotation as the Network Plumbing Working Group has it, and the patch that writes it."""

import json
from ipaddress import ip_interface

import pytest

from railnet.apiserver.network_status import NetworkStatus, of_pod
from railnet.objects.network_status import ANNOTATION
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import SandboxPod
from tests.railnet.vf.builders import a_record, an_attachment

POD = SandboxPod("ml", "train-0", "uid-1")
PRIMARY = {"conf": {"name": "cbr0"}, "runtimeConfig": {}}
FLANNEL = {
    "cniVersion": "0.3.1",
    "interfaces": [
        {"name": "cni0", "mac": "5e:c3:c4:fd:1c:3b"},
        {"name": "veth1", "mac": "ca:4c:06:5f:12:b4"},
        {"name": "eth0", "mac": "0a:58:0a:f4:03:07", "sandbox": "/run/netns/cni-1"},
    ],
    "ips": [{"version": "4", "interface": 2, "address": "10.244.3.7/24", "gateway": "10.244.3.1"}],
    "routes": [{"dst": "10.244.0.0/16"}, {"dst": "0.0.0.0/0", "gw": "10.244.3.1"}],
    "dns": {"nameservers": ["10.96.0.10"]},
}
IPOIB = "00:00:01:07:fe:80:00:00:00:00:00:00:ba:59:9f:03:01:f9:8f:86"


def elements(result: object, *attachments, macs=None):
    record = a_record(*attachments, primary=PRIMARY, network="default")
    return of_pod(record, json.dumps(result).encode(), macs or {})


def test_eth0_is_the_default_network_by_the_primarys_own_words() -> None:
    assert elements(FLANNEL) == [
        {
            "name": "cbr0",
            "interface": "eth0",
            "ips": ["10.244.3.7"],
            "mac": "0a:58:0a:f4:03:07",
            "default": True,
            "dns": {"nameservers": ["10.96.0.10"]},
            "gateway": ["10.244.3.1"],
        }
    ]


def test_rails_follow_with_their_devices() -> None:
    first = an_attachment()
    second = an_attachment(
        ifname="net2", vf=PciAddress.parse("0000:13:00.1"), rail=3, addresses=(), rdma=None, uverbs=None
    )

    _, net1, net2 = elements(FLANNEL, first, second, macs={"net1": IPOIB})

    assert net1 == {
        "name": "railnet/default",
        "interface": "net1",
        "ips": ["10.56.3.1"],
        "mac": IPOIB,
        "mtu": 4092,
        "dns": {},
        "device-info": {
            "type": "pci",
            "version": "1.1.0",
            "pci": {"pci-address": "0000:03:00.1", "rdma-device": "mlx5_4"},
        },
        "rail": 0,
    }
    assert (net2["interface"], net2["rail"], net2["ips"], "mac" in net2) == ("net2", 3, [], False)
    assert net2["device-info"]["pci"] == {"pci-address": "0000:13:00.1"}


def test_both_families_of_a_rail_are_listed_without_their_prefixes() -> None:
    addresses = (ip_interface("10.56.3.1/16"), ip_interface("fd56::1/64"))

    _, net1 = elements(FLANNEL, an_attachment(addresses=addresses))

    assert net1["ips"] == ["10.56.3.1", "fd56::1"]


def test_newer_results_tell_the_mtu_and_addresses_without_an_interface_are_the_pods() -> None:
    interface = {"name": "eth0", "mac": "0a:58:0a:f4:03:07", "mtu": 1450, "sandbox": "/run/netns/cni-1"}
    (eth0,) = elements({"interfaces": [interface], "ips": [{"address": "fd00::7/64"}]})

    assert (eth0["mtu"], eth0["ips"], eth0["dns"]) == (1450, ["fd00::7"], {})


def test_addresses_of_other_interfaces_are_not_the_pods() -> None:
    on_bridge = {
        **FLANNEL,
        "ips": [{"interface": 0, "address": "10.244.3.1/24"}, {"interface": 2, "address": "10.244.3.7/24"}],
    }

    assert elements(on_bridge)[0]["ips"] == ["10.244.3.7"]


def test_result_with_nothing_but_a_version_is_an_interface_without_facts() -> None:
    assert elements({"cniVersion": "1.0.0"}) == [{"name": "cbr0", "interface": "eth0", "default": True, "dns": {}}]


@pytest.mark.parametrize("result", [[], "text", {"ips": [7]}, {"interfaces": [{}]}, {"ips": [{}]}, {"routes": [{}]}])
def test_text_that_is_no_cni_result_is_refused_with_the_reason(result: object) -> None:
    with pytest.raises(ValueError, match="the primary network's result cannot be read"):
        elements(result)


def test_patch_is_for_this_pod_and_not_for_another_of_its_name() -> None:
    (request,) = NetworkStatus(POD, static=False, elements=lambda: [{"interface": "net1"}]).requests()

    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/ml/pods/train-0/status")
    assert request.content_type == "application/merge-patch+json"
    metadata = request.body["metadata"]
    assert metadata["uid"] == "uid-1"
    assert {key: json.loads(text) for key, text in metadata["annotations"].items()} == {
        "k8s.v1.cni.cncf.io/network-status": [{"interface": "net1"}]
    }


def test_static_pod_is_identified_by_the_hash_in_its_mirrors_annotation() -> None:
    (request,) = NetworkStatus(POD, static=True, elements=list).requests()

    assert (request.path, request.content_type) == (
        "/api/v1/namespaces/ml/pods/train-0/status",
        "application/json-patch+json",
    )
    assert request.body == [
        {"op": "test", "path": "/metadata/annotations/kubernetes.io~1config.mirror", "value": "uid-1"},
        {"op": "add", "path": "/metadata/annotations/k8s.v1.cni.cncf.io~1network-status", "value": "[]"},
    ]


def test_newer_status_replaces_the_older_one_of_the_same_pod_only() -> None:
    one, again, other = (
        NetworkStatus(pod, static=False, elements=list) for pod in (POD, POD, POD._replace(uid="uid-2"))
    )

    assert one.key == again.key != other.key
    assert ANNOTATION in str(one.requests()[0].body)
