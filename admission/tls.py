"""The certificate that the server shows: another from one moment to the next, for the connections that come after."""

import os
import ssl
from datetime import datetime

from admission.certificates.authority import Leaf


class Shown:
    """A server's side of TLS 1.2 and 1.3.

    Attributes:
        context: what connections are made by; the same for as long as the server listens.
        leaf: what is shown; None before there is anything.
    """

    def __init__(self) -> None:
        """Show nothing yet: until then no handshake succeeds."""
        self.leaf: Leaf | None = None
        self.context = _context()
        self.context.sni_callback = self._hand_over  # called without a name in the ClientHello, too
        self._latest = self.context

    def show(self, leaf: Leaf) -> None:
        """Show another one from now on. Connections that are established, or in a handshake, keep what they began with.

        Raises:
            ssl.SSLError: OpenSSL does not take it, and nothing has changed.
        """
        # Of its own: a context keeps one certificate for each kind of key, and the former would be shown on beside this one.
        latest = _context()
        _load(latest, leaf)
        self._latest, self.leaf = latest, leaf

    def _hand_over(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        connection.context = self._latest

    def trouble(self, now: datetime, name: str) -> str:
        """Tell what is wrong with what is shown, for a client that knows the server by a name; empty if nothing is."""
        if self.leaf is None:
            return "there is no certificate to show yet"
        if not self.leaf.valid(now):
            return f"the certificate is valid from {self.leaf.begins:%Y-%m-%dT%H:%M:%SZ} to {self.leaf.ends:%Y-%m-%dT%H:%M:%SZ}"
        return f"the certificate is not for {name}" if self.leaf.lacks([name]) else ""


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # API servers keep their connections and resume no sessions; without tickets none outlives its certificate, either.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _load(context: ssl.SSLContext, leaf: Leaf) -> None:
    # OpenSSL reads files only, and a key is not for a disk.
    descriptor = os.memfd_create("railnet-certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(leaf.chain.rstrip() + b"\n" + leaf.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)


def _no_password() -> str:
    return ""  # or OpenSSL asks the terminal
