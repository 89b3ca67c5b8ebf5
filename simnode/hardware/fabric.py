"""A simulated InfiniBand fabric: forwards IP packets between its ports, and learns which address is behind which port.

A port is the netdev of a PF or VF, or an uplink to another fabric, as a cable between two switches.
"""

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

# (offset of the source address, offset of the destination, length) by IP version: RFC 791 §3.1, RFC 8200 §3
_ADDRESSES = {4: (12, 16, 4), 6: (8, 24, 16)}
_PACKET_BYTES = 65535
_BURST = 32  # packets that are taken from one port before the other ports have their turn


class FabricPort(Protocol):
    """A source and destination of packets at the fabric."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when a packet can be received."""
        ...

    def receive(self) -> bytes | None:
        """Return a packet; None if there is none at the moment; raise OSError if the port is gone."""
        ...

    def send(self, packet: bytes) -> bool:
        """Send a packet; return False if it was dropped."""
        ...


class Uplink:
    """One end of a cable between two fabrics; it owns its socket.

    Fabrics and cables must form a tree: a fabric floods a packet for an unknown address to all ports but its source.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def fileno(self) -> int:
        """Return the descriptor for a selector; this object still owns it."""
        return self._end.fileno()

    def receive(self) -> bytes | None:
        """Return a packet; None if there is none.

        Raises:
            ConnectionResetError: the other end was closed.
        """
        try:
            packet = self._end.recv(_PACKET_BYTES)
        except BlockingIOError:
            return None
        if not packet:  # no IP packet is empty
            raise ConnectionResetError("the other end of the cable was closed")
        return packet

    def send(self, packet: bytes) -> bool:
        """Send a packet; return False if the cable is full or its other end is closed."""
        try:
            self._end.send(packet)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Unplug this end."""
        self._end.close()


def cable() -> tuple[socket.socket, socket.socket]:
    """Make both ends of a cable; each becomes an `Uplink` of one fabric, which may be in another process."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)


class Counters(NamedTuple):
    """The packets that the fabric has carried; a packet that is flooded to several ports counts once."""

    packets: int
    bytes: int
    dropped: int


class Fabric:
    """A switch with a thread; a context manager, or `close` ends it. The fabric does not own its ports.

    Attributes:
        most_bytes: larger packets are dropped without a word, as by a switch whose MTU is smaller than its neighbours'.
        packet_seconds: how long each packet waits before the next one, as at a port that has trained at a low rate.
    """

    def __init__(self) -> None:
        self.most_bytes, self.packet_seconds = _PACKET_BYTES, 0.0
        self._lock = threading.Lock()
        self._on_gone: dict[FabricPort, Callable[[], None]] = {}
        self._behind: dict[bytes, FabricPort] = {}
        self._counters = Counters(0, 0, 0)
        self._carrying = True
        self._selector = selectors.DefaultSelector()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake_fd, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="fabric", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def counters(self) -> Counters:
        """The packets carried so far."""
        return self._counters

    def join(self, port: FabricPort, gone: Callable[[], None] = lambda: None) -> None:
        """Carry a port's packets; call `gone`, in the fabric's thread, when the port can no longer be read."""
        with self._lock:
            self._on_gone[port] = gone
            self._selector.register(port.fileno(), selectors.EVENT_READ, port)
        self._wake()

    def leave(self, port: FabricPort) -> None:
        """Stop carrying a port's packets; the caller may close the port's descriptor afterwards."""
        with self._lock:
            self._forget(port)

    def stop(self) -> None:
        """Drop each packet from now on, as if all cables were unplugged."""
        self._carrying = False

    def start(self) -> None:
        """Carry packets of all sizes again, without a wait."""
        self._carrying, self.most_bytes, self.packet_seconds = True, _PACKET_BYTES, 0.0

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._wake()
        self._thread.join()
        self._selector.close()
        os.close(self._wake_fd)

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                if key.data is None:
                    os.eventfd_read(self._wake_fd)
                else:
                    self._serve(key.data)

    def _serve(self, port: FabricPort) -> None:
        with self._lock:
            gone = self._on_gone.get(port)
            if gone is None:  # `leave` was called after select had returned
                return
            try:
                self._drain(port)
            except OSError:
                self._forget(port)
            else:
                return
        gone()

    def _drain(self, port: FabricPort) -> None:
        for _ in range(_BURST):
            packet = port.receive()
            if packet is None:
                return
            self._switch(port, packet)

    def _switch(self, source: FabricPort, packet: bytes) -> None:
        offsets = _ADDRESSES.get(packet[0] >> 4) if packet else None
        if offsets is None or not self._carrying or len(packet) > self.most_bytes:
            self._count(packet, carried=False)
            return
        if self.packet_seconds:
            time.sleep(self.packet_seconds)
        at_source, at_destination, length = offsets
        self._behind[packet[at_source : at_source + length]] = source
        known = self._behind.get(packet[at_destination : at_destination + length])
        targets = [known] if known is not None else [port for port in self._on_gone if port is not source]
        targets = [target for target in targets if target is not source]
        self._count(packet, carried=bool(targets))  # first: when the packet arrives, it is counted already
        for target in targets:
            target.send(packet)

    def _count(self, packet: bytes, *, carried: bool) -> None:
        packets, octets, dropped = self._counters
        if carried:
            self._counters = Counters(packets + 1, octets + len(packet), dropped)
        else:
            self._counters = Counters(packets, octets, dropped + 1)

    def _forget(self, port: FabricPort) -> None:
        if self._on_gone.pop(port, None) is None:
            return
        self._selector.unregister(port.fileno())
        self._behind = {address: behind for address, behind in self._behind.items() if behind is not port}
