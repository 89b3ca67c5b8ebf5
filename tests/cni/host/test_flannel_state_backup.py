"""flannel's state over a DEL, with a plugin that deletes it whatever comes, as the real one does."""

import time
from pathlib import Path

import pytest

from cni.host import flannel_state_backup
from cni.host.delegate import Delegate
from tests.cni.host.shell_plugins import a_plugin

STATE = b'{"type": "bridge", "name": "cbr0"}'


class Node:
    """A folder of flannel's states, and its plugin."""

    def __init__(self, folder: Path) -> None:
        self.states = folder / "flannel-states"
        self.states.mkdir()
        self.plugins = folder / "plugins"

    @property
    def state(self) -> Path:
        return self.states / "c0ffee"

    def run(self, script: str, command: str = "DEL", *, end: bool = True) -> None:
        environ = {b"CNI_COMMAND": command.encode(), b"CNI_CONTAINERID": b"c0ffee", b"PATH": b"/usr/bin:/bin"}
        stdin = f'{{"dataDir": "{self.states}", "cniVersion": "0.3.1"}}'.encode()
        delegate = Delegate(a_plugin(self.plugins, "flannel", f"cd {self.states}; {script}"), environ, stdin)
        delegate.wait(time.monotonic() + 20)
        if end:
            delegate.end()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.state.write_bytes(STATE)
    return node


def names(node: Node) -> list[str]:
    return sorted(path.name for path in node.states.iterdir())


@pytest.mark.parametrize("how", ["exit 1", "kill -KILL $$"], ids=["failed", "killed"])
def test_state_is_put_back_after_a_del_that_failed(node: Node, how: str) -> None:
    node.run(f"rm c0ffee; {how}")

    assert (node.state.read_bytes(), names(node)) == (STATE, ["c0ffee"])


def test_state_that_a_failed_del_left_stays(node: Node) -> None:
    node.run("exit 1")

    assert (node.state.read_bytes(), names(node)) == (STATE, ["c0ffee"])


def test_empty_state_of_a_flannel_that_was_killed_does_not_fail_its_del(node: Node) -> None:
    node.state.write_bytes(b"")

    node.run("[ ! -e c0ffee ]")

    assert names(node) == []


def test_nothing_is_left_of_a_del_that_succeeded(node: Node) -> None:
    node.run("rm c0ffee")

    assert names(node) == []


def test_next_del_finds_the_state_although_the_executable_that_kept_it_was_killed(node: Node) -> None:
    node.run("rm c0ffee; exit 1", end=False)  # its executable is killed before it sees the failure
    assert names(node) == [".c0ffee.railnet"]

    node.run("cat c0ffee >../seen; rm c0ffee")

    assert ((node.states.parent / "seen").read_bytes(), names(node)) == (STATE, [])


def test_state_of_today_is_kept_rather_than_an_old_one(node: Node) -> None:
    (node.states / ".c0ffee.railnet").write_bytes(b"old")

    node.run("rm c0ffee; exit 1")

    assert (node.state.read_bytes(), names(node)) == (STATE, ["c0ffee"])


def test_del_without_a_state_makes_none(node: Node) -> None:
    node.state.unlink()

    node.run("exit 1")

    assert names(node) == []


def test_add_is_none_of_this(node: Node) -> None:
    node.run("rm c0ffee; exit 1", "ADD")

    assert names(node) == []


def test_state_is_put_back_when_the_plugin_cannot_be_executed(node: Node) -> None:
    environ = {b"CNI_COMMAND": b"DEL", b"CNI_CONTAINERID": b"c0ffee"}

    with pytest.raises(FileNotFoundError):
        Delegate(f"{node.plugins}/flannel", environ, f'{{"dataDir": "{node.states}"}}'.encode())

    assert names(node) == ["c0ffee"]


def test_another_plugins_files_are_not_touched(node: Node) -> None:
    environ = {b"CNI_COMMAND": b"DEL", b"CNI_CONTAINERID": b"c0ffee"}
    plugin = a_plugin(node.plugins, "not-flannel.sh", f"rm {node.state}; exit 1")

    delegate = Delegate(plugin, environ, f'{{"dataDir": "{node.states}"}}'.encode())
    delegate.wait(time.monotonic() + 20)
    delegate.end()

    assert names(node) == []


def test_second_name_tells_its_container() -> None:
    assert flannel_state_backup.container_of(flannel_state_backup.second_name("c0ffee")) == "c0ffee"
    assert flannel_state_backup.container_of("c0ffee") is None
