"""Which pod kubelet gave which VF to, of our resources: from its checkpoint."""

import logging

from kubelet.checkpoint_file import CheckpointFile
from railnet.configuration import Configuration
from vf.address import PciAddress
from vf.errors import NotReady

_log = logging.getLogger(__name__)


def allocated(configuration: Configuration) -> set[PciAddress]:
    """Give what kubelet has allocated of our resources.

    Raises:
        NotReady: kubelet's checkpoint is there and cannot be understood; then nobody knows what is in use.
    """
    try:
        return set(_holders(configuration))
    except ValueError as error:
        raise NotReady(f"no VF is provisioned before it is known what is in use: {error}") from None


def pods(configuration: Configuration) -> dict[PciAddress, str] | None:
    """Give the UIDs of the pods that kubelet gave VFs to; None where its checkpoint cannot be understood."""
    try:
        return _holders(configuration)
    except (OSError, ValueError) as error:
        _log.warning("who has which VF is not known: %s", error)
        return None


def _holders(configuration: Configuration) -> dict[PciAddress, str]:
    try:
        entries = CheckpointFile(configuration.host.kubelet).read()
    except NotReady:
        return {}  # kubelet has not started yet, so nothing runs
    held = [(uid, ids) for uid, pod in entries.items() for name, ids in pod.items() if name in configuration.resources]
    return {PciAddress.parse(id_): uid for uid, ids in held for id_ in ids}
