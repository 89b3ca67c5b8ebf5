"""The socket from REQUEST to DONE, for pods without a rail: real frames, real files, a fake executable."""

import asyncio
import errno
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from cni import connection as connection_module
from cni import primary_configuration, server
from cni.delegate_slots import DelegateSlots
from cni.flannel_shortcut import FlannelDelegates
from cni.host import frames
from cni.request_cancellation import TimeLimits
from railnet.kubelet.checkpoint_file import CheckpointFile
from tests.cni.fake_executable import CONF, ENVIRON, FakeExecutable, a_request, output
from tests.cni.server_node import RAIL, Node

REQUEST = a_request()
BYTES = b' {"ips" :[ ]}\n'


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def added(executable: FakeExecutable) -> tuple[list[str], tuple[int, bytes]]:
    """Play an ADD whose one plugin succeeds."""
    await executable.handshake(REQUEST)
    executed = await executable.answer(BYTES)
    return [executed], await executable.done()


async def refused(executable: FakeExecutable) -> tuple[int, int, str]:
    """Play a request that is answered at once."""
    await executable.handshake(REQUEST)
    return error(await executable.done())


def error(done: tuple[int, bytes]) -> tuple[int, int, str]:
    answer = json.loads(done[1])
    return done[0], answer["code"], answer["msg"]


def test_socket_is_roots_alone(node: Node) -> None:
    async def modes(_: FakeExecutable) -> list[int]:
        return [path.stat().st_mode & 0o777 for path in (node.socket, node.socket.parent)]

    assert node.serve(modes) == [[0o600, 0o700]]


def test_socket_is_gone_when_serving_ends(node: Node) -> None:
    node.serve()

    assert list(node.socket.parent.iterdir()) == []


def test_socket_left_by_a_dead_daemon_is_replaced(node: Node) -> None:
    node.socket.parent.mkdir()
    node.socket.touch()
    (node.socket.parent / ".cni.sock").touch()

    assert node.serve(added) == [(["ADD flannel"], (0, BYTES))]
    assert list(node.socket.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["cni.sock", ".cni.sock"])
def test_empty_folder_in_the_place_of_the_socket_is_replaced(node: Node, name: str) -> None:
    """Kubelet makes such a folder for a pod that mounts the socket's path while no socket is there."""
    (node.socket.parent / name).mkdir(parents=True)

    assert node.serve(added) == [(["ADD flannel"], (0, BYTES))]


def test_folder_with_files_in_the_place_of_the_socket_is_named_with_the_remedy(node: Node) -> None:
    (node.socket / "inside").mkdir(parents=True)

    async def ready() -> None: ...

    serving = server.Server(None, TimeLimits(1, 1), DelegateSlots(), FlannelDelegates(Path("/")), bytes).serve(
        node.socket, ready
    )

    with pytest.raises(OSError, match="remove the folder"):
        asyncio.run(serving)


def test_add_of_a_pod_without_a_rail_answers_the_primarys_bytes(node: Node) -> None:
    node.kubelet_knows({"PodUID": "uid-2", "ResourceName": RAIL, "DeviceIDs": {"0": ["0000:03:00.1"]}})

    assert node.serve(added) == [(["ADD flannel"], (0, BYTES))]
    assert node.attachments.log == []


def test_del_of_a_pod_without_a_rail_runs_the_primary(node: Node) -> None:
    async def play(executable: FakeExecutable) -> tuple[str, tuple[int, bytes]]:
        await executable.handshake(a_request({**ENVIRON, b"CNI_COMMAND": b"DEL", b"CNI_NETNS": b""}))
        return await executable.answer(b""), await executable.done()

    assert node.serve(play) == [("DEL flannel", (0, b""))]


