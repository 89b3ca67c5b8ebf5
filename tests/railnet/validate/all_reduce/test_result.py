"""What is read from a rank's words, and from NCCL's lines."""

import json
from typing import Any

import pytest

from railnet.validate.all_reduce.result import RankEnd, nccl_network, parse_rank, shown_size

_SIZES = (8, 1024)
_SOUND: dict[str, Any] = {
    "steps": [
        {"step": "imported", "torch": "2.5.1", "backend": "nccl", "nccl": "2.21.5"},
        {"step": "met"},
        {"step": "size", "bytes": 8, "seconds": 2e-5, "all_reduces": 22, "right": True},
        {"step": "size", "bytes": 1024, "seconds": 3e-5, "all_reduces": 22, "right": True},
        {"step": "done"},
    ],
    "nccl": [],
    "last": [],
    "status": 0,
    "hung": False,
    "transmitted": {"tcp": {"net1": 5000}, "rdma": {}},
    "device": "",
    "settings": {"memlock": -1, "libibverbs": True, "variables": {}},
}


def with_size(**changes: Any) -> str:
    size = {**_SOUND["steps"][2], **changes}
    return json.dumps({**_SOUND, "steps": [*_SOUND["steps"][:2], size, *_SOUND["steps"][3:]]})


def test_sound_rank_is_read() -> None:
    found = parse_rank(json.dumps(_SOUND), _SIZES)

    assert (found.end, found.software, found.by_tcp) == (RankEnd.DONE, "PyTorch 2.5.1, NCCL 2.21.5", {"net1": 5000})
    assert found.settings.memlock is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "NaN",
        "null",
        "[" * 5000,
        json.dumps({**_SOUND, "steps": None}),
        json.dumps({**_SOUND, "settings": {}}),
        json.dumps({**_SOUND, "transmitted": {"tcp": {"net1": "many"}, "rdma": {}}}),
        json.dumps({**_SOUND, "transmitted": {"tcp": {"net1": 1 << 70}, "rdma": {}}}),
        with_size(seconds=float("nan")),
        with_size(seconds=-1.0),
        with_size(seconds=1e-300),
        with_size(seconds=1e300),
        with_size(seconds=True),
        with_size(bytes=9),
        with_size(all_reduces=-2),
        with_size(all_reduces=1e9),
    ],
)
def test_nonsense_is_no_result(text: str) -> None:
    with pytest.raises(ValueError, match=r"it has printed .* which is no result of an all-reduce"):
        parse_rank(text, _SIZES)


def test_words_of_a_pod_are_cut() -> None:
    steps = [{"step": "imported", "backend": "gloo"}, {"step": "failed", "why": "x" * 100_000}]
    found = parse_rank(json.dumps({**_SOUND, "steps": steps}), _SIZES)

    assert (found.end, found.why, found.at) == (RankEnd.FAILED, "x" * 400, "meeting")


def test_counter_that_was_reset_meanwhile_says_nothing() -> None:
    told = {**_SOUND, "transmitted": {"tcp": {"net1": -5000}, "rdma": {}}}

    assert parse_rank(json.dumps(told), _SIZES).by_tcp == {}


@pytest.mark.parametrize(
    ("lines", "network"),
    [
        # github.com/NVIDIA/nccl-tests, issue 185
        (
            (
                "dgxh100-4:460770:460842 [0] NCCL INFO NET/IB : Using [0]mlx5_10:1/RoCE [1]mlx5_11:1/RoCE [RO]; OOB enp220s0np0:11.1.128.136<0>",
                "dgxh100-4:460770:460842 [0] NCCL INFO Using network IB",
            ),
            "IB",
        ),
        # github.com/NVIDIA/nccl, issue 952: no device; NCCL goes on by sockets
        (
            (
                "node:924:1152 [5] NCCL INFO NET/IB : No device found.",
                "node:924:1152 [5] NCCL INFO NET/Socket : Using [0]net1:10.56.0.2<0>",
                "node:924:1152 [5] NCCL INFO Using network Socket",
            ),
            "Socket",
        ),
        # github.com/Mellanox/nv_peer_memory, issue 56
        (
            (
                "node:20:289 [0] NCCL INFO Using network IB",
                "node:20:289 [0] NCCL INFO Ring 00 : 1[1] -> 0[0] [receive] via NET/IB/0/GDRDMA",
            ),
            "IB/GDRDMA",
        ),
        (("NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",), "Socket"),
        (("NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IBext_v8/0(1)/GDRDMA/Shared",), "IBext_v8/GDRDMA"),
        (("NCCL INFO NET/Plugin : No plugin found (libnccl-net.so)",), ""),
        ((), ""),
    ],
)
def test_transport_is_read_from_the_lines_of_nccl(lines: tuple[str, ...], network: str) -> None:
    assert nccl_network(lines) == network


def test_sizes_are_shown_as_a_person_says_them() -> None:
    assert [shown_size(size) for size in (8, 1024, 1500, 64 << 20)] == ["8 bytes", "1 KiB", "1500 bytes", "64 MiB"]
