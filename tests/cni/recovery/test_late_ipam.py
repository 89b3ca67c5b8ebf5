"""IPAM plugins that are told late of rails whose sandbox has died: on which terms, and what stays until they were."""

import asyncio
import fcntl
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni import host_delegates
from cni.attachment.attachments import Attachments
from cni.host import lock
from cni.recovery.sweep import Recovery
from kernel import host_process
from kernel.files import below
from tests.cni.railway import KEY, Node, a_node, attached
from vf.network import PluginIpam


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


@pytest.fixture
def dead_with_an_address(node: Node, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sandbox whose namespace has died, and its IPAM plugin, which can be put where this path says."""
    plugin = node.folder / "bin/stub-ipam"

    def execute(root: Path, program: str, *rest: Any) -> host_process.Ended:
        return host_process.execute(Path("/"), str(below(root, program)), *rest)

    monkeypatch.setattr(host_delegates, "execute", execute)
    plugin.parent.mkdir()
    node.network = replace(node.network, ipam=PluginIpam({"type": "stub-ipam"}))

    async def main(rails: Attachments, netns_fd: int) -> None:
        record = await attached(rails, netns_fd)
        node.journal.write(replace(record, stage="attached", ipam=record.ipam._replace(path="/elsewhere:/bin")))

    node.run(main)
    node.netns.unlink()
    return plugin


def is_a_script(plugin: Path, script: str) -> None:
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)


def until_there(path: Path) -> None:
    give_up = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < give_up, f"{path} does not appear"
        time.sleep(0.01)


def test_sweep_has_the_ipam_plugin_take_its_address_back(node: Node, dead_with_an_address: Path) -> None:
    is_a_script(dead_with_an_address, f'cat > {node.folder}/stdin; env > {node.folder}/env; test "$CNI_NETNS" = ""')

    node.sweep()

    environ = (node.folder / "env").read_text().splitlines()
    assert node.state == (None, False)
    assert {"CNI_COMMAND=DEL", "CNI_CONTAINERID=c0ffee", "CNI_IFNAME=net1"} <= set(environ)
    assert "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=ml;K8S_POD_NAME=train-0;K8S_POD_UID=uid-1" in environ
    assert '"name": "railnet-default"' in (node.folder / "stdin").read_text()


@pytest.mark.parametrize(
    ("script", "seconds", "words"),
    [
        (None, 20.0, "'stub-ipam' cannot be executed"),
        ('echo \'{"code": 100, "msg": "its store is broken"}\'; exit 1', 20.0, "its store is broken"),
        ("sleep 60", 0.2, "took longer than its time limit"),
    ],
    ids=["missing", "failing", "hanging"],
)
def test_record_stays_until_the_ipam_plugin_has_taken_its_address_back(
    node: Node,
    dead_with_an_address: Path,
    caplog: pytest.LogCaptureFixture,
    script: str | None,
    seconds: float,
    words: str,
) -> None:
    node.delegate_seconds = seconds
    if script is not None:
        is_a_script(dead_with_an_address, script)

    node.sweep()
    before = node.state
    is_a_script(dead_with_an_address, "true")
    node.delegate_seconds = 20.0
    node.sweep()

    assert words in caplog.text
    assert (before, node.state) == (("detaching", False), (None, False))


def test_start_takes_the_vf_back_and_does_not_wait_for_the_ipam_plugin(node: Node, dead_with_an_address: Path) -> None:
    is_a_script(dead_with_an_address, f"touch {node.folder}/called")

    async def main() -> None:
        await Recovery(node.rails()).sweep()

    asyncio.run(main())

    assert node.state == ("detaching", False)
    assert not (node.folder / "called").exists()


def test_ipam_plugin_holds_the_lock_of_its_sandbox_too(node: Node, dead_with_an_address: Path) -> None:
    is_a_script(dead_with_an_address, f"readlink /proc/$$/fd/* > {node.folder}/opened")

    node.sweep()

    assert str(node.locks / KEY) in (node.folder / "opened").read_text().split()


def test_ipam_plugin_that_hangs_is_ended_with_the_daemon_and_told_again_by_the_next(
    node: Node, dead_with_an_address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.delegate_seconds = 20.0
    ends, execute = [], host_delegates.execute

    def noted(*how: Any) -> host_process.Ended:
        try:
            return execute(*how)
        except Exception as error:
            ends.append(str(error))
            raise

    begun = node.folder / "begun"
    is_a_script(dead_with_an_address, f"touch {begun}; exec sleep 60")

    async def main() -> None:
        recovery = Recovery(node.rails())
        await recovery.sweep()
        monkeypatch.setattr(host_delegates, "execute", noted)
        giving_back = asyncio.create_task(recovery.give_back())
        await asyncio.to_thread(until_there, begun)
        giving_back.cancel()
        await asyncio.gather(giving_back, return_exceptions=True)

    asyncio.run(main())
    before = node.state
    is_a_script(dead_with_an_address, "true")
    node.sweep()

    assert ends == [f"{dead_with_an_address} was ended"]  # long before its time limit
    assert (before, node.state, list(node.locks.iterdir())) == (("detaching", False), (None, False), [])


def test_address_is_given_back_only_when_nothing_that_was_begun_for_its_sandbox_runs(
    node: Node, dead_with_an_address: Path
) -> None:
    is_a_script(dead_with_an_address, f"touch {node.folder}/called")
    node.locks.mkdir(exist_ok=True)
    with (node.locks / KEY).open("w") as orphan:  # an IPAM plugin's ADD whose executable was killed
        fcntl.flock(orphan, fcntl.LOCK_EX)
        node.sweep()
        during = node.state, (node.folder / "called").exists()

    node.sweep()

    assert during == (("detaching", False), False)
    assert (node.state, (node.folder / "called").exists()) == ((None, False), True)
    assert list(node.locks.iterdir()) == []


def test_holders_of_a_lock_are_not_looked_for_by_the_event_loops_thread(
    node: Node, dead_with_an_address: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_a_script(dead_with_an_address, "true")
    threads = []
    acquire = lock.acquire

    def noted(path: str, **rest: Any) -> int:
        threads.append(threading.current_thread())
        return acquire(path, **rest)

    monkeypatch.setattr(lock, "acquire", noted)

    node.sweep()

    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
