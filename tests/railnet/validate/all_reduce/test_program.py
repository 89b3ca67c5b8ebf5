"""The program of one rank, with a stand-in for PyTorch: what it prints when all is well, and when the rank fails, hangs, dies or writes without end."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from railnet.validate.all_reduce import program
from railnet.validate.all_reduce.result import RankEnd, RankResult, parse_rank
from tests.railnet.validate.all_reduce import fake_torch

pytestmark = pytest.mark.slow  # each test starts the program
_SIZES = (8, 1 << 20)


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """Provide the folder of a pod: PyTorch, and netdevs of which net1 has an RDMA device."""
    fake_torch.install(tmp_path / "python")
    for name in ("eth0", "lo", "net1"):
        statistics = tmp_path / "netdevs" / name / "statistics"
        statistics.mkdir(parents=True)
        (statistics / "tx_bytes").write_text("1000\n")
    counters = tmp_path / "netdevs/net1/device/infiniband/mlx5_7/ports/1/counters"
    counters.mkdir(parents=True)
    (counters / "port_xmit_data").write_text("250")
    return tmp_path


def rank(pod: Path, limits: tuple[float, float] = (60.0, 60.0), seconds: float = 0.01, **variables: str) -> RankResult:
    text = printed(pod, limits, seconds, **variables)
    return parse_rank(text, _SIZES)


def printed(
    pod: Path, limits: tuple[float, float], seconds: float, sizes: Sequence[int] = _SIZES, **variables: str
) -> str:
    options = {
        "rank": 1,
        "ranks": 3,
        "meet": "10.56.0.1:29400",
        "netdev": "net1",
        "sizes": ",".join(map(str, sizes)),
        "seconds": seconds,
        "start-seconds": limits[0],
        "measure-seconds": limits[1],
        "netdevs": pod / "netdevs",
    }
    command = [sys.executable, program.__file__, *(f"--{name}={value}" for name, value in options.items())]
    environment = {**os.environ, "PYTHONPATH": str(pod / "python"), **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    assert done.stderr == ""
    return done.stdout


def test_rank_measures_each_size_and_what_the_netdev_has_sent(pod: Path) -> None:
    found = rank(pod, CARRIES=str(pod / "netdevs/net1/statistics/tx_bytes"))

    assert (found.end, found.backend, found.software) == (RankEnd.DONE, "gloo", "PyTorch 9.9.fake")
    assert [(size.bytes, size.is_right) for size in found.sizes] == [(8, True), (1 << 20, True)]
    assert found.by_tcp["net1"] >= sum(size.bytes * size.all_reduces for size in found.sizes)
    assert (found.by_tcp["eth0"], found.by_rdma, found.device) == (0, {"net1": 0}, "mlx5_7")
    assert "lo" not in found.by_tcp


def test_words_of_the_rdma_port_are_counted_as_four_bytes(pod: Path) -> None:
    port = pod / "netdevs/net1/device/infiniband/mlx5_7/ports/1/counters/port_xmit_data"
    found = rank(pod, CARRIES=str(port))

    assert found.by_rdma["net1"] >= 4 * sum(size.bytes * size.all_reduces for size in found.sizes)
    assert found.by_tcp["net1"] == 0


def test_counter_that_cannot_be_read_is_left_out(pod: Path) -> None:
    (pod / "netdevs/net1/device/infiniband/mlx5_7/ports/1/counters/port_xmit_data").write_text("N/A (no PMA)")

    assert rank(pod).by_rdma == {}


def test_pod_with_a_gpu_uses_nccl_and_its_lines_name_the_transport(pod: Path) -> None:
    said = (
        "gpu-1:42:99 [0] NCCL INFO NET/IB : Using [0]mlx5_7:1/IB [RO]; OOB net1:10.56.0.2<0>"
        "|gpu-1:42:99 [0] NCCL INFO Using network IB"
    )
    found = rank(pod, GPU="1", SAYS=said, NCCL_IB_DISABLE="0")

    assert (found.backend, found.software, found.network) == ("nccl", "PyTorch 9.9.fake, NCCL 2.19.3", "IB")
    assert found.settings.variables == (("NCCL_IB_DISABLE", "0"),)


def test_rank_uses_its_rail_alone(pod: Path) -> None:
    told = json.loads(printed(pod, (60.0, 60.0), 0.01, NCCL_SOCKET_IFNAME="eth0", NCCL_IB_HCA="mlx5_0"))

    assert "variables =net1 net1 =mlx5_7" in told["last"]


@pytest.mark.parametrize(
    ("fault", "end", "why", "at"),
    [
        ("no torch", RankEnd.NO_TORCH, "libtorch.so: cannot open shared object file", "start"),
        ("raises", RankEnd.FAILED, "RuntimeError: Connection closed by peer [10.56.0.3]:1234", "8 bytes"),
        (
            "dies",
            RankEnd.KILLED,
            "signal 9, by the memory limit of the container or by something else: variables =net1 net1 =mlx5_7",
            "8 bytes",
        ),
        ("leaves a child", RankEnd.KILLED, "status 3: variables =net1 net1 =mlx5_7", "8 bytes"),
    ],
)
def test_rank_that_fails_says_where_and_why(pod: Path, fault: str, end: RankEnd, why: str, at: str) -> None:
    found = rank(pod, FAULT=fault)

    assert (found.end, found.why, found.at) == (end, why, at)


@pytest.mark.parametrize(
    ("fault", "limits", "at"), [("alone", (2.0, 60.0), "meeting"), ("hangs", (60.0, 1.0), "8 bytes")]
)
def test_rank_that_hangs_is_ended_at_the_limit_of_its_step(
    pod: Path, fault: str, limits: tuple[float, float], at: str
) -> None:
    began = time.monotonic()
    found = rank(pod, limits, FAULT=fault)

    assert (found.end, found.at) == (RankEnd.HUNG, at)
    assert time.monotonic() - began < 30


def test_rank_that_writes_without_end_is_ended_and_little_of_it_is_kept(pod: Path) -> None:
    text = printed(pod, (60.0, 2.0), 0.01, FAULT="flood")

    assert len(text) < 10_000
    assert parse_rank(text, _SIZES).end is RankEnd.HUNG


def test_wrong_sum_is_told(pod: Path) -> None:
    assert [size.is_right for size in rank(pod, FAULT="wrong").sizes] == [False, False]


def test_size_that_would_take_too_long_ends_the_measurement(pod: Path) -> None:
    sizes = (8, 1 << 20, 16 << 20)
    found = parse_rank(printed(pod, (60.0, 60.0), 0.01, sizes, FAULT="slow"), sizes)

    assert (found.end, [size.bytes for size in found.sizes]) == (RankEnd.DONE, [8, 1 << 20])
