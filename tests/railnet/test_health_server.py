"""What /healthz and /readyz answer, over a real connection."""

import asyncio
import gc
import http.client
import resource
import socket
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from railnet import health_server as health_module
from railnet.health_server import Health, Pages
from simnode.chaos.flood import Flood, flooding
from tests import waiting
from tests.free_port import free_port

SECONDS = 60.0


def get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def asked(health: Health, ask: Callable[[int], Any]) -> Any:
    """Serve on a free port, and send requests from a thread once the port is open."""

    async def scenario() -> Any:
        port = free_port()
        async with health.serving(port):
            await listening(port)
            return await asyncio.to_thread(ask, port)

    return asyncio.run(scenario())


async def listening(port: int) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


def because(*reasons: str) -> Health:
    return Health(Pages(lambda: list(reasons)))


def test_healthz_is_ok_while_the_event_loop_runs() -> None:
    assert asked(because("kubelet is away"), lambda port: get(port, "/healthz")) == (200, "ok\n")


def test_readyz_is_ok_without_reasons() -> None:
    assert asked(because(), lambda port: get(port, "/readyz?verbose=1")) == (200, "ok\n")


def test_readyz_has_every_reason() -> None:
    assert asked(because("a", "b"), lambda port: get(port, "/readyz")) == (503, "a\nb\n")


def test_readyz_fails_at_first() -> None:
    assert asked(Health(), lambda port: get(port, "/readyz"))[0] == 503


def test_metrics_are_current() -> None:
    health = Health(Pages(lambda: ["a"], lambda: "railnet_cni_queue 0\n"))

    assert asked(health, lambda port: get(port, "/metrics")) == (200, "railnet_cni_queue 0\n")


def test_pages_that_are_shown_later_take_the_place_of_the_first_at_once() -> None:
    health = because("it is starting")
    assert health.answer("GET /readyz") == (503, "it is starting\n")

    health.show(Pages(list, lambda: "railnet_vfs 1\n"))

    assert (health.answer("GET /readyz"), health.answer("GET /metrics")) == ((200, "ok\n"), (200, "railnet_vfs 1\n"))
    assert health.reasons() == []


def test_metrics_are_prepared_before_they_are_answered() -> None:
    prepared: list[str] = []

    async def prepare() -> None:
        await asyncio.sleep(0)
        prepared.append("fresh")

    health = Health(Pages(list, lambda: f"{prepared}\n", prepare))
    assert asked(health, lambda port: get(port, "/metrics")) == (200, "['fresh']\n")
    assert asked(health, lambda port: get(port, "/healthz")) == (200, "ok\n")
    assert len(prepared) == 1


def test_metrics_whose_preparation_fails_are_answered() -> None:
    async def fail() -> None:
        raise OSError("a card is gone")

    health = Health(Pages(list, lambda: "old\n", fail))
    assert asked(health, lambda port: get(port, "/metrics")) == (200, "old\n")


def test_probe_is_answered_while_metrics_are_prepared() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    health = Health(Pages(list, str, hang))

    def ask(port: int) -> tuple[int, str]:
        with socket.create_connection(("127.0.0.1", port)) as scrape:
            scrape.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            return get(port, "/healthz")

    assert asked(health, ask) == (200, "ok\n")


@pytest.mark.slow
def test_scrapes_of_closed_connections_are_not_prepared_any_more() -> None:
    """Each local user may connect again and again: what waits for a preparation must be as bounded as the connections are."""
    waiting_now = most = 0

    async def hang() -> None:
        nonlocal waiting_now, most
        waiting_now += 1
        most = max(most, waiting_now)
        try:
            await asyncio.Event().wait()
        finally:
            waiting_now -= 1

    health = Health(Pages(list, str, hang))

    def ask(port: int) -> tuple[int, str]:
        for _ in range(500):
            with socket.create_connection(("127.0.0.1", port)) as scrape:
                scrape.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        return get(port, "/healthz")  # connections are taken in the order in which they come

    assert asked(health, ask) == (200, "ok\n")
    assert 0 < most < 150
    assert waiting_now == 0


def test_head_has_no_body() -> None:
    assert asked(because("a"), lambda port: get(port, "/readyz", "HEAD")) == (503, "")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/metrics/x", 404), ("POST", "/readyz", 405), ("POST", "/metrics", 405)],
)
def test_other_paths_and_methods_are_refused(method: str, path: str, status: int) -> None:
    assert asked(because(), lambda port: get(port, path, method))[0] == status


@pytest.mark.parametrize(
    "sent", [b"", b"\xff\xfe\r\n\r\n", b"GET", b"a" * 100_000], ids=["nothing", "no text", "half", "huge"]
)
def test_bad_clients_do_not_affect_the_next_client(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "_PATIENCE_SECONDS", 2.0)

    def ask(port: int) -> tuple[int, str]:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as odd:
            with suppress(ConnectionError):  # a long text may be refused before all of it is sent
                odd.sendall(sent)
            return get(port, "/readyz")

    assert asked(because(), ask) == (200, "ok\n")


