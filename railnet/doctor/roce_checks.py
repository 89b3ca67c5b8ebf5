"""The checks of ports that speak RoCE: GIDs, MTU, flow control. Pure."""

from collections.abc import Iterator

from railnet.doctor.facts import Facts
from railnet.doctor.finding_kinds import Finding
from railnet.fabric.roce import rdma_mtu, routable

_LARGEST_RDMA_MTU = 4096  # IB_MTU_4096 is the largest that there is
_VERSION = 2  # RoCE v2


def gids(facts: Facts) -> Iterator[Finding]:
    """Find VFs of pods with a port that other subnets do not reach. The netdev of a free VF has no address, and so no such GID."""
    told = facts.daemon.told or {}
    attached = {vf["vf"] for vf in told.get("vfs", ()) if vf.get("state") == "attached"}
    for address, port in facts.roce.ports.items():
        if str(address) not in attached:
            continue
        v2_gids = [gid for gid in port.gids if gid.version == _VERSION]
        if not v2_gids:
            yield Finding("roce-without-gid", str(address), f"none of {len(port.gids)} GIDs is of RoCE v2")
        elif routable(v2_gids) is None:
            yield Finding(
                "roce-link-local-only", str(address), ", ".join(f"GID {gid.index}: {gid.ip}" for gid in v2_gids)
            )


def mtus(facts: Facts) -> Iterator[Finding]:
    """Find PFs with an MTU that makes RDMA packets small."""
    for _, rail in facts.inventory.all_rails():
        pf = rail.pf
        if pf is None or pf.netdev is None or pf.address not in facts.roce.ports:
            continue
        largest = rdma_mtu(pf.netdev.mtu)
        if largest is None or largest < _LARGEST_RDMA_MTU:
            carried = "no RDMA packet fits" if largest is None else f"an RDMA packet carries {largest} bytes"
            yield Finding("roce-small-mtu", f"{pf.address} ({pf.netdev.name})", f"MTU {pf.netdev.mtu}: {carried}")


def flow_control(facts: Facts) -> Iterator[Finding]:
    """Find PFs that pause no priority."""
    for address, pfc in facts.roce.flow_control.items():
        if pfc is not None and not pfc.priorities:
            by = "DSCP" if pfc.by_dscp else "VLAN priority"
            yield Finding("roce-not-lossless", str(address), f"pfc_en 0x00; {by} chooses the priority")
