"""Decides what a container gets with its VFs: device nodes and environment.

Pure. Kubelet asks before the pod's sandbox exists, and keeps the answer for the pod's life. So the answer contains only facts that stay
true after the VF is attached: the RDMA device's name and character devices, which do not change in shared RDMA netns mode. Not here:
sending the answer to kubelet (`deviceplugin.service`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

from deviceplugin.devices import OfferedVf
from deviceplugin.pool_selection import Pool
from railnet.errors import NotOurs, NotReady, Unusable
from railnet.vf.inventory import RdmaDevice
from railnet.vf.pci_address import PciAddress

# The container runtime resolves this path on the host, so the daemon's own view of /dev does not matter.
_FOLDER = PurePosixPath("/dev/infiniband")
_RDMA_CM = str(_FOLDER / "rdma_cm")
# A refusal's text is a header of HTTP/2, of which gRPC takes 8 KiB: a longer one becomes RESOURCE_EXHAUSTED, without a reason.
_NAMED_IDS = 3
_ID_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class Allocation:
    """One container gets this: device nodes, at the same path on the host and in the container, and environment variables."""

    device_nodes: tuple[str, ...]
    envs: dict[str, str]


class PoolOffer(NamedTuple):
    """What a pool offers now.

    Attributes:
        offered: the pool's VFs in (rail, PCI address) order.
        known: the RDMA device that each VF had last, with its uverbs device, for a VF that shows none now. ADD checks that the VF has
            the same again (`cni.stale_allocate_response_check`).
    """

    pool: Pool
    offered: Sequence[OfferedVf]
    known: Mapping[PciAddress, RdmaDevice]


def allocate(
    pool: Pool, offered: Sequence[OfferedVf], ids: Sequence[str], known: Mapping[PciAddress, RdmaDevice]
) -> Allocation:
    """Return the allocation of one container, with VFs of one pool; `allocate_from` says the rest.

    Args:
        pool: the pool that kubelet allocates from.
        offered: as in `PoolOffer`; the allocation keeps that order.
        ids: the device ids that kubelet chose, in any order.
        known: as in `PoolOffer`.
    """
    return allocate_from([(PoolOffer(pool, offered, known), ids)])


def allocate_from(chosen: Sequence[tuple[PoolOffer, Sequence[str]]]) -> Allocation:
    """Return what a container gets with VFs of several pools: device ids of each pool, in any order. The VFs are in the order of their rails.

    A VF that has become unhealthy since it was chosen is allocated all the same, unless the reason lasts: kubelet never repeats an
    Allocate that was refused, but it repeats an ADD.

    Raises:
        NotOurs: an id does not belong to its pool.
        Unusable: a VF cannot serve a pod until an operator acts.
        NotReady: a VF has no RDMA device, and none was ever seen.
    """
    envs: dict[str, str] = {}
    devices: list[tuple[OfferedVf, Pool, RdmaDevice]] = []
    for offer, ids in chosen:
        rdma = _rdma_devices(offer, ids)
        envs |= _pci_environment(offer.pool, {vf.id: device for vf, device in rdma})
        devices += [(vf, offer.pool, device) for vf, device in rdma if device is not None]
    if not any(offer.pool.rdma for offer, _ in chosen):
        return Allocation((), envs)
    devices.sort(key=lambda device: (device[0].rail is None, device[0].rail or 0))
    nodes = [node for _, pool, device in devices for node in _nodes(pool, device).values()]
    rails = [(device, vf.rail if pool.nccl_rails else None) for vf, pool, device in devices]
    return Allocation((*nodes, _RDMA_CM), envs | _rdma_environment(rails))


def _rdma_devices(offer: PoolOffer, ids: Sequence[str]) -> list[tuple[OfferedVf, RdmaDevice | None]]:
    """Return the chosen VFs, each with its RDMA device; None in a pool without RDMA."""
    pool = offer.pool
    return [
        (vf, _rdma_device(pool, vf, offer.known) if pool.rdma else None) for vf in _chosen(pool, offer.offered, ids)
    ]


def environment_name(resource: str) -> str:
    """Return the variable's name for a resource: as in sriov-network-device-plugin, but only with characters that a shell permits."""
    return "PCIDEVICE_" + resource.upper().translate(str.maketrans("/.-", "___"))


