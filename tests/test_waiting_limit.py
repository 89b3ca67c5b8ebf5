"""A test that waits for longer than the limit fails, however it waits; work, and what happens before its time limit, is no wait."""

import asyncio
import itertools
import os
import select
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from railnet.kernel.waiting import block_until
from tests.waiting_limit import Waits

ROOT = Path(__file__).parents[1]
SECONDS = 0.06
IDLE = itertools.count(0, 1000).__next__  # a processor was always idle


def poll() -> None:
    looks = iter((False,) * 6 + (True,))
    block_until(lambda: next(looks), 60, SECONDS / 6)


def let_a_task_sleep_beside_events() -> None:
    async def main() -> None:
        sleeping = asyncio.create_task(asyncio.sleep(SECONDS))
        while not sleeping.done():  # noqa: ASYNC110 - the event loop is never idle
            await asyncio.sleep(0)

    asyncio.run(main())


def let_a_timer_run_out() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), SECONDS)

    asyncio.run(main())


def receive_nothing() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(SECONDS)
        with pytest.raises(TimeoutError):
            near.recv(1)


def let_a_program_run_too_long() -> None:
    with subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=SECONDS)
        process.kill()


WAITS: dict[str, Callable[[], object]] = {
    "sleep": lambda: time.sleep(SECONDS),
    "poll": poll,
    "sleep of a task": let_a_task_sleep_beside_events,
    "timer of the event loop": let_a_timer_run_out,
    "event": lambda: threading.Event().wait(SECONDS),
    "select": lambda: select.select([], [], [], SECONDS),
    "poll object": lambda: select.poll().poll(SECONDS * 1000),
    "selector": lambda: selectors.DefaultSelector().select(SECONDS),
    "socket": receive_nothing,
    "program": let_a_program_run_too_long,
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_wait_is_counted(wait: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(IDLE)
    waits.record(monkeypatch)

    wait()

    assert waits.seconds() >= 0.9 * SECONDS


def test_event_that_comes_before_the_limit_is_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, event = Waits(IDLE), threading.Event()
    near, far = socket.socketpair()
    waits.record(monkeypatch)
    with near, far:
        far.send(b"readable")
        event.set()

        happened = event.wait(60), select.select([near], [], [], 60)[0], selectors.DefaultSelector().select(0)

    assert happened == (True, [near], [])
    assert waits.seconds() == 0


def test_another_thread_may_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that polls while the test works would count as long as the machine needs for the test."""
    waits = Waits(IDLE)
    waits.record(monkeypatch)
    thread = threading.Thread(target=time.sleep, args=(SECONDS,))
    thread.start()
    thread.join()

    assert waits.seconds() == 0


def test_waits_at_the_same_time_count_once() -> None:
    waits = Waits(IDLE)
    for begin, seconds in ((10.0, 1.0), (12.0, 1.0), (10.5, 1.0), (10.1, 0.2)):
        waits.add(begin, seconds)

    assert waits.seconds() == 2.5


def test_poll_counts_as_far_as_a_processor_was_idle() -> None:
    idle = iter((100.0, 100.5, 100.75, 103.0))
    waits = Waits(lambda: next(idle))
    waits.clear()
    for begin in range(80):
        waits.add(float(begin), 0.025)
    waits.add(200.0, 0.5)

    assert (waits.seconds(), waits.seconds()) == (pytest.approx(0.75), pytest.approx(2.5))


def test_replaced_functions_are_put_back() -> None:
    before = time.sleep, select.poll, socket.socket.recv
    with pytest.MonkeyPatch.context() as patch:
        Waits().record(patch)

    assert (time.sleep, select.poll, socket.socket.recv) == before


@pytest.mark.slow
def test_planted_test_that_waits_fails_unless_it_is_slow(tmp_path: Path) -> None:
    """The planted tests have the same rules as all tests: a copy of conftest.py, and what it reads."""
    tests = tmp_path / "tests"
    tests.mkdir()
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/test", tmp_path / "scripts")
    for rules in ("conftest.py", "shared_modules.py", "waiting_limit.py"):
        shutil.copy(ROOT / "tests" / rules, tests)
    (tests / "test_planted.py").write_text(
        "import time, pytest\n"
        "def test_long(): time.sleep(1.05)\n"
        "def test_twice():\n    for _ in range(2): time.sleep(0.6)\n"
        "@pytest.mark.slow\ndef test_slow(): time.sleep(1.05)\n"
        "@pytest.fixture\ndef half():\n    time.sleep(0.6)\n    yield\n    time.sleep(0.6)\n"
        "def test_fixture(half): pass\n"
        "def test_short(): time.sleep(0.1)\n"
    )
    (tests / "node").mkdir()
    (tests / "node/test_of_another_tier.py").write_text("import time\ndef test_long(): time.sleep(1.05)\n")

    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-v", tests]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    failed = {line.split()[1].partition("::")[2] for line in done.stdout.splitlines() if line.startswith("ERROR tests")}
    assert failed == {"test_long", "test_twice", "test_fixture"}
    assert done.returncode == 1
