"""Measures one rail between two pods. A program of its own: an image needs python3, and nothing of Railnet.

Each measurement is one packet's round trip by TCP, the largest packet that arrives unfragmented by UDP, the bandwidth of one TCP
connection, and what tools for RDMA print that the image has. Not here: which pods are measured (`pair_plan`), how the tools' output is
read (`perftest_output`), and what the numbers mean (`judgement`).
"""

from __future__ import annotations  # Python 3.9 evaluates no `int | None`

import argparse
import contextlib
import errno
import fcntl
import json
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

PORT = 18515
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER = 10, 23  # linux/in.h, linux/in6.h
_PMTUDISC_PROBE = 3  # no packet is fragmented, and what is remembered of the path is ignored
_IPV6_FREEBIND = 78  # linux/in6.h; an address that is new is tentative for a second, and cannot be bound to without it
_SIOCGIFADDR = 0x8915  # linux/sockios.h
_IF_INET6 = (
    "/proc/net/if_inet6"  # address, index, prefix length, scope, flags, netdev (if6_seq_show(), net/ipv6/addrconf.c)
)
_GLOBAL = "00"  # its scope of an address that is not of the link alone
_UDP_HEADER = 8  # bytes
_LARGEST_MTU = 65535
_CHUNK = 1 << 20
_BANDWIDTH, _LATENCY, _TOOL, _RATE = b"B", b"L", b"T", b"R"
_MTU_TRIES, _MTU_SECONDS = 3, 0.3
_LEAST_MTU_TRIES = 10  # a server on a busy node answers late, and without this answer the rail counts as cut
_ROUND_TRIP_SECONDS, _PATIENCE_SECONDS = 1.0, 5.0
_REACH_TRIES, _REACH_PAUSE_SECONDS = 3, 0.2
_NETDEV = re.compile(r"net[1-9][0-9]*")
_NETDEVS = "/sys/class/net"
TOOLS = ("ib_write_bw", "ib_write_lat", "rping")  # of perftest, and of rdma-core
_MOST_SECONDS = 600  # of a measurement, which another pod may ask for
_TOOL_SECONDS = 15.0  # of one tool, beside the seconds of its measurement
_LONGEST_LINE, _LONGEST_OUTPUT, _LONGEST_RATE = 4096, 16384, 80  # bytes
_LISTENING = "0A"  # include/net/tcp_states.h


