"""The executable's end of the socket, against a fake daemon."""

import _socket
import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cni.host import daemon, frames, lock
from cni.host.daemon import NoDaemon, RequestLost, ask
from cni.host.errors import TRY_AGAIN, CniError
from cni.host.frames import FrameError
from cni.host.lock import Lock
from tests.cni.host.shell_plugins import a_plugin, an_environment
from tests.waiting import until

DONE = frames.frame(frames.DONE, b"\0" + frames.blobs(b"{}"))
HELLO = frames.frame(frames.HELLO, frames.u32(5000))


class Peer:
    """The daemon's end of a connection: reads whole frames, writes any bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.send = connection.sendall
        self.close = connection.close

    def receive(self) -> tuple[int, bytes]:
        kind, length = frames.parse_header(self._connection.recv(frames.HEADER_BYTES, socket.MSG_WAITALL))
        return kind, self._connection.recv(length, socket.MSG_WAITALL) if length else b""

    def execute(self, plugin: str, environ: dict[bytes, bytes] | None = None, stdin: bytes = b"") -> None:
        blobs = frames.blobs(plugin.encode(), frames.environ_blob(environ or {b"PATH": b"/usr/bin:/bin"}), stdin)
        self.send(frames.frame(frames.EXEC, frames.u32(7) + blobs))

    def output(self) -> tuple[bytes, int, list[bytes]]:
        kind, payload = self.receive()
        assert kind == frames.OUTPUT
        return payload[:4], int.from_bytes(payload[4:8], "big", signed=True), frames.parse_blobs(payload[8:], 2)


class Executable:
    """The executable's end, with a peer that plays the daemon on a thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._earlier: list[int] = []
        self.peer = Peer(theirs)
        self._daemon = daemon._DaemonConnection(Lock(""), 1.0)
        self._daemon.close()
        self._daemon._socket = _socket.socket(fileno=ours.detach())

    def hello(self) -> float:
        return self._daemon.hello()

    def holds_behind_another(self, path: str) -> None:
        """Have it take a lock that an earlier request holds until the end of the test."""
        self._earlier.append(lock.acquire(path))
        self._daemon._lock = Lock(path)

    def serve(self, play: Callable[[Peer], object], path: Path, seconds: float = 20) -> tuple[int, bytes]:
        """Obey while `play` is the daemon; `played` is what it gave."""

        def run() -> None:
            self.played = play(self.peer)

        playing = threading.Thread(target=run)
        playing.start()
        try:
            return self._daemon.serve([str(path)], time.monotonic() + seconds)
        finally:
            playing.join()

    def close(self) -> None:
        self._daemon.close()
        self.peer.close()
        for held in self._earlier:
            os.close(held)


@pytest.fixture
def executable():
    executable = Executable()
    yield executable
    executable.close()


def test_hello_is_answered_by_go_and_says_when_all_must_be_over(executable: Executable) -> None:
    executable.peer.send(HELLO)

    before = time.monotonic()
    limit = executable.hello()

    assert before + 6 <= limit <= time.monotonic() + 6  # what HELLO said, and a grace of 1 s
    assert executable.peer.receive() == (frames.GO, b"")


@pytest.mark.slow
@pytest.mark.parametrize("sent", [b"", HELLO[:3], HELLO[:-1]], ids=["nothing", "half a header", "half a payload"])
@pytest.mark.parametrize("ends", [True, False], ids=["gone", "stopped"])
def test_daemon_is_silent_when_no_whole_hello_comes(executable: Executable, sent: bytes, ends: bool) -> None:
    executable.peer.send(sent)
    executable.peer.close() if ends else None

    started = time.monotonic()
    with pytest.raises(NoDaemon, match="no HELLO"):
        executable.hello()

    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (DONE, "frame 7 came in place of HELLO"),
        (frames.frame(frames.HELLO), "HELLO has 0 bytes"),
        (b"RN\x02" + HELLO[3:], "frame version 2"),
        (b"HTTP/1.1 400 Bad", "does not begin a frame"),
    ],
    ids=["DONE", "empty HELLO", "another version", "another protocol"],
)
def test_hello_that_is_odd_is_no_frame(executable: Executable, sent: bytes, words: str) -> None:
    executable.peer.send(sent)

    with pytest.raises(FrameError, match=words):
        executable.hello()


