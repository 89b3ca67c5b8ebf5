"""REQUEST, HELLO and GO: what an executable sends before anything is done for it."""

import asyncio
import os

import pytest

from cni import connection as connection_module
from cni.connection import ExecutableConnection, ExecutableGone
from cni.host import frames
from cni.host.frames import FrameError
from tests.cni.connection_pair import BRIDGE, converse
from tests.cni.fake_executable import CONF, ENVIRON, FakeExecutable, a_request, output
from tests.cni.host.shell_plugins import descriptors, left_open

REQUEST = a_request()


async def receiving(connection: ExecutableConnection) -> tuple[dict[bytes, bytes], bytes, int | None]:
    return *await connection.request(), connection.netns_fd


@pytest.fixture(autouse=True)
def open_descriptors():
    """Fail if a test leaves a descriptor open."""
    before = descriptors()
    yield
    assert left_open(before) == set()


def test_request_is_received_whole() -> None:
    received, _ = converse(receiving, lambda executable: executable.send(REQUEST))

    assert received == (ENVIRON, CONF, None)


def test_request_is_received_when_it_comes_byte_by_byte() -> None:
    received, _ = converse(receiving, lambda executable: executable.send_byte_by_byte(REQUEST))

    assert received == (ENVIRON, CONF, None)


def test_request_may_be_as_large_as_a_frame() -> None:
    stdin = b"x" * (1 << 19)

    (received, _) = converse(receiving, lambda executable: executable.send(a_request(stdin=stdin)))

    assert received[1] == stdin


@pytest.mark.parametrize("first", [1, 7, 8, 50], ids=["one byte", "part of the header", "the header", "more"])
def test_descriptor_comes_with_the_first_bytes_however_many(first: int) -> None:
    async def play(executable: FakeExecutable) -> None:
        executable.send_with_descriptors(REQUEST[:first], [0])
        await asyncio.sleep(0.01)
        await executable.send(REQUEST[first:])

    async def serve(connection: ExecutableConnection) -> bool:
        await connection.request()
        return os.fstat(connection.netns_fd) == os.fstat(0)

    assert converse(serve, play)[0]


@pytest.mark.parametrize("fds", [[0, 1], [0] * 50], ids=["two", "fifty"])
def test_descriptors_beyond_the_first_are_not_kept(fds: list[int]) -> None:
    async def play(executable: FakeExecutable) -> None:
        executable.send_with_descriptors(REQUEST, fds)

    assert converse(receiving, play)[0][2] is not None


def test_descriptor_that_comes_late_is_not_kept() -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST[:20])
        await asyncio.sleep(0.01)
        executable.send_with_descriptors(REQUEST[20:], [0])

    assert converse(receiving, play)[0][2] is None


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"RN\x02" + REQUEST[3:], "frame version 2, this side 1"),
        (b"GET / HTTP/1.1\r\n", "does not begin a frame"),
        (b"RN\x01\x01\x00\x40\x00\x01", "4194305 bytes is larger"),
        (frames.frame(frames.GO), "frame 3 came in place of REQUEST"),
        (frames.frame(frames.REQUEST), "is truncated"),
        (frames.frame(frames.REQUEST, frames.blobs(b"A=1")), "is truncated"),
        (frames.frame(frames.REQUEST, frames.blobs(b"A=1", b"{}") + b"x"), "1 bytes too many"),
    ],
    ids=["another version", "another protocol", "too large", "GO", "empty", "one blob", "a byte too many"],
)
def test_request_that_is_odd_is_no_frame(sent: bytes, words: str) -> None:
    with pytest.raises(FrameError, match=words):
        converse(receiving, lambda executable: executable.send(sent))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, len(REQUEST) - 1])
def test_request_that_is_cut_off_is_the_end_of_the_connection(length: int) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST[:length])
        executable.close()

    with pytest.raises(ExecutableGone, match="the executable is gone"):
        converse(receiving, play)


def test_request_that_stops_halfway_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_FRAME_SECONDS", 0.05)

    with pytest.raises(TimeoutError):
        converse(receiving, lambda executable: executable.send(REQUEST[:-1]))


def test_descriptor_of_a_request_that_is_odd_is_closed() -> None:
    async def play(executable: FakeExecutable) -> None:
        executable.send_with_descriptors(b"rubbish!", [0])

    with pytest.raises(FrameError):
        converse(receiving, play)


# HELLO and GO.


def test_hello_says_the_milliseconds_a_request_may_take() -> None:
    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        hello = await executable.receive()
        await executable.send(frames.frame(frames.GO))
        return hello

    assert converse(lambda connection: connection.handshake(61.5), play)[1] == (frames.HELLO, frames.u32(61500))


@pytest.mark.parametrize(
    ("sent", "error"),
    [(None, ExecutableGone), (b"", TimeoutError), (REQUEST, FrameError)],
    ids=["gone", "silent", "another frame"],
)
def test_hello_without_go_is_the_end(monkeypatch: pytest.MonkeyPatch, sent: bytes | None, error: type) -> None:
    monkeypatch.setattr(connection_module, "_FRAME_SECONDS", 0.05)

    async def play(executable: FakeExecutable) -> None:
        await executable.receive()
        await executable.send(sent) if sent is not None else executable.close()

    with pytest.raises(error):
        converse(lambda connection: connection.handshake(60), play)


def test_executable_that_asks_for_it_gets_signs_of_life_but_none_while_it_runs_a_delegate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_ALIVE_SECONDS", 0.02)
    between, over = asyncio.Event(), asyncio.Event()

    async def serve(connection: ExecutableConnection) -> None:
        await connection.request()
        await connection.handshake(60)
        await between.wait()
        await connection.drive(one_step())
        await over.wait()

    def one_step():
        yield BRIDGE

    async def play(executable: FakeExecutable) -> list[object]:
        await executable.send(frames.frame(frames.REQUEST, frames.request(ENVIRON, CONF)))
        kinds = [await executable.receive()]
        await executable.send(frames.frame(frames.GO))
        kinds += [await executable.receive(), await executable.receive()]
        between.set()
        while (last := await executable.receive())[0] == frames.ALIVE:
            pass
        await asyncio.sleep(0.2)
        await executable.send(output(last[1][:4], b"{}"))
        came = [last[0], (await executable.receive())[0]]
        over.set()
        return [*kinds, *came]

    hello = (frames.HELLO, frames.u32(60_000) + frames.u32(750))
    alive = (frames.ALIVE, b"")
    assert converse(serve, play)[1] == [hello, alive, alive, frames.EXEC, frames.ALIVE]


def test_environment_of_a_request_is_the_same_for_a_daemon_that_knows_no_signs_of_life() -> None:
    environ, stdin = frames.parse_blobs(frames.request(ENVIRON, CONF), 2)

    assert (frames.parse_environ(environ), stdin) == (ENVIRON, CONF)
    assert not frames.asks_for_alive(frames.environ_blob(ENVIRON))


def test_descriptor_is_not_inherited_by_children() -> None:
    async def play(executable: FakeExecutable) -> None:
        executable.send_with_descriptors(a_request(), [0])

    async def serve(connection: ExecutableConnection) -> bool:
        await connection.request()
        return os.get_inheritable(connection.netns_fd)

    assert converse(serve, play)[0] is False
