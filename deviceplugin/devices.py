"""The devices that one pool offers to kubelet now: its VFs in order, each healthy or with the reason why it is not.

Pure. ListAndWatch streams this list, and Allocate checks requests against it. Between the two a VF may become unhealthy: then Allocate
refuses only what `lasting` says (docs/decisions/0038).
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Literal, NamedTuple

from deviceplugin import health
from deviceplugin.pool_selection import Pool, first_match
from railnet.vf.inventory import PhysicalFunction, Rail, VirtualFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable

State = Literal["free", "attached", "unhealthy"]


@dataclass(frozen=True, slots=True)
class OfferedVf:
    """One VF of a pool.

    Attributes:
        rail: its rail, from 0; None if the rail of the VF's card is not certain.
        reason: why it is unhealthy; None if it is healthy.
        rdma: whether the pool needs RDMA.
        lasting: the reason, if it does not pass by itself; None if there is none, or if the pod's ADD can wait for its end.
        id: the VF's device id for kubelet: its PCI address.
    """

    vf: VirtualFunction
    rail: int | None
    reason: str | None
    rdma: bool = True
    lasting: str | None = None
    id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "id", str(self.vf.address)
        )  # a field: kubelet's calls need the id of each of a thousand VFs

    @property
    def card(self) -> PciAddress:
        """The address of the VF's rail: of its PF, or its own if the PF is not on this node."""
        return self.vf.pf or self.vf.address

    def state(self, *, owned: bool) -> State:
        """Return the VF's state; `owned` means that a sandbox has the VF."""
        if owned:
            return "attached"
        return "free" if self.reason is None else "unhealthy"


class Offers:
    """The list of one pool, made again and again.

    A rail whose facts have not changed keeps its list, and so does a VF its `OfferedVf`. So an ADD, of which kubelet's calls and each
    change of the table ask for the list, costs nearly the same on a node with a thousand VFs as on a node with sixteen.
    """

    def __init__(self, pools: Sequence[Pool], pool: Pool) -> None:
        """Offer the VFs of `pool`, one of `pools`: a VF belongs to the first pool that matches it."""
        self._pools, self._pool = tuple(pools), pool
        self._pfs: dict[
            PciAddress, tuple[PhysicalFunction, PhysicalFunction]
        ] = {}  # each PF, and the same without its VFs
        self._of_rails: dict[PciAddress, _RailOffers] = {}
        self._asked: tuple[VfTable, int, str | None] | None = None
        self._answer: tuple[OfferedVf, ...] = ()

    def now(self, table: VfTable, node_reason: str | None = None) -> tuple[OfferedVf, ...]:
        """Return the pool's VFs in (rail, PCI address) order.

        Args:
            table: the facts and owners of the VFs.
            node_reason: why no VF of this node may be used; None if VFs may be used.
        """
        asked = (table, table.version, node_reason)
        if asked != self._asked:
            self._asked, self._answer = asked, self._made_now(table, node_reason)
        return self._answer

    def _made_now(self, table: VfTable, node_reason: str | None) -> tuple[OfferedVf, ...]:
        self._pfs = {pf.address: (pf, self._without_vfs(pf)) for pf in table.inventory.pfs}
        owned, before = table.owned(), self._of_rails
        self._of_rails = {}
        for number, rail in table.inventory.all_rails():
            facts = _RailFacts(
                rail,
                number if rail.reason is None else None,
                frozenset() if rail.pf is None else rail.pf.addresses & owned,
                node_reason,
                table.reasons_to_withhold,
                table.unprovisioned,
            )
            known = before.get(rail.address)
            # The list of a lone VF also follows from whether the node has the PF that it names.
            unchanged = known is not None and rail.pf is not None and known.facts == facts
            # With the newer of two equal facts: the same objects compare at once the next time.
            self._of_rails[rail.address] = (
                known._replace(facts=facts) if known is not None and unchanged else self._made_of(facts, known, table)
            )
        return tuple(chain.from_iterable(of_rail.offers for of_rail in self._of_rails.values()))

    def _made_of(self, facts: "_RailFacts", before: "_RailOffers | None", table: VfTable) -> "_RailOffers":
        pfs = {address: alone for address, (_, alone) in self._pfs.items()}
        rail, number, *_ = facts
        pf = None if rail.pf is None else pfs[rail.pf.address]
        offers: dict[PciAddress, tuple[_Facts, OfferedVf | None]] = {}
        unchanged = _unchanged(facts, pf, before)
        for vf in sorted(rail.vfs, key=_address):
            if (kept := unchanged.get(vf.address)) is not None and kept[0].vf is vf:
                offers[vf.address] = kept
                continue
            named = pf if pf is not None or vf.pf is None else pfs.get(vf.pf)
            unprovisioned = None if vf.pf is None else table.unprovisioned.get(vf.pf)
            withheld = _pf_is_gone(named, vf) or table.withheld(vf.address) or unprovisioned
            barred = facts.node_reason or rail.reason or withheld
            now = _Facts(vf, pf, named, number, barred, table.owner(vf.address) is not None)
            known = None if before is None else before.made.get(vf.address)
            offers[vf.address] = known if known is not None and known[0] == now else (now, self._offer(now))
        return _RailOffers(facts, offers, tuple(offer for _, offer in offers.values() if offer is not None))

    def _without_vfs(self, pf: PhysicalFunction) -> PhysicalFunction:
        """Return a PF without its VFs; the same object as before if its own facts are the same, so that facts are compared at once."""
        before, kept = self._pfs.get(pf.address, (None, None))
        if kept is not None and before is pf:
            return kept
        alone = replace(pf, vfs=())
        return kept if kept is not None and kept == alone else alone

    def _offer(self, facts: "_Facts") -> OfferedVf | None:
        """Return what is offered of a VF; None if it belongs to another pool, or to none."""
        pool, (vf, of_rail, pf, rail, barred, owned) = self._pool, facts
        if first_match(self._pools, of_rail, vf) != pool:
            return None
        return OfferedVf(
            vf,
            rail,
            reason=barred or health.reason(pf, vf, owned=owned, rdma=pool.rdma),
            rdma=pool.rdma,
            lasting=barred or health.lasting_reason(pf, vf, rdma=pool.rdma),
        )


