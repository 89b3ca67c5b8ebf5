"""VFs that two records name, at start: one record is right, and the others are put aside.

No work of Railnet's writes such records: a record was put back by hand, or restored with a copy of /run. The record that is right is the
one whose sandbox has the VF; the sweep would take the VF from it on behalf of the other (docs/decisions/0044).
"""

import logging
from collections.abc import Iterable
from typing import NamedTuple

from cni.attachment.journal import Journal
from cni.attachment.netdev_return import NodeNetdevs
from cni.recovery.namespace_observation import SandboxNamespaces
from cni.recovery.rules import NamespaceState
from railnet.vf.orphan_rescue import OrphanNetdev
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Record

_log = logging.getLogger(__name__)
_LIVING = (NamespaceState.ALIVE, NamespaceState.MOVED)


class Evidence(NamedTuple):
    """The facts that speak for a record as the owner of one VF; the greatest evidence is believed.

    Attributes:
        holds: the VF's netdev is in the sandbox's namespace.
        alive: the namespace exists, and is of the present boot.
        at_path: the namespace is at the record's own path. Elsewhere it is known by its inode alone, which the kernel gives again.
        changed_at: when the record was written, in seconds since the epoch.
    """

    holds: bool
    alive: bool
    at_path: bool
    changed_at: float


def contested(records: Iterable[Record]) -> dict[PciAddress, list[Record]]:
    """Return the VFs that more than one record names, with those records."""
    named: dict[PciAddress, list[Record]] = {}
    for record in records:
        for vf in dict.fromkeys(attachment.vf for attachment in record.attachments):
            named.setdefault(vf, []).append(record)
    return {vf: sharing for vf, sharing in named.items() if len(sharing) > 1}


class ContestedVfs:
    """Settles which record is right."""

    def __init__(self, journal: Journal, namespaces: SandboxNamespaces, node_netdevs: NodeNetdevs) -> None:
        self._journal = journal
        self._namespaces = namespaces
        self._node_netdevs = node_netdevs

    async def settle(self) -> None:
        """Leave one record for each VF, and put the others into quarantine. Call it before VFs are claimed."""
        while doubtful := contested(self._journal.records()):
            vf, records = min(doubtful.items(), key=lambda each: each[0])
            where = await self._where(vf)
            evidence = {record.key: await self._evidence(record, where) for record in records}
            *others, right = sorted(records, key=lambda record: evidence[record.key])
            for record in others:
                self._journal.quarantine(record, f"sandbox {right.key} has VF {vf}, {_words(evidence[right.key])}")

    async def _where(self, vf: PciAddress) -> OrphanNetdev | None:
        """Find the namespace that has a VF's netdev; None if none has it, or if the kernel does not answer."""
        try:
            return (await self._node_netdevs.find_orphans((vf,))).get(vf)
        except OSError as error:
            _log.error("VF %s, which two records name, was not found: %s", vf, error)
            return None

    async def _evidence(self, record: Record, where: OrphanNetdev | None) -> Evidence:
        state = (await self._namespaces.observe(record)).state
        alive = state in _LIVING
        holds = alive and where is not None and where.netns[1:] == record.netns[1:]
        return Evidence(holds, alive, state is NamespaceState.ALIVE, self._journal.changed_at(record))


def _words(evidence: Evidence) -> str:
    if evidence.holds:
        return "whose netdev is in it"
    return "and is alive" if evidence.alive else "and its record is the newest"
