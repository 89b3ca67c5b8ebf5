"""The stand-in's sockets: queries over UDP and TCP, with a client that falls back to TCP as resolvers do."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
from dnslib import DNSRecord

from tests.free_port import free_port
from tests.stand_ins import dns_server
from tests.stand_ins.test_dns_messages import CROWD, MANY

_ADDRESS, _SECONDS = "127.0.0.1", 20.0


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server that runs in a thread."""
    loop = asyncio.new_event_loop()
    number = free_port()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(dns_server.listen(lambda: CROWD, _ADDRESS, number), loop).result(_SECONDS)
    yield number
    asyncio.run_coroutine_threadsafe(_end(server), loop).result(_SECONDS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _end(server: dns_server.Listening) -> None:
    server.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def test_reply_that_was_cut_is_complete_over_tcp(port: int) -> None:
    question = DNSRecord.question("crowd.ml.svc.cluster.local")
    short = DNSRecord.parse(question.send(_ADDRESS, port, timeout=_SECONDS))
    whole = DNSRecord.parse(question.send(_ADDRESS, port, tcp=True, timeout=_SECONDS))

    assert short.header.tc == 1
    assert (whole.header.tc, len(whole.rr)) == (0, MANY)


def test_several_queries_come_over_one_connection(port: int) -> None:
    packed = DNSRecord.question("crowd.ml.svc.cluster.local").pack()
    message = len(packed).to_bytes(2, "big") + packed
    with (
        socket.create_connection((_ADDRESS, port), timeout=_SECONDS) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(message + message)
        found = [DNSRecord.parse(stream.read(int.from_bytes(stream.read(2), "big"))) for _ in range(2)]

    assert [len(one.rr) for one in found] == [MANY, MANY]


def test_bytes_that_are_no_query_end_no_server(port: int) -> None:
    with socket.create_connection((_ADDRESS, port), timeout=_SECONDS) as connection:
        connection.sendall(b"\0\3abc")
        assert connection.recv(1) == b""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.sendto(b"abc", (_ADDRESS, port))

    assert DNSRecord.parse(DNSRecord.question("crowd.ml.svc.cluster.local").send(_ADDRESS, port, timeout=_SECONDS)).rr
