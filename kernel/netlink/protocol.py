"""Netlink as far as every family has it: one request at a time, its attributes, and how the kernel says no.

The messages are in `kernel.netlink.links` and `kernel.netlink.rdma`. Written here because an ADD waits for them: pyroute2, which
`kernel.netlink.pf_links`, `kernel.netlink.vf_links` and `kernel.netlink.link_changes` use, takes ten times as long (docs/decisions/0035).

Source: include/uapi/linux/netlink.h, whose names are in the comments.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import E2BIG, EBADMSG, EBUSY
from typing import NamedTuple, Protocol

from kernel.netns import inside

DUMP = 0x300  # NLM_F_DUMP
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400  # NLM_F_{REPLACE,EXCL,CREATE}

_REQUEST, _ACK = 0x1, 0x4  # NLM_F_*
_DUMP_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR: what is listed changed meanwhile
_WITH_ATTRIBUTES = 0x200  # NLM_F_ACK_TLVS
_ERROR, _DONE = 2, 3  # NLMSG_*
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11  # an acknowledgement does not repeat the request, and may have words
_WORDS = 1  # NLMSGERR_ATTR_MSG
_ERROR_BYTES = 20  # struct nlmsgerr: an errno and the request's header; attributes follow
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence number, port id
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr: length, type
_ATTRIBUTE_TYPE = 0x3FFF  # NLA_TYPE_MASK
_DUMPS = 32
_MOST_ANSWERS = 1 << 16  # more links or addresses than any node has, and fewer than a pod can make to use our memory up
_RECEIVE_BYTES = 65536  # the kernel fills at most 32 KiB of a dump (netlink_dump(), net/netlink/af_netlink.c)


class Message(NamedTuple):
    """One netlink message after its length."""

    type: int
    flags: int
    sequence: int
    payload: bytes


class Socket(Protocol):
    """What is used of a netlink socket."""

    def send(self, data: bytes, /) -> int:
        """Send one request."""
        ...

    def recv(self, size: int, /) -> bytes:
        """Receive whole messages, one or several."""
        ...


@contextmanager
def opened(family: int, netns_fd: int | None = None) -> Iterator[socket.socket]:
    """Open a socket of a netlink family in a network namespace, None for the calling thread's; any thread may use it.

    Closed at the end, for an open one pins the namespace.

    Raises:
        OSError: EPROTONOSUPPORT, this kernel has no such family. And as `kernel.netns.inside`.
    """

    def make() -> socket.socket:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)

    with make() if netns_fd is None else inside(netns_fd, make) as netlink:
        netlink.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        netlink.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
        netlink.bind((0, 0))
        yield netlink


class Netlink:
    """Requests on an open socket. A failure is an OSError with the kernel's errno, what was asked, and the kernel's words."""

    def __init__(self, netlink: Socket) -> None:
        self._netlink = netlink
        self._sequence = 0

    def ask(self, asked: str, kind: int, payload: bytes = b"", flags: int = 0) -> list[bytes]:
        """Send one request; return the payloads of all that answers it, to the acknowledgement or the end of the dump.

        A dump that was interrupted is asked for again, some times: a pod may change its links without end.

        Raises:
            OSError: what the kernel refused; `asked` says what that was. EBADMSG, the answer makes no sense. EBUSY, each of
                the dumps was interrupted. E2BIG, a dump is longer than any that is honest.
        """
        for _ in range(_DUMPS):
            self._sequence += 1
            self._netlink.send(encode(kind, _REQUEST | _ACK | flags, self._sequence, payload))
            with understanding(asked):
                answers = self._answers(asked)
            if not any(answer.flags & _DUMP_INTERRUPTED for answer in answers):
                return [answer.payload for answer in answers if answer.type != _DONE]
        raise OSError(EBUSY, f"{asked}: what is listed changed during each of {_DUMPS} lists")

    def _answers(self, asked: str) -> list[Message]:
        answers: list[Message] = []
        while True:
            for message in decode(self._netlink.recv(_RECEIVE_BYTES)):
                if message.sequence != self._sequence:  # of a request that failed half-way
                    continue
                if message.type == _ERROR:
                    _raise_if_refused(message, asked)
                    return answers
                answers.append(message)
                if len(answers) > _MOST_ANSWERS:
                    raise OSError(E2BIG, f"{asked}: there are more than {_MOST_ANSWERS}")
                if message.type == _DONE:
                    _raise_if_refused(message, asked)
                    return answers


@contextmanager
def understanding(asked: str) -> Iterator[None]:
    """Have an answer that makes no sense be an OSError (EBADMSG), as everything is that fails when something is asked."""
    try:
        yield
    except (LookupError, ValueError, OverflowError, struct.error) as error:
        raise OSError(EBADMSG, f"{asked}: the kernel's answer is not understood ({error!r:.200})") from None


def encode(kind: int, flags: int, sequence: int, payload: bytes) -> bytes:
    """Spell one request."""
    return _HEADER.pack(_HEADER.size + len(payload), kind, flags, sequence, 0) + payload


def decode(data: bytes) -> Iterator[Message]:
    """Read the messages of one datagram.

    Raises:
        ValueError: a message is cut short.
    """
    while data:
        length, kind, flags, sequence, _ = _HEADER.unpack(_cut(data, 0, _HEADER.size))
        yield Message(kind, flags, sequence, _cut(data, _HEADER.size, length))
        data = data[_aligned(length) :]


def attributes(*pairs: tuple[int, bytes]) -> bytes:
    """Spell attributes, each padded to 4 bytes."""
    return b"".join(
        _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4) for kind, value in pairs
    )


def decode_attributes(payload: bytes) -> dict[int, bytes]:
    """Read attributes by their type; no attribute that Railnet asks for repeats.

    Raises:
        ValueError: an attribute is cut short.
    """
    found = {}
    while payload:
        length, kind = _ATTRIBUTE.unpack(_cut(payload, 0, _ATTRIBUTE.size))
        found[kind & _ATTRIBUTE_TYPE] = _cut(payload, _ATTRIBUTE.size, length)
        payload = payload[_aligned(length) :]
    return found


def u32(value: int) -> bytes:
    """Spell a number, in the byte order of this machine."""
    return struct.pack("=I", value)


def string(value: str) -> bytes:
    """Spell a string; a NUL ends it. What is no UTF-8 is spelled as `text` has read it."""
    return value.encode(errors="surrogateescape") + b"\0"


def text(value: bytes) -> str:
    """Read a string. Names of links need not be UTF-8, and a pod may name those in its namespace."""
    return value.rstrip(b"\0").decode(errors="surrogateescape")


def _cut(data: bytes, begin: int, end: int) -> bytes:
    if not begin <= end <= len(data):
        raise ValueError(f"netlink: bytes {begin} to {end} are asked of {len(data)}")
    return data[begin:end]


def _aligned(length: int) -> int:
    return length + -length % 4


def _raise_if_refused(message: Message, asked: str) -> None:
    """Judge an acknowledgement or the end of a dump: both begin with 0, or an errno below 0."""
    code = int.from_bytes(message.payload[:4], sys.byteorder, signed=True)
    if code:
        raise OSError(-code, f"{asked}: {_words(message) or os.strerror(-code)}")


def _words(message: Message) -> str:
    """Find what the kernel says in words; most drivers say nothing."""
    if message.type != _ERROR or not message.flags & _WITH_ATTRIBUTES:
        return ""
    return decode_attributes(message.payload[_ERROR_BYTES:]).get(_WORDS, b"").rstrip(b"\0").decode(errors="replace")
