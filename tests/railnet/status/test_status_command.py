"""Asking the daemon, and what is said when it does not answer."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cni.host import frames
from railnet import __main__ as command
from railnet.cli.output import Form, Output
from railnet.status.status_command import Unreachable, ask, show

TABLE, JSON = Output(), Output(Form.JSON)

TOLD = {"version": "7.8.9", "reasons": [], "queue": 0, "rails": [], "vfs": [], "sandboxes": []}


@contextmanager
def daemon(path: Path, play: Callable[[socket.socket], None]) -> Iterator[None]:
    """Take one connection and play the daemon on it."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def take() -> None:
            with listening.accept()[0] as connection:
                play(connection)

        thread = threading.Thread(target=take)
        thread.start()
        yield
        thread.join()


def answering(*parts: bytes) -> Callable[[socket.socket], None]:
    def play(connection: socket.socket) -> None:
        assert connection.recv(100) == frames.frame(frames.QUERY)
        for part in parts:
            connection.sendall(part)

    return play


def answer(told: object) -> bytes:
    return frames.frame(frames.ANSWER, json.dumps(told).encode())


def test_report_is_read_however_its_bytes_arrive(tmp_path: Path) -> None:
    whole = answer(TOLD)
    with daemon(tmp_path / "s", answering(*(whole[i : i + 1] for i in range(len(whole))))):
        assert ask(tmp_path / "s") == TOLD


@pytest.mark.parametrize(("reasons", "served"), [([], True), (["it recovers and provisions"], False)])
def test_show_prints_the_table_and_returns_whether_the_node_is_served(
    tmp_path, capsys, reasons: list[str], served: bool
) -> None:
    with daemon(tmp_path / "s", answering(answer({**TOLD, "reasons": reasons}))):
        assert show(TABLE, tmp_path / "s") == served

    assert capsys.readouterr().out.splitlines()[0] == f"railnet 7.8.9: {'ready' if served else 'not ready'}"


def test_show_as_json_prints_the_daemons_report(tmp_path, capsys) -> None:
    with daemon(tmp_path / "s", answering(answer(TOLD))):
        show(JSON, tmp_path / "s")

    assert json.loads(capsys.readouterr().out) == TOLD


def test_status_needs_root(monkeypatch, capsys) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("sys.argv", ["railnet", "status"])

    with pytest.raises(SystemExit) as ended:
        command.main()

    assert ended.value.code == 4
    assert capsys.readouterr().err == "railnet: railnet status needs root: the daemon answers only root\n"


def test_error_without_a_socket_says_where_to_look(tmp_path: Path) -> None:
    words = (
        f"the daemon does not answer on {tmp_path}/s: No such file or directory; look at the railnet DaemonSet's pod"
    )
    with pytest.raises(Unreachable, match=re.escape(words)):
        ask(tmp_path / "s")


def test_socket_of_a_dead_daemon_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "s"))

    with pytest.raises(Unreachable, match="Connection refused"):
        ask(tmp_path / "s")


def test_silent_daemon_is_an_error_after_a_time(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()

        with pytest.raises(Unreachable, match="timed out"):
            ask(tmp_path / "s", seconds=0.1)


ODD = {
    "nothing": ((), "the connection ended"),
    "half a header": ((b"RN\x01",), "the connection ended"),
    "half an answer": ((answer(TOLD)[:-1],), "the connection ended"),
    "no frame": ((b"HTTP/1.1 200",), "does not begin a frame"),
    "an older daemon's DONE": (
        (frames.frame(frames.DONE, b"\1" + frames.blobs(b"{}")),),
        "finish the upgrade of Railnet",
    ),
}


@pytest.mark.parametrize(("parts", "words"), ODD.values(), ids=ODD.keys())
def test_error_names_a_wrong_answer(tmp_path: Path, parts: tuple[bytes, ...], words: str) -> None:
    with daemon(tmp_path / "s", answering(*parts)), pytest.raises(Unreachable, match=words):
        ask(tmp_path / "s")
