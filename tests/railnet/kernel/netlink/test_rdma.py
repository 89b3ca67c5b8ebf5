"""RDMA netlink: the bytes of requests, and the parsing of answers. `test_rdma_bytes` compares them with iproute2."""

from collections.abc import Callable
from errno import EINVAL, EOPNOTSUPP, EPROTONOSUPPORT

import pytest

from railnet.kernel.netlink import rdma
from railnet.kernel.netlink.rdma import Device, PortState, Rdma
from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode

# Bytes of a little-endian kernel, written by hand. Header: length, type, flags, sequence number, port id.
DONE = bytes.fromhex("14000000 0300 0200 01000000 00000000  00000000")
ACKNOWLEDGED = bytes.fromhex("24000000 0200 0001 01000000 00000000  00000000 10000000 06140500 01000000 00000000")
MLX5_7 = bytes.fromhex(
    "38000000 0114 0200 01000000 00000000"
    "0800 0100 07000000"  # RDMA_NLDEV_ATTR_DEV_INDEX 7
    "0b00 0200 6d6c78355f3700 00"  # RDMA_NLDEV_ATTR_DEV_NAME "mlx5_7", padded
    "0800 0300 01000000"  # RDMA_NLDEV_ATTR_PORT_INDEX, here the number of ports
    "0c00 0600 868ff900039f59b8"  # RDMA_NLDEV_ATTR_NODE_GUID
)
MLX5_70 = MLX5_7.replace(b"\x07\0\0\0\x0b\0\x02\0mlx5_7\0\0", b"\x46\0\0\0\x0c\0\x02\0mlx5_70\0")
PORT = bytes.fromhex(
    "44000000 0514 0000 01000000 00000000"
    "0800 0100 07000000"
    "0b00 0200 6d6c78355f3700 00"
    "0800 0300 01000000"  # RDMA_NLDEV_ATTR_PORT_INDEX, the port
    "0800 0900 1d000000"  # RDMA_NLDEV_ATTR_LID
    "0500 0c00 04000000"  # RDMA_NLDEV_ATTR_PORT_STATE
    "0500 0d00 05000000"  # RDMA_NLDEV_ATTR_PORT_PHYS_STATE
)
# uverbs40: major 508, minor 300 (0x12c), to prove that both halves of the minor are read.
CHARDEV = bytes.fromhex(
    "38000000 0f14 0000 01000000 00000000"
    "0c00 4800 2cfc1100 00000000"  # RDMA_NLDEV_ATTR_CHARDEV: new_encode_dev(508:300) is 0x0011fc2c
    "0c00 4700 01000000 00000000"  # RDMA_NLDEV_ATTR_CHARDEV_ABI
    "0d00 4600 757665726273343000 000000"  # RDMA_NLDEV_ATTR_CHARDEV_NAME "uverbs40", padded
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


REQUESTS: dict[str, tuple[Callable[[Rdma], object], bytes, str]] = {
    "netns mode": (Rdma.netns_mode, system(1), "10000000 0614 0500 01000000 00000000"),
    "port": (
        lambda kernel: kernel.port(7),
        PORT,
        "20000000 0514 0500 01000000 00000000  08000100 07000000  08000300 01000000",
    ),
    "uverbs": (
        lambda kernel: kernel.character_device(7, "uverbs"),
        CHARDEV,
        "24000000 0f14 0500 01000000 00000000  08000100 07000000  0b004500 75766572627300 00",
    ),
    "umad": (
        lambda kernel: kernel.character_device(7, "umad", port=2),
        CHARDEV,
        "2c000000 0f14 0500 01000000 00000000  08000100 07000000  09004500 756d616400 000000  08000300 02000000",
    ),
}


@pytest.mark.parametrize(("ask", "answer", "sent"), REQUESTS.values(), ids=REQUESTS.keys())
def test_request_has_these_bytes(ask: Callable[[Rdma], object], answer: bytes, sent: str) -> None:
    kernel = FakeKernel(answer, ACKNOWLEDGED)

    ask(Rdma(kernel))

    assert kernel.sent == [bytes.fromhex(sent)]


def test_devices_are_requested_by_a_dump() -> None:
    kernel = FakeKernel(MLX5_7 + MLX5_70, DONE)

    devices = Rdma(kernel).devices()

    assert kernel.sent == [bytes.fromhex("10000000 0114 0503 01000000 00000000")]
    guid = Guid.parse("b859:9f03:00f9:8f86")
    assert devices == (Device(7, "mlx5_7", guid), Device(70, "mlx5_70", guid))


@pytest.mark.parametrize(("name", "dev_index"), [("mlx5_7", 7), ("mlx5_70", 70), ("mlx5_", None)])
def test_device_is_found_by_its_whole_name(name: str, dev_index: int | None) -> None:
    found = Rdma(FakeKernel(MLX5_70 + MLX5_7 + DONE)).find(name)

    assert (found and found.dev_index) == dev_index


@pytest.mark.parametrize(("mode", "words"), [(0, "exclusive"), (1, "shared")])
def test_netns_mode_is_read(mode: int, words: str) -> None:
    assert Rdma(FakeKernel(system(mode) + ACKNOWLEDGED)).netns_mode() == words


def test_kernel_that_does_not_report_its_netns_mode_is_shared() -> None:
    answer = bytes.fromhex("10000000 0614 0000 01000000 00000000")

    assert Rdma(FakeKernel(answer, ACKNOWLEDGED)).netns_mode() == "shared"


@pytest.mark.parametrize(
    ("state", "phys_state", "words"),
    [
        (4, 5, PortState("4: ACTIVE", "5: LinkUp")),
        (1, 2, PortState("1: DOWN", "2: Polling")),
        (9, 8, PortState("9: UNKNOWN", "8: <unknown>")),
    ],
)
def test_port_state_has_the_words_of_sysfs(state: int, phys_state: int, words: PortState) -> None:
    answer = PORT.replace(b"\x0c\0\x04", b"\x0c\0" + bytes([state])).replace(b"\r\0\x05", b"\r\0" + bytes([phys_state]))

    assert Rdma(FakeKernel(answer, ACKNOWLEDGED)).port(7) == words


def test_character_device_has_its_numbers() -> None:
    found = Rdma(FakeKernel(CHARDEV, ACKNOWLEDGED)).character_device(7, "uverbs")

    assert found == DeviceNode("uverbs40", 508, 300)


def test_character_device_is_none_if_the_kernel_has_none() -> None:
    assert Rdma(FakeKernel(refused(EOPNOTSUPP))).character_device(7, "issm") is None


@pytest.mark.parametrize(
    ("ask", "operation"),
    [
        (lambda kernel: kernel.port(7, 3), "read port 3 of RDMA device 7: "),
        (lambda kernel: kernel.character_device(7, "uverbs"), "read the uverbs device of RDMA device 7: "),
        (Rdma.devices, "list RDMA devices: "),
    ],
)
def test_refusal_has_the_errno_and_the_operation(ask: Callable[[Rdma], object], operation: str) -> None:
    with pytest.raises(OSError, match=operation) as caught:
        ask(Rdma(FakeKernel(refused(EINVAL))))

    assert caught.value.errno == EINVAL


def test_dump_that_ends_with_an_error_is_an_error() -> None:
    failed = DONE[:16] + (-EINVAL).to_bytes(4, "little", signed=True)

    with pytest.raises(OSError, match="list RDMA devices"):
        Rdma(FakeKernel(MLX5_7, failed)).devices()


def test_acknowledgement_without_an_answer_is_an_error() -> None:
    with pytest.raises(OSError, match="the kernel sent no answer"):
        Rdma(FakeKernel(ACKNOWLEDGED)).port(7)


def test_answer_to_an_earlier_request_is_ignored() -> None:
    second = [message[:8] + b"\x02" + message[9:] for message in (PORT, ACKNOWLEDGED)]
    kernel = Rdma(FakeKernel(system(1), ACKNOWLEDGED, system(1), *second))
    kernel.netns_mode()

    assert kernel.port(7) == PortState("4: ACTIVE", "5: LinkUp")


def test_real_kernel_has_rdma_or_reports_that_it_does_not() -> None:
    """Ask the real kernel. CI's kernels have no RDMA: then there is no mode, and the errno says so."""
    mode = rdma.netns_mode()

    if mode is None:
        with pytest.raises(OSError, match="not supported") as caught, rdma.opened():
            pass
        assert caught.value.errno == EPROTONOSUPPORT
    else:
        with rdma.opened() as real:
            assert real.netns_mode() == mode
            assert isinstance(real.devices(), tuple)
