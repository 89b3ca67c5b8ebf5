"""The netlink protocol as all families share it: one request at a time, its attributes, and the kernel's refusals.

The messages themselves are in `railnet.kernel.netlink.rtnetlink` and `railnet.kernel.netlink.rdma_netns_mode`. Railnet has its own implementation because an
ADD waits for it: pyroute2, which `railnet.kernel.netlink.vf_configuration` uses, takes eight to twenty times as long (docs/decisions/0035).

Source: include/uapi/linux/netlink.h, whose names are in the comments.
"""

import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import E2BIG, EBADMSG, EBUSY
from typing import NamedTuple, Protocol, TypeVar

from railnet.kernel.namespaces.netns import inside

DUMP = 0x300  # NLM_F_DUMP
REPLACE, EXCLUSIVE, CREATE, APPEND = 0x100, 0x200, 0x400, 0x800  # NLM_F_{REPLACE,EXCL,CREATE,APPEND}

_REQUEST, _ACK = 0x1, 0x4  # NLM_F_*
_DUMP_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR: the listed objects changed during the dump
_WITH_ATTRIBUTES = 0x200  # NLM_F_ACK_TLVS
_ERROR, _DONE = 2, 3  # NLMSG_*
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11  # an acknowledgement omits the request, and may have a message
_ERROR_MESSAGE = 1  # NLMSGERR_ATTR_MSG
_ERROR_BYTES = 20  # struct nlmsgerr: an errno and the request's header; attributes follow
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence number, port id
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr: length, type
_ATTRIBUTE_TYPE = 0x3FFF  # NLA_TYPE_MASK
_DUMPS = 32
# More objects than any answer has that is kept as a whole. It limits memory; `Netlink.dump` has no such limit.
_MOST_ANSWERS = 1 << 16
# The kernel fills at most 32 KiB with several messages of a dump (netlink_dump(), net/netlink/af_netlink.c). But the message of one
# link may have 64 KiB of alternative names (rtnl_linkprop(), net/core/rtnetlink.c), beside its other attributes.
_RECEIVE_BYTES = 96 << 10

_Read = TypeVar("_Read")


class NetlinkMessage(NamedTuple):
    """One netlink message without its length."""

    type: int
    flags: int
    sequence: int
    payload: bytes


class Socket(Protocol):
    """The part of a netlink socket that `Netlink` uses."""

    def send(self, data: bytes, /) -> int:
        """Send one request."""
        ...

    def recv(self, size: int, /) -> bytes:
        """Receive one or several whole messages."""
        ...


@contextmanager
def opened(family: int, netns_fd: int | None = None) -> Iterator[socket.socket]:
    """Open a socket of a netlink family in a network namespace; None means the calling thread's. Any thread may use it.

    The socket is closed at the end, because an open socket keeps the namespace alive.

    Raises:
        OSError: EPROTONOSUPPORT, this kernel does not have the family. And as `railnet.kernel.namespaces.netns.inside`.
    """

    def make() -> socket.socket:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)

    with make() if netns_fd is None else inside(netns_fd, make) as netlink:
        netlink.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
        netlink.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
        netlink.bind((0, 0))
        yield netlink


class Netlink:
    """Requests on an open socket. A failure is an OSError with the kernel's errno, the operation, and the kernel's message."""

    def __init__(self, netlink: Socket) -> None:
        self._netlink = netlink
        self._sequence = 0

    def ask(self, operation: str, kind: int, payload: bytes = b"", flags: int = 0) -> list[bytes]:
        """Send one request. Return the payloads of all answers, up to the acknowledgement or the end of the dump.

        An interrupted dump is repeated, at most 32 times in all: a pod may change its links without end. `operation` is a
        phrase for error messages, such as `list links`.

        Raises:
            OSError: the kernel refused the request. EBADMSG, the answer is malformed. EBUSY, every dump was interrupted.
                E2BIG, a dump has more answers than a node can have.
        """
        return self._ask(operation, kind, payload, flags, _itself)

    def dump(self, operation: str, kind: int, payload: bytes, read: Callable[[bytes], _Read | None]) -> list[_Read]:
        """List all objects of a kind, of which there may be any number. Return what `read` makes of them, without None.

        Each answer is read at once and then dropped: memory is needed for the returned objects only. An interrupted dump is
        repeated as in `ask`, so `read` may see an object again.

        Raises:
            OSError: as `ask`; E2BIG, `read` keeps too many.
        """
        return self._ask(operation, kind, payload, DUMP, read)

    def _ask(
        self, operation: str, kind: int, payload: bytes, flags: int, read: Callable[[bytes], _Read | None]
    ) -> list[_Read]:
        for _ in range(_DUMPS):
            self._sequence += 1
            self._netlink.send(encode(kind, _REQUEST | _ACK | flags, self._sequence, payload))
            kept: list[_Read] = []
            interrupted = False
            with understanding(operation):
                for message in self._messages(operation):
                    interrupted |= bool(message.flags & _DUMP_INTERRUPTED)
                    if message.type != _DONE and (answer := read(message.payload)) is not None:
                        kept.append(answer)
                        if len(kept) > _MOST_ANSWERS:
                            raise OSError(E2BIG, f"{operation}: there are more than {_MOST_ANSWERS} answers")
            if not interrupted:
                return kept
        raise OSError(EBUSY, f"{operation}: the listed objects changed during each of {_DUMPS} dumps")

    def _messages(self, operation: str) -> Iterator[NetlinkMessage]:
        """Yield the messages that answer the last request, with the end of a dump."""
        while True:
            for message in decode(self._netlink.recv(_RECEIVE_BYTES)):
                if message.sequence != self._sequence:  # the answer to an earlier request that failed half-way
                    continue
                if message.type in (_ERROR, _DONE):
                    _raise_if_refused(message, operation)
                if message.type == _ERROR:
                    return
                yield message
                if message.type == _DONE:
                    return