def test_port_is_taken_when_the_other_daemon_has_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "_RETRY_SECONDS", 0.01)

    async def scenario() -> tuple[int, str]:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            async with because().serving(port):
                await asyncio.sleep(0.05)
                other.close()
                await listening(port)
                return await asyncio.to_thread(get, port, "/readyz")

    assert asyncio.run(scenario()) == (200, "ok\n")


@pytest.mark.parametrize("rounds", range(16))
def test_cancelled_start_leaves_no_socket(rounds: int):
    async def scenario() -> None:
        async with Health().serving(0):
            for _ in range(rounds):
                await asyncio.sleep(0)

    gc.freeze()  # the collection below looks only at what this test has made, not at every object of the process
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            asyncio.run(scenario())
            gc.collect()
    finally:
        gc.unfreeze()

    assert [str(one.message) for one in caught if issubclass(one.category, ResourceWarning)] == []


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def open_ends(port: int) -> tuple[int, int]:
    """Return how many ends of connections to a port are open: the server's, the clients' (proc(5), net/tcp, include/net/tcp_states.h)."""
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    ours, open_states = (
        f":{port:04X}",
        {"01", "08"},
    )  # ESTABLISHED, and CLOSE_WAIT: the other end has closed, this one has not
    found = [(local, remote) for _, local, remote, state, *_ in rows if state in open_states]
    return sum(local.endswith(ours) for local, _ in found), sum(remote.endswith(ours) for _, remote in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent", [b"", b"GET /he", b"GET / HTTP/1.1\r\nX: " + b"x" * 65_000], ids=["silent", "half", "65 kB"]
)
def test_probe_is_answered_under_a_flood_with_few_descriptors(sent: bytes) -> None:
    def ask(port: int) -> tuple[list[tuple[int, str]], int]:
        before = descriptors()
        with flooding(Flood(port, 3000, send=sent)):
            answers = [get(port, path) for path in ("/healthz", "/readyz", "/metrics")]
            return answers, descriptors() - before

    answers, more = asked(because(), ask)

    assert answers == [(200, "ok\n"), (200, "ok\n"), (200, "")]
    assert more <= health_module._MAX_CONNECTIONS + 16, "the flood's pipes and process, and the probe, are a few"


@pytest.mark.slow
def test_probe_is_answered_while_requests_come_as_fast_as_they_can() -> None:
    def ask(port: int) -> list[tuple[int, str]]:
        with flooding(Flood(port, 200, send=b"GET /metrics HTTP/1.1\r\n\r\n")):
            return [get(port, "/healthz") for _ in range(20)]

    assert asked(because(), ask) == [(200, "ok\n")] * 20


def test_page_that_takes_long_is_not_made_for_each_request() -> None:
    made = 0

    def metrics() -> str:
        nonlocal made
        made += 1
        time.sleep(0.05)
        return f"{made}\n"

    health = Health(Pages(list, metrics))
    answers = asked(health, lambda port: [get(port, "/metrics") for _ in range(50)])

    assert [status for status, _ in answers] == [200] * 50
    assert made < 25


def test_page_that_cannot_be_made_ends_its_own_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    def metrics() -> str:
        raise KeyError("pool")

    health = Health(Pages(list, metrics))

    assert asked(health, lambda port: (get(port, "/metrics")[0], get(port, "/healthz"))) == (500, (200, "ok\n"))
    assert "KeyError" in caplog.text


def test_client_that_sends_byte_by_byte_is_closed() -> None:
    def ask(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
            slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with suppress(ConnectionError):
                for _ in range(500):
                    slow.sendall(b"G")
                    time.sleep(0.002)
            with suppress(ConnectionError):
                return slow.recv(1)
            return b""

    assert asked(because(), ask) == b""


@pytest.mark.slow
def test_client_that_does_not_read_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "_PATIENCE_SECONDS", 0.2)
    health = Health(Pages(list, lambda: "x" * (32 << 20)))

    def ask(port: int) -> int:
        waiting.until(
            lambda: open_ends(port) == (0, 0), SECONDS, "the connection that has looked for the port is closed"
        )
        with socket.socket() as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.connect(("127.0.0.1", port))
            unread.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            waiting.until(lambda: open_ends(port) == (0, 1), SECONDS, "the server has closed its end")
            return len(get(port, "/healthz")[1])

    assert asked(health, ask) == 3


def test_connection_that_cannot_be_accepted_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def ask(port: int) -> tuple[int, str]:
        # No descriptor is given back below the limit.
        waiting.until(
            lambda: open_ends(port) == (0, 0), SECONDS, "the connection that has looked for the port is closed"
        )
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as client, socket.socket() as last:
            resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, hard))
            try:
                client.connect(("127.0.0.1", port))
                waiting.until(lambda: "takes no connection: Too many open files" in caplog.text, SECONDS, "it is said")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            return get(port, "/healthz")

    assert asked(because(), ask) == (200, "ok\n")
    assert (
        len([record for record in caplog.records if record.name == "railnet.kernel.sockets.batched_tcp_listener"]) == 1
    )
