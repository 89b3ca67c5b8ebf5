"""Tells the containers of a claim as what its VFs are in their pod (KEP-5304): after an ADD, while the runtime has yet to create the containers."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cni.rail_observers import AddRefused, Observer, RailChanged, RailsAttached
from railnet.apiserver.claim_status import network_data
from railnet.daemon.network_status_and_events import macs_of_rails
from railnet.dra.device_metadata_files import DeviceMetadataFiles
from railnet.dra.devices import DraDevice
from railnet.dra.prepared_claim import PreparedClaim
from railnet.dra.prepared_claim_files import PreparedClaims
from railnet.kernel.threads.bounded_threads import BoundedThreads
from railnet.vf.pci_address import PciAddress

_log = logging.getLogger(__name__)
FILES = DeviceMetadataFiles(Path("/run/railnet/device-metadata"))
"""The folder has this path on the host, too: the DaemonSet's pod has the host's /run/railnet."""
_MOST_AT_ONCE = 4


class DeviceMetadata:
    """Writes the files of claims whose VFs are in a pod. `devices` returns the node's devices as its ResourceSlices have them."""

    def __init__(
        self, root: Path, claims: PreparedClaims, devices: Callable[[], Mapping[PciAddress, DraDevice]]
    ) -> None:
        """Read sandboxes of the host seen at `root`."""
        self._root, self._claims, self._devices = root, claims, devices
        self._threads = BoundedThreads(_MOST_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()

    def before(self, observe: Observer) -> Observer:
        """Return an observer of ADDs that begins to write, and then calls `observe`."""

        def seen(event: RailsAttached | AddRefused | RailChanged) -> None:
            if isinstance(event, RailsAttached):
                self._begin(event)
            observe(event)

        return seen

    def _begin(self, attached: RailsAttached) -> None:
        claims = self._claims.with_any([attachment.vf for attachment in attached.record.attachments])
        if claims:
            work = partial(_tell, attached, self._root, claims, self._devices())
            task = asyncio.create_task(self._write(attached, work))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _write(self, attached: RailsAttached, work: Callable[[], None]) -> None:
        try:
            await self._threads.run_to_the_end("device metadata", work)
        except OSError as error:
            _log.warning(
                "the containers of sandbox %s are not told of their interfaces: %s", attached.record.container_id, error
            )


def _tell(
    attached: RailsAttached, root: Path, claims: list[PreparedClaim], devices: Mapping[PciAddress, DraDevice]
) -> None:
    macs = macs_of_rails(attached, root)
    network = {
        attachment.vf: network_data(attachment, macs.get(attachment.ifname))
        for attachment in attached.record.attachments
    }
    for claim in claims:
        FILES.tell_network(claim, devices, network)
