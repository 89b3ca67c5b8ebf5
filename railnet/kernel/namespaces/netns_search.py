"""The network namespaces of the host: one enumeration of them, and the addresses that their links have.

A namespace is found while it is bound to a file or a process is in it. A namespace that only an open descriptor keeps is
not found.
"""

import os
import re
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from railnet.kernel.files import below, open_below
from railnet.kernel.netlink.protocol import DUMP, Netlink, decode_attributes, understanding
from railnet.kernel.netlink.protocol import opened as netlink
from railnet.vf.address_slice import IpAddress
from railnet.vf.record import Netns

_OWN = "/proc/thread-self/ns/net"
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_VANISHED = (FileNotFoundError, NotADirectoryError, ProcessLookupError)
# include/uapi/linux/rtnetlink.h, if_addr.h
_GETADDR = 22
_IFADDRMSG_BYTES = 8
_MOUNT_ROOT, _MOUNT_POINT = 3, 4  # fields of mountinfo (proc(5))
_ESCAPED = re.compile(r"\\([0-7]{3})")  # space, tab, newline and backslash there: mangle() in fs/seq_file.c
_IFA_ADDRESS, _IFA_LOCAL = 1, 2


def namespaces(root: Path, passed_over: tuple[type[OSError], ...] = _VANISHED) -> Iterator[tuple[Netns, int]]:
    """Open each network namespace of the host once, but not the caller's; the descriptor is open until the next one.

    A namespace that is bound has the path where it is bound, any other the path of a process. `root` is where the host is
    seen: /proc/1/root or /. A namespace that is not opened because of an error in `passed_over` is left out.

    Raises:
        OSError: the host's mounts or its /proc cannot be read, or a namespace cannot be opened.
    """
    own = os.stat(_OWN)
    seen = {own.st_ino}
    for path in (*sorted(bound(root)), *_of_processes(root)):
        try:
            fd = _open(root, path)
        except passed_over:
            continue
        try:
            facts = os.fstat(fd)
            if facts.st_dev == own.st_dev and facts.st_ino not in seen:  # another device: a file without a namespace
                seen.add(facts.st_ino)
                yield Netns(path, facts.st_dev, facts.st_ino), fd
        finally:
            os.close(fd)


def _of_processes(root: Path) -> list[str]:
    return [f"/proc/{name}/ns/net" for name in os.listdir(below(root, "/proc")) if name.isdecimal()]


def _open(root: Path, path: str) -> int:
    # The link of a process leads to no path, so it cannot lead astray.
    return os.open(below(root, path), _FLAGS) if path.startswith("/proc/") else open_below(root, path, _FLAGS)


def is_bound(root: Path, path: str) -> bool:
    """Return whether a namespace is bound at `path` on the host, which is seen at `root`."""
    try:
        fd = open_below(root, path, _FLAGS)
    except (OSError, ValueError):  # ValueError: a NUL
        return False
    try:
        return os.fstat(fd).st_dev == os.stat(_OWN).st_dev
    finally:
        os.close(fd)


def addresses(root: Path) -> frozenset[IpAddress]:
    """Return the addresses of every link in every network namespace but the caller's, loopback's among them.

    `root` is as for `namespaces`. Blocks for about a millisecond for each namespace: not for an event loop's thread.

    Raises:
        OSError: a namespace cannot be opened or entered. Then no address is known to be unused.
    """
    return frozenset(address for _, fd in namespaces(root) for address in _addresses(fd))


def _addresses(netns_fd: int) -> Iterator[IpAddress]:
    with netlink(socket.NETLINK_ROUTE, netns_fd) as route:
        for answer in Netlink(route).ask("list addresses", _GETADDR, bytes(_IFADDRMSG_BYTES), DUMP):
            with understanding("list addresses"):
                attributes = decode_attributes(answer[_IFADDRMSG_BYTES:])
                # On a point-to-point link IFA_ADDRESS is the peer's address, and IFA_LOCAL is the link's own.
                address = ip_address(attributes[_IFA_LOCAL] if _IFA_LOCAL in attributes else attributes[_IFA_ADDRESS])
            yield address


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
