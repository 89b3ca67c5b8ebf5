"""A command in a pod over a real WebSocket: what it writes, and an end, a break, a silence and a flood of it."""

import base64
import hashlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet.apiserver import service_account
from railnet.apiserver.client import RequestFailed
from railnet.apiserver.kubernetes_package_transport import KubernetesTransport
from railnet.apiserver.pod_exec import PodExec
from railnet.apiserver.request import ApiObject
from tests.railnet.apiserver.raw_server import RawServer, serving

POD = ApiObject("v1", "pods", "train", "ml")
SUCCESS = (3, b'{"status": "Success"}')
CLOSE = b"\x88\x00"
_SILENT = "the command has not ended after 0.5 s"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RawServer]:
    with serving(tmp_path / "account") as found:
        yield found


def frame(channel: int, data: bytes) -> bytes:
    """Return a whole binary frame of a server (RFC 6455, section 5.2) with one message of a channel."""
    payload = bytes([channel]) + data
    return b"\x82\x7f" + len(payload).to_bytes(8) + payload


def run(server: RawServer, *sent: bytes, seconds: float = 20.0) -> str:
    """Return what a command wrote, whose API server sends these bytes after the handshake and then hangs."""

    def script(connection: socket.socket) -> None:
        found = re.search(rb"Sec-WebSocket-Key: (\S+)", server.requests[-1])
        assert found is not None
        accept = base64.b64encode(hashlib.sha1(found[1] + _GUID, usedforsecurity=False).digest())
        head = (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
        )
        connection.sendall(head + accept + b"\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n")
        for data in sent:
            connection.sendall(data)
        server.ended.wait(60)
        raise OSError  # what the client sends at its end is no request

    server.script = script
    account = service_account.find(server.environment, server.folder)
    return PodExec(KubernetesTransport(account), account.token).run(POD, "main", ["probe"], seconds)


def test_output_comes_whole_however_it_is_cut_into_frames(server: RawServer) -> None:
    frames = b"".join([frame(1, b"a\xc3"), frame(2, b"a warning"), frame(1, b"\xa4b"), frame(*SUCCESS)])

    assert run(server, *(frames[place : place + 5] for place in range(0, len(frames), 5)), CLOSE) == "aäb"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([frame(2, b"no such file"), frame(3, b'{"status": "Failure", "message": "exit code 3"}'), CLOSE], "exit code 3: no such file$"),
        ([frame(1, b"half"), CLOSE], "the connection ended before the command did"),
        ([frame(1, b"half")], _SILENT),
        ([frame(1, b"x" * (1 << 20))] * 5, "the command wrote more than 4 MiB"),
        ([frame(77, b"x" * (1 << 20))] * 5, "the command wrote more than 4 MiB"),
    ],
    ids=["a failure", "an end without a status", "silence", "a flood", "a flood of a channel that is not known"],
)  # fmt: skip
def test_command_that_fails_hangs_or_floods_is_named(server: RawServer, sent: list[bytes], words: str) -> None:
    with pytest.raises(RequestFailed, match=words):
        run(server, *sent, seconds=0.5 if words == _SILENT else 20.0)


def test_failure_of_the_node_has_its_status(server: RawServer) -> None:
    status = b'{"status": "Failure", "reason": "InternalError", "code": 500, "message": "container not found"}'
    with pytest.raises(RequestFailed, match="container not found") as failed:
        run(server, frame(3, status), CLOSE)

    assert failed.value.status == 500
