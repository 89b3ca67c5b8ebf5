"""What a container gets with its VFs: device nodes and environment.

Pure. The answer is made before the pod's sandbox exists, and kubelet keeps it for the pod's life: everything in it must
still be true after the VF was attached, so only the RDMA device's name and character devices are told, which do
not change in shared RDMA netns mode. Not here: telling kubelet (`deviceplugin.service`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from deviceplugin.devices import OfferedVf
from deviceplugin.pools import Pool
from vf.errors import NotOurs, NotReady, Unusable
from vf.inventory import RdmaDevice

# A path for the container runtime, which resolves it on the host; where the daemon sees /dev does not matter.
_FOLDER = PurePosixPath("/dev/infiniband")
_RDMA_CM = str(_FOLDER / "rdma_cm")


@dataclass(frozen=True, slots=True)
class Allocation:
    """One container's share: device nodes at the same path on host and in container, and environment."""

    device_nodes: tuple[str, ...]
    envs: dict[str, str]


def allocate(pool: Pool, offered: Sequence[OfferedVf], ids: Sequence[str]) -> Allocation:
    """Answer for one container.

    Args:
        pool: the pool kubelet allocates from.
        offered: what it offers now, in (rail, PCI address) order; the answer keeps that order.
        ids: the device ids kubelet chose, in any order.

    Raises:
        NotOurs: an id is not of this pool.
        Unusable: a VF is not healthy.
        NotReady: a VF's RDMA device is still with the last pod.
    """
    chosen = _chosen(pool, offered, ids)
    if not pool.rdma:
        return Allocation((), _pci_environment(pool, {offer.id: None for offer in chosen}))
    rdma = {offer.id: _rdma_device(offer) for offer in chosen}
    nodes = [node for device in rdma.values() for node in _nodes(pool, device).values()]
    envs = _pci_environment(pool, dict(rdma)) | _rdma_environment([device.name for device in rdma.values()])
    return Allocation((*nodes, _RDMA_CM), envs)


def environment_name(resource: str) -> str:
    """Spell a resource as sriov-network-device-plugin does, but with no character a shell cannot read."""
    return "PCIDEVICE_" + resource.upper().translate(str.maketrans("/.-", "___"))


def _chosen(pool: Pool, offered: Sequence[OfferedVf], ids: Sequence[str]) -> list[OfferedVf]:
    unknown = sorted(set(ids) - {offer.id for offer in offered})
    if unknown:
        raise NotOurs(f"{pool.resource} has no device {', '.join(unknown)} on this node")
    chosen = [offer for offer in offered if offer.id in ids]
    for offer in chosen:
        if offer.reason is not None:
            raise Unusable(f"device {offer.id} of {pool.resource} is unhealthy: {offer.reason}")
    return chosen


def _rdma_device(offer: OfferedVf) -> RdmaDevice:
    if offer.vf.rdma is None:
        raise NotReady(f"the RDMA device of VF {offer.id} is still in another sandbox's network namespace")
    return offer.vf.rdma


def _nodes(pool: Pool, device: RdmaDevice) -> dict[str, str]:
    present = {"uverbs": device.uverbs}
    if pool.management:
        present |= {"umad": device.umad, "issm": device.issm}
    return {kind: str(_FOLDER / node.name) for kind, node in present.items() if node is not None}


def _pci_environment(pool: Pool, rdma: dict[str, RdmaDevice | None]) -> dict[str, str]:
    """Tell the addresses, and details in the shape of sriov-network-device-plugin (pkg/resources/pool_stub.go)."""
    name = environment_name(pool.resource)
    details = {address: _details(pool, address, device) for address, device in rdma.items()}
    return {name: ",".join(rdma), f"{name}_INFO": json.dumps(details, separators=(",", ":"))}


def _details(pool: Pool, address: str, device: RdmaDevice | None) -> dict[str, dict[str, str]]:
    generic = {"generic": {"deviceID": address}}
    if device is None:
        return generic
    return generic | {"rdma": _nodes(pool, device) | {"rdma_cm": _RDMA_CM, "rdma_dev": device.name}}


def _rdma_environment(names: Sequence[str]) -> dict[str, str]:
    """Name the devices' port 1 for NCCL and UCX, which otherwise try every HCA of the host (NVIDIA/nccl#1422).

    NCCL takes a value that begins with "=" as exact names; without it `mlx5_1` would also mean `mlx5_10`.
    """
    ports = ",".join(f"{name}:1" for name in names)
    return {"NCCL_IB_HCA": f"={ports}", "UCX_NET_DEVICES": ports}
