"""The facts about RoCE for an answer to `railnet status`, in time: the client waits five seconds, and a dead card answers nothing."""

import asyncio

from railnet.kernel import roce_facts
from railnet.kernel.roce_facts import RoceFacts
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.waiting import take_outcome
from railnet.vf.vf_table import VfTable

_SECONDS = 2.0


class RoceStatus:
    """Reads the node's RoCE ports when it is asked. At most one such read runs, and it goes on when the answer is sent without it."""

    def __init__(self, table: VfTable, sysfs: Sysfs) -> None:
        self._table = table
        self._sysfs = sysfs
        self._read: asyncio.Task[RoceFacts] | None = None

    async def facts(self) -> RoceFacts:
        """Return the facts, or after two seconds the cards that are still being read.

        Raises:
            OSError: as `roce_facts.read`.
        """
        if self._read is None or self._read.done():
            self._read = asyncio.create_task(roce_facts.read(self._sysfs, self._table.inventory))
            self._read.add_done_callback(take_outcome)  # it may end after the answer
        await asyncio.wait((self._read,), timeout=_SECONDS)
        if self._read.done():
            return self._read.result()
        cards = roce_facts.cards(self._table.inventory)
        why = f"its GIDs and flow control have not been read within {_SECONDS:g} s; ask again"
        return RoceFacts(unread={rail.address: why for rail in cards})
