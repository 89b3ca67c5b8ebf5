"""The links of PFs: requests, answers, and no open descriptor or thread after a request."""

import os
import threading
from errno import EBADMSG, EMSGSIZE, ENODEV
from pathlib import Path

import pytest

from railnet.kernel.netlink import pf_link_query
from railnet.kernel.netlink.pf_link_query import link_state
from railnet.kernel.netlink.pf_link_state import PfLink
from railnet.kernel.netlink.protocol import encode
from railnet.kernel.netlink.rtnetlink import Links
from tests.railnet.kernel.netlink.link_messages import link_message

_LO, _NONE = 1, 2147483647
ACKNOWLEDGED = encode(2, 0, 1, bytes(20))


class Route:
    """A netlink socket that answers with these datagrams."""

    def __init__(self, *datagrams: bytes) -> None:
        self._datagrams = list(datagrams)
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def recv(self, _size: int) -> bytes:
        return self._datagrams.pop(0)


def refusal(errno: int) -> bytes:
    return encode(2, 0, 1, (-errno).to_bytes(4, "little", signed=True) + encode(18, 5, 1, bytes(16)))


@pytest.mark.parametrize(
    ("message", "link", "known"),
    [
        (link_message(7), PfLink(True, True, "UP", "52:54:00:00:00:01"), True),
        (link_message(7, carrier=False), PfLink(True, False, "DOWN", "52:54:00:00:00:01"), False),
        (link_message(7, up=False, carrier=False), PfLink(False, False, "DOWN", "52:54:00:00:00:01"), None),
        (link_message(7, permanent=True), PfLink(True, True, "UP", "52:54:00:00:00:02"), True),
    ],
    ids=["up", "no carrier", "administratively down", "a changed MAC"],
)
def test_link_is_read(message: bytes, link: PfLink, known: bool | None) -> None:
    found = link_state(Links(Route(message, ACKNOWLEDGED)), 7)

    assert (found, found.known_carrier) == (link, known)


def test_request_has_the_ifindex_and_asks_for_no_vf_information_and_no_statistics() -> None:
    route = Route(link_message(7), ACKNOWLEDGED)

    link_state(Links(route), 7)

    assert route.sent == [
        bytes.fromhex("28000000 1200 0500 01000000 00000000  00000000 07000000 00000000 00000000  0800 1d00 08000000")
    ]


def test_answer_to_an_earlier_request_is_ignored() -> None:
    stale = link_message(9).replace((1).to_bytes(4, "little"), (8).to_bytes(4, "little"), 1)

    assert link_state(Links(Route(stale, link_message(7), ACKNOWLEDGED)), 7).carrier


@pytest.mark.parametrize("errno", [ENODEV, EMSGSIZE])
def test_refusal_has_the_kernels_errno_and_the_operation(errno: int) -> None:
    with pytest.raises(OSError, match=f"read link 7: {os.strerror(errno)}") as refused:
        link_state(Links(Route(refusal(errno))), 7)

    assert refused.value.errno == errno


@pytest.mark.parametrize("answers", [(ACKNOWLEDGED,), (link_message(7)[:32], ACKNOWLEDGED)], ids=["none", "no state"])
def test_malformed_answer_is_an_os_error(answers: tuple[bytes, ...]) -> None:
    if len(answers) > 1:
        answers = (len(answers[0]).to_bytes(4, "little") + answers[0][4:], *answers[1:])
    with pytest.raises(OSError, match="read link 7: the kernel's answer is malformed") as refused:
        link_state(Links(Route(*answers)), 7)

    assert refused.value.errno == EBADMSG


def test_missing_link_is_left_out() -> None:
    assert pf_link_query.read([_LO, _NONE]).keys() == {_LO}


def test_request_leaves_no_open_descriptor_and_no_thread() -> None:
    pf_link_query.read([_LO])
    before = sorted(Path("/proc/self/fd").iterdir()), threading.active_count()

    pf_link_query.read([_LO])

    assert (sorted(Path("/proc/self/fd").iterdir()), threading.active_count()) == before
