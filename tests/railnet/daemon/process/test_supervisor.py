"""The supervisor with real processes: it ends a daemon that hangs, however the daemon hangs, and starts another one in its place."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from railnet.daemon.process import supervisor
from railnet.daemon.process.supervisor import Supervisor, SupervisorLimits

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
SECONDS = 120.0
# The times that a test waits for are short. The others are long: on a busy machine a program starts, ends and writes its stacks late.
RUN = (
    "import sys; from railnet.daemon.process.supervisor import Supervisor, SupervisorLimits\n"
    "act, folder = sys.argv[3:]\n"
    "limits = SupervisorLimits(); limits.silence = 1.5; limits.death = 60.0; limits.pauses = (0.0, 0.1)\n"
    "limits.start = 5.0 if act == 'silent at start' else 60.0\n"
    "limits.tick = 2.0 if act == 'sleep' else limits.tick  # half of it is the time for the stacks\n"
    "sys.exit(Supervisor(sys.argv[1:], limits, lock=folder + '/lock').run())"
)
PROGRAM = ROOT / "tests/railnet/daemon/process/supervised_program.py"


class Supervised:
    """A supervisor and the program that it supervises."""

    def __init__(self, act: str, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, sys.executable, PROGRAM, act, folder],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stderr=log,
            )

    @property
    def starts(self) -> list[tuple[int, int]]:
        """The pid of each program that was started, and the restarts that it was told."""
        file = self.folder / "starts"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(int(pid), int(restarts)) for pid, restarts in map(str.split, lines)]

    def serving(self, start: int) -> int:
        """Wait until the program of this start serves, and return its pid."""
        served = self.folder / "serves"
        until(lambda: len(self.starts) > start and served.exists() and served.read_text() == str(self.starts[start][0]))
        return self.starts[start][0]

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[[str], Supervised]]:
    started: list[Supervised] = []

    def start(act: str) -> Supervised:
        started.append(Supervised(act, tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        for pid, _ in one.starts:
            until(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


@pytest.mark.parametrize("act", ["stop", "spin", "read a FIFO", "sleep"])
def test_daemon_whose_event_loop_is_silent_is_ended_and_started_again(
    supervise: Callable[[str], Supervised], tmp_path: Path, act: str
) -> None:
    os.mkfifo(tmp_path / "fifo")

    supervised = supervise(act)
    second = supervised.serving(1)

    first, _ = supervised.starts[0]
    assert is_gone(first)
    assert supervised.starts[1] == (second, 1)
    assert f"the daemon (process {first}) is ended: its event loop has been silent for" in supervised.log()


def test_log_shows_where_each_thread_of_a_silent_daemon_is(supervise: Callable[[str], Supervised]) -> None:
    supervised = supervise("sleep")
    supervised.serving(1)

    assert "in misbehave" in supervised.log()


def test_daemon_that_beats_goes_on(supervise: Callable[[str], Supervised]) -> None:
    supervised = supervise("serve")
    supervised.serving(0)
    time.sleep(4)  # more than twice the silence that ends it

    assert len(supervised.starts) == 1
    assert supervised.end() == 5


def test_daemon_that_is_stopped_and_continued_in_time_goes_on(supervise: Callable[[str], Supervised]) -> None:
    supervised = supervise("serve")
    pid = supervised.serving(0)
    for _ in range(20):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)

    assert len(supervised.starts) == 1


def test_daemon_that_was_stopped_together_with_its_supervisor_goes_on(supervise: Callable[[str], Supervised]) -> None:
    supervised = supervise("serve")
    pid = supervised.serving(0)
    for each in (supervised.process.pid, pid):
        os.kill(each, signal.SIGSTOP)
    time.sleep(3)
    for each in (supervised.process.pid, pid):
        os.kill(each, signal.SIGCONT)
    time.sleep(1)

    assert len(supervised.starts) == 1
    assert supervised.end() == 5


def test_daemon_that_is_killed_is_started_again(supervise: Callable[[str], Supervised]) -> None:
    supervised = supervise("serve")
    os.kill(supervised.serving(0), signal.SIGKILL)
    supervised.serving(1)

    assert "was ended by SIGKILL" in supervised.log()


def test_exit_status_of_the_daemon_is_the_supervisors_and_the_supervisor_says_nothing(
    supervise: Callable[[str], Supervised],
) -> None:
    supervised = supervise("exit")

    assert supervised.process.wait(SECONDS) == 7
    assert len(supervised.starts) == 1
    assert supervised.log() == ""


@pytest.mark.parametrize(("act", "status"), [("die at start", signal.SIGSEGV), ("silent at start", signal.SIGKILL)])
def test_daemons_that_never_beat_end_the_supervisor_too(
    supervise: Callable[[str], Supervised], act: str, status: signal.Signals
) -> None:
    supervised = supervise(act)

    assert supervised.process.wait(SECONDS) == 128 + status
    assert len(supervised.starts) == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_the_supervisor_ends_the_daemon_in_its_own_way(
    supervise: Callable[[str], Supervised], number: signal.Signals
) -> None:
    supervised = supervise("serve")
    supervised.serving(0)
    supervised.process.send_signal(number)

    assert supervised.process.wait(SECONDS) == 5
    assert len(supervised.starts) == 1


def test_daemon_that_hangs_at_sigterm_is_ended_and_not_started_again(supervise: Callable[[str], Supervised]) -> None:
    supervised = supervise("serve")
    os.kill(supervised.serving(0), signal.SIGSTOP)
    supervised.process.send_signal(signal.SIGTERM)

    assert supervised.process.wait(SECONDS) == 128 + signal.SIGKILL
    assert len(supervised.starts) == 1


def test_daemon_ends_with_its_supervisor(supervise: Callable[[str], Supervised]) -> None:
    supervised = supervise("serve")
    pid = supervised.serving(0)
    os.kill(pid, signal.SIGSTOP)
    supervised.process.kill()

    until(lambda: is_gone(pid))


def test_daemon_whose_supervisor_ended_before_it_began_ends(tmp_path: Path) -> None:
    beats, far_end = os.pipe()
    os.close(beats)
    command = [sys.executable, PROGRAM, "serve", tmp_path, str(far_end), "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        command, pass_fds=[far_end], env=environment, capture_output=True, timeout=SECONDS, check=False
    )
    os.close(far_end)

    assert done.returncode == 1
    assert b"its supervisor has ended" in done.stderr


def test_supervisor_that_cannot_write_its_log_ends_a_silent_daemon_all_the_same(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with suppress(BlockingIOError):
        while os.write(write_end, b"x" * 4096):
            pass
    os.set_blocking(write_end, True)
    command = [sys.executable, "-c", RUN, sys.executable, PROGRAM, "stop", tmp_path]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=write_end) as process:
        try:
            until(lambda: (tmp_path / "starts").exists() and len((tmp_path / "starts").read_text().splitlines()) == 2)
        finally:
            process.kill()
    os.close(read_end)
    os.close(write_end)


def test_supervisor_imports_neither_the_daemon_nor_what_takes_memory() -> None:
    command = [sys.executable, "-IS", "-X", "importtime", supervisor.__file__, ROOT, "/bin/true"]

    done = subprocess.run(command, capture_output=True, check=True, text=True)

    imported = {line.split("|")[2].strip() for line in done.stderr.splitlines() if line.count("|") == 2}
    assert imported >= {"select", "stat"}
    assert not imported & {"asyncio", "argparse", "typing", "logging", "ctypes", "socket", "grpc", "railnet", "kernel"}
    assert not imported & {"signal", "enum"}


@pytest.mark.parametrize(
    ("started", "options"),
    [
        (["/opt/railnet/bin/railnet"], ["-P"]),
        (["-I", "-X", "dev", "/opt/railnet/bin/railnet"], ["-I", "-X", "dev", "-P"]),
        (["-Xpycache_prefix=/m", "/opt/railnet/bin/railnet"], ["-Xpycache_prefix=/m", "-P"]),
        (["-O", "-m", "railnet"], ["-O", "-P"]),
        (["-Im", "railnet"], ["-I", "-P"]),
        (["-mrailnet"], ["-P"]),
    ],
    ids=[
        "script",
        "script with options",
        "script and a path",
        "module",
        "module after another letter",
        "module in one word",
    ],
)
@pytest.mark.parametrize("found_in_working_directory", [False, True])
def test_daemon_gets_the_interpreters_options_and_not_the_command_line(
    started: list[str], options: list[str], found_in_working_directory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr("os.execv", lambda path, command: commands.append(command))
    monkeypatch.setattr("sys.argv", [started[-1], "node", "--config", "/etc/railnet/node.yaml"])
    monkeypatch.setattr("sys.orig_argv", ["python3", *started, "node", "--config", "/etc/railnet/node.yaml"])
    monkeypatch.setattr("sys.path", [str(ROOT if found_in_working_directory else ROOT / "tests"), *sys.path])

    supervisor.supervise("railnet.daemon_process", ["node", "/etc/railnet/node.yaml", "9474"])

    wanted = options[:-1] if found_in_working_directory else options
    daemon = [sys.executable, *wanted, "-m", "railnet.daemon_process", "node", "/etc/railnet/node.yaml", "9474"]
    assert [list(command[-len(daemon) :]) for command in commands] == [daemon]
    assert list(commands[0][:2]) == [sys.executable, "-IS"]


@pytest.mark.parametrize(
    ("newer", "is_taken"),
    [(0, True), (-10, False), (None, False)],
    ids=["of this source", "of an older source", "none"],
)
def test_bytecode_of_this_source_is_run(
    newer: int | None, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bytecode = tmp_path / "supervisor.pyc"
    if newer is not None:
        bytecode.touch()
        of_source = Path(supervisor.__file__).stat().st_mtime
        os.utime(bytecode, (of_source + newer, of_source + newer))
    monkeypatch.setattr(supervisor.__spec__, "cached", str(bytecode))

    assert supervisor._program() == (str(bytecode) if is_taken else supervisor.__file__)


def test_next_daemon_can_take_the_lock_of_one_that_does_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A child holds the same open file, as a thread does that is in the kernel and cannot end."""
    path = tmp_path / "lock"
    program = (
        "import fcntl, os, signal, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "child = os.fork(); child or time.sleep(60); open(sys.argv[1] + '-child', 'w').write(str(child))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    command = [sys.executable, "-c", program, str(path)]
    limits = SupervisorLimits()
    limits.death = 0.2
    daemon = supervisor._DaemonProcess(command, 0)
    until(lambda: is_stopped(daemon.pid))
    before = may_lock(path)
    monkeypatch.setattr(supervisor._DaemonProcess, "status", lambda _: None)

    status = Supervisor(command, limits, str(path))._end(daemon)

    after = may_lock(path)
    os.kill(int((tmp_path / "lock-child").read_text()), signal.SIGKILL)
    os.waitpid(daemon.pid, 0)
    assert (before, after, status) == (False, True, -signal.SIGKILL)
    assert "does not end" in capfd.readouterr().err


def is_stopped(pid: int) -> bool:
    return "State:\tT" in Path(f"/proc/{pid}/status").read_text()


def may_lock(path: Path) -> bool:
    return subprocess.run(["flock", "--nonblock", path, "true"], check=False).returncode == 0
