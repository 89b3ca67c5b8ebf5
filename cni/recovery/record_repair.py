"""Change records without a request: rebuild lost ones, follow a namespace to another path, free VFs that are back.

`cni.recovery.rules` and `cni.recovery.missing_netdevs` decide when that is done; `railnet.vf.orphan_rescue` decides what a rebuilt record says.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from cni.attachment.journal import Journal
from cni.attachment.netdev_return import NodeNetdevs
from cni.attachment.vf_reassignment import Claims, owner_of
from cni.sandbox_locks import PerKey
from railnet.vf import orphan_rescue
from railnet.vf.orphan_rescue import OrphanNetdev, RebuildSources
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Netns, Record
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)


class RecordRepair:
    """Writes records that no ADD writes; `sandboxes` are the locks of sandboxes by key, `boot` is the present boot."""

    def __init__(
        self,
        *,
        table: VfTable,
        journal: Journal,
        claims: Claims,
        node_netdevs: NodeNetdevs,
        sandboxes: PerKey,
        boot: str,
    ) -> None:
        self._table = table
        self._journal = journal
        self._claims = claims
        self._node_netdevs = node_netdevs
        self._sandboxes = sandboxes
        self._boot = boot

    def own_recorded(self) -> None:
        """Claim the VFs of every record, at start and before any request is served."""
        for record in self._journal.records():
            self._claims.own(record)

    def follow(self, record: Record, netns: Netns) -> None:
        """Write to a record the path at which its namespace can be reached now."""
        _log.warning("sandbox %s: %s is gone, and %s is its namespace", record.key, record.netns.path, netns.path)
        self._journal.write(replace(record, netns=netns))

    async def rebuild(self, orphans_by_vf: Mapping[PciAddress, OrphanNetdev], pods: Mapping[PciAddress, str]) -> None:
        """Rebuild the records of VFs that were found in namespaces; a VF that was claimed or returned meanwhile is left out."""
        absent = {vf: orphan for vf, orphan in orphans_by_vf.items() if await self._is_absent(vf)}
        # No await from here on: a VF that is free now is free when its record is written.
        free = {vf: orphan for vf, orphan in absent.items() if self._table.owner(vf) is None}
        records = {record.key: record for record in self._journal.records()}
        sources = RebuildSources(records, self._journal.lost_records, pods, self._boot)
        for record in orphan_rescue.rebuild(self._table.inventory, free, sources):
            if self._sandboxes.is_held(record.key):
                continue  # a request works on this sandbox; the next search rebuilds its record
            _log.error("sandbox %s: record rebuilt from network namespace %s", record.key, record.netns.path)
            self._journal.write(record)
            self._claims.own(record)

    async def _is_absent(self, vf: PciAddress) -> bool:
        try:
            return bool(await self._node_netdevs.absent((vf,)))
        except OSError as error:
            _log.error("VF %s: it is not known whether its netdev is on the node: %s", vf, error)
            return False

    async def free_returned(self, record: Record) -> Record:
        """Release the VFs of a rebuilt record whose netdevs are back on the node; return the record that is left."""
        away = tuple(
            [attachment for attachment in record.attachments if not await self._node_netdevs.has(attachment.vf)]
        )
        left = replace(record, attachments=away)
        if left != record:
            self._journal.write(left) if left.attachments else self._journal.remove(record)
            self._claims.release(
                (attachment.vf for attachment in record.attachments if attachment not in away), owner_of(record)
            )
        return left
