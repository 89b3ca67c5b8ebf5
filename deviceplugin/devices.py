"""The devices that one pool offers to kubelet now: its VFs in order, each healthy or with the reason why it is not.

Pure. ListAndWatch streams this list, and Allocate checks requests against it. Between the two a VF may become unhealthy: then Allocate
refuses only what `lasting` says (docs/decisions/0038).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from deviceplugin import health
from deviceplugin.pools import Pool, assign
from vf.inventory import PhysicalFunction, VirtualFunction
from vf.pci_address import PciAddress
from vf.table import VfTable

State = Literal["free", "attached", "unhealthy"]


class OfferedVf(NamedTuple):
    """One VF of a pool.

    Attributes:
        vf: the VF's facts.
        rail: its rail, from 0; None if the rail of the VF's card is not certain.
        reason: why it is unhealthy; None if it is healthy.
        rdma: whether the pool needs RDMA.
        lasting: the reason, if it does not pass by itself; None if there is none, or if the pod's ADD can wait for its end.
    """

    vf: VirtualFunction
    rail: int | None
    reason: str | None
    rdma: bool = True
    lasting: str | None = None

    @property
    def id(self) -> str:
        """The VF's device id for kubelet: its PCI address."""
        return str(self.vf.address)

    @property
    def card(self) -> PciAddress:
        """The address of the VF's rail: of its PF, or its own if the PF is not on this node."""
        return self.vf.pf or self.vf.address

    def state(self, *, owned: bool) -> State:
        """Return the VF's state; `owned` means that a sandbox has the VF."""
        if owned:
            return "attached"
        return "free" if self.reason is None else "unhealthy"


def offers(pools: Sequence[Pool], pool: Pool, table: VfTable, node_reason: str | None = None) -> tuple[OfferedVf, ...]:
    """Return a pool's VFs in (rail, PCI address) order.

    Args:
        pools: all pools of the node, since a VF belongs to the first pool that matches it.
        pool: the pool, one of `pools`.
        table: the facts and owners of the VFs.
        node_reason: why no VF of this node may be used; None if VFs may be used.
    """
    rails = {vf.address: (number, rail.reason) for number, rail in table.inventory.all_rails() for vf in rail.vfs}
    vfs = assign(pools, table.inventory)[pool.resource]
    return tuple(_offer(pool, vf, *rails[vf.address], table, node_reason) for vf in vfs)


def _offer(
    pool: Pool, vf: VirtualFunction, rail: int | None, why_no_rail: str | None, table: VfTable, node_reason: str | None
) -> OfferedVf:
    pf, owned = table.inventory.pf(vf.pf), table.owner(vf.address) is not None
    unprovisioned = None if vf.pf is None else table.unprovisioned.get(vf.pf)
    barred = node_reason or why_no_rail or _pf_is_gone(pf, vf) or table.withheld(vf.address) or unprovisioned
    return OfferedVf(
        vf,
        rail if why_no_rail is None else None,
        reason=barred or health.reason(pf, vf, owned=owned, rdma=pool.rdma),
        rdma=pool.rdma,
        lasting=barred or health.lasting_reason(pf, vf, rdma=pool.rdma),
    )


def _pf_is_gone(pf: PhysicalFunction | None, vf: VirtualFunction) -> str | None:
    if pf is not None or vf.pf is None:
        return None
    return f"VF {vf.address} names PF {vf.pf}, but the node has no PF with this address"
