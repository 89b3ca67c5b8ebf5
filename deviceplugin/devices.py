"""The devices that one pool offers to kubelet now: its VFs in order, each healthy or with the reason why it is not.

Pure. ListAndWatch streams this list and Allocate checks requests against it, so both always agree.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from deviceplugin import health
from deviceplugin.pools import Pool, assign
from vf.inventory import VirtualFunction
from vf.table import VfTable

State = Literal["free", "attached", "unhealthy"]


class OfferedVf(NamedTuple):
    """One VF of a pool; `rail` counts from 0, `reason` is None if the VF is healthy, `rdma` says whether the pool needs RDMA."""

    vf: VirtualFunction
    rail: int
    reason: str | None
    rdma: bool = True

    @property
    def id(self) -> str:
        """The VF's device id for kubelet: its PCI address."""
        return str(self.vf.address)

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
    rails = {vf.address: number for number, rail in enumerate(table.inventory.rails) for vf in rail.vfs}
    vfs = assign(pools, table.inventory)[pool.resource]
    return tuple(OfferedVf(vf, rails[vf.address], node_reason or _reason(pool, vf, table), pool.rdma) for vf in vfs)


def _reason(pool: Pool, vf: VirtualFunction, table: VfTable) -> str | None:
    pf = table.inventory.pf(vf.pf)
    if pf is None and vf.pf is not None:
        return f"VF {vf.address} names PF {vf.pf}, but the node has no PF with this address"
    return table.withheld(vf.address) or health.reason(
        pf, vf, owned=table.owner(vf.address) is not None, rdma=pool.rdma
    )
