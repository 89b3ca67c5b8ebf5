"""Ask a port's neighbour who it is, through the port's umad device.

Both functions block, for some seconds at most while the kernel works; if the card's firmware is dead a call may never return. So an
event loop calls them in a thread that it can do without.

Sources: Documentation/infiniband/user_mad.rst and drivers/infiniband/core/user_mad.c of Linux. The number of an ioctl is made by
_IO and _IOWR of include/uapi/asm-generic/ioctl.h from RDMA_IOCTL_MAGIC (include/uapi/rdma/rdma_user_ioctl.h).
"""

import errno
import fcntl
import os
import select
import stat
import time
from pathlib import Path
from typing import NamedTuple

from railnet.fabric.neighbour import Neighbour
from railnet.kernel.files import open_below
from railnet.kernel.umad import node_info
from railnet.vf.inventory import DeviceNode

_MAGIC = 0x1B
_READ_AND_WRITE = 3
_ENABLE_PKEY = (
    _MAGIC << 8 | 3
)  # from now on headers have the 8 bytes of pkey_index; without it the kernel warns in dmesg
_REGISTER_AGENT = _READ_AND_WRITE << 30 | len(node_info.registration()) << 16 | _MAGIC << 8 | 1
_MOST_STRANGE_DATAGRAMS = 16


class QueryPatience(NamedTuple):
    """The kernel sends the question again `retries` times, each time after `timeout_ms`; after `seconds` the answer is late."""

    retries: int = 3
    timeout_ms: int = 500
    seconds: float = 4.0


_PATIENT = QueryPatience()


def neighbour(root: Path, device: DeviceNode, patience: QueryPatience = _PATIENT) -> Neighbour:
    """Ask the neighbour of a port. The device is looked for on the host, whose root folder is at `root`.

    Raises:
        OSError: ENOENT, ENXIO: the device is not there; EPERM, EACCES: this process may not use it; ETIMEDOUT: there is no answer.
        BadAnswer: the answer cannot be used.
    """
    path = f"/dev/infiniband/{device.name}"
    fd = open_below(root, path, os.O_RDWR | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        # A regular file, or the device of another card: what is in /dev is older than what is in sysfs.
        if not stat.S_ISCHR(status.st_mode) or status.st_rdev != os.makedev(device.major, device.minor):
            raise OSError(errno.ENXIO, f"it is not the device {device.major}:{device.minor}", path)
        return ask(fd, patience=patience)
    finally:
        os.close(fd)


def ask(fd: int, port: int = 1, patience: QueryPatience = _PATIENT) -> Neighbour:
    """Ask through an open umad device of a port with this number.

    Raises:
        OSError, BadAnswer: as `neighbour`.
    """
    fcntl.ioctl(fd, _ENABLE_PKEY)
    agent = node_info.registration()
    fcntl.ioctl(fd, _REGISTER_AGENT, agent)
    transaction = int.from_bytes(os.urandom(4))
    os.write(fd, node_info.question(node_info.agent(agent), transaction, port, patience.timeout_ms, patience.retries))
    end = time.monotonic() + patience.seconds
    for _ in range(_MOST_STRANGE_DATAGRAMS):
        answer = node_info.parse(_received(fd, end), transaction)
        if answer is not None:
            return answer
    raise node_info.BadAnswer(f"{_MOST_STRANGE_DATAGRAMS} datagrams came that are no answer to the question")


def _received(fd: int, end: float) -> bytes:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
    return os.read(fd, node_info.HEADER_BYTES + node_info.MAD_BYTES)
