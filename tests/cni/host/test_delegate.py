"""Running one delegate: what it gets, what is taken from it, and that nothing of it is left."""

import errno
import os
import posix
import time
from pathlib import Path

import pytest

from cni.host import frames
from cni.host.delegate import Delegate, find
from railnet.kernel.waiting import block_until
from tests.cni.host.shell_plugins import a_plugin, descriptors, left_open
from tests.waiting import until

ENVIRON = {b"PATH": b"/usr/bin:/bin"}


def is_running(pid: int) -> bool:
    """Return whether a process still lives after a while; a zombie does not."""
    return not block_until(lambda: state(pid) in "ZX", 20, 0.02)


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the latter when it is reaped between opening and reading
        return "X"


def run(executable: str, stdin: bytes = b"", environ: dict[bytes, bytes] = ENVIRON, seconds: float = 20) -> Delegate:
    """Run a delegate to its end; `status` and `in_time` say how it ended."""
    delegate = Delegate(executable, environ, stdin)
    delegate.in_time = delegate.wait(time.monotonic() + seconds)
    delegate.status = delegate.end()
    return delegate


@pytest.fixture
def open_descriptors():
    """Fail if a test leaves a descriptor open."""
    before = descriptors()
    yield
    assert left_open(before) == set()


pytestmark = pytest.mark.usefixtures("open_descriptors")


def test_delegate_gets_stdin_and_environment_and_is_heard(tmp_path: Path) -> None:
    executable = a_plugin(tmp_path, "p", 'cat; echo "$CNI_COMMAND" >&2; exit 3')

    ended = run(executable, b'{"a": 1}', {**ENVIRON, b"CNI_COMMAND": b"DEL"})

    assert (bytes(ended.stdout), bytes(ended.stderr), ended.status) == (b'{"a": 1}', b"DEL\n", 3 << 8)


def test_delegate_gets_the_environment_alone(tmp_path: Path) -> None:
    ended = run("/usr/bin/env", environ={b"A": b"\xff"})

    assert bytes(ended.stdout) == b"A=\xff\n"


def test_delegate_may_be_fed_and_heard_beyond_what_a_pipe_holds(tmp_path: Path) -> None:
    stdin = os.urandom(400_000)

    ended = run(a_plugin(tmp_path, "p", "exec cat"), stdin)

    assert bytes(ended.stdout) == stdin


def test_delegate_may_leave_stdin_unread(tmp_path: Path) -> None:
    ended = run(a_plugin(tmp_path, "p", "exec 0<&-; echo {}"), bytes(400_000))

    assert (bytes(ended.stdout), ended.status) == (b"{}\n", 0)


def test_delegate_is_heard_no_more_than_the_limits(tmp_path: Path) -> None:
    script = "head -c 5000000 /dev/zero; head -c 300000 /dev/zero >&2"

    ended = run(a_plugin(tmp_path, "p", script))

    assert (len(ended.stdout), len(ended.stderr), ended.status) == (frames.MAX_STDOUT + 1, frames.MAX_STDERR, 0)


def test_delegate_that_dies_by_a_signal_tells_which(tmp_path: Path) -> None:
    assert run(a_plugin(tmp_path, "p", "kill -SEGV $$")).status & 0x7F == 11


def test_delegate_expects_the_default_of_sigpipe(tmp_path: Path) -> None:
    script = "grep SigIgn /proc/self/status"

    ended = run(a_plugin(tmp_path, "p", script))

    ignored = int(ended.stdout.split()[1], 16)
    assert ignored & (1 << 12) == 0  # signal 13