def test_gc_takes_back_what_is_not_listed_and_asks_nothing_of_an_old_primary(node: Node) -> None:
    none = dict.fromkeys((b"CNI_CONTAINERID", b"CNI_NETNS", b"CNI_IFNAME", b"CNI_ARGS"), b"")
    listed = b'"1.1.0", "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]'
    request = a_request({**ENVIRON, **none, b"CNI_COMMAND": b"GC"}, CONF.replace(b'"0.3.1"', listed))

    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.handshake(request)
        return await executable.done()

    assert node.serve(play) == [(0, b"")]
    assert node.attachments.log == ["collect all but a@eth0", "collect of cbr0 all but a@eth0"]


def test_query_is_answered_with_the_report_and_ends_there(node: Node) -> None:
    async def play(executable: FakeExecutable) -> list[tuple[int, bytes]]:
        await executable.send(frames.frame(frames.QUERY))
        return [await executable.receive(), await executable.receive()]

    assert node.serve(play) == [[(frames.ANSWER, b'{"report": 1}'), (0, b"")]]


def test_query_that_cannot_be_answered_is_logged_and_the_next_request_is_served(node: Node, caplog) -> None:
    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.send(frames.frame(frames.QUERY))
        return await executable.receive()

    node.report = bytes(frames.MAX_PAYLOAD + 1)

    assert node.serve(play, added) == [(0, b""), (["ADD flannel"], (0, BYTES))]
    assert "a query cannot be answered: FrameError('a payload of 4194305 bytes" in caplog.text


def test_request_after_a_query_whose_client_is_gone_is_served(node: Node) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(frames.frame(frames.QUERY))

    assert node.serve(play, added) == [None, (["ADD flannel"], (0, BYTES))]


def test_request_that_comes_byte_by_byte_is_served(node: Node) -> None:
    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.send_byte_by_byte(REQUEST)
        await executable.receive()
        await executable.send_byte_by_byte(frames.frame(frames.GO))
        await executable.answer(BYTES)
        return await executable.done()

    assert node.serve(play) == [(0, BYTES)]


CONF_1_1 = CONF.replace(b"0.3.1", b"1.1.0")
ODD = {
    "container id": (a_request({**ENVIRON, b"CNI_CONTAINERID": b"../x"}), 4, "CNI_CONTAINERID '../x' is not allowed"),
    "no command": (a_request({}), 4, "CNI_COMMAND is ''"),
    "no verb of its own": (a_request({**ENVIRON, b"CNI_COMMAND": b"STATUS"}, CONF_1_1), 4, "GC, and not STATUS"),
    "broken JSON": (a_request(stdin=b"{"), 6, "is not JSON"),
    "deep JSON": (a_request(stdin=b"[" * 200_000), 6, "nested too deeply"),
    "version": (a_request(stdin=b'{"cniVersion": "9.0.0"}'), 1, "'9.0.0' is not supported"),
    "no primary": (a_request(stdin=b'{"cniVersion": "1.0.0"}'), 7, "'primary' is None"),
    "missing primary": (a_request(stdin=CONF.replace(b"flannel", b"none")), 7, "cannot be read: No such file"),
}


@pytest.mark.parametrize(("request_frame", "code", "words"), ODD.values(), ids=ODD.keys())
def test_odd_request_is_answered_with_its_code(node: Node, request_frame: bytes, code: int, words: str) -> None:
    async def play(executable: FakeExecutable) -> tuple[int, int, str]:
        await executable.handshake(request_frame)
        return error(await executable.done())

    ((status, found, message),) = node.serve(play)

    assert (status, found) == (1, code)
    assert words in message


def test_primary_that_names_railnet_is_refused(node: Node) -> None:
    node.has_primary('{"type": "railnet"}')

    assert node.serve(refused)[0][:2] == (1, 7)


def test_error_is_in_the_version_of_the_request(node: Node) -> None:
    node.has_primary("{")

    async def play(executable: FakeExecutable) -> str:
        await executable.handshake(REQUEST)
        return json.loads((await executable.done())[1])["cniVersion"]

    assert node.serve(play) == ["0.3.1"]


