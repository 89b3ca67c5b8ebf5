"""Reads from kubelet's two files which pod holds which VF: by the device plugin, or by a claim.

`kubelet` is the daemon's one search for kubelet's folder: each search remembers the processes that hang, and has a few threads that they may hold.
"""

import logging
from collections.abc import Callable

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


class AllocatedVfs:
    """The VFs that kubelet has allocated.

    A node that offers by the device plugin and has no record of a claim does not need kubelet's file of claims: a claim is recorded before its
    pod's sandbox is made. There a file that cannot be read costs a warning.
    """

    def __init__(self, configuration: Configuration, kubelet: KubeletSearch, any_recorded: Callable[[], bool]) -> None:
        """`any_recorded` returns whether there is a record of any claim, also an unreadable one."""
        self._configuration, self._any_recorded = configuration, any_recorded
        self._kubelet = kubelet
        self._said = ""

    async def vfs(self) -> set[PciAddress]:
        """Return the VFs that kubelet has allocated to pods.

        Raises:
            NotReady: a file of kubelet exists and is not understood, so it is not known which VFs are in use. OSError: it cannot be read.
        """
        try:
            return set(await self._holders())
        except ValueError as error:
            raise NotReady(f"no VF is provisioned, because it is not known which VFs pods use: {error}") from None

    async def pods(self) -> dict[PciAddress, str] | None:
        """Return the UID of each VF's pod; None if a file of kubelet cannot be read or understood."""
        try:
            return await self._holders()
        except (OSError, ValueError) as error:
            _log.warning("it is not known which pod holds which VF: %s", error)
            return None

    async def _holders(self) -> dict[PciAddress, str]:
        return await self._by_claims() | await self._by_device_plugin()

    async def _by_claims(self) -> dict[PciAddress, str]:
        try:
            by_claims = _holders_of(await claims(self._kubelet, self._any_recorded))
        except (OSError, ValueError) as error:
            if self._configuration.offer == "dra" or self._any_recorded():
                raise
            self._say(f"{error}; no claim is recorded on this node, so no pod has a VF by one")
            return {}
        self._said = ""
        return by_claims

    async def _by_device_plugin(self) -> dict[PciAddress, str]:
        """Return the UID of the pod to which kubelet's device checkpoint gives each VF.

        Raises:
            ValueError: the checkpoint is not understood. OSError: it cannot be read.
        """
        resources = self._configuration.resources
        try:
            entries = await CheckpointReads(self._configuration.host.device_plugins, read_in_time).read()
        except NotReady:
            return {}  # kubelet has not started yet, so no pod runs
        held = [(uid, ids) for uid, pod in entries.items() for name, ids in pod.items() if name in resources]
        return {PciAddress.parse(id_): uid for uid, ids in held for id_ in ids}

    def _say(self, warning: str) -> None:
        """Log a warning once: this is read every ten seconds."""
        if warning != self._said:
            _log.warning("%s", warning)
        self._said = warning


async def claims(kubelet: KubeletSearch, must_exist: Callable[[], bool]) -> tuple[PreparedDevices, ...]:
    """Return the claims for which kubelet has devices of Railnet's driver.

    The folder is the last one that was seen: each registration looks for another one. `must_exist` is as for `DraManagerStateReads`.

    Raises:
        ValueError: the file is not understood. OSError: it cannot be read, or it is not known where it is.
    """
    if kubelet.known() is None:
        await kubelet.look()
    return await DraManagerStateReads(kubelet.open_dra_manager_state, read_in_time, must_exist).read()


def _holders_of(prepared: tuple[PreparedDevices, ...]) -> dict[PciAddress, str]:
    return {vf_of(device): uid for claim in prepared for device in claim.devices for uid in sorted(claim.pod_uids)}