@pytest.mark.parametrize(("status", "stdout"), [(0, b' {"ips" :[ ]}\n'), (1, b'{"code": 7}'), (0, b"")])
def test_done_is_obeyed_byte_for_byte(executable: Executable, tmp_path: Path, status: int, stdout: bytes) -> None:
    done = frames.frame(frames.DONE, bytes((status,)) + frames.blobs(stdout))

    assert executable.serve(lambda peer: peer.send(done), tmp_path) == (status, stdout)


def test_exec_runs_the_plugin_and_sends_what_came_of_it(executable: Executable, tmp_path: Path) -> None:
    a_plugin(tmp_path, "bridge", 'cat; echo "$CNI_COMMAND" >&2; exit 3')

    def play(peer: Peer) -> object:
        peer.execute("bridge", {b"PATH": b"/usr/bin:/bin", b"CNI_COMMAND": b"ADD"}, b' {"a":1}')
        output = peer.output()
        peer.send(DONE)
        return output

    executable.serve(play, tmp_path)

    assert executable.played == (frames.u32(7), 3 << 8, [b' {"a":1}', b"ADD\n"])


def test_exec_may_follow_exec(executable: Executable, tmp_path: Path) -> None:
    a_plugin(tmp_path, "a", "echo 1")
    a_plugin(tmp_path, "b", "echo 2")

    def play(peer: Peer) -> object:
        peer.execute("a")
        first = peer.output()
        peer.execute("b")
        second = peer.output()
        peer.send(DONE)
        return first[2][0], second[2][0]

    executable.serve(play, tmp_path)

    assert executable.played == (b"1\n", b"2\n")


@pytest.mark.parametrize(
    ("plugin", "number"),
    [
        ("missing", errno.ENOENT),
        ("/bin/true", errno.EINVAL),
        ("../outside", errno.EINVAL),
        ("rubbish", errno.ENOEXEC),
    ],
)
def test_exec_of_what_cannot_run_gives_the_error_number(
    executable: Executable, tmp_path: Path, plugin: str, number: int
) -> None:
    a_plugin(tmp_path, "outside", "echo {}")
    a_plugin(tmp_path / "bin", "rubbish", "")
    (tmp_path / "bin" / "rubbish").write_bytes(b"\0\1rubbish")

    def play(peer: Peer) -> object:
        peer.execute(plugin)
        output = peer.output()
        peer.send(DONE)
        return output

    executable.serve(play, tmp_path / "bin")

    assert executable.played[1] == -number


def test_kill_ends_the_plugin_and_its_output_is_sent(executable: Executable, tmp_path: Path) -> None:
    a_plugin(tmp_path, "slow", f"echo begun; touch {tmp_path}/begun; exec sleep 60")

    def play(peer: Peer) -> object:
        peer.execute("slow")
        until((tmp_path / "begun").exists, 20, "the plugin has begun")
        peer.send(frames.frame(frames.KILL, frames.u32(7)))
        output = peer.output()
        peer.send(DONE)
        return output

    executable.serve(play, tmp_path)

    assert executable.played == (frames.u32(7), 9, [b"begun\n", b""])


def test_kill_ends_the_wait_for_the_lock(executable: Executable, tmp_path: Path) -> None:
    executable.holds_behind_another(f"{tmp_path}/lock")
    a_plugin(tmp_path, "slow", f"touch {tmp_path}/begun")

    def play(peer: Peer) -> object:
        peer.execute("slow")
        time.sleep(0.2)
        peer.send(frames.frame(frames.KILL, frames.u32(7)))
        began = time.monotonic()
        number, status, _ = peer.output()
        peer.send(DONE)
        return number, status, time.monotonic() - began < 10  # of the twenty that it would wait

    assert executable.serve(play, tmp_path) == (0, b"{}")
    assert executable.played == (frames.u32(7), -errno.EAGAIN, True)
    assert not (tmp_path / "begun").exists()