@pytest.mark.slow
def test_delegate_that_hangs_is_killed_and_not_run_again(node: Node) -> None:
    async def play(executable: FakeExecutable) -> tuple[int, tuple[int, int, str]]:
        await executable.handshake(REQUEST)
        number, *_ = await executable.executed()
        kind, _ = await executable.receive()
        await executable.send(frames.frame(frames.OUTPUT, number + frames.i32(9) + frames.blobs(b"", b"")))
        return kind, error(await executable.done())

    ((kind, answer),) = node.serve(play, limits=TimeLimits(1, 20))

    assert (kind, answer[:2]) == (frames.KILL, (1, 106))


@pytest.mark.slow
def test_request_that_takes_too_long_is_interrupted_and_undone(node: Node) -> None:
    async def play(executable: FakeExecutable) -> tuple[str, tuple[int, int, str]]:
        await executable.handshake(REQUEST)
        number, *_ = await executable.executed()
        await executable.receive()
        await executable.send(output(number, b"", 9))
        return await executable.answer(b""), error(await executable.done())

    ((undone, answer),) = node.serve(play, limits=TimeLimits(20, 1))

    assert undone == "DEL flannel"
    assert answer == (1, 11, "it took longer than timeouts.add (1 s) and was undone; try again")


def test_hello_announces_the_time_for_the_request_and_for_its_undo(node: Node) -> None:
    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.send(REQUEST)
        return await executable.receive()

    assert node.serve(play, limits=TimeLimits(delegate=2.5, add=20)) == [(frames.HELLO, frames.u32(22500))]


