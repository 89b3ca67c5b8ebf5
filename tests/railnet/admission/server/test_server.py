"""The webhook's server over real TLS on the loopback: answers, refusals, time limits, memory, certificates, and its end."""

import asyncio
import base64
import json
import logging
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from railnet.admission.review import MAX_BYTES
from railnet.admission.review_configuration import Policy
from railnet.admission.server import connections, server
from railnet.admission.server.server import WebhookServer
from simnode.chaos.flood import Flood, flooding
from tests.railnet.admission.reviewing import a_review
from tests.railnet.admission.serving import Served, a_leaf, an_authority, an_rsa_leaf, request, serving

TRAINING: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"railnet.io/net1": "true"}},
    "spec": {"containers": [{"name": "main"}]},
}
PLAIN: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}}
INDEXED: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "labels": {"batch.kubernetes.io/job-name": "j", "batch.kubernetes.io/job-completion-index": "0"},
    },
    "spec": {"containers": [{"name": "main"}]},
}
DENIED: dict[str, Any] = {
    **TRAINING,
    "metadata": {**TRAINING["metadata"], "annotations": {"railnet.io/network": "nowhere"}},
}


def run(test: Callable[[Served], Awaitable[None]], policy: Policy | None = None) -> None:
    async def inside() -> None:
        async with serving(policy) as served:
            await test(served)

    asyncio.run(inside())


@contextmanager
def ended(stack: ExitStack) -> Iterator[None]:
    with stack:
        yield


def started(flood: Flood) -> AbstractContextManager[None]:
    """Start a flood, and return what ends it."""
    with ExitStack() as stack:
        stack.enter_context(flooding(flood))
        return ended(stack.pop_all())
    raise AssertionError


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def held(server: WebhookServer) -> int:
    """Return how many connections the server has after their handshake."""
    return len(server._http.connections)


def response_of(body: bytes) -> dict[str, Any]:
    response: dict[str, Any] = json.loads(body)["response"]
    return response


def test_pod_that_gets_a_rail_is_patched():
    async def test(served: Served) -> None:
        connection = await served.connect()

        answer = await connection.post(a_review(TRAINING, uid="abc"))

        response = response_of(answer.body)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert (response["uid"], response["allowed"], response["patchType"]) == ("abc", True, "JSONPatch")
        assert any(
            one["path"] == "/spec/containers/0/resources" for one in json.loads(base64.b64decode(response["patch"]))
        )
        assert served.counted.reviews == [("patched", "any pod with the label")]

    run(test)


def test_pod_of_no_operator_passes_untouched():
    async def test(served: Served) -> None:
        answer = await (await served.connect()).post(a_review(PLAIN))

        assert "patch" not in response_of(answer.body)
        assert served.counted.reviews == [("untouched", "")]

    run(test)


def test_denial_is_answered_with_the_reason_and_logged(caplog: pytest.LogCaptureFixture):
    async def test(served: Served) -> None:
        with caplog.at_level(logging.INFO):
            answer = await (await served.connect()).post(a_review(DENIED, namespace="team-a"))

        response = response_of(answer.body)
        assert not response["allowed"]
        assert "nowhere" in response["status"]["message"]
        assert f"denied a pod of namespace 'team-a': {response['status']['message']!r}" in caplog.text
        assert served.counted.reviews == [("denied", "")]

    run(test)


def test_path_gives_the_label_of_the_namespace():
    async def test(served: Served) -> None:
        connection = await served.connect()
        without = await connection.post(a_review(INDEXED), "/pods")
        labelled = await connection.post(a_review(INDEXED), "/pods/net1?timeout=10s")

        assert "patch" not in response_of(without.body)
        assert "patch" in response_of(labelled.body)

    run(test)


def test_connection_is_kept_for_the_next_request():
    async def test(served: Served) -> None:
        connection = await served.connect()
        for _ in range(20):
            assert (await connection.post(a_review(TRAINING))).status == 200
        for _ in range(3):
            assert (await connection.post(b"{}")).status == 400
        assert (await connection.post(a_review(TRAINING))).status == 200

    run(test)