def test_kill_that_crossed_the_output_is_ignored(executable: Executable, tmp_path: Path) -> None:
    def play(peer: Peer) -> object:
        peer.send(frames.frame(frames.KILL, frames.u32(7)) + DONE)
        return None

    assert executable.serve(play, tmp_path) == (0, b"{}")


def gone(peer: Peer) -> None:
    peer.close()


def gone_while_a_plugin_runs(peer: Peer) -> None:
    peer.execute("slow")
    time.sleep(0.2)
    peer.close()


@pytest.mark.parametrize("play", [gone, gone_while_a_plugin_runs])
def test_daemon_is_lost_when_it_goes_away(executable: Executable, tmp_path: Path, play) -> None:
    a_plugin(tmp_path, "slow", "exec sleep 60")
    started = time.monotonic()

    with pytest.raises(RequestLost, match="Railnet's daemon went away while it served this request") as raised:
        executable.serve(play, tmp_path)

    assert raised.value.code == TRY_AGAIN
    assert time.monotonic() - started < 15  # of the twenty that the plugin may take


def test_daemon_is_lost_when_it_falls_silent(executable: Executable, tmp_path: Path) -> None:
    with pytest.raises(RequestLost, match="fell silent"):
        executable.serve(lambda _: None, tmp_path, seconds=0.2)


@pytest.mark.slow
def test_daemon_that_promised_signs_of_life_is_lost_when_it_gives_none(executable: Executable, tmp_path: Path) -> None:
    a_plugin(tmp_path, "p", "echo '{}'")
    executable.peer.send(frames.frame(frames.HELLO, frames.u32(60_000) + frames.u32(2000)))
    executable.hello()
    executable.peer.receive()  # GO

    def play(peer: Peer) -> None:
        for _ in range(5):  # for longer than the two seconds that were promised
            peer.send(frames.frame(frames.ALIVE))
            time.sleep(0.5)
        peer.execute("p")
        peer.output()

    began = time.monotonic()
    with pytest.raises(RequestLost, match="fell silent") as lost:
        executable.serve(play, tmp_path, seconds=60)

    assert time.monotonic() - began < 20
    assert [(done.status, done.stdout) for done in lost.value.executed] == [(0, b"{}\n")]


def test_plugin_that_did_not_run_to_its_end_is_not_told_as_executed(executable: Executable, tmp_path: Path) -> None:
    a_plugin(tmp_path, "p", "exec sleep 60")

    def play(peer: Peer) -> None:
        peer.execute("p")
        time.sleep(0.1)
        peer.close()

    with pytest.raises(RequestLost) as lost:
        executable.serve(play, tmp_path)

    assert lost.value.executed == [None]


@pytest.mark.parametrize(
    "sent",
    [
        HELLO,
        frames.frame(frames.GO),
        frames.frame(99),
        frames.frame(frames.EXEC, b"abc"),
        b"RN\x01\x07\xff\xff\xff\xff",
    ],
    ids=["HELLO", "GO", "unknown", "truncated EXEC", "too large"],
)
def test_frame_that_makes_no_sense_is_refused(executable: Executable, tmp_path: Path, sent: bytes) -> None:
    with pytest.raises(FrameError):
        executable.serve(lambda peer: peer.send(sent), tmp_path)


def test_ask_finds_no_daemon_when_there_is_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "SOCKET", f"{tmp_path}/cni.sock")

    with pytest.raises(NoDaemon, match=r"cni\.sock: No such file"):
        ask(an_environment(tmp_path), b"{}", -1, Lock(""))


def test_ask_finds_no_daemon_when_no_process_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "SOCKET", f"{tmp_path}/cni.sock")
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(f"{tmp_path}/cni.sock")

    with pytest.raises(NoDaemon, match="refused"):
        ask(an_environment(tmp_path), b"{}", -1, Lock(""))