def _chosen(pool: Pool, offered: Sequence[OfferedVf], ids: Sequence[str]) -> list[OfferedVf]:
    wanted = frozenset(ids)
    chosen = [offer for offer in offered if offer.id in wanted]
    unknown = wanted.difference(offer.id for offer in chosen)
    if unknown:
        raise NotOurs(f"{pool.resource} has no device {_listed(unknown)} on this node")
    for offer in chosen:
        if offer.lasting is not None:
            raise Unusable(f"device {offer.id} of {pool.resource} is unhealthy: {offer.lasting}")
    return chosen


def _listed(ids: frozenset[str]) -> str:
    """Name some ids, and say how many others there are."""
    named = [id_[:_ID_CHARACTERS] for id_ in sorted(ids)[:_NAMED_IDS]]
    return ", ".join(named) + (f" and {len(ids) - len(named)} more" if len(ids) > len(named) else "")


def _rdma_device(pool: Pool, offer: OfferedVf, known: Mapping[PciAddress, RdmaDevice]) -> RdmaDevice:
    shown = offer.vf.rdma
    device = shown if shown is not None and shown.uverbs is not None else known.get(offer.vf.address)
    if device is None:
        raise NotReady(
            f"device {offer.id} of {pool.resource} has had no RDMA device since the daemon's start: "
            f"{offer.reason or 'it is in a network namespace that does not share it'}"
        )
    return device


def _nodes(pool: Pool, device: RdmaDevice) -> dict[str, str]:
    present = {"uverbs": device.uverbs}
    if pool.management:
        present |= {"umad": device.umad, "issm": device.issm}
    return {kind: str(_FOLDER / node.name) for kind, node in present.items() if node is not None}


def _pci_environment(pool: Pool, rdma: dict[str, RdmaDevice | None]) -> dict[str, str]:
    """Return the variables with PCI addresses, and details in the form of sriov-network-device-plugin (pkg/resources/pool_stub.go)."""
    name = environment_name(pool.resource)
    details = {address: _details(pool, address, device) for address, device in rdma.items()}
    return {name: ",".join(rdma), f"{name}_INFO": json.dumps(details, separators=(",", ":"))}


def _details(pool: Pool, address: str, device: RdmaDevice | None) -> dict[str, dict[str, str]]:
    generic = {"generic": {"deviceID": address}}
    if device is None:
        return generic
    return generic | {"rdma": _nodes(pool, device) | {"rdma_cm": _RDMA_CM, "rdma_dev": device.name}}


def _rdma_environment(devices: Sequence[tuple[RdmaDevice, int | None]]) -> dict[str, str]:
    """Return the variables that name the data ports of the devices for NCCL and UCX, which otherwise try every HCA of the host (NVIDIA/nccl#1422).

    NCCL takes a value that begins with "=" as exact names; without it `mlx5_1` would also mean `mlx5_10`. NCCL_IB_GID_INDEX is not set: on
    InfiniBand it means nothing, and on RoCE NCCL chooses the GID by itself since 2.21. NCCL reads a rail after the port since 2.30.7, and
    older versions skip it (docs/decisions/0059).

    Args:
        devices: each device, and its rail; None: the rail is not said.
    """
    ports = [(f"{device.name}:{port}", rail) for device, rail in devices for port in _data_ports(device)]
    hcas = ",".join(port if rail is None else f"{port}:{rail}" for port, rail in ports)
    return {"NCCL_IB_HCA": f"={hcas}", "UCX_NET_DEVICES": ",".join(port for port, _ in ports)}


def _data_ports(device: RdmaDevice) -> tuple[int, ...]:
    """Return the ports that a program may use. Of several ports of which none is ACTIVE yet, any may be: both libraries leave out the others."""
    known = not device.has_planes or (device.port is not None and device.port.is_active)
    return device.data_ports if known else device.port_numbers