REFUSED = {
    "no review": (request(b"{}"), 400, "the body is not an AdmissionReview of admission.k8s.io/v1"),
    "no JSON": (request(b"hello"), 400, "the review is not JSON"),
    "another content type": (request(a_review(PLAIN), content_type="text/yaml"), 400, "not application/json"),
    "compressed": (
        request(b"\x1f\x8b\x08").replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n", 1),
        400,
        "the review is not JSON",
    ),
    "another path": (request(b"{}", "/"), 404, "reviews go to /pods or /pods/net1 or /pods/sticky or"),
    "a path below": (request(b"{}", "/pods/net1/x"), 404, "reviews go to /pods or /pods/net1 or /pods/sticky or"),
    "another method": (request(b"", method="GET"), 405, "send a review by POST"),
    "too large a body by its length": (
        request(b"x", "/pods").replace(b"Content-Length: 1\r", b"Content-Length: %d\r" % (MAX_BYTES + 1)),
        413,
        f"at most {MAX_BYTES} bytes are read",
    ),
}


@pytest.mark.parametrize(("raw", "status", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_request_that_is_no_review_is_refused_with_the_reason(raw: bytes, status: int, words: str):
    async def test(served: Served) -> None:
        connection = await served.connect()
        connection.send(raw)

        answer = await connection.answer()

        assert (answer.status, words in answer.words) == (status, True), answer.words
        assert served.counted.reviews == [("unreadable", "")]

    run(test)


def test_body_without_a_length_has_the_same_limit():
    async def test(served: Served) -> None:
        connection = await served.connect()
        head = request(b"", "/pods").replace(b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n")
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        connection.send(head + chunk * (MAX_BYTES // 0x100000 + 1))

        assert (await connection.answer()).status == 413

    run(test)


@pytest.mark.slow
def test_body_with_malformed_chunks_is_refused_after_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 1.0)

    async def test(served: Served) -> None:
        connection = await served.connect()
        head = request(b"", "/pods").replace(b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n")
        connection.send(head + b"5\r\nhello\r\n")
        await served.until(lambda one: one._busy)
        connection.send(b"hunter2\r\n")

        assert (await connection.answer()).status == 408
        assert await connection.is_closed()
        assert "hunter2" not in caplog.text
        assert served.counted.reviews == [("unreadable", "")]

    run(test)


def test_body_of_the_largest_size_is_reviewed():
    async def test(served: Served) -> None:
        answer = await (await served.connect()).post(a_review(TRAINING).ljust(MAX_BYTES))

        assert "patch" in response_of(answer.body)

    run(test)


def test_large_bodies_wait_for_a_place_and_small_bodies_do_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_LARGE_BODY_SECONDS", 60.0)

    async def test(served: Served) -> None:
        large = request(a_review(TRAINING).ljust(2 << 20))
        halves = [await served.connect() for _ in range(4)]
        for connection in halves:
            connection.send(large[: 3 << 19])
            await connection.writer.drain()
        await served.until(lambda one: one._large.locked())
        fifth, small = await served.connect(), await served.connect()
        fifth.send(large)

        assert (await small.post(a_review(PLAIN))).status == 200
        assert served.counted.reviews == [("untouched", "")]
        halves[0].writer.transport.abort()  # a place is free when its client has closed the connection …
        assert (await fifth.answer()).status == 200
        halves[1].send(large[3 << 19 :])
        assert (await halves[1].answer()).status == 200
        for _ in range(6):  # … and when it has its answer
            assert (await halves[1].post(a_review(TRAINING).ljust(2 << 20))).status == 200
        for connection in halves:
            connection.writer.transport.abort()

    run(test)


@pytest.mark.slow
def test_client_that_pauses_in_a_large_body_loses_its_place(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 60.0)
    monkeypatch.setattr(server, "_LARGE_BODY_SECONDS", 2.0)

    async def test(served: Served) -> None:
        raw = request(a_review(TRAINING).ljust(80 << 10))
        paused = [await served.connect() for _ in range(4)]
        for connection in paused:
            connection.send(raw[:-10])
        await served.until(lambda one: one._large.locked())

        assert (await (await served.connect()).post(a_review(TRAINING).ljust(80 << 10))).status == 200
        assert [(await connection.answer()).status for connection in paused] == [408] * 4

    run(test)


def test_small_body_is_reviewed_while_paused_large_bodies_hold_all_places(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(server, "_LARGE_BODY_SECONDS", 60.0)

    async def test(served: Served) -> None:
        raw = request(a_review(TRAINING).ljust(1 << 20))
        paused = [await served.connect() for _ in range(8)]
        for connection in paused:
            connection.send(raw[:-10])
        await served.until(lambda one: len(one._busy) == len(paused) and one._large.locked())

        assert (await (await served.connect()).post(a_review(PLAIN))).status == 200
        for connection in paused:
            connection.writer.transport.abort()

    run(test)


def test_oldest_idle_connection_is_closed_for_one_beyond_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_MAX_OPEN", 2)

    async def test(served: Served) -> None:
        first, second = await served.connect(), await served.connect()
        for connection in (first, second):
            assert (await connection.post(a_review(PLAIN))).status == 200
        third = await served.connect()
        assert (await third.post(a_review(PLAIN))).status == 200

        assert await first.is_closed()
        for connection in (second, third):
            assert (await connection.post(a_review(PLAIN))).status == 200

    run(test)


@pytest.mark.slow
def test_client_with_few_connections_keeps_them_beside_a_client_with_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_MAX_OPEN", 20)

    async def test(served: Served) -> None:
        one = await served.connect()
        assert (await one.post(a_review(PLAIN))).status == 200
        with await asyncio.to_thread(started, Flood(served.server.port, 60, tls="whole", source="127.0.0.2")):
            await served.until(lambda server: held(server) == 20)
            for _ in range(10):
                assert (await one.post(a_review(PLAIN))).status == 200
                assert (await (await served.connect()).post(a_review(PLAIN))).status == 200

    run(test)


def test_idle_clients_of_many_addresses_take_no_connection_of_a_client_that_is_reviewed(
    monkeypatch: pytest.MonkeyPatch,
):
    """Each has one connection, and the API server has more: by number alone, the API server would give up its own."""
    monkeypatch.setattr(connections, "_MAX_OPEN", 6)
    monkeypatch.setattr(connections, "_FRESH_SECONDS", 0.0)

    async def test(served: Served) -> None:
        kept = [await served.connect() for _ in range(3)]
        for connection in kept:
            assert (await connection.post(a_review(PLAIN))).status == 200
        for number in range(2, 12):
            await served.connect(source=f"127.0.1.{number}")

        for connection in kept:
            assert (await connection.post(a_review(PLAIN))).status == 200

    run(test)


HALF_A_REQUEST = request(a_review(PLAIN))[:-1]


def test_busy_clients_of_many_addresses_take_no_connection_of_a_client_that_is_reviewed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(connections, "_MAX_OPEN", 6)

    async def test(served: Served) -> None:
        kept = [await served.connect() for _ in range(3)]
        for connection in kept:
            assert (await connection.post(a_review(PLAIN))).status == 200
        for number in range(2, 12):
            (await served.connect(source=f"127.0.1.{number}")).send(HALF_A_REQUEST)

        for connection in kept:
            assert (await connection.post(a_review(PLAIN))).status == 200
        served.abort_clients()

    run(test)


def test_first_review_of_a_client_is_answered_beside_busy_clients_of_many_addresses(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_MAX_OPEN", 6)

    async def test(served: Served) -> None:
        for number in range(2, 12):
            (await served.connect(source=f"127.0.1.{number}")).send(HALF_A_REQUEST)
        first = await served.connect()
        first.send(HALF_A_REQUEST)
        for number in range(12, 16):
            (await served.connect(source=f"127.0.1.{number}")).send(HALF_A_REQUEST)
        first.send(request(a_review(PLAIN))[-1:])

        assert (await first.answer()).status == 200
        served.abort_clients()

    run(test)


def test_client_of_many_reviewed_connections_takes_none_from_a_client_without_a_review(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(connections, "_MAX_OPEN", 6)

    async def test(served: Served) -> None:
        for _ in range(6):
            assert (await (await served.connect(source="127.0.1.2")).post(a_review(PLAIN))).status == 200
        first = await served.connect()
        first.send(HALF_A_REQUEST)
        for _ in range(6):
            assert (await (await served.connect(source="127.0.1.2")).post(a_review(PLAIN))).status == 200
        first.send(request(a_review(PLAIN))[-1:])

        assert (await first.answer()).status == 200

    run(test)


FLOODS = {
    "silent": Flood(0, 3000),
    "silent, from the API server's address": Flood(0, 3000, source="127.0.0.1"),
    "half a handshake": Flood(0, 500, tls="hello"),
    "idle after the handshake": Flood(0, 500, tls="whole"),
    "no TLS": Flood(0, 1000, send=b"POST /pods HTTP/1.1\r\n"),
    "half a body": Flood(0, 400, tls="whole", send=request(a_review(PLAIN).ljust(60 << 10))[:-10]),
}


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_review_is_answered_under_a_flood_with_few_descriptors(flood: Flood):
    async def test(served: Served) -> None:
        before = descriptors()
        address = flood.source if flood.source != "127.0.0.1" else "127.0.0.2"
        if flood is FLOODS["silent, from the API server's address"]:
            address = "127.0.0.1"
        kept = await served.connect()
        with await asyncio.to_thread(started, replace(flood, port=served.server.port, source=address)):
            for _ in range(5):
                assert (await kept.post(a_review(PLAIN))).status == 200
                assert (await (await served.connect()).post(a_review(PLAIN))).status == 200
            more = descriptors() - before

        assert more < 256 + 64 + 300 + 40, "the limits of the three kinds, and this test's own"

    run(test)


@pytest.mark.slow
def test_answers_that_are_not_read_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_UNREAD_BYTES", 1 << 20)
    reviews = 40

    async def test(served: Served) -> None:
        task = json.dumps({"cluster": {"ps": [f"mnist-ps-{number}.ml.svc:2222" for number in range(2000)]}})
        pod = {
            "metadata": {
                "name": "p",
                "labels": {"railnet.io/net1": "true"},
                "annotations": {"railnet.io/rendezvous": "net1"},
                "ownerReferences": [{"name": "mnist", "controller": True}],
            },
            "spec": {"containers": [{"name": "main", "env": [{"name": "TF_CONFIG", "value": task}]}]},
        }
        unread = [await served.connect() for _ in range(reviews)]
        for connection in unread:
            connection.writer.transport.pause_reading()
            connection.send(request(a_review(pod)) * 8)
        await served.until(lambda _: len(served.counted.reviews) >= reviews)

        assert (await (await served.connect()).post(a_review(PLAIN))).status == 200
        await served.until(lambda server: held(server) < reviews // 2)
        for connection in unread:
            connection.writer.transport.abort()

    run(test)


def test_malformed_http_is_refused_and_not_logged(caplog: pytest.LogCaptureFixture):
    async def test(served: Served) -> None:
        connection = await served.connect()
        connection.send(b"POST /pods HTTP/1.1\r\nSecret-Header\x00: hunter2\r\n\r\n")

        assert (await connection.answer()).status == 400
        assert await connection.is_closed()
        assert "hunter2" not in caplog.text

    run(test)


@pytest.mark.slow
def test_connection_without_a_request_is_closed_after_the_time_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 1.0)

    async def test(served: Served) -> None:
        silent = await served.connect()
        slow = await served.connect()
        slow.send(b"POST /pods HTT")
        _, plain = await asyncio.open_connection("127.0.0.1", served.server.port)  # no handshake

        assert await silent.is_closed()
        assert await slow.is_closed()
        plain.close()
        assert served.counted.reviews == []

    run(test)


@pytest.mark.slow
def test_connection_stays_open_between_requests(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 1.0)

    async def test(served: Served) -> None:
        connection = await served.connect()
        await connection.post(a_review(PLAIN))
        await asyncio.sleep(1.3)

        assert (await connection.post(a_review(PLAIN))).status == 200

    run(test)


def test_connection_that_is_kept_holds_little():
    async def test(served: Served) -> None:
        number = 20
        for _ in range(2):  # objects that are made once exist after these requests
            await (await served.connect()).post(a_review(PLAIN))
        tracemalloc.start()
        try:
            for _ in range(number):
                await (await served.connect()).post(a_review(PLAIN))
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert size / number < 256 << 10, "the server and this client together: 88 KiB, and 536 with asyncio's buffers"

    run(test)


def test_connection_that_is_not_read_holds_little(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_LARGE_BODY_SECONDS", 60.0)
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 60.0)

    def unread(one: server.WebhookServer) -> list[int]:
        """Return the encrypted bytes in each connection that asyncio has stopped to read."""
        transports = [connection.transport for connection in one._http.connections]
        return [one.get_read_buffer_size() for one in transports if not one._ssl_protocol._transport.is_reading()]

    async def test(served: Served) -> None:
        large = request(a_review(TRAINING).ljust(2 << 20))
        paused = [await served.connect() for _ in range(4)]
        for connection in paused:
            connection.send(large[:-10])
        await served.until(lambda one: one._large.locked())
        waiting = await served.connect()
        waiting.send(large)
        await served.until(unread)

        assert max(unread(served.server)) <= 64 << 10, "asyncio's own limit lets it hold 256 KiB and more"
        for connection in (*paused, waiting):
            connection.writer.transport.abort()

    run(test)


@pytest.mark.slow
def test_body_that_does_not_come_is_refused_after_the_time_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 1.0)

    async def test(served: Served) -> None:
        connection = await served.connect()
        connection.send(request(a_review(PLAIN))[:-10])

        answer = await connection.answer()

        assert (answer.status, answer.words) == (408, "the body did not come in time")
        assert answer.headers["connection"] == "close"

    run(test)


def test_client_that_disconnects_in_the_body_causes_no_log_line(caplog: pytest.LogCaptureFixture):
    async def test(served: Served) -> None:
        connection = await served.connect()
        connection.send(request(a_review(PLAIN))[:-10])
        await served.until(lambda one: one._busy)
        connection.writer.transport.abort()
        await served.until(lambda one: not one._busy)

        assert (await (await served.connect()).post(a_review(PLAIN))).status == 200
        assert served.counted.reviews == [("unreadable", ""), ("untouched", "")]
        assert caplog.records == []

    run(test)


def test_review_that_fails_is_answered_and_logged_without_the_pod(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fail(body: bytes, *_: object, **_more: object) -> None:
        raise KeyError(body.decode())

    async def test(served: Served) -> None:
        connection = await served.connect()
        with monkeypatch.context() as patched:
            patched.setattr(server, "review", fail)
            failed = await connection.post(a_review({"env": "hunter2"}))
        after = await connection.post(a_review(PLAIN))

        assert (failed.status, failed.words) == (
            500,
            "the review failed by an error of Railnet; see the log of railnet-admission",
        )
        assert after.status == 200
        assert "KeyError" in caplog.text
        assert "hunter2" not in caplog.text
        assert served.counted.reviews == [("failed", ""), ("untouched", "")]

    run(test)


def test_older_tls_is_refused():
    async def test(served: Served) -> None:
        context = served.trust()
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await served.connect(context)

    run(test)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_server_speaks_http_1_over_tls(version: ssl.TLSVersion):
    async def test(served: Served) -> None:
        context = served.trust()
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2", "http/1.1"])

        connection = await served.connect(context)

        assert connection.tls.selected_alpn_protocol() == "http/1.1"
        assert (await connection.post(a_review(PLAIN))).status == 200

    run(test)


@pytest.mark.slow
def test_no_request_fails_while_the_certificate_changes_under_load():
    async def test(served: Served) -> None:
        old, new = served.authority, an_authority()
        context = served.trust(old, new)
        ends, progress, answered, issuers = asyncio.Event(), asyncio.Event(), 0, set()

        async def keep_asking(*, each_time: bool) -> None:
            nonlocal answered
            connection = await served.connect(context)
            while not ends.is_set():
                if each_time:
                    connection.close()
                    connection = await served.connect(context)
                    issuers.add(str(connection.tls.getpeercert()["issuer"]))  # type: ignore[index]
                assert (await connection.post(a_review(TRAINING))).status == 200
                answered += 1
                progress.set()
            connection.close()

        clients = [asyncio.create_task(keep_asking(each_time=one % 2 == 0)) for one in range(6)]
        async with asyncio.timeout(60):
            for number in range(30):
                served.shown.show(a_leaf(new if number % 2 else old))
                for _ in range(3):
                    progress.clear()
                    await progress.wait()
        ends.set()
        await asyncio.gather(*clients)

        assert len(issuers) == 2
        assert answered > 60
        assert served.counted.reviews == [("patched", "any pod with the label")] * answered

    run(test)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificate_with_a_key_of_another_kind_replaces_the_earlier_one(version: ssl.TLSVersion):
    async def test(served: Served) -> None:
        context = served.trust()
        context.minimum_version = context.maximum_version = version
        for leaf in (a_leaf(served.authority), an_rsa_leaf(served.authority), a_leaf(served.authority)):
            served.shown.show(leaf)

            connection = await served.connect(context)

            assert connection.tls.getpeercert(binary_form=True) == leaf.certificate.public_bytes(Encoding.DER)
            assert (await connection.post(a_review(PLAIN))).status == 200

    run(test)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_without_a_server_name_gets_the_latest_certificate(version: ssl.TLSVersion):
    async def test(served: Served) -> None:
        served.shown.show(leaf := a_leaf(served.authority))
        context = served.trust()
        context.check_hostname = False
        context.minimum_version = context.maximum_version = version

        _, writer = await asyncio.open_connection("127.0.0.1", served.server.port, ssl=context)  # no SNI: an address

        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        assert shown == leaf.certificate.public_bytes(Encoding.DER)

    run(test)


def test_leaf_that_openssl_rejects_changes_nothing():
    async def test(served: Served) -> None:
        before = served.shown.leaf
        one, other = a_leaf(served.authority), a_leaf(served.authority)
        with pytest.raises(ssl.SSLError):
            served.shown.show(type(one)(one.certificate, one.chain, other.key))

        assert served.shown.leaf == before
        assert (await (await served.connect()).post(a_review(PLAIN))).status == 200

    run(test)


def test_leaving_server_answers_and_closes_each_connection():
    async def test(served: Served) -> None:
        idle, busy = await served.connect(), await served.connect()
        await idle.post(a_review(PLAIN))
        raw = request(a_review(PLAIN))
        busy.send(raw[:-10])
        await served.until(lambda one: one._busy)
        assert served.server.accepts
        served.server.leave()

        assert not served.server.accepts
        assert await idle.is_closed()
        busy.send(raw[-10:])
        for connection in (busy, await served.connect()):
            if connection is not busy:
                connection.send(raw)
            answer = await connection.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await connection.is_closed()

    run(test)


def test_closing_server_answers_requests_that_have_begun():
    async def test(served: Served) -> None:
        busy, idle = await served.connect(), await served.connect()
        await idle.post(a_review(PLAIN))
        raw = request(a_review(TRAINING))
        busy.send(raw[:-10])
        await served.until(lambda one: one._busy)
        closing = asyncio.create_task(served.server.close(60))
        assert await idle.is_closed()
        with pytest.raises(ConnectionRefusedError):
            await served.connect()
        busy.send(raw[-10:])

        assert (await busy.answer()).status == 200
        async with asyncio.timeout(30):
            await closing

    run(test)


@pytest.mark.slow
def test_closing_server_waits_for_a_limited_time():
    async def test(served: Served) -> None:
        connection = await served.connect()
        connection.send(request(a_review(TRAINING))[:-10])
        await served.until(lambda one: one._busy)
        async with asyncio.timeout(60):
            await served.server.close(0.2)

        assert await connection.is_closed()

    run(test)