def test_delegate_is_ended_with_its_children_when_it_takes_too_long(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    executable = a_plugin(tmp_path, "p", f"sleep 600 & echo $! > {tmp_path}/child; echo begun; touch {begun}; wait")

    delegate = Delegate(executable, ENVIRON, b"")
    until(begun.exists, 20, "the plugin has begun")
    in_time = delegate.wait(time.monotonic() + 0.1)

    assert (in_time, delegate.end(), bytes(delegate.stdout)) == (False, 9, b"begun\n")
    assert not is_running(int((tmp_path / "child").read_text()))


def test_delegate_does_not_wait_for_a_grandchild_that_keeps_a_pipe_open(tmp_path: Path) -> None:
    started = time.monotonic()

    ended = run(a_plugin(tmp_path, "p", f"sleep 600 & echo $! > {tmp_path}/child; echo done"), seconds=100)
    took = time.monotonic() - started

    os.kill(int((tmp_path / "child").read_text()), 9)
    assert bytes(ended.stdout) == b"done\n"
    assert took < 60


def test_wait_returns_when_there_is_something_to_read_elsewhere(tmp_path: Path) -> None:
    delegate = Delegate(a_plugin(tmp_path, "p", "sleep 60"), ENVIRON, b"")
    reading, writing = os.pipe()
    os.write(writing, b"x")

    interrupted = not delegate.wait(time.monotonic() + 20, reading)

    os.close(reading)
    os.close(writing)
    assert interrupted
    assert delegate.end() == 9


def test_delegate_that_cannot_be_waited_for_is_ended_and_has_begun_all_the_same(tmp_path: Path, monkeypatch) -> None:
    """It counts as one that died, so its work is undone; a delegate that was not executed has done nothing."""
    pids = []

    def refuse(pid: int) -> int:
        pids.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(posix, "pidfd_open", refuse)

    ended = run(a_plugin(tmp_path, "p", "exec sleep 60"))

    assert (ended.in_time, ended.status, state(pids[0])) == (True, 9, "X")
    assert b"cannot be waited for: [Errno 24] Too many open files" in ended.stderr


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [(b"#!/bin/sh\n", 0o644, "Permission denied"), (b"\0\1rubbish", 0o755, "Exec format error")],
    ids=["not executable", "no program"],
)
def test_delegate_cannot_be_executed(tmp_path: Path, content: bytes, mode: int, words: str) -> None:
    (tmp_path / "p").write_bytes(content)
    (tmp_path / "p").chmod(mode)

    with pytest.raises(OSError, match=words):
        Delegate(f"{tmp_path}/p", ENVIRON, b"")


def test_find_takes_the_first_folder_that_has_it(tmp_path: Path) -> None:
    a_plugin(tmp_path / "b", "bridge", "")
    a_plugin(tmp_path / "c", "bridge", "")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bridge").touch(0o644)

    assert find("bridge", [f"{tmp_path}/{name}" for name in ("none", "a", "b", "c")]) == f"{tmp_path}/b/bridge"


@pytest.mark.parametrize("path", [[], ["/nonexistent"]])
def test_find_names_plugin_and_folders_when_none_has_it(path: list[str]) -> None:
    with pytest.raises(FileNotFoundError, match=r"no folder of CNI_PATH .* has it: 'bridge'"):
        find("bridge", path)


@pytest.mark.parametrize("ending", ["kill -SEGV $$", "exit 1"], ids=["dies", "fails"])
def test_child_of_a_delegate_that_breaks_ends_with_it(tmp_path: Path, ending: str) -> None:
    script = f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/child; {ending}"

    ended = run(a_plugin(tmp_path, "p", script))

    assert ended.status in (11, 1 << 8)
    assert not is_running(int((tmp_path / "child").read_text()))


def test_child_of_a_delegate_that_succeeds_may_stay(tmp_path: Path) -> None:
    run(a_plugin(tmp_path, "p", f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/child"))

    child = int((tmp_path / "child").read_text())
    alive = state(child) not in "ZX"
    os.kill(child, 9)
    assert alive


def test_find_takes_no_folder_for_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "a/bridge").mkdir(parents=True)
    a_plugin(tmp_path / "b", "bridge", "")

    assert find("bridge", [f"{tmp_path}/a", f"{tmp_path}/b"]) == f"{tmp_path}/b/bridge"
