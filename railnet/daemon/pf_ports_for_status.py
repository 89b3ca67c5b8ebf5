"""The rates and the partitions of PFs' ports for an answer to `railnet status`, in time: the client waits five seconds."""

import asyncio
from collections.abc import Mapping
from functools import partial

from railnet.fabric.pf_port import PfPort
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.waiting import take_outcome
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable

_SECONDS = 2.0


class PfPortReads:
    """Reads the ports when they are asked for. At most one read of each PF runs, and it goes on when the answer is sent without it."""

    def __init__(self, table: VfTable, sysfs: Sysfs) -> None:
        self._table, self._sysfs = table, sysfs
        self._reads: dict[PciAddress, asyncio.Task[PfPort]] = {}

    async def ports(self) -> Mapping[PciAddress, PfPort]:
        """Return what is known of each PF's port after two seconds at most. A port that does not answer is left out."""
        pfs = [pf.address for pf in self._table.inventory.pfs]
        for address in pfs:
            if address not in self._reads or self._reads[address].done():
                self._reads[address] = asyncio.create_task(self._read(address))
                self._reads[address].add_done_callback(take_outcome)  # it may end after the answer
        if pfs:
            await asyncio.wait([self._reads[address] for address in pfs], timeout=_SECONDS)
        ended = {address: read for address, read in self._reads.items() if read.done()}
        for address in ended:
            del self._reads[address]
        return {
            address: read.result()
            for address, read in ended.items()
            if not read.cancelled() and read.exception() is None
        }

    async def _read(self, address: PciAddress) -> PfPort:
        """Read one port.

        Raises:
            OSError: it does not answer, or cannot be read.
        """
        return await self._sysfs.reads.read(address, address, partial(self._port, address))

    def _port(self, address: PciAddress) -> PfPort:
        return PfPort(self._sysfs.rate(address), self._sysfs.pkeys(address))
