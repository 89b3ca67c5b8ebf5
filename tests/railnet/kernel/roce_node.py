"""The sysfs of a node with one card that speaks RoCE: a PF with MTU 9000, and one VF with a netdev."""

from tests.railnet.kernel import nodes
from tests.railnet.kernel.tree import Function

PF, VF = "0000:05:00.0", "0000:05:00.1"
LOCAL = "fe80:0000:0000:0000:ba59:9fff:fef9:8f86"
_LOCAL_GIDS = ((0, "IB/RoCE v1", LOCAL), (1, "RoCE v2", LOCAL))


def roce_node(
    *gids: tuple[int, str, str], traffic_class: str | None = None, mtu: int = 9000, local: bool = True
) -> tuple[Function, ...]:
    """Return the functions; the VF's port has these GIDs, and the link-local ones that each RoCE port has, unless `local` is false."""
    local_gids = _LOCAL_GIDS if local else ()
    pf = nodes.pci(PF, 0x1021, nodes.ETHERNET) | nodes.sriov(8, 1, 0x101E) | nodes.ethernet("ens5", 4)
    pf |= nodes.rdma(4, nodes.guid(PF), nodes.roce_port() | nodes.gids(*_LOCAL_GIDS)) | {"net/ens5/mtu": f"{mtu}\n"}
    if traffic_class is not None:
        pf["infiniband/mlx5_4/tc/1/traffic_class"] = f"{traffic_class}\n"
    vf = nodes.pci(VF, 0x101E, nodes.ETHERNET) | nodes.ethernet("ens5v0", 5)
    vf |= nodes.rdma(5, nodes.guid(VF), nodes.roce_port() | nodes.gids(*local_gids, *gids))
    return tuple(nodes.pf_with_vfs(Function(PF, pf), [Function(VF, vf)]))
