"""What a container learns of the devices of its claim by a file (KEP-5304): their attributes, and as what they are in the pod. Pure.

Programs that were written for it find the file by the names in the pod's specification, and choose the first version that they know.

Source: k8s.io/dynamic-resource-allocation v0.37.2, api/metadata (doc.go, types.go, helpers.go), kubeletplugin/metadata.go.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from railnet.dra.devices import DraDevice, attributes_object
from railnet.dra.prepared_claim import PreparedClaim, PreparedRequest
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.dra_device_name import device_name
from railnet.vf.pci_address import PciAddress

_VERSIONS = ("v1beta1", "v1alpha1")  # newest first; the same fields
_GROUP, _KIND = "metadata.resource.k8s.io", "DeviceMetadata"
_FOLDER = "/var/run/kubernetes.io/dra-device-attributes"
_FIRST, _WITH_NETWORK = 1, 2  # generations: as prepared, and as attached

NetworkData = Mapping[PciAddress, Mapping[str, Any]]
"""By VF: `interfaceName`, `ips` and, if it is known, `hardwareAddress`."""


def container_path(claim: PreparedClaim, request: str) -> str:
    """Return where a container that names a request finds the file. A claim of a template has a name that no pod's author knows."""
    kind, name = (
        ("resourceclaimtemplates", claim.pod_claim) if claim.pod_claim else ("resourceclaims", claim.identity.name)
    )
    return f"{_FOLDER}/{kind}/{name}/{request}/{DRIVER}-metadata.json"


def host_path(folder: Path, uid: str, request: str) -> Path:
    """Return where the file of a claim's request is on the host, below the folder of all."""
    return folder / uid / f"{request}.json"


def encode(
    claim: PreparedClaim, request: PreparedRequest, known: Mapping[PciAddress, DraDevice], network: NetworkData
) -> bytes:
    """Return the content of a request's file: one JSON object for each version.

    Args:
        claim: the claim.
        request: one of its requests.
        known: the devices as the node's ResourceSlices have them; one that is not known has no attributes.
        network: of the VFs that are in the pod; empty until they are.
    """
    devices = [_device(claim.pool, vf, known.get(vf), network.get(vf)) for vf in request.vfs]
    identity = claim.identity
    metadata = {
        "name": identity.name,
        "namespace": identity.namespace,
        "uid": identity.uid,
        "generation": _WITH_NETWORK if network else _FIRST,
    }
    body = {
        "metadata": metadata,
        **({"podClaimName": claim.pod_claim} if claim.pod_claim else {}),
        "requests": [{"name": request.name, "devices": devices}],
    }
    objects = ({"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", **body} for version in _VERSIONS)
    return b"".join(json.dumps(each, indent=2).encode() + b"\n" for each in objects)


def _device(pool: str, vf: PciAddress, known: DraDevice | None, network: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "driver": DRIVER,
        "pool": pool,
        "name": device_name(vf),
        **({} if known is None else {"attributes": attributes_object(known)}),
        **({} if network is None else {"networkData": dict(network)}),
    }
