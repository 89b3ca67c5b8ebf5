"""A client that floods a port: it opens many TCP connections, sends a few bytes on each, and opens again what the server closes.

The flood is a process of its own, with its own descriptors: `flooding` starts it, and `python -m simnode.chaos.flood` is it. It reads nothing
that comes after the handshake, so answers stay with the server.
"""

import argparse
import errno
import json
import os
import resource
import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal

_ROUND = 64  # connections that are opened before events are looked at
_CLOSED = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_READ_BYTES = 1 << 16
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Flood:
    """What is sent, and how often.

    Attributes:
        port: the port of the server, on the loopback.
        connections: how many connections are open at a time.
        send: what is sent on each.
        tls: `none`; `hello` for a ClientHello and nothing after it; `whole` for a handshake, after which `send` is sent.
        per_second: how many connections are opened in a second, at most.
        source: the client's address.
        niceness: of the process.
    """

    port: int
    connections: int
    send: bytes = b""
    tls: Literal["none", "hello", "whole"] = "none"
    per_second: int = 1_000_000
    source: str = _LOOPBACK
    niceness: int = 0


@contextmanager
def flooding(flood: Flood) -> Iterator[int]:
    """Flood until the end of the block, which begins when so many connections have been opened; yield the process's id."""
    arguments = json.dumps(asdict(flood) | {"send": flood.send.hex()})
    command = [sys.executable, "-m", "simnode.chaos.flood"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("a flood has no pipes")
            process.stdin.write(arguments.encode())
            process.stdin.close()
            if process.stdout.readline() != b"opened\n":
                raise RuntimeError("the flood has ended; its error is above")
            yield process.pid
        finally:
            process.kill()


class _Connection:
    """One connection: first connecting, then perhaps in a handshake, then open."""

    def __init__(self, flood: Flood, context: ssl.SSLContext | None) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        self.socket.bind((flood.source, 0))
        self._rest = flood.send
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if context is None else context.wrap_bio(self._incoming, self._outgoing)
        self._stays = flood.tls == "hello"
        self.socket.connect_ex((_LOOPBACK, flood.port))

    def advance(self, events: int) -> int | None:
        """Do what can be done; return the events that are awaited next, or None if the connection is closed."""
        try:
            return self._advance(events)
        except (OSError, ssl.SSLError):
            return None

    def _advance(self, events: int) -> int | None:
        if self._tls is None:
            if events & _CLOSED:
                return None
            self._rest = self._rest[self.socket.send(self._rest) :] if self._rest else b""
            return _CLOSED | (select.EPOLLOUT if self._rest else 0)
        if events & select.EPOLLIN:
            data = self.socket.recv(_READ_BYTES)
            if not data:
                return None
            self._incoming.write(data)
        elif events & _CLOSED:
            return None
        return self._handshake(self._tls)

    def _handshake(self, tls: ssl.SSLObject) -> int:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self.socket.send(self._outgoing.read())
            return _CLOSED | (0 if self._stays else select.EPOLLIN)
        if self._rest:
            tls.write(self._rest)
        self._rest, self._tls = self._outgoing.read(), None
        return self._advance(0) or 0


_IP_BIND_ADDRESS_NO_PORT = (
    24  # include/uapi/linux/in.h: the port is chosen at connect, so one address serves many connections
)


class _Flooding:
    """The connections of a flood."""

    def __init__(self, flood: Flood) -> None:
        self._flood, self._open = flood, dict[int, _Connection]()
        self._poll = select.epoll()
        self._context: ssl.SSLContext | None = None
        if flood.tls != "none":
            self._context = ssl.create_default_context()
            self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE

    def run(self) -> None:
        """Flood for ever; say `opened` when as many connections as wanted have been opened once."""
        opened, began, said = 0, time.monotonic(), False
        while True:
            allowed = int((time.monotonic() - began) * self._flood.per_second) - opened
            wanted = max(0, min(self._flood.connections - len(self._open), _ROUND, allowed))
            for _ in range(wanted):
                self._begin()
            opened += wanted
            if opened >= self._flood.connections and not said:
                said = True
                print("opened", flush=True)
            for descriptor, events in self._poll.poll(0 if wanted else 0.005, 4 * _ROUND):
                self._advance(descriptor, events)

    def _begin(self) -> None:
        try:
            connection = _Connection(self._flood, self._context)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.EADDRNOTAVAIL):
                raise
            time.sleep(0.01)
            return
        self._open[connection.socket.fileno()] = connection
        self._poll.register(connection.socket, select.EPOLLOUT | _CLOSED)

    def _advance(self, descriptor: int, events: int) -> None:
        connection = self._open[descriptor]
        awaited = connection.advance(events)
        if awaited is None:
            del self._open[descriptor]
            connection.socket.close()
        else:
            self._poll.modify(descriptor, awaited)


def main() -> None:
    """Be the flood that standard input describes, until killed."""
    argparse.ArgumentParser(prog="python -m simnode.chaos.flood", description=__doc__).parse_args()
    given = json.load(sys.stdin)
    flood = Flood(**given | {"send": bytes.fromhex(given["send"])})
    os.nice(flood.niceness)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _Flooding(flood).run()


if __name__ == "__main__":
    main()
