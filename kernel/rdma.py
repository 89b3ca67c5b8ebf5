"""RDMA devices through netlink: the namespace mode, who is there, a port's state, character devices' numbers.

Requests see the devices of the calling thread's network namespace (all of them in shared mode). A device is addressed by
its index, since names may change. Not here: what sysfs tells of a PCI function (`kernel.sysfs`), and moving a device.

Source: include/uapi/rdma/rdma_netlink.h (whose names are in the comments), drivers/infiniband/core/nldev.c.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EOPNOTSUPP, EPROTONOSUPPORT
from typing import Literal, NamedTuple, Protocol

from vf.function import DeviceNode
from vf.guid import Guid

NetnsMode = Literal["shared", "exclusive"]
CharacterDevice = Literal["uverbs", "umad", "issm"]

_NETLINK_RDMA = 20  # linux/netlink.h
_NLDEV = 5 << 10  # RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command)
_GET = _NLDEV + 1  # RDMA_NLDEV_CMD_GET
_PORT_GET = _NLDEV + 5  # RDMA_NLDEV_CMD_PORT_GET
_SYS_GET = _NLDEV + 6  # RDMA_NLDEV_CMD_SYS_GET
_GET_CHARDEV = _NLDEV + 15  # RDMA_NLDEV_CMD_GET_CHARDEV, kernel 5.3

_DEV_INDEX = 1  # RDMA_NLDEV_ATTR_DEV_INDEX, u32
_DEV_NAME = 2  # RDMA_NLDEV_ATTR_DEV_NAME, string
_PORT_INDEX = 3  # RDMA_NLDEV_ATTR_PORT_INDEX, u32
_NODE_GUID = 6  # RDMA_NLDEV_ATTR_NODE_GUID, u64 in the host's byte order
_PORT_STATE = 12  # RDMA_NLDEV_ATTR_PORT_STATE, u8
_PORT_PHYS_STATE = 13  # RDMA_NLDEV_ATTR_PORT_PHYS_STATE, u8
_NETNS_MODE = 66  # RDMA_NLDEV_SYS_ATTR_NETNS_MODE, u8
_CHARDEV_TYPE = 69  # RDMA_NLDEV_ATTR_CHARDEV_TYPE, string
_CHARDEV_NAME = 70  # RDMA_NLDEV_ATTR_CHARDEV_NAME, string
_CHARDEV = 72  # RDMA_NLDEV_ATTR_CHARDEV, u64, a dev_t

_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300  # NLM_F_*, linux/netlink.h
_ERROR, _DONE = 2, 3  # NLMSG_*
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence number, port id
_ATTRIBUTE = struct.Struct("=HH")  # struct nlattr: length, type
_ATTRIBUTE_TYPE = 0x3FFF  # NLA_TYPE_MASK
_RECEIVE_BYTES = 65536  # the kernel fills at most 32 KiB of a dump (netlink_dump(), net/netlink/af_netlink.c)

# As sysfs spells them: state_show() and phys_state_to_str(), drivers/infiniband/core/sysfs.c.
_STATES = {0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
_PHYS_STATES = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "Phy Test",
}


class Device(NamedTuple):
    """An RDMA device of the namespace; `dev_index` never comes back while the kernel runs."""

    dev_index: int
    name: str
    node_guid: Guid


class PortState(NamedTuple):
    """What a port does, in the words of `/sys/class/infiniband/<dev>/ports/<port>`."""

    state: str
    phys_state: str


class Message(NamedTuple):
    """One netlink message after its header's type and sequence number."""

    type: int
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
def opened() -> Iterator["Rdma"]:
    """Open RDMA netlink in the calling thread's namespace; closed at the end, for an open one pins the namespace.

    Raises:
        OSError: EPROTONOSUPPORT, this kernel has no RDMA (module ib_core).
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_RDMA) as netlink:
        netlink.bind((0, 0))
        yield Rdma(netlink)


def netns_mode() -> NetnsMode | None:
    """Tell whether every namespace sees every RDMA device, or each only its own; None for a kernel without RDMA."""
    try:
        with opened() as rdma:
            return rdma.netns_mode()
    except OSError as error:
        if error.errno != EPROTONOSUPPORT:
            raise
        return None


class Rdma:
    """RDMA netlink on an open socket. A failure is an OSError with the kernel's errno and what was asked."""

    def __init__(self, netlink: Socket) -> None:
        self._netlink = netlink
        self._sequence = 0

    def netns_mode(self) -> NetnsMode:
        """Tell the mode; a kernel too old to have the other (before 5.2) is shared."""
        answer = self._one("read the RDMA namespace mode", _SYS_GET)
        return "exclusive" if answer.get(_NETNS_MODE, b"\1") == b"\0" else "shared"

    def devices(self) -> tuple[Device, ...]:
        """List the RDMA devices that this namespace sees."""
        answers = self._ask("list RDMA devices", _GET, _REQUEST | _ACK | _DUMP)
        return tuple(_device(answer) for answer in answers)

    def find(self, name: str) -> Device | None:
        """Find a device by its name, by a look at all: the kernel answers for an index only."""
        return next((device for device in self.devices() if device.name == name), None)

    def port(self, dev_index: int, port: int = 1) -> PortState:
        """Read the state of a device's port.

        Raises:
            OSError: EINVAL, this namespace sees no such device, or it has no such port.
        """
        asked = f"read port {port} of RDMA device {dev_index}"
        answer = self._one(asked, _PORT_GET, (_DEV_INDEX, _u32(dev_index)), (_PORT_INDEX, _u32(port)))
        state, phys_state = answer[_PORT_STATE][0], answer[_PORT_PHYS_STATE][0]
        return PortState(
            f"{state}: {_STATES.get(state, 'UNKNOWN')}", f"{phys_state}: {_PHYS_STATES.get(phys_state, '<unknown>')}"
        )

    def character_device(self, dev_index: int, kind: CharacterDevice, port: int = 1) -> DeviceNode | None:
        """Read name and numbers of a device's character device; None if the kernel has none of this kind for it.

        `uverbs` is the whole device's, `umad` and `issm` are a port's.

        Raises:
            OSError: EINVAL, this namespace sees no such device, or it has no such port.
        """
        attributes = [(_DEV_INDEX, _u32(dev_index)), (_CHARDEV_TYPE, _string(kind))]
        if kind != "uverbs":
            attributes.append((_PORT_INDEX, _u32(port)))
        try:
            answer = self._one(f"read the {kind} device of RDMA device {dev_index}", _GET_CHARDEV, *attributes)
        except OSError as error:
            if error.errno != EOPNOTSUPP:
                raise
            return None
        # The kernel's 32 bits of a dev_t (new_encode_dev()) lie where the C library's have them.
        number = int.from_bytes(answer[_CHARDEV], sys.byteorder)
        return DeviceNode(_text(answer[_CHARDEV_NAME]), os.major(number), os.minor(number))

    def _one(self, asked: str, command: int, *attributes: tuple[int, bytes]) -> dict[int, bytes]:
        answers = self._ask(asked, command, _REQUEST | _ACK, *attributes)
        if not answers:
            raise OSError(EOPNOTSUPP, f"{asked}: the kernel answered nothing")
        return answers[0]

    def _ask(self, asked: str, command: int, flags: int, *attributes: tuple[int, bytes]) -> list[dict[int, bytes]]:
        """Send one request and read all that answers it, to the acknowledgement or the end of the dump."""
        self._sequence += 1
        self._netlink.send(encode(command, flags, self._sequence, *attributes))
        answers: list[dict[int, bytes]] = []
        while True:
            for message in decode(self._netlink.recv(_RECEIVE_BYTES)):
                if message.sequence != self._sequence:  # of a request that failed half-way
                    continue
                if message.type in {_ERROR, _DONE}:
                    _raise_if_refused(message, asked)
                    return answers
                answers.append(decode_attributes(message.payload))


