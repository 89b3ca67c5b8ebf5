"""The all-reduce over one rail: what its ranks have found together, and what each way out of the program says of it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from railnet.cli.table import Column, aligned
from railnet.validate.all_reduce.result import RankEnd, RankResult, SizeTime, shown_size
from railnet.validate.all_reduce.transport import MessagePath, path_of
from railnet.validate.findings.rail_finding import shown_gbits
from railnet.validate.mode import Mode

_KIB, _MIB = 1 << 10, 1 << 20
_SIZES = (8, _KIB, 32 * _KIB, _MIB, 16 * _MIB, 64 * _MIB)  # bytes of each rank's message
_SIZES_OF_QUICK = (8, _MIB, 16 * _MIB)


class NodeRank(NamedTuple):
    """What the rank of one node has found, over its netdev of the rail."""

    node: str
    netdev: str
    result: RankResult


class BusBandwidth(NamedTuple):
    """The speed of one size: the median of the slowest rank, and the bandwidths as nccl-tests has them, in Gbit/s."""

    bytes: int
    seconds: float
    algorithm_gbits: float
    bus_gbits: float


class RailAllReduce(NamedTuple):
    """The all-reduce over one rail.

    Attributes:
        ranks: by their number; empty if it was not tried.
        untried: why it was not tried, or why nothing is known of it; empty if it was tried.
        left_out: the nodes that have the rail, and no sound pair there: their pairs are cut, or could not be tried.
        seconds: how long it took.
    """

    rail: int
    ranks: tuple[NodeRank, ...] = ()
    untried: str = ""
    left_out: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that have a rank."""
        return tuple(rank.node for rank in self.ranks)

    @property
    def is_done(self) -> bool:
        """Return whether all ranks have ended well, so that there are numbers."""
        return bool(self.ranks) and all(rank.result.end is RankEnd.DONE and rank.result.sizes for rank in self.ranks)

    @property
    def backend(self) -> str:
        """The library: `nccl`, `gloo`, or both where the pods are unlike."""
        return " and ".join(sorted({rank.result.backend for rank in self.ranks if rank.result.backend}))

    @property
    def speeds(self) -> tuple[BusBandwidth, ...]:
        """The speed of each size that all ranks have measured."""
        if not self.is_done:
            return ()
        times = zip(*(rank.result.sizes for rank in self.ranks), strict=False)
        return tuple(_speed(of_ranks, len(self.ranks)) for of_ranks in times)

    @property
    def best(self) -> BusBandwidth | None:
        """The size with the highest bus bandwidth: of a sound rail the largest, or near it."""
        return max(self.speeds, key=lambda speed: speed.bus_gbits, default=None)

    @property
    def paths(self) -> tuple[tuple[NodeRank, MessagePath], ...]:
        """What has carried the messages of each rank; empty without numbers."""
        if not self.is_done:
            return ()
        return tuple((rank, path_of(rank.result, rank.netdev, len(self.ranks))) for rank in self.ranks)


def without_nodes(all_reduce: RailAllReduce, gone: Mapping[str, str]) -> RailAllReduce:
    """Return an all-reduce; one without a result says nothing but why, if the pod of a rank is gone or nothing is known of a rank's end.

    A rank that was killed or lost in a pod that is there is the cause by itself. `gone` has the reasons by node.
    """
    ends = {rank.result.end for rank in all_reduce.ranks}
    if all_reduce.is_done or RankEnd.NO_TORCH in ends:
        return all_reduce
    why = next((gone[node] for node in all_reduce.nodes if node in gone), "")
    unknown = [rank for rank in all_reduce.ranks if rank.result.end is RankEnd.OUT_OF_REACH]
    if not why and unknown and not ends & {RankEnd.KILLED, RankEnd.LOST}:
        why = f"what became of the rank of node {unknown[0].node} is not known: {unknown[0].result.why}"
    if not why:
        return all_reduce
    return RailAllReduce(all_reduce.rail, untried=why, left_out=all_reduce.left_out, seconds=all_reduce.seconds)


