"""The ResourceSlices of this node: published if `offer` is `dra`, else deleted once. Composes `railnet.dra`."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from deviceplugin.devices import OfferedVf
from railnet.apiserver.service_account import NotInCluster
from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon.network_status_and_events import api_server_of_daemon, name_of_node
from railnet.dra.card_facts import CardReads, Places
from railnet.dra.device_plugin_holders import DevicePluginHolders
from railnet.dra.devices import DraDevice
from railnet.dra.offered_devices import OfferedDevices
from railnet.dra.slice_publisher import SlicePublisher
from railnet.kernel.files import open_below
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kubelet import cri
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_CRI_SECONDS = 2.0
_REMOVAL_SECONDS = 5.0
_TITLE = "the ResourceSlices of this node"


class NodeSlices:
    """The slices of one node.

    Attributes:
        holders: the pods that have VFs by the device plugin.
        publisher: computes the devices. Call its `registered` when kubelet has registered the DRA driver.
    """

    def __init__(
        self,
        configuration: Configuration,
        table: VfTable,
        sysfs: Sysfs,
        offered: Callable[[], Mapping[str, Sequence[OfferedVf]]],
        places: Places,
    ) -> None:
        """Have written nothing yet.

        Args:
            configuration: of the node.
            table: the facts and owners of the VFs.
            sysfs: where the cards are.
            offered: returns the VFs of each pool, by resource.
            places: returns what is known of each rail's place in the fabric, by the rail's number.
        """
        host = configuration.host
        self.holders = DevicePluginHolders(
            CheckpointReads(host.device_plugins, read_in_time).read,
            partial(_pods_with_sandboxes, host),
            configuration.resources,
        )
        self._offers, self._table = configuration.offer == "dra", table
        self._why_none: str | None = None
        self.publisher = SlicePublisher(OfferedDevices(table, offered, CardReads(sysfs, places), self.holders).now)

    def devices(self) -> dict[PciAddress, DraDevice]:
        """Return the devices that were computed last, by VF."""
        return {device.vf: device for device in self.publisher.devices or ()}

    @property
    def trouble(self) -> str | None:
        """Why the API server does not have the slices as they should be; None if it has them."""
        return self._why_none or self.publisher.trouble

    def changed(self, *, at_once: bool = False) -> None:  # noqa: ARG002 - as of a pool's service
        """Compute the devices again: what the node's pools offer has changed."""
        self.publisher.changed()

    def work(self, *, leaving: bool) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the work by title. If Railnet is `leaving` the node, its slices are deleted."""
        return {_TITLE: self._publish if self._offers and not leaving else self._remove}

    async def removed(self) -> None:
        """Wait until the slices of a node that Railnet leaves are gone, for a few seconds: the API server may not answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REMOVAL_SECONDS):
                await self.publisher.gone.wait()

    async def _publish(self) -> None:
        try:
            api = api_server_of_daemon()
        except NotInCluster as error:
            self._why_none = f"ResourceSlices are not written: {error}"
            _log.error("%s", self._why_none)
            return
        stop = self._table.observe(self.publisher.changed)
        try:
            await self.publisher.serve(api, name_of_node())
        finally:
            stop()

    async def _remove(self) -> None:
        try:
            api = api_server_of_daemon()
        except NotInCluster:
            self.publisher.gone.set()
            return
        await self.publisher.remove(api, name_of_node())


async def _pods_with_sandboxes(host: HostConfiguration) -> frozenset[str]:
    fd = open_below(host.root, str(host.cri), os.O_PATH)
    try:
        return await cri.pods_with_sandboxes(Path(f"/proc/self/fd/{fd}"), _CRI_SECONDS)
    finally:
        os.close(fd)
