"""The RDMA devices that containers will get, against those of the VFs that ADD attaches."""

import os
import stat
from pathlib import Path

import pytest

from cni import stale_allocate_response_check
from railnet.errors import Unusable
from railnet.kubelet.checkpointed_responses import ContainerAllocation
from railnet.vf.inventory import DeviceNode
from railnet.vf.record import Attachment
from tests.railnet.vf.builders import FIRST, an_attachment

RAIL = an_attachment(vf=FIRST, rdma="mlx5_4", uverbs=DeviceNode("uverbs4", 1, 3))  # the numbers of /dev/null
OTHER = "VF 0000:03:00.1"


def an_answer(
    nodes: tuple[str, ...] = ("uverbs4",), hca: str | None = "=mlx5_3:1:0,mlx5_4:1:1", vf: object = FIRST
) -> ContainerAllocation:
    paths = frozenset(f"/dev/infiniband/{name}" for name in (*nodes, "rdma_cm")) if nodes else frozenset()
    return ContainerAllocation(frozenset({str(vf)}), paths, {} if hca is None else {"NCCL_IB_HCA": hca})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "dev/infiniband"
    folder.mkdir(parents=True)
    (folder / "uverbs4").symlink_to("/dev/null")  # an unprivileged test cannot make a character device
    return tmp_path


def check(root: Path, *answers: ContainerAllocation, rail: Attachment = RAIL) -> None:
    stale_allocate_response_check.check(answers, (rail,), root)


@pytest.mark.parametrize(
    "answer",
    [
        an_answer(),
        an_answer(hca=None),
        an_answer(hca="=mlx5_3:1,mlx5_4:1"),
        an_answer(hca="=mlx5_4:1:7"),
        an_answer(nodes=()),
        an_answer(("uverbs9",), vf="0000:83:00.1"),
    ],
    ids=[
        "the same",
        "no environment",
        "an answer of Railnet 0.4",
        "another rail",
        "a pool without RDMA",
        "another container's VF",
    ],
)
def test_same_devices_are_fine(root: Path, answer: ContainerAllocation) -> None:
    check(root, answer)


def test_nothing_is_compared_where_kubelet_says_nothing(root: Path) -> None:
    check(root)


WITHOUT_RDMA = an_attachment(vf=FIRST, rdma=None, guid=None, uverbs=None)


def test_vf_without_an_rdma_device_is_fine_where_its_container_gets_none(root: Path) -> None:
    check(root, an_answer(nodes=()), rail=WITHOUT_RDMA)


def test_vf_without_its_rdma_device_is_refused_if_its_container_gets_one(root: Path) -> None:
    with pytest.raises(Unusable, match=rf"^{OTHER} has no RDMA device now, but its container gets .*/uverbs9: "):
        check(root, an_answer(("uverbs9",)), rail=WITHOUT_RDMA)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            an_answer(("uverbs3",)),
            f"{OTHER} has /dev/infiniband/uverbs4 now, but its container gets /dev/infiniband/rdma_cm, /dev/infiniband/uverbs3: ",
        ),
        (an_answer(hca="=mlx5_3:1"), f"{OTHER} is mlx5_4 now, but its container gets NCCL_IB_HCA=mlx5_3:1: "),
        (an_answer(hca="=mlx5_3:1:4"), f"{OTHER} is mlx5_4 now, but its container gets NCCL_IB_HCA=mlx5_3:1: "),
        (an_answer(hca="=mlx5_44:1"), f"{OTHER} is mlx5_4 now, but its container gets NCCL_IB_HCA=mlx5_44:1: "),
    ],
)
def test_other_devices_are_refused_with_the_remedy(root: Path, answer: ContainerAllocation, words: str) -> None:
    with pytest.raises(Unusable) as raised:
        check(root, answer)

    assert str(raised.value).startswith(words)
    assert "delete the pod" in str(raised.value)


@pytest.mark.parametrize(
    ("node", "found"), [("/dev/zero", "1:5"), ("/", "no character device"), ("gone", "no character")]
)
def test_other_numbers_on_the_host_are_refused(root: Path, node: str, found: str) -> None:
    path = root / "dev/infiniband/uverbs4"
    path.unlink()
    path.symlink_to(node)

    with pytest.raises(Unusable, match=rf"uverbs4 on this node is {found}.*, but VF {FIRST} has 1:3"):
        check(root, an_answer())


def test_numbers_of_this_test_are_those_of_dev_null() -> None:
    status = Path("/dev/null").stat()

    assert stat.S_ISCHR(status.st_mode)
    assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (1, 3)
