"""The bytes of Get(NodeInfo) over one hop, and of its answer."""

import errno
import struct

import pytest

from railnet.fabric.neighbour import Neighbour
from railnet.kernel.umad import node_info
from railnet.kernel.umad.node_info import BadAnswer, parse
from railnet.vf.guid import Guid
from tests.railnet.kernel.umad.datagrams import HEADER, RECORDED, SMP, SWITCH_GUID, answer


def test_registration_is_for_directed_routes_and_receives_no_unasked_datagram() -> None:
    asked = node_info.registration()

    assert len(asked) == 28  # sizeof(struct ib_user_mad_reg_req)
    assert asked[4:20] == bytes(16)  # method_mask
    assert (asked[20], asked[21], asked[22]) == (0, 0x81, 1)  # qpn, mgmt_class, mgmt_class_version


def test_agent_is_what_the_kernel_wrote() -> None:
    asked = node_info.registration()
    asked[0:4] = struct.pack("=I", 31)

    assert node_info.agent(asked) == 31


def test_question_is_get_node_info_over_one_hop_through_a_port() -> None:
    asked = node_info.question(agent_number=5, transaction=0x12345678, port=1, timeout_ms=500, retries=3)
    header, smp = asked[:HEADER], asked[HEADER:]

    assert struct.unpack_from("=5I", header) == (5, 0, 500, 3, 0)
    assert header[20:30] == bytes(8) + b"\xff\xff"  # queue pair 0, and the permissive LID
    assert header[30:] == bytes(34)
    assert len(smp) == SMP
    assert smp[:8] == bytes.fromhex("0181 0101 0000 0001")  # version, class, version, Get, status, hop pointer, hops
    assert smp[8:18] == bytes.fromhex("0000000012345678 0011")  # transaction, NodeInfo
    assert smp[18:32] == bytes(14)  # no modifier, no M_Key
    assert smp[32:36] == b"\xff\xff\xff\xff"  # the whole route is directed
    assert smp[36:128] == bytes(92)
    assert smp[128:130] == b"\x00\x01"  # out through port 1
    assert smp[130:] == bytes(126)


@pytest.mark.parametrize(("number", "kind"), [(1, "CA"), (2, "switch"), (3, "router")])
def test_neighbour_says_what_it_is(number: int, kind: str) -> None:
    assert parse(answer(kind=number), 7) == Neighbour(kind, Guid(SWITCH_GUID), 12)  # type: ignore[arg-type]


def test_recorded_answer_of_a_switch_is_read() -> None:
    assert parse(bytes(HEADER) + RECORDED, 0x12345678) == Neighbour("switch", Guid(0x1001), 1)


@pytest.mark.parametrize(
    "datagram",
    [answer(8), answer(fields={1: b"\x01"}), answer(fields={16: b"\x00\x15"}), answer(8)[: HEADER + 24]],
    ids=["another transaction", "another class", "another attribute", "another one's failure"],
)
def test_datagram_of_another_question_is_passed_over(datagram: bytes) -> None:
    assert parse(datagram, 7) is None


@pytest.mark.parametrize("length", [HEADER + 24, HEADER + 36, HEADER + SMP])
def test_kernel_says_that_no_answer_came(length: int) -> None:
    with pytest.raises(OSError, match="timed out") as raised:
        parse(answer(status=errno.ETIMEDOUT)[:length], 7)

    assert raised.value.errno == errno.ETIMEDOUT


def test_status_that_is_no_error_number_is_an_input_output_error() -> None:
    with pytest.raises(OSError, match="Input/output") as raised:
        parse(answer(status=0xFFFFFFFF), 7)

    assert raised.value.errno == errno.EIO


WRONG = {
    "shorter than the header": (answer()[: HEADER - 1], "it has 63 bytes, and the kernel's header alone has 64"),
    "cut off": (answer()[:-1], "it has 255 bytes, and a datagram has 256"),
    "a base version of OPA": (answer(fields={0: b"\x80"}), "its header is wrong: version 128.1, method 0x81, 1 hops"),
    "a class version": (answer(fields={2: b"\x02"}), "its header is wrong: version 1.2, method 0x81, 1 hops"),
    "our own question": (answer(fields={3: b"\x01"}), "its header is wrong: version 1.1, method 0x01, 1 hops"),
    "two hops": (answer(fields={7: b"\x02"}), "its header is wrong: version 1.1, method 0x81, 2 hops"),
    "not on its way back": (answer(fields={4: b"\x00\x00"}), "its status is 0x0000 in place of 0x8000"),
    "busy": (answer(fields={4: b"\x80\x01"}), "its status is 0x8001 in place of 0x8000"),
    "an unknown node type": (
        answer(kind=4),
        "its NodeInfo is wrong: node type 4, GUID 0x0002c903007e5a10, port 12",
    ),
    "no GUID": (answer(guid=0), "its NodeInfo is wrong: node type 2, GUID 0x0000000000000000, port 12"),
    "an invalid GUID": (answer(guid=2**64 - 1), "its NodeInfo is wrong: node type 2, GUID 0xffffffffffffffff, port 12"),
    "no port": (answer(port=0), "its NodeInfo is wrong: node type 2, GUID 0x0002c903007e5a10, port 0"),
    "the port of no port": (answer(port=255), "its NodeInfo is wrong: node type 2, GUID 0x0002c903007e5a10, port 255"),
}


@pytest.mark.parametrize(("datagram", "why"), WRONG.values(), ids=WRONG.keys())
def test_switch_that_lies_is_refused_with_what_is_wrong(datagram: bytes, why: str) -> None:
    with pytest.raises(BadAnswer) as raised:
        parse(datagram, 7)

    assert str(raised.value) == why
