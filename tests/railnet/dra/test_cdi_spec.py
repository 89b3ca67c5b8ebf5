"""The CDI specification of a claim: one device for each request."""

import json

import pytest

from deviceplugin.allocation import Allocation
from railnet.dra import cdi_spec
from railnet.dra.prepared_claim import PreparedRequest
from tests.railnet.dra.claims import FIRST, METADATA, a_prepared_claim, a_request

MOUNT = {
    "hostPath": "/run/railnet/device-metadata/a1b2/vf.json",
    "containerPath": "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/train-vf/vf/rdma.railnet.io-metadata.json",
    "options": ["ro", "bind"],
}


def test_request_has_one_device_with_all_that_its_vfs_need() -> None:
    assert json.loads(cdi_spec.encode(a_prepared_claim(), METADATA)) == {
        "cdiVersion": "0.5.0",
        "kind": "rdma.railnet.io/claim",
        "devices": [
            {
                "name": "a1b2-vf",
                "containerEdits": {
                    "env": ["NCCL_IB_HCA==vf", "UCX_NET_DEVICES=vf"],
                    "mounts": [MOUNT],
                    "deviceNodes": [{"path": "/dev/infiniband/uverbs1", "permissions": "rw"}],
                },
            }
        ],
    }


def test_each_request_has_a_device() -> None:
    spec = json.loads(cdi_spec.encode(a_prepared_claim(a_request("a"), a_request("b")), METADATA))

    assert [device["name"] for device in spec["devices"]] == ["a1b2-a", "a1b2-b"]


def test_pool_without_rdma_has_no_device_nodes() -> None:
    request = PreparedRequest("vf", (FIRST,), Allocation((), {"PCIDEVICE_X": "0000:03:00.1"}))

    (device,) = json.loads(cdi_spec.encode(a_prepared_claim(request), METADATA))["devices"]

    assert device["containerEdits"] == {"env": ["PCIDEVICE_X=0000:03:00.1"], "mounts": [MOUNT]}


def test_ids_name_the_devices_of_the_file() -> None:
    assert cdi_spec.device_of_request("a1b2", "vf") == "rdma.railnet.io/claim=a1b2-vf"


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        (cdi_spec.file_name("a1b2"), "a1b2"),
        (f".{cdi_spec.file_name('a1b2')}.17.0", "a1b2"),
        ("rdma.railnet.io-claim_", ""),
        ("nvidia.yaml", None),
        (".nvidia.json.1", None),
    ],
)
def test_file_names_its_claim(name: str, uid: str | None) -> None:
    assert cdi_spec.uid_of(name) == uid
