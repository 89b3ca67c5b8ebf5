"""Which VFs kubelet gave to this pod: a file read; kubelet itself is asked only where the file cannot answer."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from cni.host.errors import TRY_AGAIN, CniError
from cni.request import Request
from kubelet import checkpoint, podresources
from kubelet.allocations import ContainerAllocation
from kubelet.checkpoint_file import CheckpointFile
from vf.address import PciAddress
from vf.errors import NotOurs, NotReady

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.02


class PodDevices:
    """Kubelet's knowledge of devices: its checkpoint, and its pod-resources socket as the fallback."""

    def __init__(
        self,
        kubelet: Path,
        resources: frozenset[str],
        kubelet_seconds: float,
        watched: Callable[[], bool] = lambda: True,
    ) -> None:
        """Look below kubelet's folder; `watched` tells whether kubelet's streams are open."""
        self._watched = watched
        self._checkpoint = CheckpointFile(kubelet)
        self._socket = kubelet / "pod-resources" / "kubelet.sock"
        self._resources = resources
        self._seconds = kubelet_seconds

    async def vfs(self, request: Request) -> tuple[PciAddress, ...]:
        """Give the VFs of the request's pod over all its containers; empty for a pod without a rail.

        Raises:
            CniError: code 11, neither the checkpoint nor kubelet can tell.
            NotOurs: kubelet names a device that is no PCI address.
        """
        return vfs_of(await self.devices(request))

    async def devices(self, request: Request) -> list[tuple[str, str]]:
        """Give the devices of the request's pod, as pairs of resource and device id.

        Raises:
            CniError: code 11, neither the checkpoint nor kubelet can tell.
        """
        pod = request.pod
        if not pod.name and not pod.uid:
            return []  # no Kubernetes pod, so kubelet gave it nothing
        try:
            return self._from_checkpoint(pod.uid)
        except (NotReady, OSError, ValueError) as error:
            _log.warning("pod %s/%s: %s; asking kubelet", pod.namespace, pod.name, error)
            reason = error
        try:
            return await podresources.devices(self._socket, pod.namespace, pod.name, self._resources, self._seconds)
        except NotReady as error:
            message = (
                "whether this pod asked for a rail cannot be told: neither kubelet's checkpoint nor kubelet answers"
            )
            raise CniError(TRY_AGAIN, message, f"{reason}; {error}") from None

    def refuse_others(self, vfs: tuple[PciAddress, ...], holder: Callable[[PciAddress], str | None]) -> None:
        """Refuse VFs that another pod has and that kubelet's checkpoint says are still that pod's: nobody will give them back.

        `holder` gives the UID of the pod that a VF is attached to. Where kubelet has forgotten that pod, its sandbox is
        being taken down, and who waits gets the VF.

        Raises:
            NotOurs: there is one.
        """
        others = {vf: uid for vf in vfs if (uid := holder(vf)) is not None}
        if not others:
            return
        try:
            entries = self._checkpoint.read()
        except (NotReady, OSError, ValueError):
            return  # nobody can tell, so who waits may get it
        for vf, uid in others.items():
            if uid and str(vf) in {id_ for _, id_ in checkpoint.devices(entries, uid, self._resources)}:
                raise NotOurs(
                    f"kubelet's checkpoint names VF {vf} for this pod, and for pod {uid}, which has it: restart kubelet, "
                    "and delete this pod"
                )

    async def until_watched(self) -> None:
        """Wait until kubelet has found a daemon that has just started, or for `kubelet_seconds`.

        kubelet looks for plugins once a second. Before it has, it calls no PreStartContainer: the container fails, and is
        started again only ten seconds later.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._seconds
        while True:
            if self._watched() or loop.time() > give_up:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def answers(self, request: Request) -> tuple[ContainerAllocation, ...]:
        """Give what kubelet was answered for the pod's containers; nothing where it cannot be told.

        Only kubelet's checkpoint has it: where that is not understood, VFs are attached without this comparison.
        """
        try:
            return self._checkpoint.allocations(request.pod.uid, self._resources)
        except (OSError, ValueError) as error:
            _log.warning("pod %s/%s: %s; its devices are not compared", request.pod.namespace, request.pod.name, error)
            return ()

    def _from_checkpoint(self, pod_uid: str) -> list[tuple[str, str]]:
        if not pod_uid:
            raise NotReady("the runtime did not pass K8S_POD_UID in CNI_ARGS")
        return checkpoint.devices(self._checkpoint.read(), pod_uid, self._resources)


def vfs_of(devices: list[tuple[str, str]]) -> tuple[PciAddress, ...]:
    """Give the VFs that devices are, in PCI order.

    Raises:
        NotOurs: one is no PCI address.
    """
    try:
        # a set: the same VF may be listed for two containers, or under two resources
        return tuple(sorted({PciAddress.parse(device) for _, device in devices}))
    except ValueError as error:
        raise NotOurs(f"kubelet names a device of another plugin under our resource: {error}") from None
