"""The driver of DRA, composed; and what CNI ADD asks of claims.

A node offers its VFs by one of two ways (`offer` of node.yaml). The driver is registered on a node that offers them by DRA, and on any other
where claims are prepared when the daemon starts: kubelet must be able to unprepare them. After a reboot only kubelet's file names them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from cni.pod_devices import PodClaims
from deviceplugin.pool_selection import assign
from deviceplugin.registration import Plugin
from deviceplugin.service import PoolService
from railnet.apiserver.client import ApiServer
from railnet.apiserver.request import JsonObject, get
from railnet.configuration import Configuration
from railnet.daemon import allocated_vfs
from railnet.daemon.attachment_composition import NodeParts
from railnet.daemon.dra import device_metadata
from railnet.daemon.dra.resource_slices import NodeSlices
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.daemon.network_status_and_events import api_server_of_daemon, name_of_node
from railnet.dra.cdi_files import CdiFiles
from railnet.dra.claim import ClaimIdentity
from railnet.dra.device_health import DeviceHealthService
from railnet.dra.prepared_claim_files import PreparedClaims
from railnet.dra.service import DraService, NodeFacts, address_of
from railnet.errors import NotReady
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kubelet.dra_manager_state import PreparedDevices
from railnet.kubelet.dra_manager_state_file import DraManagerStateReads
from railnet.vf.dra_device_name import vf_of
from railnet.vf.pci_address import PciAddress

_log = logging.getLogger(__name__)
_BY_DEVICE_PLUGIN = (
    "this node offers its VFs by the device plugin (`offer` of node.yaml), so no new claim gets one here; the pod should be deleted, so that "
    "it is scheduled anew"
)


async def drivers(
    configuration: Configuration,
    node: NodeParts,
    kubelet: KubeletSearch,
    services: Sequence[PoolService],
    slices: NodeSlices,
    changed: Callable[[], None],
) -> list[Plugin]:
    """Return the driver, if this node needs one; files of claims that are not prepared are removed before.

    The driver also tells kubelet the health of the devices that `slices` computes. `changed` is called after a claim got VFs, or has none any more.
    """
    cdi = CdiFiles(configuration.host.root, device_metadata.FILES.folder)
    await asyncio.to_thread(_repair_device_metadata, node.claims)
    await asyncio.to_thread(cdi.sweep, node.claims.uids_on_disk)
    offers = configuration.offer == "dra"
    if not (offers or node.claims.need_the_driver or await _kubelet_names_claims(kubelet)):
        return []

    async def by_pods() -> Mapping[PciAddress, str]:
        try:
            return await slices.holders.held()
        except ValueError as error:
            raise NotReady(f"it is not known which VFs pods have by the device plugin: {error}") from None

    async def by_claims(uid: str) -> Mapping[PciAddress, str]:
        return await _by_other_claims(kubelet, uid, lambda: node.claims.need_the_driver)

    facts = NodeFacts(
        pool=name_of_node(),
        offers=lambda: [service.offer() for service in services],
        attached=node.attachments.attached,
        by_pods=by_pods,
        by_claims=by_claims,
        why_closed=None if offers else _BY_DEVICE_PLUGIN,
        devices=slices.devices,
        node_reason=lambda: next(filter(None, (service.node_reason() for service in services)), None),
    )
    health = DeviceHealthService(slices.publisher, name_of_node()) if offers else None
    return [DraService(facts, node.claims, cdi, device_metadata.FILES, _ClaimReader(), changed, health=health)]


async def _kubelet_names_claims(kubelet: KubeletSearch) -> bool:
    """Return whether kubelet's file names a claim of Railnet's driver: without the driver kubelet could never end the claim's pods."""
    try:
        return bool(await allocated_vfs.claims(kubelet, lambda: False))
    except (OSError, ValueError) as error:
        _log.warning("the driver of DRA is not registered, because no claim is recorded: %s", error)
        return False


def _repair_device_metadata(claims: PreparedClaims) -> None:
    """Remove the files of claims that are not prepared, and write those that were lost: a container could not start again without its file."""
    device_metadata.FILES.sweep(claims.uids_on_disk)
    for claim in claims.all():
        try:
            device_metadata.FILES.write(claim, {})
        except OSError as error:
            _log.error("the containers of %s cannot start again: %s", claim.identity, error)


def pod_claims(configuration: Configuration, node: NodeParts, kubelet: KubeletSearch) -> PodClaims:
    """Return what CNI ADD asks of claims."""

    def resource_of(vf: PciAddress) -> str | None:
        assigned = assign(configuration.pools, node.table.inventory)
        return next((name for name, vfs in assigned.items() if any(each.address == vf for each in vfs)), None)

    def any_recorded() -> bool:
        return node.claims.need_the_driver

    state = DraManagerStateReads(kubelet.open_dra_manager_state, read_in_time, any_recorded)
    return PodClaims(state, node.claims.allocations, resource_of, any_recorded)


async def _by_other_claims(kubelet: KubeletSearch, uid: str, any_recorded: Callable[[], bool]) -> dict[PciAddress, str]:
    """Return the VFs of the claims that kubelet has prepared, without one. Railnet's own records are the first guard, this is the second.

    Kubelet writes the file before it asks to prepare a claim, so an absent file is somewhere else.

    Raises:
        NotReady: the file is not understood or not read, and there is no record: after a reboot the file is the only guard.
    """
    try:
        claims = await allocated_vfs.claims(kubelet, lambda: True)
    except (OSError, ValueError) as error:
        if not any_recorded():
            raise NotReady(f"it is not known which VFs other claims have: {error}; kubelet tries again") from None
        _log.warning("claims are compared with Railnet's own records alone: %s", error)
        return {}
    return {
        vf: f"{claim} has it, by kubelet's record of claims"
        for claim in claims
        if claim.claim_uid != uid
        for vf in _vfs(claim)
    }


def _vfs(claim: PreparedDevices) -> Iterator[PciAddress]:
    """Yield the VFs of a claim. A device with another name is no VF of this node: it costs no other claim anything."""
    for device in claim.devices:
        try:
            yield vf_of(device)
        except ValueError as error:
            _log.warning("kubelet's record of %s: %s", claim, error)


class _ClaimReader:
    """Reads claims with the rights of the daemon's service account, which may come after the daemon's start. Threads may share it."""

    def __init__(self) -> None:
        self._api_server: ApiServer | None = None

    def __call__(self, identity: ClaimIdentity) -> JsonObject:
        if self._api_server is None:
            self._api_server = api_server_of_daemon()
        return self._api_server.send(get(address_of(identity)))
