"""Which network namespaces of the host live, and what addresses they have: by that, who is dead.

A namespace lives while it is bound to a file or a process is in it. One that only an open descriptor keeps is not found.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from kernel.files import open_below
from kernel.netlink.protocol import DUMP, Netlink, decode_attributes, understanding
from kernel.netlink.protocol import opened as netlink
from vf.address_slice import IpAddress

_OWN = "/proc/thread-self/ns/net"
_PROCESSES = Path("/proc")
# include/uapi/linux/rtnetlink.h, if_addr.h
_GETADDR = 22
_IFADDRMSG_BYTES = 8
_MOUNT_ROOT, _MOUNT_POINT = 3, 4  # fields of mountinfo (proc(5))
_ESCAPED = re.compile(r"\\([0-7]{3})")  # space, tab, newline and backslash there: mangle() in fs/seq_file.c
_IFA_ADDRESS, _IFA_LOCAL = 1, 2


def is_bound(root: Path, path: str) -> bool:
    """Return whether a namespace is bound at `path` on the host, which is seen at `root`."""
    try:
        fd = open_below(root, path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError):  # ValueError: a NUL
        return False
    try:
        return os.fstat(fd).st_dev == os.stat(_OWN).st_dev
    finally:
        os.close(fd)


def addresses(root: Path) -> frozenset[IpAddress]:
    """Return the addresses of every link in every network namespace but the caller's, loopback's among them.

    `root` is /proc/1/root or /. Blocks for about a millisecond for each namespace: not for an event loop's thread.

    Raises:
        OSError: a namespace may not be entered. Nothing is known then: who cannot be looked at may live.
    """
    found: set[IpAddress] = set()
    own = os.stat(_OWN)
    seen = {own.st_ino}
    for fd in _namespaces(root):
        try:
            facts = os.fstat(fd)
            if facts.st_dev == own.st_dev and facts.st_ino not in seen:
                seen.add(facts.st_ino)
                found.update(_addresses(fd))
        finally:
            os.close(fd)
    return frozenset(found)


def _addresses(netns_fd: int) -> Iterator[IpAddress]:
    with netlink(socket.NETLINK_ROUTE, netns_fd) as route:
        for answer in Netlink(route).ask("list addresses", _GETADDR, bytes(_IFADDRMSG_BYTES), DUMP):
            with understanding("list addresses"):
                found = decode_attributes(answer[_IFADDRMSG_BYTES:])
                # The address of a point-to-point link is the peer's, and the local one is told beside it.
                address = ip_address(found[_IFA_LOCAL] if _IFA_LOCAL in found else found[_IFA_ADDRESS])
            yield address


def _namespaces(root: Path) -> Iterator[int]:
    """Open each namespace, some more than once; the caller closes them."""
    for path in bound(root):
        with suppress(FileNotFoundError, NotADirectoryError):  # it went meanwhile
            yield open_below(root, path, os.O_RDONLY | os.O_NONBLOCK)
    for process in _PROCESSES.iterdir():
        if process.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield os.open(process / "ns/net", os.O_RDONLY | os.O_CLOEXEC)


def bound(root: Path) -> Iterator[str]:
    """Return the paths at which network namespaces are bound on the host.

    Raises:
        OSError: the kernel does not list its mounts.
    """
    process = root.parent if root.name == "root" else Path("/proc/self")
    for line in (process / "mountinfo").read_text(errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if len(fields) > _MOUNT_POINT and fields[_MOUNT_ROOT].startswith("net:["):
            yield _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[_MOUNT_POINT])
