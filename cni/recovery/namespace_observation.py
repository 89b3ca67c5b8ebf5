"""Observe the network namespace of a recorded sandbox; what follows from it is decided in `cni.recovery.rules`."""

from dataclasses import dataclass
from pathlib import Path

from cni.attachment.netdev_return import NodeNetdevs
from cni.recovery.rules import NamespaceState
from railnet.kernel.namespaces.netns import NetnsIdentity, opened
from railnet.vf.record import Netns, Record


@dataclass(frozen=True, slots=True)
class Observed:
    """A namespace's state; with MOVED the namespace at its new path, with UNKNOWN the kernel's error."""

    state: NamespaceState
    moved_to: Netns | None = None
    error: OSError | None = None


class SandboxNamespaces:
    """The namespaces of sandboxes on the host, which is seen at `root`; `boot` is the present boot."""

    def __init__(self, root: Path, boot: str, node_netdevs: NodeNetdevs) -> None:
        self._root = root
        self._boot = boot
        self._node_netdevs = node_netdevs

    async def observe(self, record: Record) -> Observed:
        """Look for a sandbox's namespace: first at its recorded path, then where the netdevs of its VFs are."""
        try:
            return await self._observe(record)
        except OSError as error:
            return Observed(NamespaceState.UNKNOWN, error=error)

    async def _observe(self, record: Record) -> Observed:
        if record.is_of_older_boot(self._boot):
            return Observed(NamespaceState.OLDER_BOOT)
        expected = NetnsIdentity(record.netns.dev, record.netns.inode)
        with opened(self._root, record.netns.path, expected) as fd:
            if fd is not None:
                return Observed(NamespaceState.ALIVE)
        absent = await self._node_netdevs.absent(attachment.vf for attachment in record.attachments)
        orphans = await self._node_netdevs.find_orphans(absent)
        netns = next((orphan.netns for orphan in orphans.values() if orphan.netns[1:] == record.netns[1:]), None)
        return Observed(NamespaceState.GONE if netns is None else NamespaceState.MOVED, netns)
