"""Over what an all-reduce went, by the counters of the pod."""

import pytest

from railnet.validate.all_reduce.result import RankResult, RankSettings
from railnet.validate.all_reduce.transport import MessageTransport, bytes_to_send, look_without_rdma, path_of
from tests.railnet.validate.all_reduce.all_reduces import BY_TCP, POOR, nccl, result

_MUCH = 23 << 20


@pytest.mark.parametrize(
    ("found", "transport", "words"),
    [
        (result(), MessageTransport.TCP, "over TCP on net1"),
        (nccl(), MessageTransport.RDMA, "over RDMA"),
        (nccl(network="IB/GDRDMA"), MessageTransport.RDMA, "over RDMA, from the memory of the GPUs (GPUDirect)"),
        (nccl(**BY_TCP), MessageTransport.TCP, "over TCP on net1"),
        # IPoIB: the RDMA port counts the netdev's packets, too
        (nccl(by_tcp={"net1": _MUCH}, by_rdma={"net1": _MUCH + 5000}), MessageTransport.TCP, "over TCP on net1"),
        (
            nccl(by_rdma={}),
            MessageTransport.RDMA,
            "over RDMA, as NCCL says: the counters of mlx5_7 do not show it",
        ),
        (
            result(by_tcp={"eth0": _MUCH, "net1": 3000}),
            MessageTransport.ELSEWHERE,
            "not over net1: eth0 has carried it",
        ),
        (
            nccl(by_rdma={"net1": 0, "net2": _MUCH}),
            MessageTransport.ELSEWHERE,
            "not over net1: RDMA of net2 has carried it",
        ),
        # NCCL was given this rail's device alone, and a driver may count nothing of a VF
        (
            nccl(by_rdma={"net1": 100}),
            MessageTransport.RDMA,
            "over RDMA, as NCCL says: the counters of mlx5_7 do not show it",
        ),
        (
            nccl(by_rdma={"net1": 100}, network="Socket"),
            MessageTransport.ELSEWHERE,
            "not over net1, and no other interface of the pod has counted it",
        ),
        (
            result(by_tcp={}),
            MessageTransport.ELSEWHERE,
            "not over net1, and no other interface of the pod has counted it",
        ),
    ],
)
def test_counters_say_over_what_it_went(found: RankResult, transport: MessageTransport, words: str) -> None:
    path = path_of(found, "net1", 3)

    assert (path.transport, path.words) == (transport, words)


def test_rank_sends_twice_its_message_less_the_share_of_a_rank() -> None:
    (large,) = result().sizes[1:]

    assert bytes_to_send((large._replace(all_reduces=1),), 2) == 1 << 20
    assert bytes_to_send((large._replace(all_reduces=1),), 4) == 1.5 * (1 << 20)


def test_causes_of_tcp_are_those_that_the_pod_has() -> None:
    poor = look_without_rdma(nccl(settings=POOR))

    assert poor.startswith("NCCL_IB_DISABLE=1 in the image or the pod: remove it; the image has no libibverbs.so.1")
    assert "memory that may be locked: 8192 KiB in this pod" in poor
    assert look_without_rdma(nccl(settings=RankSettings())).startswith("what NCCL says of RDMA")
