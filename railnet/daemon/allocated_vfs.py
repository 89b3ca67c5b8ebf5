"""Reads from kubelet's two files which pod holds which VF: by the device plugin, or by a claim.

`kubelet` is the daemon's one search for kubelet's folder: each search remembers the processes that hang, and has a few threads that they may hold.
"""

import logging

from railnet.configuration import Configuration
from railnet.daemon.kubelet_folder import KubeletSearch
from railnet.errors import NotReady
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.kubelet.dra_manager_state import PreparedDevices
from railnet.kubelet.dra_manager_state_file import DraManagerStateReads
from railnet.vf.dra_device_name import vf_of
from railnet.vf.pci_address import PciAddress

_log = logging.getLogger(__name__)


async def allocated(configuration: Configuration, kubelet: KubeletSearch) -> set[PciAddress]:
    """Return the VFs that kubelet has allocated to pods.

    Raises:
        NotReady: a file of kubelet exists and is not understood, so it is not known which VFs are in use.
    """
    try:
        return set(await _holders(configuration, kubelet))
    except ValueError as error:
        raise NotReady(f"no VF is provisioned, because it is not known which VFs pods use: {error}") from None


async def pods(configuration: Configuration, kubelet: KubeletSearch) -> dict[PciAddress, str] | None:
    """Return the UID of each VF's pod; None if a file of kubelet cannot be read or understood."""
    try:
        return await _holders(configuration, kubelet)
    except (OSError, ValueError) as error:
        _log.warning("it is not known which pod holds which VF: %s", error)
        return None


async def by_device_plugin(configuration: Configuration) -> dict[PciAddress, str]:
    """Return the UID of the pod to which kubelet's device checkpoint gives each VF.

    Raises:
        ValueError: the checkpoint is not understood. OSError: it cannot be read.
    """
    try:
        entries = await CheckpointReads(configuration.host.device_plugins, read_in_time).read()
    except NotReady:
        return {}  # kubelet has not started yet, so no pod runs
    held = [(uid, ids) for uid, pod in entries.items() for name, ids in pod.items() if name in configuration.resources]
    return {PciAddress.parse(id_): uid for uid, ids in held for id_ in ids}


async def claims(kubelet: KubeletSearch) -> tuple[PreparedDevices, ...]:
    """Return the claims for which kubelet has devices of Railnet's driver.

    Raises:
        ValueError: the file is not understood. OSError: it cannot be read, or it is not known where it is.
    """
    await kubelet.look()
    return await DraManagerStateReads(kubelet.open_dra_manager_state, read_in_time).read()


async def _holders(configuration: Configuration, kubelet: KubeletSearch) -> dict[PciAddress, str]:
    by_claims = {
        vf_of(device): uid
        for claim in await claims(kubelet)
        for device in claim.devices
        for uid in sorted(claim.pod_uids)
    }
    return by_claims | await by_device_plugin(configuration)
