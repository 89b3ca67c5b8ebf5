"""Decides whether a claim may be prepared, and what its containers get. Pure.

The scheduler may be wrong, after a restore of etcd or a forced deletion: a driver is the last that can refuse a device that another pod has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from deviceplugin.allocation import Allocation, PoolOffer, allocate_from
from railnet.dra.claim import AllocatedClaim, AllocatedRequest
from railnet.dra.prepared_claim import PreparedClaim, PreparedRequest
from railnet.errors import NotOurs, NotReady
from railnet.kubelet.dra_driver_name import DRIVER
from railnet.vf.dra_device_name import device_name
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import Owner


class Uses(NamedTuple):
    """What is known of the VFs that are given away.

    Attributes:
        by_claims: the other claim that has a VF, in words.
        by_pods: the UID of the pod to which kubelet's device checkpoint gives a VF.
        attached: returns the sandbox that a VF is attached to.
    """

    by_claims: Mapping[PciAddress, str]
    by_pods: Mapping[PciAddress, str]
    attached: Callable[[PciAddress], Owner | None]


def prepare(claim: AllocatedClaim, pool: str, offers: Sequence[PoolOffer], uses: Uses) -> PreparedClaim:
    """Return what is recorded, and answered to kubelet. `pool` is the node's pool of DRA, and `offers` are its pools of VFs.

    Raises:
        NotReady: another pod or claim has a VF; or as `allocate_from`.
        NotOurs: the node does not offer a VF. Unusable: as `allocate_from`.
    """
    _refuse_used(claim, uses)
    requests = tuple(
        PreparedRequest(request.name, request.vfs, _of_request(claim, request, offers)) for request in claim.requests
    )
    return PreparedClaim(claim.identity, pool, requests, claim.pod_claim)


def _refuse_used(claim: AllocatedClaim, uses: Uses) -> None:
    for vf in claim.vfs:
        owner = uses.attached(vf)
        user = uses.by_claims.get(vf)
        if user is None and (pod := uses.by_pods.get(vf)) is not None:
            user = f"kubelet's device checkpoint gives it to pod {pod}"
        if user is None and owner is not None and owner.pod_uid not in claim.pod_uids:
            user = f"it is attached to sandbox {owner.container_id} of pod {owner.pod_uid or 'with an unknown UID'}"
        if user is not None:
            raise NotReady(
                f"{claim.identity} has device {device_name(vf)}, which is not free: {user}; kubelet tries again, and the claim is prepared "
                "when the device is free"
            )


def _of_request(claim: AllocatedClaim, request: AllocatedRequest, offers: Sequence[PoolOffer]) -> Allocation:
    """Return what a container that names a request gets: the device nodes of the request's VFs, and variables that list more VFs.

    The runtime lets the last value of a variable win, so a container with two requests gets the variables of one of them. NCCL and UCX pass
    over a device that the container does not have.
    """
    own = _allocation(claim, request.vfs, offers)
    return replace(own, envs=_allocation(claim, claim.vfs_beside(request), offers).envs)


def _allocation(claim: AllocatedClaim, vfs: Iterable[PciAddress], offers: Sequence[PoolOffer]) -> Allocation:
    wanted = {str(vf): vf for vf in vfs}
    chosen = []
    for offer in offers:
        ids = [vf.id for vf in offer.offered if vf.id in wanted]
        if ids:
            chosen.append((offer, ids))
        for id_ in ids:
            del wanted[id_]
    if wanted:
        missing = ", ".join(device_name(vf) for vf in wanted.values())
        raise NotOurs(f"{claim.identity} has device {missing}, which {DRIVER} does not offer on this node now")
    return allocate_from(chosen)