def sizes_of(mode: Mode) -> tuple[int, ...]:
    """Return the sizes to measure, in bytes."""
    return _SIZES_OF_QUICK if mode is Mode.QUICK else _SIZES


def all_reduce_lines(all_reduce: RailAllReduce, *, wide: bool = False) -> Iterator[str]:
    """Yield what a person reads about it below the matrix of its rail; `wide` has all sizes."""
    if all_reduce.untried:
        yield f"all-reduce: not tried ({all_reduce.untried})"
        return
    head = f"all-reduce of {len(all_reduce.ranks)} nodes"
    best = all_reduce.best
    if best is None:
        yield f"{head}: no result"
        return
    ways = list(dict.fromkeys(path.words for _, path in all_reduce.paths))
    yield (
        f"{head}: bus bandwidth {shown_gbits(best.bus_gbits)} Gbit/s at {shown_size(best.bytes)}, "
        f"{all_reduce.speeds[0].seconds * 1e6:.0f} us at {shown_size(all_reduce.speeds[0].bytes)}, {'; '.join(ways)} "
        f"({all_reduce.backend}: {all_reduce.ranks[0].result.software})"
    )
    if wide:
        yield from size_table(all_reduce)


def size_table(all_reduce: RailAllReduce) -> Iterator[str]:
    """Yield a line for each size."""
    columns = (
        Column("SIZE", number=True),
        Column("MICROSECONDS", number=True),
        Column("ALGORITHM Gbit/s", number=True),
        Column("BUS Gbit/s", number=True),
    )
    yield from aligned(columns, [size_row(speed) for speed in all_reduce.speeds])


def size_row(speed: BusBandwidth) -> tuple[str, str, str, str]:
    """Return the cells of a size."""
    return (
        shown_size(speed.bytes),
        f"{speed.seconds * 1e6:.0f}",
        shown_gbits(speed.algorithm_gbits),
        shown_gbits(speed.bus_gbits),
    )


def all_reduce_as_json(all_reduce: RailAllReduce) -> dict[str, Any]:
    """Return it for programs; bandwidths are Gbit/s, as all others of the report."""
    best, paths = all_reduce.best, {rank.node: path for rank, path in all_reduce.paths}
    return {
        "rail": all_reduce.rail,
        "nodes": list(all_reduce.nodes),
        "leftOut": list(all_reduce.left_out),
        "untried": all_reduce.untried or None,
        "backend": all_reduce.backend or None,
        "busGbits": None if best is None else round(best.bus_gbits, 3),
        "sizes": [
            {
                "bytes": speed.bytes,
                "microseconds": round(speed.seconds * 1e6, 1),
                "algorithmGbits": round(speed.algorithm_gbits, 3),
                "busGbits": round(speed.bus_gbits, 3),
            }
            for speed in all_reduce.speeds
        ],
        "ranks": [_rank_as_json(rank, paths.get(rank.node)) for rank in all_reduce.ranks],
    }


def _rank_as_json(rank: NodeRank, path: MessagePath | None) -> dict[str, Any]:
    result = rank.result
    return {
        "node": rank.node,
        "netdev": rank.netdev,
        "end": str(result.end),
        "why": result.why or None,
        "software": result.software or None,
        "network": result.network or None,
        "transport": None if path is None else str(path.transport),
        "sentByTcp": dict(result.by_tcp),
        "sentByRdma": dict(result.by_rdma),
    }


def _speed(of_ranks: Sequence[SizeTime], ranks: int) -> BusBandwidth:
    """Return the speed of one size. The factor 2(n-1)/n is that of NVIDIA/nccl-tests, doc/PERFORMANCE.md, which has GB/s in place of Gbit/s."""
    seconds = max(time.seconds for time in of_ranks)
    algorithm = of_ranks[0].bytes * 8 / seconds / 1e9
    return BusBandwidth(of_ranks[0].bytes, seconds, algorithm, algorithm * 2 * (ranks - 1) / ranks)
