"""Tells over what an all-reduce has gone: RDMA of its rail, TCP of its rail, or neither. Pure.

It is judged by the counters of the pod, and not by what the library says of itself: the netdev's bytes, and those of the rail's RDMA port. On
InfiniBand the port counts IPoIB's packets, too; on Ethernet it counts RoCE's alone. So the netdev's bytes are subtracted.
"""

from enum import StrEnum
from typing import NamedTuple

from railnet.validate.all_reduce.result import RankResult, SizeTime
from railnet.validate.findings.next_look import LIBIBVERBS, MEMLOCK, NCCL_SAYS

_SHARE = 0.5  # of the bytes that a rank must send: another path has carried it only if it has so much
_LITTLE_MEMORY = 1 << 30  # bytes that may be locked; NCCL locks its buffers of each connection


class MessageTransport(StrEnum):
    """Over what a rank has sent its messages."""

    RDMA = "RDMA"
    TCP = "TCP"
    ELSEWHERE = "elsewhere"


class MessagePath(NamedTuple):
    """What carried the messages of one rank; `words` say it for a person."""

    transport: MessageTransport
    words: str


def bytes_to_send(sizes: tuple[SizeTime, ...], ranks: int) -> float:
    """Return the bytes that a rank sends at least: for each message 2(n-1)/n of its size (NVIDIA/nccl-tests, doc/PERFORMANCE.md)."""
    return sum(size.bytes * size.all_reduces for size in sizes) * 2 * (ranks - 1) / ranks


def path_of(result: RankResult, netdev: str, ranks: int) -> MessagePath:
    """Return what has carried the messages of a rank whose rail is `netdev`."""
    enough = bytes_to_send(result.sizes, ranks) * _SHARE
    own = result.by_tcp.get(netdev, 0)
    if own >= enough:
        return MessagePath(MessageTransport.TCP, f"over TCP on {netdev}")
    if result.by_rdma.get(netdev, 0) - own >= enough:
        return MessagePath(MessageTransport.RDMA, f"over RDMA{_with_gpu(result)}")
    if other := _other_path(result, netdev, enough):
        return MessagePath(MessageTransport.ELSEWHERE, f"not over {netdev}: {other} has carried it")
    if result.device and result.network.startswith(
        "IB"
    ):  # NCCL was given this device alone; a driver may count nothing of a VF
        words = f"over RDMA{_with_gpu(result)}, as NCCL says: the counters of {result.device} do not show it"
        return MessagePath(MessageTransport.RDMA, words)
    return MessagePath(
        MessageTransport.ELSEWHERE, f"not over {netdev}, and no other interface of the pod has counted it"
    )


def _other_path(result: RankResult, netdev: str, enough: float) -> str:
    """Return the netdev or the RDMA port of another rail that has carried the messages; empty if none has."""
    others = {
        **{name: count for name, count in result.by_tcp.items() if name != netdev},
        **{
            f"RDMA of {name}": count - result.by_tcp.get(name, 0)
            for name, count in result.by_rdma.items()
            if name != netdev
        },
    }
    most = max(others, key=lambda name: others[name], default="")
    return most if most and others[most] >= enough else ""


def look_without_rdma(result: RankResult) -> str:
    """Return what to look at where NCCL took TCP, though the pod has an RDMA device: what its settings say, else what NCCL says."""
    settings = result.settings
    causes = [f"{name}={value} in the image or the pod: remove it" for name, value in settings.variables]
    if not settings.has_libibverbs:
        causes.append(LIBIBVERBS)
    if settings.memlock is not None and settings.memlock < _LITTLE_MEMORY:
        causes.append(MEMLOCK.format(settings.memlock >> 10))
    return "; ".join(causes) or NCCL_SAYS


def _with_gpu(result: RankResult) -> str:
    return ", from the memory of the GPUs (GPUDirect)" if result.network.endswith("/GDRDMA") else ""