def _itself(answer: bytes) -> bytes:
    return answer


@contextmanager
def understanding(operation: str) -> Iterator[None]:
    """Turn errors of decoding into an OSError (EBADMSG), so that every failure of a request is an OSError."""
    try:
        yield
    except (LookupError, ValueError, OverflowError, struct.error) as error:
        raise OSError(EBADMSG, f"{operation}: the kernel's answer is malformed ({error!r:.200})") from None


def encode(kind: int, flags: int, sequence: int, payload: bytes) -> bytes:
    """Encode one request."""
    return _HEADER.pack(_HEADER.size + len(payload), kind, flags, sequence, 0) + payload


def decode(data: bytes) -> Iterator[NetlinkMessage]:
    """Yield the messages of one datagram.

    Raises:
        ValueError: a message is cut short.
    """
    while data:
        length, kind, flags, sequence, _ = _HEADER.unpack(_cut(data, 0, _HEADER.size))
        yield NetlinkMessage(kind, flags, sequence, _cut(data, _HEADER.size, length))
        data = data[_aligned(length) :]


def decode_repeated(payload: bytes, kind: int) -> Iterator[bytes]:
    """Yield the values of every attribute of one type, which may be repeated.

    Raises:
        ValueError: an attribute is cut short.
    """
    for attribute_kind, value in _attributes(payload):
        if attribute_kind == kind:
            yield value


def attributes(*pairs: tuple[int, bytes]) -> bytes:
    """Encode attributes, each padded to 4 bytes."""
    return b"".join(
        _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4) for kind, value in pairs
    )


def decode_attributes(payload: bytes) -> dict[int, bytes]:
    """Return attributes by their type; of a repeated attribute, the last one.

    Raises:
        ValueError: an attribute is cut short.
    """
    return dict(_attributes(payload))


def _attributes(payload: bytes) -> Iterator[tuple[int, bytes]]:
    # Without `_cut`: a link has some fifty attributes, and an attach and a detach decode several links.
    position, end, header, unpack_from = 0, len(payload), _ATTRIBUTE.size, _ATTRIBUTE.unpack_from
    while position < end:
        length, kind = unpack_from(payload, position) if position + header <= end else (0, 0)
        if not header <= length <= end - position:
            raise ValueError(
                f"netlink: the attribute at byte {position} of {end} is cut short, or has a length of {length}"
            )
        yield kind & _ATTRIBUTE_TYPE, payload[position + header : position + length]
        position += (length + 3) & ~3


def u32(value: int) -> bytes:
    """Encode a number in the byte order of this machine."""
    return struct.pack("=I", value)


def string(value: str) -> bytes:
    """Encode a string with a NUL at its end. `text` is the inverse, also for names that are not UTF-8."""
    return value.encode(errors="surrogateescape") + b"\0"


def text(value: bytes) -> str:
    """Decode a string. A pod may give its links names that are not UTF-8; they are kept by surrogateescape."""
    return value.rstrip(b"\0").decode(errors="surrogateescape")


def _cut(data: bytes, begin: int, end: int) -> bytes:
    if not begin <= end <= len(data):
        raise ValueError(
            f"netlink: a length field leads to bytes {begin} to {end}, but there are only {len(data)} bytes"
        )
    return data[begin:end]


def _aligned(length: int) -> int:
    return length + -length % 4


def _raise_if_refused(message: NetlinkMessage, operation: str) -> None:
    """Raise if an acknowledgement or the end of a dump reports an error. Both begin with 0 or a negative errno."""
    code = int.from_bytes(message.payload[:4], sys.byteorder, signed=True)
    if code:
        raise OSError(-code, f"{operation}: {_kernel_message(message) or os.strerror(-code)}")


def _kernel_message(message: NetlinkMessage) -> str:
    """Return the kernel's error message, empty if there is none. Most drivers send none."""
    if message.type != _ERROR or not message.flags & _WITH_ATTRIBUTES:
        return ""
    return (
        decode_attributes(message.payload[_ERROR_BYTES:])
        .get(_ERROR_MESSAGE, b"")
        .rstrip(b"\0")
        .decode(errors="replace")
    )
