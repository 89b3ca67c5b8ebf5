"""All-reduces of made-up clusters."""

from typing import Any

from railnet.validate.all_reduce.rail_all_reduce import NodeRank, RailAllReduce
from railnet.validate.all_reduce.result import RankEnd, RankResult, RankSettings, SizeTime

SIZES = (8, 1 << 20)


def result(seconds: float = 0.001, **changes: Any) -> RankResult:
    """Return what a rank of gloo has found, whose largest message takes so long, by TCP on net1."""
    sizes = (SizeTime(8, 5e-5, 22, True), SizeTime(1 << 20, seconds, 22, True))
    sent = {"eth0": 9000, "net1": 23 << 20}
    gloo = RankResult(RankEnd.DONE, "", "1 MiB", "gloo", "PyTorch 2.5.1", sizes, by_tcp=sent)
    return gloo._replace(**changes)


def nccl(**changes: Any) -> RankResult:
    """Return what a rank of NCCL has found, over RDMA of a pod that has it."""
    over_rdma = {
        "backend": "nccl",
        "software": "PyTorch 2.5.1, NCCL 2.21.5",
        "network": "IB",
        "device": "mlx5_7",
        "by_tcp": {"eth0": 9000, "net1": 4000},
        "by_rdma": {"net1": 23 << 20},
    }
    return result(**{**over_rdma, **changes})


BY_TCP = {"network": "Socket", "by_tcp": {"eth0": 9000, "net1": 23 << 20}, "by_rdma": {"net1": 0}}
"""The changes of a rank of NCCL that has taken TCP."""
POOR = RankSettings(8 << 20, False, (("NCCL_IB_DISABLE", "1"),))


def all_reduce(rail: int, *results: RankResult, **changes: Any) -> RailAllReduce:
    """Return an all-reduce of the nodes a, b, c and so on."""
    ranks = [NodeRank(node, "net1", found) for node, found in zip("abcdefgh", results, strict=False)]
    return RailAllReduce(rail, tuple(ranks), seconds=2.5)._replace(**changes)