def differing(
    before: Sequence[OfferedVf], now: Sequence[OfferedVf]
) -> Iterator[tuple[OfferedVf | None, OfferedVf | None]]:
    """Yield the offers of two lists of `Offers` that differ, place by place; None where a list has ended.

    An offer that is the same object is not compared further: of a thousand VFs, one ADD changes a few.
    """
    return ((old, new) for old, new in zip_longest(before, now) if old is not new)


class _RailFacts(NamedTuple):
    """All that the list of a rail follows from. `owned` are those of its VFs that sandboxes have."""

    rail: Rail
    number: int | None
    owned: AbstractSet[PciAddress]
    node_reason: str | None
    withheld: Mapping[PciAddress, str]
    unprovisioned: Mapping[PciAddress, str]


class _RailOffers(NamedTuple):
    """The list of one rail, with all that it was made from; a VF that belongs to no pool, or to another, has no offer."""

    facts: _RailFacts
    made: "Mapping[PciAddress, tuple[_Facts, OfferedVf | None]]"
    offers: tuple[OfferedVf, ...]


class _Facts(NamedTuple):
    """All that one VF's offer follows from. `of_rail` is the rail's PF; `pf` is the one that the VF names. Both are without their VFs."""

    vf: VirtualFunction
    of_rail: PhysicalFunction | None
    pf: PhysicalFunction | None
    rail: int | None
    barred: str | None
    owned: bool


def _unchanged(
    facts: _RailFacts, pf: PhysicalFunction | None, before: _RailOffers | None
) -> "Mapping[PciAddress, tuple[_Facts, OfferedVf | None]]":
    """Return what was made of those VFs of a rail for which all but their own facts is as before: of an ADD, all but one.

    `pf` is the rail's PF without its VFs. Without a PF all are made again: a lone VF may name another PF.
    """
    if before is None or pf is None:
        return {}
    number, reason, rest = facts.number, facts.rail.reason, facts[3:]
    if (number, reason, rest) != (before.facts.number, before.facts.rail.reason, before.facts[3:]):
        return {}
    return {
        address: offer
        for address, offer in before.made.items()
        if offer[0].of_rail is pf and offer[0].owned == (address in facts.owned)
    }


def _address(vf: VirtualFunction) -> PciAddress:
    return vf.address


def _pf_is_gone(pf: PhysicalFunction | None, vf: VirtualFunction) -> str | None:
    if pf is not None or vf.pf is None:
        return None
    return f"VF {vf.address} names PF {vf.pf}, but the node has no PF with this address"
