"""Find the devices that kubelet gave to a pod: in its checkpoint, or from its pod-resources socket if the checkpoint cannot answer."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from cni.daemon_exhaustion import is_own_shortage
from cni.host.errors import TRY_AGAIN, CniError
from railnet.errors import NotOurs, NotReady
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kernel.waiting import until
from railnet.kubelet import checkpoint, podresources
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.kubelet.checkpointed_responses import ContainerAllocation
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import SandboxPod

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.02


class PodDevices:
    """Asks what kubelet knows of pods' devices; the checkpoint is a file read, the socket is the fallback."""

    def __init__(
        self,
        device_plugins: Path,
        socket: Callable[[], AbstractAsyncContextManager[Path]],
        resources: frozenset[str],
        kubelet_seconds: float,
        watched: Callable[[], bool] = lambda: True,
    ) -> None:
        """`device_plugins` has kubelet's checkpoint, and `socket` opens pod-resources where it listens now. `watched` returns whether kubelet holds a stream to each of our device plugins open."""
        self._watched = watched
        self._checkpoint = CheckpointReads(device_plugins, read_in_time)
        self._socket = socket
        self._resources = resources
        self._seconds = kubelet_seconds

    async def vfs(self, pod: SandboxPod) -> tuple[PciAddress, ...]:
        """Return the VFs of a pod over all its containers; empty for a pod without a rail.

        Raises:
            CniError: code 11, neither the checkpoint nor kubelet answers.
            NotOurs: kubelet names a device that is no PCI address.
        """
        return vfs_of(await self.of(pod))

    async def of(self, pod: SandboxPod) -> list[tuple[str, str]]:
        """Return the devices of a pod, as pairs of resource and device id.

        Raises:
            CniError: code 11, neither the checkpoint nor kubelet answers. OSError: the daemon has no descriptor for it.
        """
        if not pod.name and not pod.uid:
            return []  # no Kubernetes pod, so kubelet gave it nothing
        try:
            return await self._from_checkpoint(pod.uid)
        except (NotReady, OSError, ValueError) as error:
            if isinstance(error, OSError) and is_own_shortage(error):
                raise
            # It lists no init containers, so a VF that only one of those has stays unknown: deviceplugin.prestart_attachment_check says so.
            _log.warning("pod %s/%s: %s; asking kubelet", pod.namespace, pod.name, error)
            reason = error
        try:
            async with self._socket() as socket:
                return await podresources.devices(socket, pod.namespace, pod.name, self._resources, self._seconds)
        except (NotReady, OSError) as error:
            if isinstance(error, OSError) and is_own_shortage(error):
                raise
            if await self._checkpoint.surely_names_none(pod.uid, self._resources):
                return []
            message = (
                "it is unknown whether this pod asked for a rail: neither kubelet's checkpoint nor kubelet answers"
            )
            raise CniError(TRY_AGAIN, message, f"{reason}; {error}") from None

    async def refuse_held_by_other_pods(self, pod: SandboxPod, holders: Mapping[PciAddress, str]) -> None:
        """Refuse a VF that is attached to another pod if kubelet's checkpoint still gives it to that pod: it would not return.

        If the checkpoint does not know that pod any more, its sandbox is being taken down, and the VF will return.

        Args:
            pod: the pod that kubelet gave the VFs to now.
            holders: the VFs that are attached, with the UID of the pod that has each.

        Raises:
            NotOurs: there is such a VF.
        """
        others = {vf: uid for vf, uid in holders.items() if uid != pod.uid}
        if not others:
            return
        try:
            entries = await self._checkpoint.read()
        except (NotReady, OSError, ValueError):
            return  # unknown: the VF may return, so this request may wait for it
        for vf, uid in others.items():
            if uid and str(vf) in {id_ for _, id_ in checkpoint.devices(entries, uid, self._resources)}:
                raise NotOurs(
                    f"kubelet's checkpoint names VF {vf} for this pod, and for pod {uid}, which has it: restart kubelet, "
                    "and delete this pod"
                )

    async def until_watched(self) -> None:
        """Wait until kubelet has found a daemon that has just started, or for `kubelet_seconds`.

        kubelet looks for plugins once a second. Before it has found ours it calls no PreStartContainer: the container
        fails, and kubelet starts it again only ten seconds later.
        """
        await until(self._watched, self._seconds, _LOOK_SECONDS)

    async def allocations(self, pod: SandboxPod) -> tuple[ContainerAllocation, ...]:
        """Return the answers that kubelet got to Allocate for the pod's containers; none if they are unknown.

        Only kubelet's checkpoint has them. If it is not understood, VFs are attached without this comparison.
        """
        try:
            return await self._checkpoint.allocations(pod.uid, self._resources)
        except (OSError, ValueError) as error:
            _log.warning("pod %s/%s: %s; its devices are not compared", pod.namespace, pod.name, error)
            return ()

    async def _from_checkpoint(self, pod_uid: str) -> list[tuple[str, str]]:
        if not pod_uid:
            raise NotReady("the runtime did not pass K8S_POD_UID in CNI_ARGS")
        return checkpoint.devices(await self._checkpoint.read(), pod_uid, self._resources)


def vfs_of(devices: list[tuple[str, str]]) -> tuple[PciAddress, ...]:
    """Return the VFs that these devices are, in PCI order.

    Raises:
        NotOurs: one is no PCI address.
    """
    try:
        # a set: the same VF may be listed for two containers, or under two resources
        return tuple(sorted({PciAddress.parse(device) for _, device in devices}))
    except ValueError as error:
        raise NotOurs(f"kubelet names a device of another plugin under our resource: {error}") from None
