"""Reads from kubelet's checkpoint which pod holds which VF."""

import logging

from railnet.configuration import Configuration
from railnet.errors import NotReady
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.vf.pci_address import PciAddress

_log = logging.getLogger(__name__)


async def allocated(configuration: Configuration) -> set[PciAddress]:
    """Return the VFs that kubelet has allocated to pods.

    Raises:
        NotReady: kubelet's checkpoint exists and is not understood, so it is not known which VFs are in use.
    """
    try:
        return set(await _holders(configuration))
    except ValueError as error:
        raise NotReady(f"no VF is provisioned, because it is not known which VFs pods use: {error}") from None


async def pods(configuration: Configuration) -> dict[PciAddress, str] | None:
    """Return the UID of each VF's pod; None if kubelet's checkpoint cannot be read or understood."""
    try:
        return await _holders(configuration)
    except (OSError, ValueError) as error:
        _log.warning("it is not known which pod holds which VF: %s", error)
        return None


async def _holders(configuration: Configuration) -> dict[PciAddress, str]:
    try:
        entries = await CheckpointReads(configuration.host.device_plugins, read_in_time).read()
    except NotReady:
        return {}  # kubelet has not started yet, so no pod runs
    held = [(uid, ids) for uid, pod in entries.items() for name, ids in pod.items() if name in configuration.resources]
    return {PciAddress.parse(id_): uid for uid, ids in held for id_ in ids}
