"""Free VFs whose netdev is not on the node: search for it, then rebuild a record, bind the driver again, or withhold the VF.

`railnet.vf.orphan_rescue` decides which of these is done.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from cni.attachment.journal import Journal
from cni.attachment.netdev_return import NodeNetdevs
from cni.attachment.vf_reassignment import Claims
from cni.recovery.record_repair import RecordRepair
from railnet.kernel.inventory import card_of
from railnet.vf import orphan_rescue
from railnet.vf.orphan_rescue import Absence
from railnet.vf.pci_address import PciAddress
from railnet.vf.steps import ProbeAgain
from railnet.vf.vf_table import VfTable

_log = logging.getLogger(__name__)
_SEARCH_AGAIN_SECONDS = 60.0  # a search of all namespaces takes a millisecond for each of them

Pods = Callable[[], Awaitable[Mapping[PciAddress, str] | None]]


class OrphanVfs:
    """Keeps since when each VF is absent.

    `pods` returns the UIDs of the pods that kubelet gave VFs to, None if that is not known.
    """

    def __init__(  # noqa: PLR0913 - composed once
        self,
        *,
        table: VfTable,
        journal: Journal,
        claims: Claims,
        node_netdevs: NodeNetdevs,
        repair: RecordRepair,
        pods: Pods,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._journal = journal
        self._claims = claims
        self._node_netdevs = node_netdevs
        self._repair = repair
        self._pods = pods
        self._now = now
        self._absent: dict[PciAddress, Absence] = {}
        self._searched: tuple[frozenset[PciAddress], float] = (frozenset(), 0.0)

    async def find(self) -> None:
        """Find free VFs whose netdev is not on the node: it is in a sandbox without a record, or in no namespace.

        In the first case the record is rebuilt from what the kernel shows, and the VF is given to no other pod while that
        namespace is alive. In the second case the VF's driver is bound again, a few times.
        """
        try:
            await self._find()
        except OSError as error:
            _log.error("the search for VFs that are not on the node failed: %s", error)

    async def _find(self) -> None:
        await self._node_netdevs.rename_free()
        now, pods = self._now(), await self._pods()
        missing = {vf.address: vf for vf in await self._node_netdevs.missing()}
        # kubelet's checkpoint may still list a pod for a VF that was taken back from it.
        known = {vf: uid for vf, uid in (pods or {}).items() if not self._claims.has_ended(vf)}
        # If it is not known which pod has which VF, any pod may use any VF: then no driver is bound again.
        in_use = missing.keys() if pods is None else known.keys()
        self._absent = {vf: self._absent.get(vf, Absence(now, 0)) for vf in missing}
        if missing and self._is_due(now, in_use):
            self._searched = frozenset(missing), now
            orphans_by_vf = await self._node_netdevs.find_orphans(missing)
            await self._repair.rebuild(orphans_by_vf, known)
            self._absent = {vf: absence for vf, absence in self._absent.items() if vf not in orphans_by_vf}
            await self._probe_each(orphan_rescue.probe(self._table.inventory, self._absent, in_use, now))
            still = {vf.address for vf in await self._node_netdevs.missing()}
            self._absent = {vf: absence for vf, absence in self._absent.items() if vf in still}
        self._table.withhold(self._reasons(in_use, known))

    def _is_due(self, now: float, in_use: Collection[PciAddress]) -> bool:
        """Return whether a search may find something else than the last one, or a driver is still to be bound again."""
        vfs, searched_at = self._searched
        if vfs != self._absent.keys() or now - searched_at >= _SEARCH_AGAIN_SECONDS:
            return True
        return orphan_rescue.is_pending(self._table.inventory, self._absent, in_use)

    async def _probe_each(self, steps: Iterable[ProbeAgain]) -> None:
        """Bind drivers again, on several cards at once: a card whose driver does not come holds up no other."""
        cards: dict[PciAddress, list[ProbeAgain]] = {}
        for step in steps:
            cards.setdefault(card_of(self._table.inventory, step.vf), []).append(step)

        async def probe(of_card: Iterable[ProbeAgain]) -> None:
            for step in of_card:
                await self._probe_again(step)

        await asyncio.gather(*map(probe, cards.values()))

    async def _probe_again(self, step: ProbeAgain) -> None:
        absence = self._absent[step.vf]
        self._absent[step.vf] = absence._replace(tries=absence.tries + 1)
        try:
            await self._node_netdevs.probe_again(step)
        except OSError as error:
            _log.error("VF %s: %s was not bound again: %s", step.vf, step.driver, error)

    def _reasons(self, in_use: Collection[PciAddress], pods: Mapping[PciAddress, str]) -> dict[PciAddress, str]:
        inventory = self._table.inventory
        absent = {
            vf: orphan_rescue.reason_absent(inventory, facts, absence, in_use=vf in in_use)
            for vf, absence in self._absent.items()
            if (facts := inventory.vf(vf)) is not None
        }
        unnamed = [
            (record, attachment.vf)
            for record in self._journal.records()
            if not record.named
            for attachment in record.attachments
        ]
        return (
            self._node_netdevs.reasons_awaited()
            | absent
            | {vf: orphan_rescue.reason_unnamed(record, vf) for record, vf in unnamed if vf not in pods}
        )