def encode(command: int, flags: int, sequence: int, *attributes: tuple[int, bytes]) -> bytes:
    """Spell one request: header, then attributes, each padded to 4 bytes."""
    payload = b"".join(
        _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), type_) + value + b"\0" * (-len(value) % 4)
        for type_, value in attributes
    )
    return _HEADER.pack(_HEADER.size + len(payload), command, flags, sequence, 0) + payload


def decode(data: bytes) -> Iterator[Message]:
    """Read the messages of one datagram.

    Raises:
        ValueError: a message is cut short.
    """
    while data:
        length, type_, _, sequence, _ = _HEADER.unpack(_cut(data, 0, _HEADER.size))
        yield Message(type_, sequence, _cut(data, _HEADER.size, length))
        data = data[_aligned(length) :]


def decode_attributes(payload: bytes) -> dict[int, bytes]:
    """Read a message's attributes by their type; none of those asked for here repeats.

    Raises:
        ValueError: an attribute is cut short.
    """
    attributes = {}
    while payload:
        length, type_ = _ATTRIBUTE.unpack(_cut(payload, 0, _ATTRIBUTE.size))
        attributes[type_ & _ATTRIBUTE_TYPE] = _cut(payload, _ATTRIBUTE.size, length)
        payload = payload[_aligned(length) :]
    return attributes


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
        raise OSError(-code, f"{asked}: {os.strerror(-code)}")


def _device(answer: dict[int, bytes]) -> Device:
    index, guid = (int.from_bytes(answer[type_], sys.byteorder) for type_ in (_DEV_INDEX, _NODE_GUID))
    return Device(index, _text(answer[_DEV_NAME]), Guid(guid))


def _u32(value: int) -> bytes:
    return struct.pack("=I", value)


def _string(value: str) -> bytes:
    return value.encode() + b"\0"


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode()
