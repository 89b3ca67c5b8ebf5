"""Programs that drop messages, run by the kernel on a pair of sockets."""

import errno
import socket
from collections.abc import Collection, Iterator

import pytest

from railnet.kernel.sockets import socket_filter
from railnet.kernel.sockets.socket_filter import Instruction, attach, links, uevents_of_hardware
from tests.railnet.kernel.netlink.link_messages import DELLINK, link_message

PF, OTHER_PF, VETH = 7, 70_000, 300
AF_BRIDGE = 7


class Pair:
    """Two connected sockets: a message to the second one passes its filter, or is lost."""

    def __init__(self) -> None:
        self._sender, self.receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.receiver.setblocking(False)

    def passes(self, message: bytes) -> bool:
        self._sender.send(message)
        try:
            assert self.receiver.recv(4096) == message
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._sender.close()
        self.receiver.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def uevent(action: str, path: str) -> bytes:
    return f"{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM=net\0SEQNUM=1\0".encode()


@pytest.mark.parametrize("ifindex", [PF, OTHER_PF])
@pytest.mark.parametrize("kind", [16, DELLINK])
def test_messages_about_these_links_pass(pair: Pair, ifindex: int, kind: int) -> None:
    attach(pair.receiver, links({PF, OTHER_PF}))

    assert pair.passes(link_message(ifindex, kind=kind))


@pytest.mark.parametrize(
    "message",
    [
        link_message(VETH),
        link_message(VETH, kind=DELLINK),
        link_message(PF << 8),
        link_message(PF, kind=24),
        link_message(PF, family=AF_BRIDGE),
        link_message(PF)[:22],
    ],
    ids=["veth", "veth gone", "other byte", "route", "port of a bridge", "cut short"],
)
def test_other_messages_are_dropped(pair: Pair, message: bytes) -> None:
    attach(pair.receiver, links({PF, OTHER_PF}))

    assert not pair.passes(message)


def test_without_a_watched_link_no_message_passes(pair: Pair) -> None:
    attach(pair.receiver, links(()))

    assert not pair.passes(link_message(PF))


@pytest.mark.parametrize("count", [1000, 1001, 100_000])
def test_many_links_are_no_error(pair: Pair, count: int) -> None:
    attach(pair.receiver, links(range(1, count + 1)))

    assert pair.passes(link_message(count))


def test_next_program_replaces_the_present_one(pair: Pair) -> None:
    attach(pair.receiver, links({PF}))
    attach(pair.receiver, links({OTHER_PF}))

    assert [pair.passes(link_message(ifindex)) for ifindex in (PF, OTHER_PF)] == [False, True]


@pytest.mark.parametrize("action", ["add", "remove", "change", "move", "online", "offline", "bind", "unbind"])
def test_uevents_of_hardware_pass_and_those_of_a_veth_do_not(pair: Pair, action: str) -> None:
    attach(pair.receiver, uevents_of_hardware())
    vf = "/devices/pci0000:00/0000:00:01.1/0000:03:00.1"
    veth = "/devices/virtual/net/veth1"

    assert pair.passes(uevent(action, vf))
    assert pair.passes(uevent(action, f"{vf}/net/ib0"))
    assert pair.passes(uevent(action, f"/devices/virtually/{vf}"))
    assert pair.passes(uevent(action, "/devices/v"))
    assert not pair.passes(uevent(action, veth))
    assert not pair.passes(uevent(action, f"{veth}/queues/tx-63"))


class Refusing:
    """A socket whose filter cannot be changed."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def setsockopt(self, _level: int, option: int, _value: object) -> None:
        self.asked.append(option)
        raise OSError(errno.ENOMEM if len(self.asked) == 1 else errno.ENOENT, "refused")


def test_program_that_the_kernel_refuses_is_no_error_and_no_older_one_stays() -> None:
    refusing = Refusing()

    attach(refusing, links({PF}))  # type: ignore[arg-type]

    assert refusing.asked == [socket_filter._ATTACH, socket_filter._DETACH]


def test_refused_program_leaves_all_messages_to_the_receiver(pair: Pair) -> None:
    attach(pair.receiver, links({PF}))
    endless: Collection[Instruction] = [Instruction(0xFF, 0, 0, 0)]  # no such instruction

    attach(pair.receiver, endless)

    assert pair.passes(link_message(VETH))
