"""TLS of the webhook's server: the certificate that it presents can be replaced while connections are open."""

import os
import ssl
from datetime import datetime

from railnet.admission.certificates.authority import ServerCertificate


class Shown:
    """The server's side of TLS 1.2 and 1.3, with the certificate that it presents.

    Attributes:
        context: the TLS context for the server's listener; it stays the same when the certificate is replaced.
        leaf: the certificate that is presented; None before the first one.
    """

    def __init__(self) -> None:
        """Start without a certificate; no handshake succeeds before `show`."""
        self.leaf: ServerCertificate | None = None
        self.context = _context()
        self.context.sni_callback = self._use_latest  # OpenSSL calls it also if the ClientHello has no server name
        self._latest = self.context

    def show(self, leaf: ServerCertificate) -> None:
        """Present another certificate from now on. Connections that are open, or in a handshake, keep the one they began with.

        Raises:
            ssl.SSLError: OpenSSL does not accept the certificate or its key; the earlier one stays.
        """
        # A new context for each certificate: a context keeps one for each kind of key, so an earlier RSA one would stay beside an EC one.
        latest = _context()
        _load(latest, leaf)
        self._latest, self.leaf = latest, leaf

    def _use_latest(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        connection.context = self._latest

    def trouble(self, now: datetime, name: str) -> str:
        """Return why a client that calls the server by `name` rejects the certificate; empty if it accepts it."""
        if self.leaf is None:
            return "there is no certificate to show yet"
        if not self.leaf.valid(now):
            return f"the certificate is valid from {self.leaf.begins:%Y-%m-%dT%H:%M:%SZ} to {self.leaf.ends:%Y-%m-%dT%H:%M:%SZ}"
        return f"the certificate is not for {name}" if self.leaf.lacks([name]) else ""


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # API servers keep their connections and resume no sessions. Without tickets, no session outlives its certificate.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _load(context: ssl.SSLContext, leaf: ServerCertificate) -> None:
    # OpenSSL reads certificates from files only, and a private key must not be on a disk: so a file in memory.
    descriptor = os.memfd_create("railnet-certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(leaf.chain.rstrip() + b"\n" + leaf.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)


def _no_password() -> str:
    return ""  # without it, OpenSSL asks for a password on the terminal
