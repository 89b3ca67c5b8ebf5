"""The daemon's end of one connection, against a fake executable."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from cni import connection as connection_module
from cni.connection import ExecutableConnection, ExecutableGone
from cni.delegate_slots import DelegateSlots
from cni.flannel_shortcut import FlannelDelegates
from cni.host import chain, frames
from cni.host.chain import Exec
from cni.host.frames import FrameError
from tests.cni.connection_pair import BRIDGE, converse, executing
from tests.cni.fake_executable import ENVIRON, FakeExecutable, a_request, output
from tests.cni.host.shell_plugins import descriptors, left_open
from tests.waiting import until_async

REQUEST = a_request()


@pytest.fixture(autouse=True)
def open_descriptors():
    """Fail if a test leaves a descriptor open."""
    before = descriptors()
    yield
    assert left_open(before) == set()


# EXEC and OUTPUT.


def test_exec_carries_plugin_command_and_stdin_with_the_runtimes_environment() -> None:
    async def play(executable: FakeExecutable) -> tuple[int, bytes]:
        await executable.send(REQUEST)
        kind, payload = await executable.receive()
        await executable.send(output(payload[:4], b"{}"))
        return kind, payload

    _, (kind, payload) = converse(executing(BRIDGE), play)

    plugin, environ, stdin = frames.parse_blobs(payload[4:], 3)
    assert (kind, plugin, stdin) == (frames.EXEC, b"bridge", b'{"a": 1}')
    assert frames.parse_environ(environ) == {**ENVIRON, b"CNI_COMMAND": b"DEL"}


@pytest.mark.parametrize("slowly", [False, True], ids=["at once", "byte by byte"])
def test_output_is_what_came_of_it(slowly: bool) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST)
        number, *_ = await executable.executed()
        answer = output(number, b' {"ips":[ ]}\n', -2, b"why")
        await (executable.send_byte_by_byte(answer) if slowly else executable.send(answer))

    ((came,), _) = converse(executing(BRIDGE), play)

    assert (came.status, came.stdout, came.stderr) == (-2, b' {"ips":[ ]}\n', b"why")


def test_each_exec_has_a_number_of_its_own() -> None:
    async def play(executable: FakeExecutable) -> set[bytes]:
        await executable.send(REQUEST)
        first, *_ = await executable.executed()
        await executable.send(output(first, b"{}"))
        second, *_ = await executable.executed()
        await executable.send(output(second, b"{}"))
        return {first, second}

    assert len(converse(executing(BRIDGE, BRIDGE), play)[1]) == 2


def test_delegate_is_killed_when_it_takes_too_long_and_what_it_said_is_kept() -> None:
    async def play(executable: FakeExecutable) -> tuple[int, bool]:
        await executable.send(REQUEST)
        number, *_ = await executable.executed()
        kind, payload = await executable.receive()
        await executable.send(output(number, b"begun", 9, b"waiting"))
        return kind, payload == number

    (came,), killed = converse(executing(BRIDGE), play, delegate_seconds=0.05)

    assert killed == (frames.KILL, True)
    assert (came.status, came.stdout, came.stderr) == (chain.TIMED_OUT, b"begun", b"waiting")


def test_delegate_is_killed_when_the_request_is_given_up() -> None:
    begun = asyncio.Event()

    async def serve(connection: ExecutableConnection) -> bool:
        request = asyncio.create_task(executing(BRIDGE)(connection))
        await begun.wait()
        request.cancel()
        await asyncio.wait([request])
        return request.cancelled()

    async def play(executable: FakeExecutable) -> int:
        await executable.send(REQUEST)
        number, *_ = await executable.executed()
        begun.set()
        kind, _ = await executable.receive()
        await executable.send(output(number, b"", 9))
        return kind

    assert converse(serve, play) == [True, frames.KILL]


def test_delegate_is_killed_when_the_request_is_given_up_while_it_is_being_sent() -> None:
    large = Exec("bridge", "DEL", b"x" * (frames.MAX_PAYLOAD // 2))  # more than a socket's buffer

    limits: list[asyncio.Timeout] = []

    async def serve(connection: ExecutableConnection) -> bool:
        try:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await executing(large)(connection)
        except TimeoutError:
            return True
        return False

    async def play(executable: FakeExecutable) -> int:
        await executable.send(REQUEST)
        await until_async(executable.is_readable, 20, "the first half of it")
        limits[0].reschedule(0)  # the time is over
        await asyncio.sleep(0.1)
        number, *_ = await executable.executed()
        kind, _ = await executable.receive()
        await executable.send(output(number, b"", 9))
        return kind

    assert converse(serve, play) == [True, frames.KILL]


@pytest.mark.parametrize(
    "sent", [b"", b"RN\x01", frames.frame(frames.OUTPUT, bytes(8))[:10]], ids=["no byte", "3", "10"]
)
def test_executable_that_goes_while_a_plugin_runs_is_the_end_of_the_connection(sent: bytes) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST)
        await executable.executed()
        await executable.send(sent)
        executable.close()

    with pytest.raises(ExecutableGone):
        converse(executing(BRIDGE), play)


@pytest.mark.parametrize(
    "sent",
    [frames.frame(frames.GO), frames.frame(frames.OUTPUT), frames.frame(frames.OUTPUT, bytes(12)), REQUEST, b"x" * 8],
    ids=["GO", "empty", "one blob", "REQUEST", "rubbish"],
)
def test_output_that_is_odd_is_no_frame(sent: bytes) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST)
        await executable.executed()
        await executable.send(sent)

    with pytest.raises(FrameError):
        converse(executing(BRIDGE), play)


# flannel's delegate.


ADD_FLANNEL = Exec("flannel", "ADD", b'{"cniVersion": "0.3.1", "name": "cbr0", "type": "flannel"}')
STATE = b'{"type": "bridge"}'


def flannels_host(root: Path) -> Path:
    for name, content in (("opt/cni/bin/flannel", b"\x7fELF"), ("run/flannel/subnet.env", b"")):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(content)
    (root / "opt/cni/bin/flannel").chmod(0o755)
    (root / "var/lib/cni/flannel").mkdir(parents=True)
    return root


@pytest.mark.parametrize("allowed", [True, False], ids=["new executable", "executable of an older version"])
def test_third_pod_of_a_configuration_is_served_by_flannels_delegate(tmp_path: Path, allowed: bool) -> None:
    root = flannels_host(tmp_path)
    flannel = FlannelDelegates(root)
    request = frames.frame(frames.REQUEST, frames.request(ENVIRON, b"{}")) if allowed else REQUEST

    def served(container_id: str) -> tuple[int, bytes]:
        async def play(executable: FakeExecutable) -> tuple[int, bytes]:
            await executable.send(request.replace(b"c0ffee", container_id.encode()))
            kind, payload = await executable.receive()
            (root / "var/lib/cni/flannel" / container_id).write_bytes(STATE)
            await executable.send(output(payload[:4], b"{}"))
            return kind, payload[4:]

        played: tuple[int, bytes] = converse(executing(ADD_FLANNEL), play, flannel=flannel)[1]  # type: ignore[assignment]
        return played

    (first, _), (second, exec_blobs), (third, blobs) = (served(name) for name in ("pod--1", "pod--2", "pod--3"))

    assert (first, second) == (frames.EXEC, frames.EXEC)
    if not allowed:
        assert third == frames.EXEC
        return
    plugin, environ, stdin, *delegated = frames.parse_blobs(blobs, 6)
    assert third == frames.EXEC_DELEGATE
    assert frames.parse_environ(environ)[b"CNI_CONTAINERID"] == b"pod--3"
    assert [plugin, stdin] == [frames.parse_blobs(exec_blobs, 3)[place] for place in (0, 2)]
    assert delegated == [b"bridge", b"/var/lib/cni/flannel/pod--3", STATE]


def test_flannel_serves_a_pod_whose_subnet_file_changed_while_it_waited_for_a_slot(tmp_path: Path) -> None:
    root, slots = flannels_host(tmp_path), DelegateSlots(1)
    flannel = FlannelDelegates(root)
    for name in ("pod--1", "pod--2"):
        (root / "var/lib/cni/flannel" / name).write_bytes(STATE)
        run = flannel.run(ADD_FLANNEL, {**ENVIRON, b"CNI_CONTAINERID": name.encode()})
        assert run is not None
        run.succeeded(run)

    async def served() -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        connection, executable = ExecutableConnection(ours, 20, slots, flannel), FakeExecutable(theirs)
        await executable.send(frames.frame(frames.REQUEST, frames.request(ENVIRON, b"{}")))
        await connection.request()
        async with slots.slot(0):
            serving = asyncio.create_task(connection._execute(ADD_FLANNEL))
            await asyncio.sleep(0)  # now it waits for the slot
            (root / "run/flannel/subnet.env").write_bytes(b"FLANNEL_SUBNET=10.244.9.1/24\n")
        kind, payload = await executable.receive()
        await executable.send(output(payload[:4], b"{}"))
        await serving
        connection.close()
        theirs.close()
        return kind

    assert asyncio.run(served()) == frames.EXEC


def test_nothing_is_learnt_from_a_flannel_that_failed(tmp_path: Path) -> None:
    root = flannels_host(tmp_path)
    flannel = FlannelDelegates(root)
    (root / "var/lib/cni/flannel/c0ffee").write_bytes(STATE)

    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST)
        number, *_ = await executable.executed()
        await executable.send(output(number, b"{}", 256))

    converse(executing(ADD_FLANNEL), play, flannel=flannel)

    assert flannel._seen == {}


# DONE.


@pytest.mark.parametrize(("status", "stdout"), [(0, b' {"ips":[ ]}\n'), (1, b"{}"), (0, b"")])
def test_done_carries_status_and_stdout(status: int, stdout: bytes) -> None:
    assert converse(lambda connection: connection.done(status, stdout), lambda end: end.done())[1] == (status, stdout)


def test_descriptor_is_closed_before_done_is_sent() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)

    async def play(executable: FakeExecutable) -> bytes:
        executable.send_with_descriptors(REQUEST, [writing])
        os.close(writing)
        await executable.done()
        return os.read(reading, 1)  # the end of the pipe; BlockingIOError while anybody still has the other side

    async def serve(connection: ExecutableConnection) -> None:
        await connection.request()
        await connection.done(0, b"{}")
        await asyncio.sleep(0.05)

    assert converse(serve, play)[1] == b""
    os.close(reading)


def test_done_to_an_executable_that_is_gone_is_an_error() -> None:
    async def play(executable: FakeExecutable) -> None:
        executable.close()

    async def serve(connection: ExecutableConnection) -> None:
        await asyncio.sleep(0.01)
        await connection.done(0, b"{}")

    with pytest.raises(ExecutableGone):
        converse(serve, play)


def test_output_that_has_begun_when_the_time_is_over_is_read_to_its_end() -> None:
    async def play(executable: FakeExecutable) -> int:
        await executable.send(a_request())
        number, *_ = await executable.executed()
        answer = output(number, b"x" * 100)
        await executable.send(answer[:50])
        kind, _ = await executable.receive()
        await executable.send(answer[50:])
        return kind

    (came,), kind = converse(executing(BRIDGE), play, delegate_seconds=0.05)

    assert (kind, came.status) == (frames.KILL, chain.TIMED_OUT)


def test_executable_that_is_gone_is_no_failure_of_the_kernels() -> None:
    assert not issubclass(ExecutableGone, OSError)


@pytest.mark.parametrize("cut", [1, 7, 8, 9, -1])
def test_output_that_is_cut_anywhere_when_the_time_is_over_is_read_whole(cut: int) -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST)
        number, *_ = await executable.executed()
        answer = output(number, b"begun", 9, b"why")
        await executable.send(answer[:cut])
        await executable.receive()
        await executable.send(answer[cut:])

    (came,), _ = converse(executing(BRIDGE), play, delegate_seconds=0.05)

    assert (came.status, came.stdout, came.stderr) == (chain.TIMED_OUT, b"begun", b"why")


def test_executable_that_does_not_end_a_killed_delegate_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_ENDING_SECONDS", 0.05)

    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST)
        await executable.executed()

    with pytest.raises(ExecutableGone, match="has not ended the delegate"):
        converse(executing(BRIDGE), play, delegate_seconds=0.05)


def test_executable_that_reads_nothing_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_FRAME_SECONDS", 0.05)
    monkeypatch.setattr(connection_module, "_ENDING_SECONDS", 0.05)

    async def play(executable: FakeExecutable) -> None:
        await asyncio.sleep(0.2)

    with pytest.raises(ExecutableGone, match="reads nothing"):
        converse(lambda connection: connection.done(0, b"x" * frames.MAX_STDOUT), play)


def test_unexpected_bytes_are_not_read_without_limit() -> None:
    async def play(executable: FakeExecutable) -> None:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            await executable.send(REQUEST, b"x" * (16 << 20))

    async def serve(connection: ExecutableConnection) -> int:
        await connection.request()
        await until_async(lambda: not connection._reading, 20, "reading stops")
        kept = len(connection._inbox)
        connection.close()
        return kept

    assert converse(serve, play)[0] <= 2 * frames.MAX_PAYLOAD


def test_executables_end_is_reported_at_once_and_to_a_later_callback_too() -> None:
    async def play(executable: FakeExecutable) -> None:
        await executable.send(REQUEST)
        executable.close()

    async def serve(connection: ExecutableConnection) -> list[str]:
        await connection.request()
        reported, gone = [], asyncio.Event()
        connection.when_gone(gone.set)
        await gone.wait()
        connection.when_gone(lambda: reported.append("at once, too"))
        return reported

    assert converse(serve, play)[0] == ["at once, too"]
