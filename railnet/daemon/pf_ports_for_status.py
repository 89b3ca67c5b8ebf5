"""The rates and the partitions of PFs' ports for an answer to `railnet status`, in time: the client waits five seconds."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial

from railnet.fabric.port_rate_and_partitions import PfPort
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.bounded_reads import BoundedReads
from railnet.kernel.waiting import take_outcome
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable

_SECONDS = 2.0
# A whole P_Key table is 128 files, and each may be a command to the firmware: what takes longer hangs.
_HANGS_SECONDS = 15.0


class PfPortReads:
    """Reads the ports when they are asked for. At most one read of each PF runs, and it goes on when the answer is sent without it."""

    def __init__(self, table: VfTable, sysfs: Sysfs) -> None:
        self._table, self._sysfs = table, sysfs
        self._reads: dict[PciAddress, asyncio.Task[PfPort]] = {}
        # Of its own: a port that does not answer here takes no VF from kubelet.
        self._bounded = BoundedReads(_HANGS_SECONDS)

    @property
    def hung(self) -> Counter[str]:
        """The number of threads that wait for a port that does not answer, by card."""
        return self._bounded.hung

    async def ports(self) -> Mapping[PciAddress, PfPort]:
        """Return what is known of each PF's port after two seconds at most. A port that does not answer is left out.

        Callers at the same time wait for the same reads, and each gets all of them.
        """
        reads = {pf.address: self._begun(pf.address) for pf in self._table.inventory.pfs}
        if reads:
            await asyncio.wait(reads.values(), timeout=_SECONDS)
        ended = {address: read for address, read in reads.items() if read.done()}
        return {
            address: read.result()
            for address, read in ended.items()
            if not read.cancelled() and read.exception() is None
        }

    def _begun(self, address: PciAddress) -> asyncio.Task[PfPort]:
        """Return the read of a port that runs, or begin one."""
        running = self._reads.get(address)
        if running is None:
            running = self._reads[address] = asyncio.create_task(self._read(address))
            running.add_done_callback(partial(self._end, address))
        return running

    def _end(self, address: PciAddress, read: asyncio.Task[PfPort]) -> None:
        del self._reads[address]  # the one that ended: another begins only after it
        take_outcome(read)  # it may end after the answer

    async def _read(self, address: PciAddress) -> PfPort:
        """Read one port.

        Raises:
            OSError: it does not answer, or cannot be read.
        """
        return await self._bounded.read(address, address, partial(self._port, address))

    def _port(self, address: PciAddress) -> PfPort:
        return PfPort(self._sysfs.rate(address), self._sysfs.pkeys(address))
