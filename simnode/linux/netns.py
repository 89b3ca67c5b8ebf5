"""Named network namespaces: create, remove, and call a function inside one; and set a link up in the current namespace.

A new thread enters the namespace and ends there, so that no other code runs in a wrong namespace.
"""

import contextlib
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from simnode.linux import libc

# include/uapi/linux/sockios.h
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1  # include/uapi/linux/if.h
_IFREQ_FLAGS = "16sh14x"
FORWARD = Path("/proc/sys/net/ipv4/ip_forward")

_T = TypeVar("_T")


def inode(path: str | Path = "/proc/thread-self/ns/net") -> int:
    """Return the inode number that identifies a network namespace; by default the calling thread's."""
    return os.stat(path).st_ino


def set_up(name: str) -> None:
    """Set a link up in the current network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack(_IFREQ_FLAGS, name.encode(), 0)
        _, flags = struct.unpack(_IFREQ_FLAGS, fcntl.ioctl(control, _SIOCGIFFLAGS, request))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack(_IFREQ_FLAGS, name.encode(), flags | _IFF_UP))


def create(path: Path) -> None:
    """Create a network namespace with `lo` up and keep it alive by a mount at `path`, as a container runtime does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=False)

    def make() -> None:
        libc.unshare(libc.CLONE_NEWNET)
        libc.mount("/proc/thread-self/ns/net", str(path), flags=libc.MS_BIND)
        # The kernel copies the setting of the machine, which is 1 beside Docker. A pod that forwards would return what a simulated
        # fabric floods to it, as no pod on a real fabric does.
        FORWARD.write_text("0")
        set_up("lo")

    in_a_thread(make)


def remove(path: Path) -> None:
    """Remove the mount of a network namespace; the namespace dies with its last user. A missing mount is success."""
    with contextlib.suppress(OSError):  # ENOENT, EINVAL: the path is no mount point
        libc.unmount(str(path))
    path.unlink(missing_ok=True)


def run_inside(path: Path, function: Callable[[], _T]) -> _T:
    """Call a function in a network namespace, in a thread that ends there, and return its result."""

    def enter() -> _T:
        namespace_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            libc.setns(namespace_fd, libc.CLONE_NEWNET)
        finally:
            os.close(namespace_fd)
        return function()

    return in_a_thread(enter)


def in_a_thread(function: Callable[[], _T]) -> _T:
    """Call a function in a new thread; return its result, or raise its exception."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
