"""DCB by rtnetlink: the request's bytes, the answers that a driver gives, and this kernel's answer for a netdev without DCB."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EBADMSG, ENODEV, EOPNOTSUPP

import pytest

from railnet.fabric.roce import FlowControl
from railnet.kernel.netlink import dcb
from railnet.kernel.netlink.protocol import attributes
from tests.railnet.kernel.netlink.test_rdma_netns_mode import ACKNOWLEDGED, FakeKernel, refused

# Header: length 28, type RTM_GETDCB, NLM_F_REQUEST | NLM_F_ACK, sequence 1. Then struct dcbmsg, and DCB_ATTR_IFNAME "ens5", padded.
REQUEST = bytes.fromhex("20000000 4e00 0500 01000000 00000000  00 15 0000  0900 0100 656e733500 000000")
PFC = struct.Struct("=BBBxH2x8Q8Q")  # struct ieee_pfc, as the compiler lays it out


def answer(*ieee: tuple[int, bytes]) -> bytes:
    payload = b"\0\x15\0\0" + attributes((1, b"ens5\0"), (13, attributes(*ieee)))
    return struct.pack("=IHHII", 16 + len(payload), 78, 0, 1, 0) + payload + ACKNOWLEDGED


def pfc(enabled: int) -> tuple[int, bytes]:
    return 2, PFC.pack(8, enabled, 0, 0, *[0] * 16)


def applications(*of_each: tuple[int, int, int]) -> tuple[int, bytes]:
    return 3, attributes(*((1, struct.pack("=BBH", *one)) for one in of_each))


def asked(monkeypatch: pytest.MonkeyPatch, datagram: bytes) -> tuple[FakeKernel, FlowControl | None]:
    kernel = FakeKernel(datagram)

    @contextmanager
    def opened(_: int) -> Iterator[FakeKernel]:
        yield kernel

    monkeypatch.setattr(dcb, "opened", opened)
    return kernel, dcb.flow_control("ens5")


@pytest.mark.parametrize(
    ("ieee", "expected"),
    [
        ((pfc(0),), FlowControl((), by_dscp=False)),
        ((pfc(0b1000), applications((5, 3, 26))), FlowControl((3,), by_dscp=True)),
        ((pfc(0b10000001), applications((1, 3, 0x8915))), FlowControl((0, 7), by_dscp=False)),
        ((applications((5, 3, 26)),), None),
        ((), None),
    ],
)
def test_answers(
    monkeypatch: pytest.MonkeyPatch, ieee: tuple[tuple[int, bytes], ...], expected: FlowControl | None
) -> None:
    kernel, found = asked(monkeypatch, answer(*ieee))

    assert found == expected
    assert kernel.sent == [REQUEST]


def test_driver_without_dcb_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, refused(EOPNOTSUPP))[1] is None


@pytest.mark.parametrize("datagram", [answer((2, b"\x08")), ACKNOWLEDGED])
def test_malformed_answer_is_an_error(monkeypatch: pytest.MonkeyPatch, datagram: bytes) -> None:
    with pytest.raises(OSError, match="read DCB of ens5: the kernel's answer is malformed") as refusal:
        asked(monkeypatch, datagram)
    assert refusal.value.errno == EBADMSG


def test_this_kernel_has_no_dcb_of_the_loopback() -> None:
    assert dcb.flow_control("lo") is None


def test_netdev_that_is_gone_is_an_error() -> None:
    with pytest.raises(OSError, match="read DCB of gone0") as refusal:
        dcb.flow_control("gone0")
    assert refusal.value.errno == ENODEV