class _Ip:
    """The differences between both versions of IP. `headers` are bytes before UDP's data."""

    def __init__(self, address: str) -> None:
        if ":" in address:
            self.family, self.headers, self.least_mtu = socket.AF_INET6, 40 + _UDP_HEADER, 1280
            self.unfragmented = (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
        else:
            self.family, self.headers, self.least_mtu = socket.AF_INET, 20 + _UDP_HEADER, 576
            self.unfragmented = (socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)


class _Rdma:
    """The tools to run, whether they use a GPU's memory, and the folder of netdevs; its links name the RDMA devices."""

    def __init__(self, tools: Sequence[str], gpu: bool, netdevs: str) -> None:
        self.tools, self.gpu, self.netdevs = tools, gpu, netdevs

    def device(self, netdev: str) -> str:
        """Return the RDMA device of a netdev; empty if it has none."""
        try:
            return min((path.name for path in Path(self.netdevs, netdev, "device/infiniband").iterdir()), default="")
        except OSError:
            return ""

    def rate(self, netdev: str) -> str:
        """Return the rate of the first port of a netdev's RDMA device, such as `400 Gb/sec (4X NDR)`; empty if it has none."""
        try:
            ports = Path(self.netdevs, netdev, "device/infiniband", self.device(netdev) or ".", "ports")
            file = min(ports.iterdir(), default=ports) / "rate"
            return file.read_bytes()[:_LONGEST_RATE].decode(errors="replace").strip()
        except OSError:
            return ""

    def untried(self, tool: str, netdev: str) -> str:
        """Return why a tool cannot be tried here; empty if it can."""
        if shutil.which(tool) is None:
            return "not in the image"
        return "" if self.device(netdev) else f"{netdev} has no RDMA device in the pod"

    def command(self, tool: str, netdev: str, port: int, seconds: int, address: str, source: str = "") -> list[str]:
        """Return the command of a tool's client, or with no `source` of its server; `address` is the server's."""
        if tool == "rping":  # it finds the device by the address
            return ["rping", *(("-c", "-I", source) if source else ("-s",)), "-a", address, "-p", str(port), "-C", "10"]
        # -F: the processor's frequency may change. The GID of RoCE is the tool's own choice.
        common = [tool, "-d", self.device(netdev), "-i", "1", "-p", str(port), "-F"]
        own = ("-s", "65536", "--report_gbits", "-D", str(seconds)) if tool == "ib_write_bw" else ("-n", "1000")
        return [*common, *own, *(("--use_cuda=0",) if self.gpu else ()), *((address,) if source else ())]


def serve(port: int, netdevs: str) -> None:
    """Answer clients on each address of each netdev netN, until SIGTERM."""
    for netdev, address in (*_ipv4_rails(), *_ipv6_rails()):
        datagrams = _socket(socket.SOCK_DGRAM, netdev, (address, port))
        threading.Thread(target=_answer_lengths, args=(datagrams,), daemon=True).start()
        listening = _socket(socket.SOCK_STREAM, netdev, (address, port))
        listening.listen()
        threading.Thread(target=_accept, args=(listening, netdev, netdevs), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container ignores it otherwise
    while True:
        signal.pause()


def measure(peer: tuple[str, int], netdev: str, source: str, seconds: float, rdma: _Rdma) -> dict[str, object]:
    """Return what was measured; `failed` names the first measurement that could not be made, and why.

    `port_rates` has the rates of the server's port and the client's as sysfs has them, empty for one that cannot be read.

    `rdma` of the result has the outcome of each tool, up to the first that failed: what the tool has `printed`, or why it has `failed` or is
    `untried`.
    """
    measurements: dict[str, object] = {}
    for name, measurement in (("round_trip_seconds", _round_trips), ("mtu", _mtu), ("bits_per_second", _bandwidth)):
        try:
            measurements[name] = measurement(peer, netdev, source, seconds)
        except OSError as error:
            measurements["failed"] = {"measurement": name, "why": _why(error)}
            return measurements
    outcomes: dict[str, dict[str, str]] = {}
    for tool in rdma.tools:
        outcomes[tool] = _outcome(tool, peer, netdev, source, seconds, rdma)
        if "failed" in outcomes[tool]:
            break
    rates = {"server": _rate_of(peer, netdev, source), "client": rdma.rate(netdev)}
    return {**measurements, "rdma": outcomes, "port_rates": rates}


def reach(peer: tuple[str, int], netdev: str, source: str) -> dict[str, object]:
    """Return whether a connection to the peer is made over a netdev, and if not, why.

    A switch that does not know the way yet sends a packet everywhere, and another netdev of the peer's pod refuses it: that is tried again.
    """
    why = ""
    for _ in range(_REACH_TRIES):
        try:
            with _connected(peer, netdev, source) as connection:
                connection.sendall(_LATENCY + b"x")
                return {"reached": connection.recv(1) == b"x"}
        except ConnectionRefusedError as error:
            why = _why(error)
            time.sleep(_REACH_PAUSE_SECONDS)
        except OSError as error:
            return {"reached": False, "why": _why(error)}
    return {"reached": False, "why": why}


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


def _rate_of(peer: tuple[str, int], netdev: str, source: str) -> str:
    """Ask the server for the rate of its port; empty if it does not say."""
    try:
        with _connected(peer, netdev, source) as connection:
            connection.sendall(_RATE)
            return _line(connection).decode(errors="replace").strip()
    except OSError:
        return ""


def _mtu(peer: tuple[str, int], netdev: str, source: str, _seconds: float) -> int:
    """Return the largest packet that arrives unfragmented."""
    ip = _Ip(source)
    with _socket(socket.SOCK_DGRAM, netdev, (source, 0)) as probe:
        probe.setsockopt(*ip.unfragmented)
        probe.settimeout(_MTU_SECONDS)
        probe.connect(peer)
        fits, too_large = ip.least_mtu, _LARGEST_MTU + 1
        if not _arrives(probe, fits - ip.headers, _LEAST_MTU_TRIES):
            raise TimeoutError(errno.ETIMEDOUT, f"no packet of {fits} bytes arrives")
        while too_large - fits > 1:
            middle = (fits + too_large) // 2
            fits, too_large = (middle, too_large) if _arrives(probe, middle - ip.headers) else (fits, middle)
    return fits


def _arrives(probe: socket.socket, length: int, tries: int = _MTU_TRIES) -> bool:
    for _ in range(tries):
        try:
            probe.send(bytes(length))
            while int(probe.recv(16)) != length:
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


def _accept(listening: socket.socket, netdev: str, netdevs: str) -> None:
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=_answer, args=(connection, netdev, netdevs), daemon=True).start()


def _answer(connection: socket.socket, netdev: str, netdevs: str) -> None:
    with (
        connection,
        contextlib.suppress(OSError, ValueError, TypeError, KeyError),
    ):  # the client reports what went wrong
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
        elif kind == _RATE:
            connection.sendall(_Rdma((), gpu=False, netdevs=netdevs).rate(netdev).encode() + b"\n")
        elif kind == _TOOL:
            asked = json.loads(_line(connection))
            tool, seconds = TOOLS[TOOLS.index(asked["tool"])], min(int(asked["seconds"]), _MOST_SECONDS)
            try:
                _serve_tool(connection, netdev, _Rdma((), bool(asked["gpu"]), netdevs), tool, seconds)
            except OSError as error:
                _say(connection, {"failed": f"its server: {_why(error)}"})


def _serve_tool(connection: socket.socket, netdev: str, rdma: _Rdma, tool: str, seconds: int) -> None:
    """Run a tool's server until the client hangs up; say its port as soon as the server listens."""
    untried = rdma.untried(tool, netdev)
    if untried:
        _say(connection, {"untried": f"{untried}, at the server's end"})
        return
    address = connection.getsockname()[0]
    with _socket(socket.SOCK_STREAM, netdev, (address, 0)) as free:
        port = free.getsockname()[1]
    with _running(rdma.command(tool, netdev, port, seconds, address)) as server:
        end = time.monotonic() + _PATIENCE_SECONDS
        while server.poll() is None and time.monotonic() < end and not _listens(port):
            time.sleep(0.05)  # rping listens by the connection manager alone: it has all the time
        if server.poll() is not None:
            stderr = server.communicate()[1]
            _say(connection, {"failed": f"its server has ended with status {server.returncode}: {_last_line(stderr)}"})
            return
        _say(connection, {"port": port})
        connection.settimeout(seconds + _TOOL_SECONDS + _PATIENCE_SECONDS)
        connection.recv(1)


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command, and end it with the block. Its stderr is short: it is read when the command has failed."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _listens(port: int) -> bool:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), Path(table).open(encoding="ascii") as file:
            for fields in map(str.split, file):
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    return True
    return False


def _outcome(tool: str, peer: tuple[str, int], netdev: str, source: str, seconds: float, rdma: _Rdma) -> dict[str, str]:
    """Run a tool's client against its server in the peer's pod."""
    untried = "not over IPv6" if ":" in source else rdma.untried(tool, netdev)
    if untried:
        return {"untried": untried}
    whole = max(1, round(seconds))  # the tools count whole seconds
    try:
        with _connected(peer, netdev, source) as connection:
            connection.settimeout(2 * _PATIENCE_SECONDS)
            asked = {"tool": tool, "seconds": whole, "gpu": rdma.gpu}
            connection.sendall(_TOOL + json.dumps(asked).encode() + b"\n")
            told = json.loads(_line(connection))
            for kind in ("failed", "untried"):
                if kind in told:
                    return {kind: str(told[kind])}
            command = rdma.command(tool, netdev, int(told["port"]), whole, peer[0], source)
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=whole + _TOOL_SECONDS
            )
    except subprocess.TimeoutExpired:
        return {"failed": f"it has not ended after {whole + _TOOL_SECONDS:g} s"}
    except (OSError, ValueError, TypeError, KeyError) as error:
        return {"failed": _why(error)}
    if done.returncode:
        return {"failed": f"status {done.returncode}: {_last_line(done.stderr.strip() or done.stdout)}"}
    return {"printed": done.stdout[-_LONGEST_OUTPUT:].decode(errors="replace")}