def test_lost_is_an_error_a_runtime_understands() -> None:
    assert isinstance(RequestLost("x"), CniError)


# flannel's delegate in place of flannel.


class Flannel:
    """A folder of flannel's states, plugins that say which one ran, and an executable that is asked for the delegate."""

    def __init__(self, executable: Executable, folder: Path) -> None:
        self._executable = executable
        self.states = folder / "states"
        self.states.mkdir()
        self.state = self.states / "c0ffee"
        self.plugins = folder / "plugins"
        a_plugin(self.plugins, "flannel", "echo flannel; cat")
        a_plugin(self.plugins, "bridge", f"echo bridge; cat; cat {self.state} >&2")

    def run(self, command: str, delegate: str = "bridge") -> tuple[int, list[bytes]]:
        """Return the status, and stdout and stderr."""
        environ = frames.environ_blob({b"PATH": b"/usr/bin:/bin", b"CNI_COMMAND": command.encode()})
        blobs = (b"flannel", environ, b"conf", delegate.encode(), bytes(self.state), b"state")

        def play(peer: Peer) -> tuple[int, list[bytes]]:
            peer.send(frames.frame(frames.EXEC_DELEGATE, frames.u32(7) + frames.blobs(*blobs)))
            number, status, streams = peer.output()
            assert number == frames.u32(7)
            peer.send(DONE)
            return status, streams

        self._executable.serve(play, self.plugins)
        for executed in self._executable._daemon._executed:  # what the executable goes on from if the daemon is lost
            assert executed is not None
            assert executed.blobs == frames.blobs(*blobs[:3])
        return self._executable.played


@pytest.fixture
def flannel(executable: Executable, tmp_path: Path) -> Flannel:
    return Flannel(executable, tmp_path)


def test_add_by_the_delegate_writes_the_state_before_the_delegate_runs(flannel: Flannel) -> None:
    assert flannel.run("ADD") == (0, [b"bridge\nstate", b"state"])
    assert flannel.state.read_bytes() == b"state"
    assert flannel.state.stat().st_mode & 0o777 == 0o600


def test_add_by_the_delegate_replaces_a_longer_state(flannel: Flannel) -> None:
    flannel.state.write_bytes(b"a state of an ADD before, which is longer")

    flannel.run("ADD")

    assert flannel.state.read_bytes() == b"state"


def test_flannel_runs_if_its_state_cannot_be_written(flannel: Flannel) -> None:
    flannel.states.rmdir()

    assert flannel.run("ADD") == (0, [b"flannel\nconf", b""])


def test_del_by_the_delegate_removes_the_state_and_its_second_name(flannel: Flannel) -> None:
    flannel.state.write_bytes(b"state")
    (flannel.states / ".c0ffee.railnet").write_bytes(b"state")

    assert flannel.run("DEL") == (0, [b"bridge\nstate", b"state"])
    assert list(flannel.states.iterdir()) == []


@pytest.mark.parametrize("how", ["exit 1", "kill -KILL $$"], ids=["failed", "killed"])
def test_del_by_a_delegate_that_failed_keeps_the_state(flannel: Flannel, how: str) -> None:
    flannel.state.write_bytes(b"state")
    a_plugin(flannel.plugins, "bridge", how)

    status, _ = flannel.run("DEL")

    assert status != 0
    assert flannel.state.read_bytes() == b"state"


@pytest.mark.parametrize("command", ["ADD", "DEL"])
@pytest.mark.parametrize("delegate", ["ptp", "../bridge"], ids=["absent", "a path"])
def test_delegate_that_cannot_be_executed_changes_no_state(flannel: Flannel, command: str, delegate: str) -> None:
    status, (_, stderr) = flannel.run(command, delegate)

    assert (status, list(flannel.states.iterdir())) == (-(errno.ENOENT if delegate == "ptp" else errno.EINVAL), [])
    assert stderr
