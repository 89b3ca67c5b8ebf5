"""RDMA netlink: the bytes of the request, and the parsing of answers. `test_rdma_bytes` compares them with iproute2."""

from errno import EINVAL

import pytest

from railnet.kernel.netlink import rdma_netns_mode

# Bytes of a little-endian kernel, written by hand; other tests of netlink read them, too. Header: length, type, flags, sequence number, port id.
DONE = bytes.fromhex("14000000 0300 0200 01000000 00000000  00000000")
ACKNOWLEDGED = bytes.fromhex("24000000 0200 0001 01000000 00000000  00000000 10000000 06140500 01000000 00000000")
MLX5_7 = bytes.fromhex(
    "38000000 0114 0200 01000000 00000000"
    "0800 0100 07000000"  # RDMA_NLDEV_ATTR_DEV_INDEX 7
    "0b00 0200 6d6c78355f3700 00"  # RDMA_NLDEV_ATTR_DEV_NAME "mlx5_7", padded
    "0800 0300 01000000"  # RDMA_NLDEV_ATTR_PORT_INDEX, here the number of ports
    "0c00 0600 868ff900039f59b8"  # RDMA_NLDEV_ATTR_NODE_GUID
)
PORT = bytes.fromhex(
    "44000000 0514 0000 01000000 00000000"
    "0800 0100 07000000"
    "0b00 0200 6d6c78355f3700 00"
    "0800 0300 01000000"  # RDMA_NLDEV_ATTR_PORT_INDEX, the port
    "0800 0900 1d000000"  # RDMA_NLDEV_ATTR_LID
    "0500 0c00 04000000"  # RDMA_NLDEV_ATTR_PORT_STATE
    "0500 0d00 05000000"  # RDMA_NLDEV_ATTR_PORT_PHYS_STATE
)


def refused(errno: int) -> bytes:
    """Return an acknowledgement with an error."""
    return ACKNOWLEDGED[:16] + (-errno).to_bytes(4, "little", signed=True) + ACKNOWLEDGED[20:]


def system(mode: int) -> bytes:
    return bytes.fromhex(f"18000000 0614 0000 01000000 00000000  0500 4200 {mode:02x}000000")


class FakeKernel:
    """A netlink socket that returns prepared datagrams, one at a time, and keeps the requests."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.sent: list[bytes] = []

    def send(self, data: bytes, /) -> int:
        self.sent.append(data)
        return len(data)

    def recv(self, size: int, /) -> bytes:
        return self.answers.pop(0)


def test_request_has_these_bytes() -> None:
    kernel = FakeKernel(system(1), ACKNOWLEDGED)

    rdma_netns_mode.ask(kernel)

    assert kernel.sent == [bytes.fromhex("10000000 0614 0500 01000000 00000000")]


@pytest.mark.parametrize(("mode", "words"), [(0, "exclusive"), (1, "shared")])
def test_netns_mode_is_read(mode: int, words: str) -> None:
    assert rdma_netns_mode.ask(FakeKernel(system(mode) + ACKNOWLEDGED)) == words


def test_kernel_that_does_not_report_its_netns_mode_is_shared() -> None:
    answer = bytes.fromhex("10000000 0614 0000 01000000 00000000")

    assert rdma_netns_mode.ask(FakeKernel(answer, ACKNOWLEDGED)) == "shared"


def test_refusal_has_the_errno_and_the_operation() -> None:
    with pytest.raises(OSError, match="read the RDMA namespace mode: ") as caught:
        rdma_netns_mode.ask(FakeKernel(refused(EINVAL)))

    assert caught.value.errno == EINVAL


def test_acknowledgement_without_an_answer_is_an_error() -> None:
    with pytest.raises(OSError, match="the kernel sent no answer"):
        rdma_netns_mode.ask(FakeKernel(ACKNOWLEDGED))


def test_real_kernel_has_a_mode_or_no_rdma() -> None:
    assert rdma_netns_mode.netns_mode() in ("shared", "exclusive", None)