def _line(connection: socket.socket) -> bytes:
    """Return a line, of which no more than a bounded length is read."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        more = connection.recv(1)
        if not more:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        line += more
    return line


def _say(connection: socket.socket, told: dict[str, object]) -> None:
    connection.sendall(json.dumps(told).encode() + b"\n")


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it says nothing")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _connected(peer: tuple[str, int], netdev: str, source: str) -> socket.socket:
    connection = _socket(socket.SOCK_STREAM, netdev, (source, 0))
    connection.settimeout(_PATIENCE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.connect(peer)
    return connection


def _socket(kind: int, netdev: str, address: tuple[str, int]) -> socket.socket:
    family = _Ip(address[0]).family
    sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
    # Linux before 5.7 permits it only with NET_RAW. The source address leads packets to the netdev as well.
    with contextlib.suppress(PermissionError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, netdev.encode())
    sock.bind(address)
    return sock


def _ipv4_rails() -> Iterator[tuple[str, str]]:
    """Yield each netdev netN with its first IPv4 address; one without an address is left out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            if _NETDEV.fullmatch(name):
                with contextlib.suppress(OSError):  # EADDRNOTAVAIL: it has none
                    ifreq = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                    yield name, socket.inet_ntoa(ifreq[20:24])


def _ipv6_rails() -> Iterator[tuple[str, str]]:
    """Yield each netdev netN with each of its IPv6 addresses; addresses of the link alone are left out."""
    with contextlib.suppress(OSError), Path(_IF_INET6).open(encoding="ascii") as file:  # a kernel may have no IPv6
        for address, _, _, scope, _, netdev in map(str.split, file):
            if _NETDEV.fullmatch(netdev) and scope == _GLOBAL:
                yield netdev, socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address))


def main() -> None:
    """Serve, or measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--peer", help="the server's address; without it, serve")
    parser.add_argument("--netdev", help="the client's netdev")
    parser.add_argument("--source", help="the client's address")
    parser.add_argument("--seconds", type=float, default=3.0, help="of the bandwidth's measurement")
    parser.add_argument(
        "--tool", action="append", default=[], choices=TOOLS, help="try this tool for RDMA, too; may be repeated"
    )
    parser.add_argument("--gpu", action="store_true", help="let the tools use a GPU's memory")
    parser.add_argument("--netdevs", default=_NETDEVS, help=f"the folder of netdevs ({_NETDEVS})")
    parser.add_argument(
        "--measure", choices=("rail", "reach"), default="rail", help="reach: connect, and no more (rail)"
    )
    given = parser.parse_args()
    if given.peer is None:
        serve(given.port, given.netdevs)
    if given.measure == "reach":
        json.dump(reach((given.peer, given.port), given.netdev, given.source), sys.stdout)
        return
    rdma = _Rdma(given.tool, given.gpu, given.netdevs)
    json.dump(measure((given.peer, given.port), given.netdev, given.source, given.seconds, rdma), sys.stdout)


if __name__ == "__main__":
    main()
