"""ResourceClaims as the API server has them, and prepared claims, built from the facts that a test sets."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deviceplugin.allocation import Allocation
from railnet.dra.claim import ClaimIdentity
from railnet.dra.prepared_claim import PreparedClaim, PreparedRequest
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.pci_address import PciAddress

NODE = "node-a"
METADATA = Path("/run/railnet/device-metadata")
IDENTITY = ClaimIdentity("ml", "train-vf", "a1b2")
FIRST, SECOND, THIRD = (PciAddress.parse(text) for text in ("0000:03:00.1", "0000:03:00.2", "0000:83:00.1"))


def a_result(device: str = "pci-0000-03-00-1", request: str = "vf", **changes: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": NODE, "device": device, **changes}


def a_claim_object(
    *results: dict[str, Any],
    uid: str = IDENTITY.uid,
    pods: Iterable[str] = ("uid-1",),
    config: Iterable[dict[str, Any]] = (),
    name: str = IDENTITY.name,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Return a claim; without results it has one VF."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": IDENTITY.namespace, "name": name, "uid": uid, "annotations": annotations},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": list(results or (a_result(),)), "config": list(config)}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{uid}", "uid": uid} for uid in pods],
        },
    }


def a_request(name: str = "vf", *vfs: PciAddress) -> PreparedRequest:
    envs = {"NCCL_IB_HCA": f"={name}", "UCX_NET_DEVICES": name}
    return PreparedRequest(name, vfs or (FIRST,), Allocation(("/dev/infiniband/uverbs1",), envs))


def a_prepared_claim(*requests: PreparedRequest, identity: ClaimIdentity = IDENTITY) -> PreparedClaim:
    """Return a claim; without requests it has one VF."""
    return PreparedClaim(identity, NODE, requests or (a_request(),))
