"""One request on a netlink socket: its bytes, the end of its answer, and errors."""

import struct
from errno import E2BIG, EBADMSG, EBUSY, EINVAL

import pytest

from railnet.kernel.netlink.protocol import (
    DUMP,
    Netlink,
    NetlinkMessage,
    attributes,
    decode,
    decode_attributes,
    string,
    text,
)
from railnet.kernel.netlink.rtnetlink import Links
from tests.railnet.kernel.netlink.test_rdma_netns_mode import ACKNOWLEDGED, DONE, MLX5_7, PORT, FakeKernel

LISTED = MLX5_7[16:]


def test_interrupted_dump_is_repeated() -> None:
    interrupted = MLX5_7[:6] + b"\x12\0" + MLX5_7[8:]  # NLM_F_MULTI | NLM_F_DUMP_INTR
    second = [message[:8] + b"\x02" + message[9:] for message in (MLX5_7, DONE)]
    kernel = FakeKernel(interrupted + DONE, *second)

    answers = Netlink(kernel).ask("list", 0x1401, flags=DUMP)

    assert answers == [LISTED]
    assert [request[8] for request in kernel.sent] == [1, 2]


def test_dump_that_ends_with_an_error_is_an_error() -> None:
    failed = DONE[:16] + (-EINVAL).to_bytes(4, "little", signed=True)

    with pytest.raises(OSError, match="list"):
        Netlink(FakeKernel(MLX5_7, failed)).ask("list", 0x1401, flags=DUMP)


def test_answer_to_an_earlier_request_is_ignored() -> None:
    second = [message[:8] + b"\x02" + message[9:] for message in (PORT, ACKNOWLEDGED)]
    kernel = Netlink(FakeKernel(MLX5_7, ACKNOWLEDGED, MLX5_7, *second))
    kernel.ask("first", 0x1401)

    assert kernel.ask("second", 0x1405) == [PORT[16:]]


def test_dump_that_is_always_interrupted_fails_after_32_attempts() -> None:
    class AlwaysInterrupted:
        def send(self, data: bytes, /) -> int:
            self._sequence = data[8:12]
            return len(data)

        def recv(self, size: int, /) -> bytes:
            interrupted = MLX5_7[:6] + b"\x12\0" + self._sequence + MLX5_7[12:]  # NLM_F_MULTI | NLM_F_DUMP_INTR
            return interrupted + DONE[:8] + self._sequence + DONE[12:]

    with pytest.raises(OSError, match="list: the listed objects changed during each of 32 dumps") as refused:
        Netlink(AlwaysInterrupted()).ask("list", 0x1401, flags=DUMP)

    assert refused.value.errno == EBUSY


def test_dump_without_end_is_refused() -> None:
    class Endless:
        def send(self, data: bytes, /) -> int:
            self._sequence = data[8:12]
            return len(data)

        def recv(self, size: int, /) -> bytes:
            return (MLX5_7[:8] + self._sequence + MLX5_7[12:]) * 100

    with pytest.raises(OSError, match="list: there are more than 65536 answers") as refused:
        Netlink(Endless()).ask("list", 0x1401, flags=DUMP)

    assert refused.value.errno == E2BIG


def test_refusal_has_the_kernels_message_if_it_sends_one() -> None:
    # struct nlmsgerr with NLMSGERR_ATTR_OFFS (2) before NLMSGERR_ATTR_MSG (1), in the kernel's order
    message = bytes.fromhex("0800 0200 2c000000") + bytes.fromhex("0b00 0100") + b"no VF\0\0\0"
    answer = bytes.fromhex("38000000 0200 0003 01000000 00000000 eaffffff") + bytes(16) + message

    with pytest.raises(OSError, match=r"set it: no VF$") as refused:
        Netlink(FakeKernel(answer)).ask("set it", 16)

    assert refused.value.errno == EINVAL


def test_message_of_a_positive_acknowledgement_is_ignored() -> None:
    warning = ACKNOWLEDGED[:6] + b"\0\x02" + ACKNOWLEDGED[8:]  # NLM_F_ACK_TLVS

    assert Netlink(FakeKernel(warning)).ask("set it", 16) == []


def test_attributes_are_padded_and_their_length_excludes_the_padding() -> None:
    assert attributes((3, b"net1\0"), (4, b"\1\0\0\0")) == bytes.fromhex(
        "0900 0300 6e65743100 000000 0800 0400 01000000"
    )


def test_datagram_is_split_into_messages() -> None:
    messages = list(decode(PORT + DONE))

    assert messages == [NetlinkMessage(0x1405, 0, 1, PORT[16:]), NetlinkMessage(3, 2, 1, b"\0\0\0\0")]


def test_attributes_are_decoded_by_type_without_padding_and_flags() -> None:
    nested = bytes.fromhex("0500 0c80 04000000 0600 0200 4100 0000")

    assert decode_attributes(nested) == {12: b"\x04", 2: b"A\0"}


@pytest.mark.parametrize(
    "data", [PORT[:-1], PORT[:10], b"\x04\0\0\0" + PORT[4:]], ids=["cut", "header cut", "too short"]
)
def test_incomplete_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="netlink"):
        list(decode(data))


@pytest.mark.parametrize("payload", ["0800 0100 07", "0200 0100", "0800"], ids=["value cut", "too short", "header cut"])
def test_incomplete_attribute_is_refused(payload: str) -> None:
    with pytest.raises(ValueError, match="netlink"):
        decode_attributes(bytes.fromhex(payload))


def test_name_that_is_not_utf_8_is_decoded_and_encoded_without_loss() -> None:
    assert string(text(b"net\xff\xfe\0")) == b"net\xff\xfe\0"


def test_link_with_a_name_that_is_not_utf_8_is_listed() -> None:
    link = struct.pack("=BxHiII", 0, 1, 9, 0, 0) + attributes((3, b"\xff\0"))
    message = struct.pack("=IHHII", 16 + len(link), 16, 2, 1, 0) + link

    (found,) = Links(FakeKernel(message, DONE)).listed()  # type: ignore[arg-type]

    assert (found.ifindex, found.ifname) == (9, "\udcff")


@pytest.mark.parametrize(
    "answer",
    [MLX5_7[:20], ACKNOWLEDGED[:16] + b"\0\0\0\x80" + ACKNOWLEDGED[20:]],
    ids=["cut short", "an impossible errno"],
)
def test_malformed_answer_is_an_os_error(answer: bytes) -> None:
    with pytest.raises(OSError, match=r"^\[Errno 74\] list: the kernel's answer is malformed") as refused:
        Netlink(FakeKernel(answer)).ask("list", 0x1401)

    assert refused.value.errno == EBADMSG
