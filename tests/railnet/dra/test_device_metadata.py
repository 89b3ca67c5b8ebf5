"""The file by which a container learns of its claim's devices."""

import json
from typing import Any

import pytest

from railnet.dra.device_metadata import container_path, encode
from railnet.dra.devices import DraDevice
from railnet.dra.prepared_claim import PreparedClaim
from tests.railnet.dra.claims import FIRST, IDENTITY, NODE, SECOND, a_prepared_claim, a_request

KNOWN = {FIRST: DraDevice(FIRST, 0, (("mtu", 4092), ("rail", 0), ("rate", "400"), ("rdma", True)))}
NETWORK = {FIRST: {"interfaceName": "net1", "ips": ["10.56.3.1/16"]}}
OF_TEMPLATE = PreparedClaim(IDENTITY, NODE, (a_request(),), "rails")


def objects(content: bytes) -> list[Any]:
    """Read a stream of JSON objects as a program in the container does."""
    text, found, decoder = content.decode(), [], json.JSONDecoder()
    while text.strip():
        read, end = decoder.raw_decode(text)
        found.append(read)
        text = text[end:].lstrip()
    return found


def test_file_has_the_same_object_in_each_version_newest_first() -> None:
    claim = a_prepared_claim(a_request("vf", FIRST, SECOND))
    newest, older = objects(encode(claim, claim.requests[0], KNOWN, NETWORK))

    assert newest == {
        "kind": "DeviceMetadata",
        "apiVersion": "metadata.resource.k8s.io/v1beta1",
        "metadata": {"name": "train-vf", "namespace": "ml", "uid": "a1b2", "generation": 2},
        "requests": [
            {
                "name": "vf",
                "devices": [
                    {
                        "driver": "rdma.railnet.io",
                        "pool": "node-a",
                        "name": "pci-0000-03-00-1",
                        "attributes": {
                            "mtu": {"int": 4092},
                            "rail": {"int": 0},
                            "rate": {"string": "400"},
                            "rdma": {"bool": True},
                        },
                        "networkData": {"interfaceName": "net1", "ips": ["10.56.3.1/16"]},
                    },
                    {"driver": "rdma.railnet.io", "pool": "node-a", "name": "pci-0000-03-00-2"},
                ],
            }
        ],
    }
    assert older == {**newest, "apiVersion": "metadata.resource.k8s.io/v1alpha1"}


def test_claim_that_is_prepared_only_has_no_network() -> None:
    claim = a_prepared_claim()
    newest, _ = objects(encode(claim, claim.requests[0], KNOWN, {}))

    assert newest["metadata"]["generation"] == 1
    assert "networkData" not in newest["requests"][0]["devices"][0]


@pytest.mark.parametrize(
    ("claim", "path"),
    [(a_prepared_claim(), "resourceclaims/train-vf"), (OF_TEMPLATE, "resourceclaimtemplates/rails")],
)
def test_pods_author_knows_the_path(claim: PreparedClaim, path: str) -> None:
    folder = "/var/run/kubernetes.io/dra-device-attributes"
    assert container_path(claim, "vf") == f"{folder}/{path}/vf/rdma.railnet.io-metadata.json"


def test_claim_of_a_template_names_what_its_pod_calls_it() -> None:
    newest, _ = objects(encode(OF_TEMPLATE, OF_TEMPLATE.requests[0], {}, {}))

    assert newest["podClaimName"] == "rails"
