"""A TUN netdev whose link type is InfiniBand: it can move between network namespaces and carries IP packets.

`bound_pci_function` owns the netdevs, `fabric` carries their packets.
"""

import errno
import fcntl
import os
import socket
import struct
from typing import NamedTuple

from simnode.hardware.sysfs_content import NetdevAttributes

# include/uapi/linux/if_tun.h
_TUNSETIFF = 0x400454CA
_TUNSETLINK = 0x400454CD
_TUNSETCARRIER = 0x400454E2
_TUNGETIFF = 0x800454D2
_TUNGETDEVNETNS = 0x54E3
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_ARPHRD_INFINIBAND = 32  # include/uapi/linux/if_arp.h
# include/uapi/linux/sockios.h
_SIOCGIFFLAGS = 0x8913
_SIOCGIFMTU = 0x8921
_SIOCSIFMTU = 0x8922
_SIOCGIFINDEX = 0x8933

_PACKET_BYTES = 65535
_IFREQ_NAME = "16s24x"  # struct ifreq on 64-bit machines (include/uapi/linux/if.h)
_IFREQ_INT = "16si20x"
_IFREQ_SHORT = "16sH22x"
_DYING = 0  # no network namespace has this inode
_GONE = (errno.EBADFD, errno.ENODEV)


class NetdevPlace(NamedTuple):
    """The place of a netdev: the inode of its network namespace, and its name there."""

    netns: int
    name: str


class InfinibandTun:
    """One netdev, which is a port of the fabric; this object owns the descriptor that keeps the netdev alive.

    The netdev is made in the calling thread's network namespace and is down. Its name is `name`, or the kernel's choice
    if that name is taken.
    """

    def __init__(self, name: str, mtu: int) -> None:
        self._fd = _open_tun()
        try:
            self.name = self._create(name)
            fcntl.ioctl(self._fd, _TUNSETLINK, _ARPHRD_INFINIBAND)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                fcntl.ioctl(control, _SIOCSIFMTU, struct.pack(_IFREQ_INT, self.name.encode(), mtu))
        except BaseException:
            self.close()
            raise

    def _create(self, name: str) -> str:
        for wanted in (name, "dev%d"):
            request = struct.pack(_IFREQ_SHORT, wanted.encode(), _IFF_TUN | _IFF_NO_PI)
            try:
                return _text(fcntl.ioctl(self._fd, _TUNSETIFF, request))
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.EEXIST, errno.EINVAL) or wanted != name:
                    raise
        raise AssertionError("the kernel finds a free number for dev%d")

    def fileno(self) -> int:
        """Return the descriptor for a selector; this object still owns it."""
        return self._fd

    def receive(self) -> bytes | None:
        """Return a packet that the netdev sent; None if there is none.

        Raises:
            OSError: the netdev is gone.
        """
        try:
            return os.read(self._fd, _PACKET_BYTES)
        except BlockingIOError:
            return None

    def send(self, packet: bytes) -> bool:
        """Deliver a packet to the netdev; return False if the netdev is down or its queue is full."""
        try:
            os.write(self._fd, packet)
        except OSError:
            return False
        return True

    def place(self) -> NetdevPlace | None:
        """Return the place of the netdev; None if the netdev died with its network namespace."""
        try:
            name = _text(fcntl.ioctl(self._fd, _TUNGETIFF, struct.pack(_IFREQ_NAME, b"")))
            return NetdevPlace(self._netns(), name)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def _netns(self) -> int:
        try:
            netns_fd = fcntl.ioctl(self._fd, _TUNGETDEVNETNS)
        except OSError as error:
            if error.errno == errno.EINVAL:  # the namespace is dying (get_net_ns), and the netdev dies with it
                return _DYING
            raise
        try:
            return os.fstat(netns_fd).st_ino
        finally:
            os.close(netns_fd)

    def set_carrier(self, carrier: bool) -> None:
        """Say whether the netdev has a carrier, wherever it is; the kernel reports the change while the netdev is up."""
        fcntl.ioctl(self._fd, _TUNSETCARRIER, struct.pack("i", carrier))

    def close(self) -> None:
        """Delete the netdev, in whichever network namespace it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open_tun() -> int:
    try:
        return os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError as error:
        error.add_note(
            "simulated VFs are TUN netdevs: run as root, or permit this user to open /dev/net/tun (mode 0666)"
        )
        raise


def _text(ifreq: bytes) -> str:
    return ifreq[:16].rstrip(b"\0").decode()


def read_netdev(name: str) -> NetdevAttributes | None:
    """Read a netdev of the calling thread's network namespace; return None if there is no such netdev."""
    request = struct.pack(_IFREQ_NAME, name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            (ifindex,) = struct.unpack_from("i", fcntl.ioctl(control, _SIOCGIFINDEX, request), 16)
            (mtu,) = struct.unpack_from("i", fcntl.ioctl(control, _SIOCGIFMTU, request), 16)
            (flags,) = struct.unpack_from("H", fcntl.ioctl(control, _SIOCGIFFLAGS, request), 16)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            raise
    return NetdevAttributes(name, ifindex, mtu, flags)
