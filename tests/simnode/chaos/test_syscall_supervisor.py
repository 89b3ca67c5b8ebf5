"""The supervisor sees each state-changing call of a process tree, in one order, and can inject a fault in each of them."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.chaos.syscall_supervisor import CallWatch, Moment, Point, Supervisor

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


def run(supervisor: Supervisor, watch: CallWatch, *command: str) -> subprocess.CompletedProcess[str]:
    started = [*supervisor.command("it", sys.executable), *command]
    with supervisor.watching(watch):
        return subprocess.run(started, capture_output=True, text=True, check=False, timeout=60)


def made(watch: CallWatch) -> list[str]:
    return [f"{point.call} {Path(point.operand).name}" for point in watch.points if point.call in ("mkdir", "rename")]


def test_supervisor_sees_the_calls_of_all_threads_in_one_order(supervisor: Supervisor, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"

    run(supervisor, watch := CallWatch(), sys.executable, "-c", _THREADS, str(a), str(b))

    assert made(watch) == ["mkdir a", "rename a'", "mkdir b", "rename b'"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a'", "b'", "socket"]


def test_supervisor_makes_one_call_of_one_thread_fail(supervisor: Supervisor, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in "abc"]
    run(supervisor, counted := CallWatch(), sys.executable, "-c", _THREADS, *names)
    for name in names:
        Path(f"{name}'").rmdir()
    second = [number for number, point in enumerate(counted.points, start=1) if point.call == "mkdir"][1]

    done = run(supervisor, watch := CallWatch("it", second, lambda _: 28), sys.executable, "-c", _THREADS, *names)

    assert watch.hit == Point("it", "mkdir", names[1])
    assert done.stdout == f"{names[1]} 28\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a'", "c'", "socket"]


def test_fault_kills_the_process_before_its_call(supervisor: Supervisor, tmp_path: Path) -> None:
    def kill(moment: Moment) -> None:
        os.kill(moment.pid, signal.SIGKILL)

    done = run(supervisor, watch := CallWatch("it", 2, kill), "/bin/mkdir", str(tmp_path / "a"))

    assert done.returncode == -signal.SIGKILL
    assert watch.hit == Point("it", "mkdir", str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_child_process_is_a_delegate_named_after_its_program(supervisor: Supervisor, tmp_path: Path) -> None:
    run(supervisor, watch := CallWatch(), "sh", "-c", f"mkdir {tmp_path}/a; exit 0")

    assert {point.process for point in watch.points} == {"it", "delegate mkdir"}
    assert [point.call for point in watch.numbered("delegate")] == ["execve", "mkdir"]


def test_openat_counts_if_it_creates_or_truncates_a_file(supervisor: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "read").touch()
    script = f"open({str(tmp_path / 'read')!r}); open({str(tmp_path / 'new')!r}, 'x')"

    run(supervisor, watch := CallWatch(), sys.executable, "-c", script)

    assert [Path(point.operand).name for point in watch.points if point.call == "openat"] == ["new"]


def test_supervisor_sees_the_same_calls_as_strace(supervisor: Supervisor, tmp_path: Path) -> None:
    calls, log = ("mkdir", "rename", "rmdir", "unlink", "setns"), tmp_path / "log"
    child = (
        f"mkdir {tmp_path}/c; mv {tmp_path}/c {tmp_path}/d; rmdir {tmp_path}/d; nsenter --net=/proc/self/ns/net true"
    )
    script = f"import subprocess; {_THREADS[1:]}\nsubprocess.run(['/bin/sh', '-c', {child!r}])"
    strace = ["strace", "-f", "-qq", "-e", "signal=none", "-e", f"trace={','.join(calls)}", "-o", str(log)]

    run(supervisor, watch := CallWatch(), *strace, "--", sys.executable, "-c", script, str(tmp_path / "a"))

    traced = Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), flags=re.MULTILINE))
    seen = Counter(point.call for point in watch.points if point.call in calls)
    assert seen == traced
    assert (traced["mkdir"], traced["rmdir"], traced["setns"]) == (2, 1, 1)
