"""Gives containers that have a rail their limit of locked memory (`memlock` of node.yaml), by the container runtime's NRI.

RDMA locks the memory that it registers. A container that does not run as root has the runtime's limit, often 8 MiB, and NCCL then falls back to
TCP without an error. A container that has no rail keeps the runtime's limit. So does a container whose limit is set elsewhere.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

from railnet.configuration import Configuration
from railnet.kernel.files import open_below
from railnet.nri.created_container import CreatedContainer, ResourceLimit
from railnet.nri.messages import BadMessage
from railnet.vf.inventory import Inventory
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_MEMLOCK = "RLIMIT_MEMLOCK"
_AGAIN_SECONDS = 2.0
_CONNECT_SECONDS = 5.0


class MemlockLimits:
    """The plugin, connected anew whenever the runtime ends the connection: a runtime that starts anew has no plugins."""

    def __init__(
        self,
        configuration: Configuration,
        table: VfTable,
        records: Callable[[], Iterable[Record]],
        pods: Callable[[], Awaitable[Mapping[PciAddress, str] | None]],
    ) -> None:
        """Take what tells of the node's VFs: the table, the journal's records, and the UID of each VF's pod by kubelet's files."""
        self._configuration, self._table, self._records, self._pods = configuration, table, records, pods
        self.trouble: str | None = None
        """Why containers do not get the limit; None if they do, or if none is configured."""

    def work(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return what lasts as long as the daemon, by title; nothing if the runtime's limits are to stand."""
        return {} if self._configuration.memlock is None else {"the limits of locked memory": self.serve}

    async def serve(self) -> None:
        """Be a plugin of the runtime for ever."""
        while True:
            try:
                await self._register()
            except (OSError, BadMessage) as error:
                self._say(error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _register(self) -> None:
        from railnet.nri.plugin import NriPlugin  # noqa: PLC0415 - most nodes have no such plugin, and the memory for its messages is theirs

        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await _connect(self._configuration.host.root, self._configuration.host.nri)
        with closing(writer):
            await NriPlugin(reader, writer, self.limit, self._registered).serve()

    def _registered(self) -> None:
        _log.info("containers with a rail get %s of %s, by NRI", _MEMLOCK, self._configuration.memlock)
        self.trouble = None

    def _say(self, error: Exception) -> None:
        why = (
            f"the container runtime has no NRI at {self._configuration.host.nri}: switch NRI on in the runtime's configuration, or name its "
            "socket by host.nri in node.yaml"
            if isinstance(error, FileNotFoundError | ConnectionRefusedError)
            else f"NRI at {self._configuration.host.nri}: {str(error) or repr(error)}; it is tried again"
        )
        if why != self.trouble:
            _log.warning("containers with a rail keep the runtime's limit of locked memory: %s", why)
        self.trouble = why

    async def limit(self, container: CreatedContainer) -> ResourceLimit | None:
        """Return the limit that a container gets; None for one without a rail, and for one that has a limit of its own."""
        value = self._configuration.memlock
        if value is None or _MEMLOCK in container.limits:
            return None
        has_rail = is_recorded(self._records(), container) or await self._has_rail_on_host_network(container)
        return ResourceLimit(_MEMLOCK, value) if has_rail else None

    async def _has_rail_on_host_network(self, container: CreatedContainer) -> bool:
        """Ask kubelet's files whether the pod has a VF of the container's devices: a privileged container has every device of the node."""
        vfs = vfs_of_devices(self._table.inventory, container.devices)
        holders = (await self._pods() or {}) if vfs else {}
        return any(holders.get(vf) == container.pod_uid for vf in vfs)


def is_recorded(records: Iterable[Record], container: CreatedContainer) -> bool:
    """Return whether a sandbox of the container's pod has a rail whose verbs device the container has."""
    return any(
        (attachment.uverbs.major, attachment.uverbs.minor) in container.devices
        for record in records
        if record.pod.uid == container.pod_uid != ""
        for attachment in record.attachments
        if attachment.uverbs is not None
    )


def vfs_of_devices(inventory: Inventory, devices: frozenset[tuple[int, int]]) -> list[PciAddress]:
    """Return the VFs on the node's network whose verbs device is among the character devices, which are major and minor numbers."""
    return [
        vf.address
        for vf in inventory.vfs()
        if vf.rdma is not None
        and vf.rdma.uverbs is not None
        and (vf.rdma.uverbs.major, vf.rdma.uverbs.minor) in devices
    ]


async def _connect(root: Path, socket: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    fd = open_below(root, str(socket), os.O_PATH)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
