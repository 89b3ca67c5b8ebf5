"""Asking through a device that is a socket here: what comes back, what does not, and which file is opened."""

import errno
import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from railnet.fabric.neighbour import Neighbour
from railnet.kernel.umad import query
from railnet.kernel.umad.node_info import BadAnswer
from railnet.kernel.umad.query import QueryPatience, ask, neighbour
from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode
from tests.railnet.kernel.umad.datagrams import HEADER, SWITCH_GUID, answer

# Computed by the C preprocessor from include/uapi/rdma/rdma_user_ioctl.h on x86_64 and aarch64.
ENABLE_PKEY, REGISTER_AGENT = 0x1B03, 0xC01C1B01
AGENT = 3
SHORT = QueryPatience(retries=0, timeout_ms=10, seconds=0.2)
LONG = QueryPatience(seconds=30.0)


class Device:
    """One end of a socket in place of a umad device; a thread at the other end answers each question with datagrams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Callable[[int], list[bytes]]) -> None:
        self.ioctls: list[int] = []
        self.questions: list[bytes] = []
        self._near, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._answers = answers
        monkeypatch.setattr(fcntl, "ioctl", self._ioctl)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def fd(self) -> int:
        return self._near.fileno()

    def close(self) -> None:
        self._near.close()
        self._thread.join()

    def _ioctl(self, fd: int, request: int, argument: bytearray | int = 0) -> int:
        assert fd == self.fd
        self.ioctls.append(request)
        if isinstance(argument, bytearray):
            argument[0:4] = struct.pack("=I", AGENT)
        return 0

    def _serve(self) -> None:
        with self._far, suppress(OSError):  # the near end is closed
            while question := self._far.recv(4096):
                self.questions.append(question)
                for datagram in self._answers(int.from_bytes(question[HEADER + 12 : HEADER + 16], "big")):
                    self._far.send(datagram)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[int], list[bytes]]], Device]]:
    made: list[Device] = []

    def make(answers: Callable[[int], list[bytes]]) -> Device:
        made.append(Device(monkeypatch, answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


Make = Callable[[Callable[[int], list[bytes]]], Device]


def test_neighbour_answers(device: Make) -> None:
    switch = device(lambda transaction: [answer(transaction)])

    assert ask(switch.fd, patience=LONG) == Neighbour("switch", Guid(SWITCH_GUID), 12)
    assert switch.ioctls == [ENABLE_PKEY, REGISTER_AGENT]
    assert struct.unpack_from("=5I", switch.questions[0]) == (AGENT, 0, LONG.timeout_ms, LONG.retries, 0)


def test_question_leaves_through_the_port_that_is_named(device: Make) -> None:
    switch = device(lambda transaction: [answer(transaction)])
    ask(switch.fd, 2, LONG)

    assert switch.questions[0][HEADER + 129] == 2


def test_each_question_is_a_transaction_of_its_own(device: Make) -> None:
    switch = device(lambda transaction: [answer(transaction)])
    for _ in range(2):
        ask(switch.fd, patience=LONG)

    assert len({question[HEADER + 8 : HEADER + 16] for question in switch.questions}) == 2


def test_datagrams_of_other_questions_are_passed_over(device: Make) -> None:
    switch = device(lambda transaction: [answer(transaction ^ 1), answer(transaction ^ 1), answer(transaction)])

    assert ask(switch.fd, patience=LONG).port == 12


def test_flood_of_strange_datagrams_ends_the_question(device: Make) -> None:
    switch = device(lambda transaction: [answer(transaction ^ 1)] * 17)

    with pytest.raises(BadAnswer, match="16 datagrams came that are no answer"):
        ask(switch.fd, patience=LONG)


def test_switch_that_lies_is_not_believed(device: Make) -> None:
    switch = device(lambda transaction: [answer(transaction, kind=9)])

    with pytest.raises(BadAnswer, match="node type 9"):
        ask(switch.fd, patience=LONG)


def test_kernel_that_returns_the_question_without_an_answer_is_a_timeout(device: Make) -> None:
    port = device(lambda transaction: [answer(transaction, status=errno.ETIMEDOUT)[: HEADER + 24]])

    with pytest.raises(TimeoutError):
        ask(port.fd, patience=LONG)


def test_silence_ends_after_the_time_limit(device: Make) -> None:
    port, began = device(lambda _: []), time.monotonic()

    with pytest.raises(TimeoutError):
        ask(port.fd, patience=SHORT)
    assert time.monotonic() - began >= SHORT.seconds


def test_agent_that_the_kernel_refuses_is_an_error(device: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux has a hook of security modules there (security_ib_endport_manage_subnet), which SELinux uses."""
    port = device(lambda _: [])

    def refuse(_fd: int, request: int, _argument: object = 0) -> int:
        if request == REGISTER_AGENT:
            raise PermissionError(errno.EACCES, "Permission denied")
        return 0

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    with pytest.raises(PermissionError):
        ask(port.fd, patience=SHORT)


def test_device_node_that_is_missing_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/dev/infiniband/umad0"):
        neighbour(tmp_path, DeviceNode("umad0", 231, 0))


def test_file_that_is_no_device_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    (tmp_path / "dev/infiniband/umad0").write_text("")

    with pytest.raises(OSError, match="it is not the device 231:0") as raised:
        neighbour(tmp_path, DeviceNode("umad0", 231, 0))
    assert raised.value.errno == errno.ENXIO


@pytest.mark.parametrize(("minor", "number"), [(5, errno.ENXIO), (3, errno.ENOTTY)], ids=["another", "the same"])
def test_only_the_device_with_the_numbers_of_sysfs_is_asked(
    monkeypatch: pytest.MonkeyPatch, minor: int, number: int
) -> None:
    """/dev/null is 1:3 on every Linux, and knows no ioctl."""
    monkeypatch.setattr(query, "open_below", lambda _root, _path, flags: os.open("/dev/null", flags))

    with pytest.raises(OSError, match=r".") as raised:
        neighbour(Path("/"), DeviceNode("umad0", 1, minor))
    assert raised.value.errno == number


def test_device_is_closed_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def null(_root: Path, _path: str, flags: int) -> int:
        opened.append(os.open("/dev/null", flags))
        return opened[-1]

    monkeypatch.setattr(query, "open_below", null)
    for minor in (3, 5):
        with pytest.raises(OSError, match=r"."):
            neighbour(Path("/"), DeviceNode("umad0", 1, minor))
    for fd in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
