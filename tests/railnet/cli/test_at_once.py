"""Many items at once: results in order, errors raised, and Ctrl-C that does not wait."""

import signal
import subprocess
import sys
import threading

import pytest

from railnet.cli.at_once import each_at_once

HANGING = """
import signal
import time
from functools import partial
from railnet.cli.at_once import each_at_once
from railnet.cli.exit_status import ExitStatus
from railnet.cli.process import end_with

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it

def hang(item):
    print("begun", flush=True)
    time.sleep(600)

end_with("plan", lambda: ExitStatus.of(well=bool(each_at_once(hang, range(40), 2))))
"""


def test_results_are_in_the_order_of_the_items() -> None:
    second = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            second.wait(30)
        second.set()
        return item * 10

    assert each_at_once(work, range(5), 3) == [0, 10, 20, 30, 40]
    assert each_at_once(work, [], 3) == []


def test_no_more_items_than_allowed_are_begun_at_once() -> None:
    running, most, lock = set[int](), [0], threading.Lock()

    def work(item: int) -> None:
        with lock:
            running.add(item)
            most[0] = max(most[0], len(running))
        with lock:
            running.remove(item)

    each_at_once(work, range(200), 4)

    assert 1 <= most[0] <= 4


def test_error_of_an_item_is_raised() -> None:
    def work(item: int) -> int:
        return 1 // item

    with pytest.raises(ZeroDivisionError):
        each_at_once(work, [1, 0, 1], 2)


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_items_that_hang() -> None:
    with subprocess.Popen([sys.executable, "-c", HANGING], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)

    assert (process.returncode, stderr) == (130, b"")
