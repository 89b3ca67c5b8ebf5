"""What a claim's status says of its devices, and the patch that writes it."""

from datetime import UTC, datetime
from ipaddress import ip_interface

from railnet.apiserver.claim_status import ClaimStatus, of_devices
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.pci_address import PciAddress
from tests.railnet.vf.builders import an_attachment

NOON = datetime(2026, 11, 27, 12, 0, 0, 500_000, tzinfo=UTC)
IPOIB = "00:00:01:07:fe:80:00:00:00:00:00:00:ba:59:9f:03:01:f9:8f:86"
NET1 = an_attachment(vf=PciAddress.parse("0000:03:00.1"), addresses=(ip_interface("10.56.3.1/16"),), rail=0)


def test_device_has_interface_addresses_and_hardware_address() -> None:
    (device,) = of_devices(DRIVER, "node-a", [NET1], {"net1": IPOIB}, NOON)

    assert device == {
        "driver": "rdma.railnet.io",
        "pool": "node-a",
        "device": "pci-0000-03-00-1",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Attached",
                "message": "VF 0000:03:00.1 of rail 0 is in the pod as net1",
                "lastTransitionTime": "2026-11-27T12:00:00Z",
            }
        ],
        "networkData": {"interfaceName": "net1", "ips": ["10.56.3.1/16"], "hardwareAddress": IPOIB},
    }


def test_hardware_address_that_is_not_known_is_left_out() -> None:
    (device,) = of_devices(DRIVER, "node-a", [NET1], {}, NOON)

    assert "hardwareAddress" not in device["networkData"]


def test_addresses_beyond_what_the_api_takes_are_left_out() -> None:
    many = an_attachment(addresses=tuple(ip_interface(f"10.56.3.{number}/16") for number in range(1, 21)))

    (device,) = of_devices(DRIVER, "node-a", [many], {}, NOON)

    assert device["networkData"]["ips"] == [f"10.56.3.{number}/16" for number in range(1, 17)]


def test_status_is_applied_to_the_claim_of_this_uid_alone() -> None:
    (request,) = ClaimStatus(DRIVER, "ml", "train-0-vf", "uid-7", lambda: [{"device": "pci-0000-03-00-1"}]).requests()

    assert request.path == (
        "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/train-0-vf/status?fieldManager=rdma.railnet.io&force=true"
    )
    assert (request.verb.method, request.content_type) == ("PATCH", "application/apply-patch+yaml")
    assert request.body == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "train-0-vf", "namespace": "ml", "uid": "uid-7"},
        "status": {"devices": [{"device": "pci-0000-03-00-1"}]},
    }