def test_server_without_descriptors_ends_connections_at_once_and_goes_on_when_it_has_some(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, refusals = socket.socket.accept, [None, OSError(errno.EMFILE, "Too many open files")] * 2

    def refusing(listening: socket.socket) -> tuple[socket.socket, object]:
        refusal = refusals.pop() if refusals else None  # each second accept is that by the spare descriptor
        if refusal is not None:
            raise refusal
        return accept(listening)

    async def refused(executable: FakeExecutable) -> tuple[int, bytes]:
        return await executable.receive()

    monkeypatch.setattr(socket.socket, "accept", refusing)

    assert node.serve(refused, refused, added) == [(0, b""), (0, b""), (["ADD flannel"], (0, BYTES))]
    assert caplog.text.count("no connection can be accepted: [Errno 24] Too many open files") == 2


@pytest.mark.parametrize("shortage", ["primary", "checkpoint"])
def test_request_of_a_pod_that_may_have_no_rail_is_left_to_its_executable_when_the_daemon_has_no_descriptor(
    node: Node, monkeypatch: pytest.MonkeyPatch, shortage: str
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    match shortage:
        case "primary":
            monkeypatch.setattr(primary_configuration, "read_below", refuse)
        case "checkpoint":
            monkeypatch.setattr(CheckpointFile, "read", refuse)

    async def left(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.handshake(REQUEST)
        return await executable.receive()

    assert node.serve(left) == [(0, b"")]
    assert node.attachments.log == []


# An executable that goes away.


def leaving(*parts: bytes) -> Callable[[FakeExecutable], Awaitable[None]]:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(*parts)

    return play


async def leaving_without_go(executable: FakeExecutable) -> int:
    await executable.send(REQUEST)
    return (await executable.receive())[0]


async def leaving_while_a_plugin_runs(executable: FakeExecutable) -> None:
    await executable.handshake(REQUEST)
    await executable.executed()


@pytest.mark.parametrize(
    "play",
    [
        leaving(),
        leaving(REQUEST[:5]),
        leaving(REQUEST[:-1]),
        leaving(b"x"),
        leaving_without_go,
        leaving_while_a_plugin_runs,
    ],
    ids=["at once", "in a header", "in a payload", "odd", "without GO", "in EXEC"],
)
def test_executable_that_goes_away_does_not_disturb_the_next(node: Node, play) -> None:
    assert node.serve(play, added)[1] == (["ADD flannel"], (0, BYTES))
    assert node.attachments.log == []


def test_nothing_happens_without_go(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_FRAME_SECONDS", 0.1)

    async def play(executable: FakeExecutable) -> list[int]:
        await executable.send(REQUEST)
        return [(await executable.receive())[0], (await executable.receive())[0]]

    assert node.serve(play) == [[frames.HELLO, 0]]


@pytest.mark.parametrize(
    ("sent", "words"),
    [(b"RN\x02" + REQUEST[3:], "frame version 2"), (b"RN\x01\x01\xff\xff\xff\xff", "is larger than a frame")],
    ids=["another version", "too large"],
)
def test_frame_that_cannot_be_read_is_answered_with_try_again(node: Node, sent: bytes, words: str) -> None:
    async def play(executable: FakeExecutable) -> tuple[int, int, str]:
        await executable.send(sent[:8])
        return error(await executable.done())

    ((status, code, message),) = node.serve(play)

    assert (status, code) == (1, 11)
    assert words in message


def test_descriptor_is_closed_when_the_answer_comes(node: Node) -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)

    async def play(executable: FakeExecutable) -> bytes:
        executable.send_with_descriptors(REQUEST, [writing])
        os.close(writing)
        await executable.handshake(b"")
        await executable.answer(BYTES)
        await executable.done()
        return os.read(reading, 1)  # BlockingIOError while the daemon has the other side

    assert node.serve(play) == [b""]
    os.close(reading)


def test_requests_of_one_sandbox_wait_for_each_other(node: Node) -> None:
    async def two(first: FakeExecutable) -> list[str]:
        second = await FakeExecutable.connected(node.socket)
        await first.handshake(REQUEST)
        number, *_ = await first.executed()
        await second.handshake(REQUEST)
        waiting = asyncio.create_task(second.answer(BYTES))
        await asyncio.sleep(0.05)
        early = waiting.done()
        await first.send(frames.frame(frames.OUTPUT, number + frames.i32(0) + frames.blobs(BYTES, b"")))
        await first.done()
        executed = await waiting
        second.close()
        return [early, executed]

    assert node.serve(two) == [[False, "ADD flannel"]]


# Peers that are no executables.


def test_connection_of_another_user_is_closed_before_it_is_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    users = [1000, 1000]
    monkeypatch.setattr(server, "_peer_uid", lambda _: users.pop() if users else 0)

    async def heard(executable: FakeExecutable) -> int:
        try:
            await executable.send(REQUEST)
            return (await executable.receive())[0]
        except (BrokenPipeError, ConnectionResetError):
            return 0

    assert node.serve(heard, heard) == [0, frames.HELLO]


def test_user_of_a_peer_is_read_from_the_kernel() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert server._peer_uid(ours) == os.getuid()


ODD_BYTES: dict[str, bytes] = {
    "nothing": b"\0",
    "half a header": REQUEST[:5],
    "half a frame": REQUEST[:-1],
    "a huge length": b"RN\x01\x01\xff\xff\xff\xff",
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "no REQUEST": frames.frame(frames.GO),
    "no GO": REQUEST,
}


@pytest.mark.parametrize("leaves", [True, False], ids=["and leaves", "and stays"])
@pytest.mark.parametrize("sent", ODD_BYTES.values(), ids=ODD_BYTES.keys())
def test_connection_of_an_odd_peer_is_closed_with_all_its_descriptors(
    node: Node, monkeypatch: pytest.MonkeyPatch, sent: bytes, leaves: bool
) -> None:
    monkeypatch.setattr(connection_module, "_FRAME_SECONDS", 0.05)
    reading, writing = os.pipe()

    async def play(executable: FakeExecutable) -> None:
        executable.send_with_descriptors(sent, [writing] * 10)
        os.close(writing)
        if leaves:
            executable.close()
        # The end of the pipe: no process has its other side open.
        assert await asyncio.to_thread(os.read, reading, 1) == b""

    async def served(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.handshake(REQUEST)
        await executable.answer(BYTES)
        return await executable.done()

    assert node.serve(play, served) == [None, (0, BYTES)]
    os.close(reading)
