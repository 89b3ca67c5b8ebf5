"""What a ResourceClaim gives to this node, and why a claim is refused."""

from typing import Any

import pytest

from railnet.dra.claim import AllocatedRequest, ClaimIdentity, read
from railnet.errors import NotOurs, NotReady
from railnet.kubelet.dra_driver_name import DRIVER
from tests.railnet.dra.claims import FIRST, IDENTITY, NODE, SECOND, THIRD, a_claim_object, a_result


def test_vfs_are_sorted_by_request() -> None:
    document = a_claim_object(
        a_result("pci-0000-83-00-1", "second/fast"),
        {"request": "gpu", "driver": "gpu.example.com", "pool": NODE, "device": "gpu-0"},
        a_result("pci-0000-03-00-2"),
        a_result("pci-0000-03-00-1"),
        pods=("uid-1", "uid-2"),
    )

    claim = read(document, IDENTITY, NODE)

    assert claim.requests == (AllocatedRequest("second", (THIRD,)), AllocatedRequest("vf", (FIRST, SECOND)))
    assert (claim.vfs, claim.pod_uids) == ((THIRD, FIRST, SECOND), {"uid-1", "uid-2"})


@pytest.mark.parametrize(
    ("annotation", "expected"), [("rails", "rails"), ("../../etc", ""), ("", ""), (7, ""), ("x" * 64, "")]
)
def test_claim_of_a_template_has_the_name_that_its_pod_gives_it(annotation: Any, expected: str) -> None:
    document = a_claim_object(annotations={"resource.kubernetes.io/pod-claim-name": annotation})

    assert read(document, IDENTITY, NODE).pod_claim == expected


@pytest.mark.parametrize("request_name", ["..", "A", ".", "a.b", "/a"])
def test_request_whose_name_is_no_label_is_refused(request_name: str) -> None:
    with pytest.raises(NotOurs, match="which is no name of Kubernetes"):
        read(a_claim_object(a_result(request=request_name)), IDENTITY, NODE)


def test_claim_may_be_reserved_for_what_is_no_pod() -> None:
    document = a_claim_object()
    document["status"]["reservedFor"] = [{"resource": "podgroups", "name": "g", "uid": "uid-9"}]

    assert read(document, IDENTITY, NODE).pod_uids == frozenset()


@pytest.mark.parametrize(("annotation", "expected"), [("true", True), ("false", False)])
def test_claim_for_limits_is_known_by_its_annotation(annotation: str, expected: bool) -> None:
    document = a_claim_object(annotations={"resource.kubernetes.io/extended-resource-claim": annotation})

    assert read(document, IDENTITY, NODE).of_limits is expected


@pytest.mark.parametrize(
    "config",
    [
        [],
        [{"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": {"sharing": "mps"}}}],
        [{"source": "FromClass", "opaque": {"driver": DRIVER, "parameters": {}}}, {"source": "FromClass"}],
    ],
    ids=["none", "another driver", "empty"],
)
def test_claim_without_parameters_for_this_driver_is_read(config: list[dict[str, Any]]) -> None:
    assert read(a_claim_object(config=config), IDENTITY, NODE).vfs == (FIRST,)


@pytest.mark.parametrize(
    ("parameters", "source", "words"),
    [
        (
            {"mtu": 9000, "apiVersion": "v1"},
            "FromClaim",
            "the parameters that the claim has .* not known: apiVersion, mtu",
        ),
        ({"mtu": 9000}, "FromClass", "remove opaque.parameters from its DeviceClass"),
        ("mtu", "FromClaim", "not known: no object"),
    ],
)
def test_unknown_parameters_are_refused_by_their_keys(parameters: object, source: str, words: str) -> None:
    config = [{"source": source, "requests": ["vf"], "opaque": {"driver": DRIVER, "parameters": parameters}}]

    with pytest.raises(NotOurs, match=words):
        read(a_claim_object(config=config), IDENTITY, NODE)


def without(*keys: str) -> dict[str, Any]:
    document: dict[str, Any] = a_claim_object()
    part = document
    for key in keys[:-1]:
        part = part[key]
    del part[keys[-1]]
    return document


REFUSED = {
    "another UID": (
        a_claim_object(uid="c3d4"),
        NotReady,
        "has the UID c3d4 in the API server, and kubelet asks for a1b2",
    ),
    "not allocated": (without("status", "allocation"), NotReady, "is not allocated"),
    "no status": (without("status"), NotReady, "is not allocated"),
    "reserved for no pod": (a_claim_object(pods=()), NotReady, "is reserved for no pod"),
    "no device of ours": (
        a_claim_object(a_result(driver="gpu.example.com")),
        NotOurs,
        "has no device of rdma.railnet.io",
    ),
    "another pool": (
        a_claim_object(a_result(pool="node-b")),
        NotOurs,
        "a device of pool node-b, and this node's pool is node-a",
    ),
    "another driver's name": (a_claim_object(a_result("gpu-0")), NotOurs, "'gpu-0' is not the name of a VF's device"),
    "a VF twice": (a_claim_object(a_result(), a_result(request="b")), NotOurs, "has VF 0000:03:00.1 twice"),
    "adminAccess": (a_claim_object(a_result(adminAccess=True)), NotOurs, "adminAccess"),
    "a share": (a_claim_object(a_result(shareID="x")), NotOurs, "a share of a device"),
    "no request": (a_claim_object(a_result(request=None)), NotOurs, "is not understood: TypeError"),
    "no pool": (a_claim_object({"driver": DRIVER}), NotOurs, "is not understood: KeyError"),
    "a list": ({"metadata": [], "status": {}}, NotOurs, "is not understood: TypeError"),
    "no metadata": ({}, NotOurs, "is not understood: KeyError: 'metadata'"),
}


@pytest.mark.parametrize(("document", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_claim_is_refused_in_words(document: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as raised:
        read(document, IDENTITY, NODE)

    assert str(raised.value).startswith("claim ml/train-vf")


def test_identity_names_the_claim() -> None:
    assert str(ClaimIdentity("ml", "train", "u")) == "claim ml/train"
