"""A TLS server that answers with bytes written by hand, for answers that no real API server gives."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from railnet.admission.certificates import authority

Script = Callable[[socket.socket], None]
OBJECT = b'{"kind": "Pod"}'


def answer(body: bytes = OBJECT, status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """Return the bytes of an answer; `headers` replace the content type."""
    lines = [f"HTTP/1.1 {status}", *(headers or ("Content-Type: application/json",))]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def saying(data: bytes) -> Script:
    """Answer with some bytes."""
    return lambda connection: connection.sendall(data)


class RawServer:
    """Runs `script` for each request of each connection.

    Attributes:
        script: answers a request; the connection is closed if it raises OSError.
        requests: the requests so far, whole.
        reads: whether requests are read at all.
        connections: how many clients have connected.
        closed: set when a connection has been closed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script: Script = saying(answer())
        self.requests: list[bytes] = []
        self.reads = True
        self.connections = 0
        self.ended, self.closed = threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.environment = {
            "KUBERNETES_SERVICE_HOST": "localhost",
            "KUBERNETES_SERVICE_PORT": str(self._listener.getsockname()[1]),
        }
        self._context: ssl.SSLContext
        (folder / "token").write_text("a-token")
        (folder / "ca.crt").write_bytes(self.use_new_authority())

    def use_new_authority(self) -> bytes:
        """Show a certificate of another authority from now on; return that authority as PEM."""
        now = datetime.now(UTC)
        made = authority.make(now)
        leaf = authority.sign(made, ["localhost"], now)
        (self.folder / "leaf").write_bytes(leaf.chain + leaf.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "leaf")
        self._context = context
        return authority.certificate_pem([made.certificate])

    def serve(self) -> None:
        """Accept connections until `close`."""
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_one, args=(plain,), daemon=True).start()

    def close(self) -> None:
        self.ended.set()
        with suppress(OSError):  # it is closed already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve_one(self, plain: socket.socket) -> None:
        with suppress(OSError), plain, self._context.wrap_socket(plain, server_side=True) as connection:
            self.connections += 1
            if not self.reads:
                self.ended.wait()
            with connection.makefile("rb") as reader:  # a socket stays open for as long as a file of it is open
                while request := _read_request(reader):
                    self.requests.append(request)
                    self.script(connection)
        self.closed.set()


def _read_request(reader: BinaryIO) -> bytes:
    lines = []
    while line := reader.readline():
        lines.append(line)
        if line == b"\r\n":
            break
    head = b"".join(lines)
    _, found, length = head.lower().partition(b"content-length:")
    return head + (reader.read(int(length.split()[0])) if found else b"")


@contextmanager
def serving(folder: Path) -> Iterator[RawServer]:
    """Run a server, and write the service account's folder."""
    folder.mkdir()
    server = RawServer(folder)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
