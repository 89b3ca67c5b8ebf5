"""TLS to the API server: which authority is trusted, and a time that holds for a whole answer."""

import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


# To set the timeout of a socket is a system call, in which the thread gives the interpreter's lock away. So it is set again when a tenth of it is over.
_LATE_SHARE = 0.1


class _TimedSocket(ssl.SSLSocket):
    """A socket whose timeout is for everything until the next `settimeout`.

    The timeout of an ordinary socket begins again with each byte: a server that sends a byte a second, in headers that never
    end, would hold the thread for ever. Here it ends after its time, or a tenth of it later.
    """

    _ends: float | None = None
    _slack = 0.0

    def settimeout(self, value: float | None) -> None:
        """Begin to count."""
        self._ends, self._slack = (None, 0.0) if value is None else (time.monotonic() + value, _LATE_SHARE * value)
        if value != self.gettimeout():
            super().settimeout(value)

    def recv_into(self, buffer: "WriteableBuffer", nbytes: int | None = None, flags: int = 0) -> int:
        """Receive within the time that is left."""
        self._shorten()
        return super().recv_into(buffer, nbytes, flags)

    def send(self, data: "ReadableBuffer", flags: int = 0) -> int:
        """Send within the time that is left."""
        self._shorten()
        return super().send(data, flags)

    def _shorten(self) -> None:
        if self._ends is not None:
            left = self._ends - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            given = self.gettimeout()
            if given is None or given - left > self._slack:
                super().settimeout(left)


def trusting(authority: Path) -> ssl.SSLContext:
    """Return a context that trusts the certificates of a file and no others.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    context = ssl.create_default_context(cafile=str(authority))
    # Authorities that administrators made by hand lack what RFC 5280 demands; other clients of the cluster do not insist on it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.sslsocket_class = _TimedSocket
    return context
