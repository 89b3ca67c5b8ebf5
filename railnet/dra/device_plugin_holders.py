"""The VFs that pods have by the device plugin, on a node that offers its VFs by DRA now: they belong to these pods until the pods have ended.

Kubelet's device checkpoint says which. Kubelet removes an entry when it next allocates a device of a plugin, which on such a node may be
never. So the entry of a pod without a sandbox counts no more after some minutes.
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from railnet.errors import NotReady
from railnet.kubelet.checkpoint import Entries
from railnet.vf.pci_address import PciAddress

# Kubelet writes the entry, and then makes the sandbox, again and again if that fails.
_WITHOUT_SANDBOX_SECONDS = 600.0


class DevicePluginHolders:
    """Looks for the pods. An entry counts as long as it is not known that its pod has ended."""

    def __init__(
        self,
        entries: Callable[[], Awaitable[Entries]],
        pods_with_sandboxes: Callable[[], Awaitable[frozenset[str]]],
        resources: frozenset[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look for VFs of some resources.

        Args:
            entries: reads kubelet's device checkpoint; raises NotReady, ValueError, OSError.
            pods_with_sandboxes: asks the container runtime for the UIDs of pods; raises NotReady, OSError.
            resources: the resources of the node's pools.
            clock: returns seconds.
        """
        self._entries, self._pods, self._resources, self._clock = entries, pods_with_sandboxes, resources, clock
        self._without_sandbox: dict[str, float] = {}  # since when, by the pod's UID

    async def held(self) -> dict[PciAddress, str]:
        """Return the VFs, each with the UID of a pod that has it.

        Raises:
            NotReady, ValueError, OSError: the checkpoint cannot be read, so it is not known which VFs pods have.
        """
        held = {
            vf: uid
            for uid, of_pod in (await self._entries()).items()
            for resource in of_pod.keys() & self._resources
            for vf in _functions(of_pod[resource])
        }
        ended = await self._ended(frozenset(held.values())) if held else frozenset()
        return {vf: uid for vf, uid in held.items() if uid not in ended}

    async def _ended(self, uids: frozenset[str]) -> frozenset[str]:
        try:
            absent = uids - await self._pods()
        except (NotReady, OSError):
            absent = frozenset()
        now = self._clock()
        self._without_sandbox = {uid: self._without_sandbox.get(uid, now) for uid in absent}
        return frozenset(uid for uid, since in self._without_sandbox.items() if now - since >= _WITHOUT_SANDBOX_SECONDS)


def _functions(ids: set[str]) -> list[PciAddress]:
    functions = []
    for device in ids:
        with suppress(ValueError):  # another device plugin of the same resource was here before
            functions.append(PciAddress.parse(device))
    return functions
