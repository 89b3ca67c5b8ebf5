"""Connections to a socket of the machine, handed on to an address that only the demo's network namespace reaches."""

import contextlib
import socket
import threading

_BYTES = 1 << 16


class Forwarding:
    """Hands on for as long as the process runs: two threads for each connection, which end with it."""

    def __init__(self, listener: socket.socket, host: str, port: int) -> None:
        """Describe it: `listener` listens, in whichever namespace it was made; `host` is reached from the caller's."""
        self._listener, self._address = listener, (host, port)

    def start(self) -> None:
        """Begin, and return at once."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._address) as server:
            back = threading.Thread(target=_hand_on, args=(server, client), daemon=True)
            back.start()
            _hand_on(client, server)
            back.join()


def _hand_on(source: socket.socket, target: socket.socket) -> None:
    """Send what arrives, until the end of it, and then that end; a connection that is lost is an end, too."""
    with contextlib.suppress(OSError):
        while received := source.recv(_BYTES):
            target.sendall(received)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
