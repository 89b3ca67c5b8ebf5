"""The webhook's server on the loopback, and a client that calls it as an API server does: TLS, kept alive; a test may send any bytes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from railnet.admission.certificates import authority
from railnet.admission.certificates.authority import Authority, ServerCertificate
from railnet.admission.host_network.host_port_allocator import HostPorts
from railnet.admission.review_configuration import Policy
from railnet.admission.server.server import WebhookServer
from railnet.admission.tls import Shown

NAME = "railnet-admission.railnet.svc"


def an_authority() -> Authority:
    return authority.make(datetime.now(UTC))


def a_leaf(of: Authority, name: str = NAME) -> ServerCertificate:
    return authority.sign(of, [name], datetime.now(UTC))


def an_rsa_leaf(of: Authority) -> ServerCertificate:
    """Return a leaf with an RSA key, which is cert-manager's default."""
    key, now = rsa.generate_private_key(65537, 2048), datetime.now(UTC)
    subject = of.certificate.subject
    certificate = (
        authority._begun(subject, subject, key.public_key(), now, now + timedelta(days=1))  # type: ignore[arg-type]  # the builder takes any public key
        .add_extension(authority.x509.SubjectAlternativeName([authority.x509.DNSName(NAME)]), critical=False)
        .add_extension(
            authority.x509.AuthorityKeyIdentifier.from_issuer_public_key(of.key.public_key()), critical=False
        )
        .sign(of.key, authority.hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return ServerCertificate(certificate, authority.certificate_pem([certificate, of.certificate]), pem)


class RecordedReviews:
    """A meter that records each review."""

    def __init__(self) -> None:
        self.reviews: list[tuple[str, str]] = []

    def reviewed(self, outcome: str, operator: str, seconds: float) -> None:
        assert seconds > 0
        self.reviews.append((outcome, operator))


class Served:
    """A server that listens, with its authority, certificate and meter."""

    def __init__(self, policy: Policy, host_ports: HostPorts | None = None, *, gangs: bool = False):
        self.authority = an_authority()
        self.connections: list[Connection] = []
        self.shown, self.counted = Shown(), RecordedReviews()
        self.shown.show(a_leaf(self.authority))
        self.server = WebhookServer(policy, self.counted, self.shown, host_ports, gangs=gangs)

    def trust(self, *authorities: Authority) -> ssl.SSLContext:
        pem = authority.certificate_pem([one.certificate for one in authorities or (self.authority,)])
        return ssl.create_default_context(cadata=pem.decode())

    async def until(self, holds: Callable[[WebhookServer], object]) -> None:
        """Wait until a condition holds for the server."""
        for _ in range(4000):
            if holds(self.server):
                return
            await asyncio.sleep(0.005)
        raise AssertionError("the condition never held")

    async def connect(self, context: ssl.SSLContext | None = None, source: str = "127.0.0.1") -> "Connection":
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=context or self.trust(), server_hostname=NAME, local_addr=(source, 0)
        )
        self.connections.append(Connection(reader, writer))
        return self.connections[-1]

    def abort_clients(self) -> None:
        """Have all clients go, also in the middle of a request."""
        for connection in self.connections:
            connection.writer.transport.abort()


class HttpAnswer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes):
        self.status, self.headers, self.body = status, headers, body

    @property
    def words(self) -> str:
        return self.body.decode().strip()


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer = reader, writer

    @property
    def tls(self) -> ssl.SSLObject:
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    async def answer(self) -> HttpAnswer:
        async with asyncio.timeout(20):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.rstrip().split("\r\n")
            headers = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
            body = await self.reader.readexactly(int(headers["content-length"]))
            return HttpAnswer(int(first.split()[1]), headers, body)

    async def post(self, body: bytes, path: str = "/pods?timeout=10s") -> HttpAnswer:
        self.send(request(body, path))
        return await self.answer()

    async def is_closed(self) -> bool:
        """Return whether the server closes the connection and sends nothing before; waits for the end."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


def request(
    body: bytes, path: str = "/pods?timeout=10s", content_type: str = "application/json", method: str = "POST"
) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {NAME}\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: {content_type}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def serving(
    policy: Policy | None = None, host_ports: HostPorts | None = None, *, gangs: bool = False
) -> AsyncIterator[Served]:
    served = Served(policy or Policy(), host_ports, gangs=gangs)
    await served.server.listen(0, "127.0.0.1")
    try:
        yield served
    finally:
        await served.server.close(5)
        served.abort_clients()
        await asyncio.sleep(0)  # a transport ends in the next round of the loop
