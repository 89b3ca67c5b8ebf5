"""What the kernel shows of sandboxes, against what is written of them: records are made again, corrected, and let go."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from cni.attachment.claims import Claims, owner_of
from cni.attachment.journal import Journal
from cni.attachment.netdev_return import NodeNetdevs
from cni.host_paths import HostPaths
from cni.locks import PerKey
from vf import orphans
from vf.address import PciAddress
from vf.orphans import OrphanNetdev
from vf.record import Record
from vf.table import VfTable

_log = logging.getLogger(__name__)


class RecordRepair:
    """Records that no ADD writes. Which and when is told by `cni.recovery.sweep`, and decided by `vf.orphans`."""

    def __init__(
        self, table: VfTable, journal: Journal, claims: Claims, home: NodeNetdevs, host: HostPaths, at: PerKey
    ) -> None:
        self._table = table
        self._journal = journal
        self._claims = claims
        self._home = home
        self._host = host
        self._at = at

    async def follow(self, record: Record) -> bool:
        """Look whether a namespace that is bound nowhere any more lives on with its VFs, by its processes; write down how it is reached.

        Raises:
            OSError: it cannot be told.
        """
        if self._host.is_of_an_older_boot(record):
            return False
        strays = await self._home.strays(self._home.absent(one.vf for one in record.attachments))
        netns = next((stray.netns for stray in strays.values() if stray.netns[1:] == record.netns[1:]), None)
        if netns is not None:
            _log.warning("sandbox %s: %s is gone, and %s is its namespace", record.key, record.netns.path, netns.path)
            self._journal.write(replace(record, netns=netns))
        return netns is not None

    def adopt(self, strays: Mapping[PciAddress, OrphanNetdev], pods: Mapping[PciAddress, str]) -> None:
        """Own what strays have, and write it down; what somebody has claimed or returned meanwhile is no stray."""
        free = {vf: one for vf, one in strays.items() if self._table.owner(vf) is None and self._home.absent((vf,))}
        records = {record.key: record for record in self._journal.records()}
        books = orphans.Books(records, self._journal.traces, pods, self._host.boot)
        for record in orphans.adopt(self._table.inventory, free, books):
            if self._at.is_held(record.key):
                continue  # a request is at it; the next look comes
            _log.error("sandbox %s: made again from network namespace %s", record.key, record.netns.path)
            self._journal.write(record)
            self._claims.own(record)

    def let_go(self, record: Record) -> Record:
        """Free the VFs of an adopted record whose netdevs are back on the node; gives what is left of the record."""
        away = tuple(one for one in record.attachments if not self._home.has(one.vf))
        left = replace(record, attachments=away)
        if left != record:
            self._journal.write(left) if left.attachments else self._journal.remove(record)
            self._claims.release((one.vf for one in record.attachments if one not in away), owner_of(record))
        return left
