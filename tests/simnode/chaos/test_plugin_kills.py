"""Faults of a running plugin: the processes that are killed, and those that go on."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.chaos.plugin_kills import DelayedFault, descendants, kill
from simnode.waiting import wait_until

# A plugin, its child in another process group, and a child of that child.
PLUGIN = "setsid sh -c 'sleep 60 & wait' & wait"


@pytest.fixture
def plugin() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sh", "-c", PLUGIN], start_new_session=True)
    wait_until(lambda: "sleep" in map(name, descendants(process.pid)), 60, "the start of the plugin's descendants")
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
def test_kill_ends_the_plugin_and_its_descendants_go_on(plugin: subprocess.Popen[bytes], what: str) -> None:
    started = descendants(plugin.pid)

    killed = kill(what, plugin, 0.0)

    assert (killed, plugin.wait(60)) == (True, -9)
    assert all(map(alive, started))


@pytest.mark.parametrize(("pick", "which"), [(0.0, 0), (1.0, 1)], ids=["first", "last"])
def test_kill_ends_the_chosen_descendant(plugin: subprocess.Popen[bytes], pick: float, which: int) -> None:
    victim = descendants(plugin.pid)[which]

    killed = kill("delegate", plugin, pick)

    wait_until(lambda: not alive(victim), 60, "the victim's end")
    assert killed


@pytest.mark.parametrize("what", ["executable", "process group", "delegate"])
def test_kill_does_nothing_after_the_plugins_end(what: str) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert not kill(what, ended, 0.0)


@pytest.mark.parametrize("what", ["executable", "process group"])
def test_kill_does_nothing_if_another_thread_reaps_the_plugin_after_poll(what: str) -> None:
    class ReapedAfterPoll(subprocess.Popen[bytes]):
        def poll(self) -> None:
            return None

    ended = ReapedAfterPoll(["true"], start_new_session=True)
    ended.wait()

    assert not kill(what, ended, 0.0)


def test_delayed_fault_happens_once_and_not_after_the_end_of_the_run() -> None:
    acted: list[int] = []
    process = subprocess.Popen(["sleep", "60"])

    with DelayedFault(0, lambda process: process.kill() is None) as running:
        running.started(process)
        process.wait()
    with DelayedFault(60, lambda process: acted.append(process.pid) is None) as late:
        late.started(process)

    assert (running.happened, late.happened, acted) == (True, False, [])
