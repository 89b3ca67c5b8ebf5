"""What one pool offers to kubelet at this moment: its VFs in order, each healthy or with the reason why not.

Pure. The view that ListAndWatch streams and Allocate checks, so both always agree.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from deviceplugin import health
from deviceplugin.pools import Pool, assign
from vf.inventory import VirtualFunction
from vf.table import VfTable

State = Literal["free", "attached", "unhealthy"]


class OfferedVf(NamedTuple):
    """One VF of a pool; `rail` counts from 0, `reason` is None if it is healthy, `rdma` says whether its pool needs RDMA."""

    vf: VirtualFunction
    rail: int
    reason: str | None
    rdma: bool = True

    @property
    def id(self) -> str:
        """The device id kubelet knows the VF by."""
        return str(self.vf.address)

    def state(self, *, owned: bool) -> State:
        """Say in one word what it is, given whether a sandbox has it."""
        if owned:
            return "attached"
        return "free" if self.reason is None else "unhealthy"


def offers(pools: Sequence[Pool], pool: Pool, table: VfTable, node_reason: str | None = None) -> tuple[OfferedVf, ...]:
    """List a pool's VFs in (rail, PCI address) order.

    Args:
        pools: all pools, since an earlier one may have taken a VF.
        pool: the pool asked for, one of them.
        table: facts and owners.
        node_reason: why no VF of this node may be used, if that is so.
    """
    rails = {vf.address: number for number, rail in enumerate(table.inventory.rails) for vf in rail.vfs}
    vfs = assign(pools, table.inventory)[pool.resource]
    return tuple(OfferedVf(vf, rails[vf.address], node_reason or _reason(pool, vf, table), pool.rdma) for vf in vfs)


def _reason(pool: Pool, vf: VirtualFunction, table: VfTable) -> str | None:
    pf = table.inventory.pf(vf.pf)
    if pf is None and vf.pf is not None:
        return f"VF {vf.address} names PF {vf.pf}, which is not there"
    return table.withheld(vf.address) or health.reason(
        pf, vf, owned=table.owner(vf.address) is not None, rdma=pool.rdma
    )
