"""What is killed while a plugin runs, and what goes on."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.chaos.interference import Meddling, descendants, kill

# A plugin, what it has started in a group of its own, and what that has started.
PLUGIN = "setsid sh -c 'sleep 60 & wait' & wait"


@pytest.fixture
def plugin() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sh", "-c", PLUGIN], start_new_session=True)
    while len(descendants(process.pid)) < 2 or not any(name(pid) == "sleep" for pid in descendants(process.pid)):
        time.sleep(0.01)
    started = descendants(process.pid)
    yield process
    process.kill()
    process.wait()
    for pid in filter(alive, started):
        subprocess.run(["kill", "-KILL", str(pid)], check=False)


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("what", ["executable", "process group"])
def test_plugin_is_killed_and_what_it_has_started_goes_on(plugin: subprocess.Popen[bytes], what: str) -> None:
    started = descendants(plugin.pid)

    killed = kill(what, plugin, 0.0)

    assert (killed, plugin.wait(5)) == (True, -9)
    assert all(map(alive, started))


@pytest.mark.parametrize(("pick", "which"), [(0.0, 0), (1.0, 1)], ids=["first", "last"])
def test_what_was_started_is_killed(plugin: subprocess.Popen[bytes], pick: float, which: int) -> None:
    victim = descendants(plugin.pid)[which]

    killed = kill("delegate", plugin, pick)

    give_up = time.monotonic() + 5
    while alive(victim) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert (killed, alive(victim)) == (True, False)


@pytest.mark.parametrize("what", ["executable", "process group", "delegate"])
def test_nothing_is_killed_after_the_end(what: str) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert not kill(what, ended, 0.0)


@pytest.mark.parametrize("what", ["executable", "process group"])
def test_plugin_that_another_thread_reaps_after_the_look_at_it_is_not_killed(what: str) -> None:
    class LookedAtBefore(subprocess.Popen[bytes]):
        def poll(self) -> None:
            return None

    ended = LookedAtBefore(["true"], start_new_session=True)
    ended.wait()

    assert not kill(what, ended, 0.0)


def test_meddling_acts_once_and_not_after_the_end_of_the_run() -> None:
    acted: list[int] = []
    process = subprocess.Popen(["sleep", "60"])

    with Meddling(0, lambda process: process.kill() is None) as running:
        running.started(process)
        process.wait()
    with Meddling(60, lambda process: acted.append(process.pid) is None) as late:
        late.started(process)

    assert (running.happened, late.happened, acted) == (True, False, [])
