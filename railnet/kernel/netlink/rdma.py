"""RDMA devices by netlink: the namespace mode, the devices, a port's state, the numbers of character devices.

Requests see the devices of the calling thread's network namespace; in shared mode, those of all namespaces. A device is
addressed by its index, since its name may change. Not here: a PCI function's RDMA device in sysfs (`railnet.kernel.sysfs.functions`).

Source: include/uapi/rdma/rdma_netlink.h (whose names are in the comments), drivers/infiniband/core/nldev.c.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EOPNOTSUPP, EPROTONOSUPPORT
from typing import Literal, NamedTuple

from railnet.kernel.netlink import protocol
from railnet.kernel.netlink.protocol import decode_attributes, string, text, u32, understanding
from railnet.vf.guid import Guid
from railnet.vf.inventory import DeviceNode

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

# The words of sysfs: state_show() and phys_state_to_str(), drivers/infiniband/core/sysfs.c.
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
    """An RDMA device of the namespace. The kernel never reuses a `dev_index` before the next boot."""

    dev_index: int
    name: str
    node_guid: Guid


class PortState(NamedTuple):
    """The state of a port, in the words of `/sys/class/infiniband/<dev>/ports/<port>`."""

    state: str
    phys_state: str


@contextmanager
def opened() -> Iterator["Rdma"]:
    """Open RDMA netlink in the calling thread's namespace.

    The socket is closed at the end, because an open socket keeps the namespace alive.

    Raises:
        OSError: EPROTONOSUPPORT, this kernel does not support RDMA (module ib_core).
    """
    with protocol.opened(_NETLINK_RDMA) as opened_socket:
        yield Rdma(opened_socket)


def netns_mode() -> NetnsMode | None:
    """Return `shared` if every namespace sees every RDMA device, `exclusive` if each sees its own; None without RDMA."""
    try:
        with opened() as rdma:
            return rdma.netns_mode()
    except OSError as error:
        if error.errno != EPROTONOSUPPORT:
            raise
        return None


class Rdma:
    """RDMA netlink on an open socket. A failure is an OSError with the kernel's errno and the operation."""

    def __init__(self, opened_socket: protocol.Socket) -> None:
        self._netlink = protocol.Netlink(opened_socket)

    def netns_mode(self) -> NetnsMode:
        """Return the namespace mode. A kernel before 5.2 knows only shared mode, and does not report it."""
        answer = self._one("read the RDMA namespace mode", _SYS_GET)
        return "exclusive" if answer.get(_NETNS_MODE, b"\1") == b"\0" else "shared"

    def devices(self) -> tuple[Device, ...]:
        """List the RDMA devices that this namespace sees."""
        with understanding("list RDMA devices"):
            answers = self._netlink.ask("list RDMA devices", _GET, flags=protocol.DUMP)
            return tuple(_device(decode_attributes(answer)) for answer in answers)

    def find(self, name: str) -> Device | None:
        """Find a device by its name in the list of all devices: a request needs the device's index."""
        return next((device for device in self.devices() if device.name == name), None)

    def port(self, dev_index: int, port: int = 1) -> PortState:
        """Read the state of a device's port.

        Raises:
            OSError: EINVAL, this namespace sees no such device, or the device has no such port.
        """
        operation = f"read port {port} of RDMA device {dev_index}"
        answer = self._one(operation, _PORT_GET, (_DEV_INDEX, u32(dev_index)), (_PORT_INDEX, u32(port)))
        with understanding(operation):
            state, phys_state = answer[_PORT_STATE][0], answer[_PORT_PHYS_STATE][0]
        return PortState(
            f"{state}: {_STATES.get(state, 'UNKNOWN')}", f"{phys_state}: {_PHYS_STATES.get(phys_state, '<unknown>')}"
        )

    def character_device(self, dev_index: int, kind: CharacterDevice, port: int = 1) -> DeviceNode | None:
        """Read name and numbers of a device's character device. Return None if the kernel has none of this kind for the device.

        `uverbs` belongs to the whole device, `umad` and `issm` belong to a port.

        Raises:
            OSError: EINVAL, this namespace sees no such device, or the device has no such port.
        """
        operation = f"read the {kind} device of RDMA device {dev_index}"
        attributes = [(_DEV_INDEX, u32(dev_index)), (_CHARDEV_TYPE, string(kind))]
        if kind != "uverbs":
            attributes.append((_PORT_INDEX, u32(port)))
        try:
            answer = self._one(operation, _GET_CHARDEV, *attributes)
        except OSError as error:
            if error.errno != EOPNOTSUPP:
                raise
            return None
        # The kernel's 32-bit dev_t (new_encode_dev()) has the same layout as the lower bits of the C library's.
        with understanding(operation):
            number = int.from_bytes(answer[_CHARDEV], sys.byteorder)
            return DeviceNode(text(answer[_CHARDEV_NAME]), os.major(number), os.minor(number))

    def _one(self, operation: str, command: int, *attributes: tuple[int, bytes]) -> dict[int, bytes]:
        answers = self._netlink.ask(operation, command, protocol.attributes(*attributes))
        if not answers:
            raise OSError(EOPNOTSUPP, f"{operation}: the kernel sent no answer")
        with understanding(operation):
            return decode_attributes(answers[0])


def _device(answer: dict[int, bytes]) -> Device:
    index, guid = (int.from_bytes(answer[type_], sys.byteorder) for type_ in (_DEV_INDEX, _NODE_GUID))
    return Device(index, text(answer[_DEV_NAME]), Guid(guid))
