"""The supervisor sees every state-changing call of a process tree, in one order, and can interfere with any of them."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.chaos.syscall_supervisor import Moment, Point, Supervisor, Watch

_THREADS = """
import os, sys, threading
for name in sys.argv[1:]:
    def make():
        try:
            os.mkdir(name)
            os.rename(name, name + "'")
        except OSError as error:
            print(name, error.errno)
    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
"""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(tmp_path / "socket") as made:
        yield made


def run(supervisor: Supervisor, watch: Watch, *command: str) -> subprocess.CompletedProcess[str]:
    started = [*supervisor.command("it", sys.executable), *command]
    with supervisor.watching(watch):
        return subprocess.run(started, capture_output=True, text=True, check=False, timeout=60)


def made(watch: Watch) -> list[str]:
    return [f"{point.call} {Path(point.operand).name}" for point in watch.points if point.call in ("mkdir", "rename")]


def test_calls_of_all_threads_have_one_order(supervisor: Supervisor, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"

    run(supervisor, watch := Watch(), sys.executable, "-c", _THREADS, str(a), str(b))

    assert made(watch) == ["mkdir a", "rename a'", "mkdir b", "rename b'"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a'", "b'", "socket"]


def test_one_call_of_one_thread_fails(supervisor: Supervisor, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in "abc"]
    run(supervisor, counted := Watch(), sys.executable, "-c", _THREADS, *names)
    for name in names:
        Path(f"{name}'").rmdir()
    second = [number for number, point in enumerate(counted.points, start=1) if point.call == "mkdir"][1]

    done = run(supervisor, watch := Watch("it", second, lambda _: 28), sys.executable, "-c", _THREADS, *names)

    assert watch.hit == Point("it", "mkdir", names[1])
    assert done.stdout == f"{names[1]} 28\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a'", "c'", "socket"]


def test_process_is_killed_before_its_call(supervisor: Supervisor, tmp_path: Path) -> None:
    def kill(moment: Moment) -> None:
        os.kill(moment.pid, signal.SIGKILL)

    done = run(supervisor, watch := Watch("it", 2, kill), "/bin/mkdir", str(tmp_path / "a"))

    assert done.returncode == -signal.SIGKILL
    assert watch.hit == Point("it", "mkdir", str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_what_a_process_starts_is_a_delegate_by_its_program(supervisor: Supervisor, tmp_path: Path) -> None:
    run(supervisor, watch := Watch(), "sh", "-c", f"mkdir {tmp_path}/a; exit 0")

    assert {point.process for point in watch.points} == {"it", "delegate mkdir"}
    assert [point.call for point in watch.numbered("delegate")] == ["execve", "mkdir"]


def test_opening_counts_where_it_makes_or_empties_a_file(supervisor: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "read").touch()
    script = f"open({str(tmp_path / 'read')!r}); open({str(tmp_path / 'new')!r}, 'x')"

    run(supervisor, watch := Watch(), sys.executable, "-c", script)

    assert [Path(point.operand).name for point in watch.points if point.call == "openat"] == ["new"]


def test_supervisor_sees_what_strace_sees(supervisor: Supervisor, tmp_path: Path) -> None:
    calls, log = ("mkdir", "rename", "rmdir", "unlink", "setns"), tmp_path / "log"
    child = (
        f"mkdir {tmp_path}/c; mv {tmp_path}/c {tmp_path}/d; rmdir {tmp_path}/d; nsenter --net=/proc/self/ns/net true"
    )
    script = f"import subprocess; {_THREADS[1:]}\nsubprocess.run(['/bin/sh', '-c', {child!r}])"
    strace = ["strace", "-f", "-qq", "-e", "signal=none", "-e", f"trace={','.join(calls)}", "-o", str(log)]

    run(supervisor, watch := Watch(), *strace, "--", sys.executable, "-c", script, str(tmp_path / "a"))

    traced = Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), flags=re.MULTILINE))
    seen = Counter(point.call for point in watch.points if point.call in calls)
    assert seen == traced
    assert (traced["mkdir"], traced["rmdir"], traced["setns"]) == (2, 1, 1)
