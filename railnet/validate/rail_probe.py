"""Measures one rail between two pods. A program of its own: an image needs python3, and nothing of Railnet.

Each measurement is one packet's round trip by TCP, the largest packet that arrives unfragmented by UDP, and the bandwidth of one TCP
connection. Not here: which pods are measured (`pair_plan`), and what the numbers mean (`judgement`).
"""

import argparse
import contextlib
import errno
import fcntl
import json
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator

PORT = 18515
_IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE = 10, 3  # linux/in.h: set DF, and ignore what is remembered of the path
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_IP_AND_UDP = 28  # bytes of both headers
_LEAST_MTU, _LARGEST_MTU = 576, 65535
_CHUNK = 1 << 20
_BANDWIDTH, _LATENCY = b"B", b"L"
_MTU_TRIES, _MTU_SECONDS = 3, 0.3
_ROUND_TRIP_SECONDS, _PATIENCE_SECONDS = 1.0, 5.0
_NETDEV = re.compile(r"net[1-9][0-9]*")


def serve(port: int) -> None:
    """Answer clients on each netdev netN that has an IPv4 address, until SIGTERM."""
    for netdev, address in _rails():
        datagrams = _socket(socket.SOCK_DGRAM, netdev, (address, port))
        threading.Thread(target=_answer_lengths, args=(datagrams,), daemon=True).start()
        listening = _socket(socket.SOCK_STREAM, netdev, (address, port))
        listening.listen()
        threading.Thread(target=_accept, args=(listening,), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container ignores it otherwise
    while True:
        signal.pause()


def measure(peer: tuple[str, int], netdev: str, source: str, seconds: float) -> dict[str, object]:
    """Return what was measured; `failed` names the first measurement that could not be made, and why."""
    found: dict[str, object] = {}
    for name, one in (("round_trip_seconds", _round_trips), ("mtu", _mtu), ("bits_per_second", _bandwidth)):
        try:
            found[name] = one(peer, netdev, source, seconds)
        except OSError as error:
            found["failed"] = {"measurement": name, "why": error.strerror or str(error) or type(error).__name__}
            break
    return found


def _round_trips(peer: tuple[str, int], netdev: str, source: str, seconds: float) -> dict[str, float]:
    with _connected(peer, netdev, source) as connection:
        connection.sendall(_LATENCY)
        times: list[float] = []
        end = time.monotonic() + min(seconds, _ROUND_TRIP_SECONDS)
        while not times or time.monotonic() < end:
            began = time.perf_counter()
            connection.sendall(b"x")
            if not connection.recv(1):
                raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
            times.append(time.perf_counter() - began)
    times.sort()
    return {"median": times[len(times) // 2], "p99": times[len(times) * 99 // 100]}


def _bandwidth(peer: tuple[str, int], netdev: str, source: str, seconds: float) -> float:
    """Return what the server has received: what a client has sent may lie in its own buffers."""
    with _connected(peer, netdev, source) as connection:
        connection.sendall(_BANDWIDTH)
        chunk, end = bytes(_CHUNK), time.monotonic() + seconds
        while time.monotonic() < end:
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    if not answer:
        raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
    received = json.loads(answer)
    return float(received["bytes"] * 8 / received["seconds"])


def _mtu(peer: tuple[str, int], netdev: str, source: str, _seconds: float) -> int:
    """Return the largest packet that arrives unfragmented."""
    with _socket(socket.SOCK_DGRAM, netdev, (source, 0)) as probe:
        probe.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
        probe.settimeout(_MTU_SECONDS)
        probe.connect(peer)
        fits, too_large = _LEAST_MTU, _LARGEST_MTU + 1
        if not _arrives(probe, fits):
            raise TimeoutError(errno.ETIMEDOUT, f"no packet of {fits} bytes arrives")
        while too_large - fits > 1:
            middle = (fits + too_large) // 2
            fits, too_large = (middle, too_large) if _arrives(probe, middle) else (fits, middle)
    return fits


def _arrives(probe: socket.socket, size: int) -> bool:
    for _ in range(_MTU_TRIES):
        try:
            probe.send(bytes(size - _IP_AND_UDP))
            while int(probe.recv(16)) != size - _IP_AND_UDP:
                pass  # an answer to an earlier try
        except socket.timeout:  # noqa: UP041 - an image's Python may be older than 3.10
            continue
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                continue  # of our own netdev, or a router's word about an earlier and larger packet
            raise
        return True
    return False


def _answer_lengths(datagrams: socket.socket) -> None:
    while True:
        data, client = datagrams.recvfrom(_LARGEST_MTU)
        with contextlib.suppress(OSError):  # a client that is cut off now; the next one is answered
            datagrams.sendto(b"%d" % len(data), client)


def _accept(listening: socket.socket) -> None:
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):  # the client reports what went wrong
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kind = connection.recv(1)
        if kind == _LATENCY:
            while connection.recv(1):
                connection.sendall(b"x")
        elif kind == _BANDWIDTH:
            began, total, room = time.monotonic(), 0, bytearray(_CHUNK)
            while count := connection.recv_into(room):
                total += count
            connection.sendall(json.dumps({"bytes": total, "seconds": time.monotonic() - began}).encode())


def _connected(peer: tuple[str, int], netdev: str, source: str) -> socket.socket:
    connection = _socket(socket.SOCK_STREAM, netdev, (source, 0))
    connection.settimeout(_PATIENCE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.connect(peer)
    return connection


def _socket(kind: int, netdev: str, address: tuple[str, int]) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Linux before 5.7 permits it only with NET_RAW. The source address leads packets to the netdev as well.
    with contextlib.suppress(PermissionError):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, netdev.encode())
    made.bind(address)
    return made


def _rails() -> Iterator[tuple[str, str]]:
    """Yield each netdev netN with its first IPv4 address; one without an address is left out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            if _NETDEV.fullmatch(name):
                with contextlib.suppress(OSError):  # EADDRNOTAVAIL: it has none
                    found = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                    yield name, socket.inet_ntoa(found[20:24])


def main() -> None:
    """Serve, or measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--peer", help="the server's address; without it, serve")
    parser.add_argument("--netdev", help="the client's netdev")
    parser.add_argument("--source", help="the client's address")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the bandwidth's measurement")
    given = parser.parse_args()
    if given.peer is None:
        serve(given.port)
    json.dump(measure((given.peer, given.port), given.netdev, given.source, given.seconds), sys.stdout)


if __name__ == "__main__":
    main()
