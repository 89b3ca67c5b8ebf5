"""Connections to a socket of the machine, handed on to an address that only the demo's network namespace reaches."""

import contextlib
import socket
import threading
import time

_BYTES = 1 << 16
_MOST_CONNECTIONS = 100  # at a time; each takes two descriptors, of which a process has 1024 by default
_PAUSE_SECONDS = 0.1


class Forwarding:
    """Hands on for as long as the process runs: two threads for each connection, which end with it. More than a hundred connections wait."""

    def __init__(self, listener: socket.socket, host: str, port: int) -> None:
        """Describe it: `listener` listens, in whichever namespace it was made; `host` is reached from the caller's."""
        self._listener, self._address = listener, (host, port)
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def start(self) -> None:
        """Begin, and return at once."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            self._free.acquire()
            try:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()
            except (OSError, RuntimeError):  # no descriptor, or no thread: the next may have one
                self._free.release()
                time.sleep(_PAUSE_SECONDS)

    def _connect(self, client: socket.socket) -> None:
        try:
            self._hand_on_both_ways(client)
        finally:
            self._free.release()

    def _hand_on_both_ways(self, client: socket.socket) -> None:
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
