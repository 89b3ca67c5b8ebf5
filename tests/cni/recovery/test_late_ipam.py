"""Late releases of addresses: how the IPAM plugin of an ended sandbox is run, and what stays until it has succeeded."""

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
from railnet.kernel.files import below
from railnet.kernel.processes import host_process
from railnet.vf.permitted_networks import PluginIpam
from tests.cni.attachment_node import KEY, Node, a_node, attached


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


@pytest.fixture
def plugin_of_ended_sandbox(node: Node, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path for the IPAM plugin of a sandbox whose namespace is gone."""
    plugin = node.folder / "bin/stub-ipam"

    def execute(root: Path, program: str, *rest: Any) -> host_process.ProgramEnd:
        return host_process.execute(Path("/"), str(below(root, program)), *rest)

    monkeypatch.setattr(host_delegates, "execute", execute)
    plugin.parent.mkdir()
    node.network = replace(node.network, ipam=PluginIpam({"type": "stub-ipam"}))

    async def main(attachments: Attachments, netns_fd: int) -> None:
        record = await attached(attachments, netns_fd)
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


def test_sweep_runs_the_del_of_the_ipam_plugin(node: Node, plugin_of_ended_sandbox: Path) -> None:
    is_a_script(plugin_of_ended_sandbox, f'cat > {node.folder}/stdin; env > {node.folder}/env; test "$CNI_NETNS" = ""')

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
def test_record_stays_until_the_ipam_plugin_has_succeeded(
    node: Node,
    plugin_of_ended_sandbox: Path,
    caplog: pytest.LogCaptureFixture,
    script: str | None,
    seconds: float,
    words: str,
) -> None:
    node.delegate_seconds = seconds
    if script is not None:
        is_a_script(plugin_of_ended_sandbox, script)

    node.sweep()
    before = node.state
    is_a_script(plugin_of_ended_sandbox, "true")
    node.delegate_seconds = 20.0
    node.sweep()

    assert words in caplog.text
    assert (before, node.state) == (("detaching", False), (None, False))


def test_first_sweep_takes_the_vf_back_and_does_not_run_the_ipam_plugin(
    node: Node, plugin_of_ended_sandbox: Path
) -> None:
    is_a_script(plugin_of_ended_sandbox, f"touch {node.folder}/called")

    async def main() -> None:
        await node.daemon().recovery.sweep()

    asyncio.run(main())

    assert node.state == ("detaching", False)
    assert not (node.folder / "called").exists()


def test_ipam_plugin_holds_the_lock_of_its_sandbox_too(node: Node, plugin_of_ended_sandbox: Path) -> None:
    is_a_script(plugin_of_ended_sandbox, f"readlink /proc/$$/fd/* > {node.folder}/opened")

    node.sweep()

    assert str(node.locks / KEY) in (node.folder / "opened").read_text().split()


def test_ipam_plugin_that_hangs_is_ended_with_the_daemon_and_run_again_by_the_next(
    node: Node, plugin_of_ended_sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.delegate_seconds = 20.0
    ends, execute = [], host_delegates.execute

    def noted(*how: Any) -> host_process.ProgramEnd:
        try:
            return execute(*how)
        except Exception as error:
            ends.append(str(error))
            raise

    begun = node.folder / "begun"
    is_a_script(plugin_of_ended_sandbox, f"touch {begun}; exec sleep 60")

    async def main() -> None:
        recovery = node.daemon().recovery
        await recovery.sweep()
        monkeypatch.setattr(host_delegates, "execute", noted)
        releasing = asyncio.create_task(recovery.release_ipam())
        await asyncio.to_thread(until_there, begun)
        releasing.cancel()
        await asyncio.gather(releasing, return_exceptions=True)

    asyncio.run(main())
    before = node.state
    is_a_script(plugin_of_ended_sandbox, "true")
    node.sweep()

    assert ends == [f"{plugin_of_ended_sandbox} was ended"]  # long before its time limit
    assert (before, node.state, list(node.locks.iterdir())) == (("detaching", False), (None, False), [])


def test_address_is_released_only_when_no_process_of_its_sandboxs_executable_runs(
    node: Node, plugin_of_ended_sandbox: Path
) -> None:
    is_a_script(plugin_of_ended_sandbox, f"touch {node.folder}/called")
    node.locks.mkdir(exist_ok=True)
    with (node.locks / KEY).open("w") as orphan:  # an IPAM plugin's ADD whose executable was killed
        fcntl.flock(orphan, fcntl.LOCK_EX)
        node.sweep()
        during = node.state, (node.folder / "called").exists()

    node.sweep()

    assert during == (("detaching", False), False)
    assert (node.state, (node.folder / "called").exists()) == ((None, False), True)
    assert list(node.locks.iterdir()) == []


def test_holders_of_a_lock_are_not_searched_on_the_event_loops_thread(
    node: Node, plugin_of_ended_sandbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_a_script(plugin_of_ended_sandbox, "true")
    threads = []
    acquire = lock.acquire

    def noted(path: str, **rest: Any) -> int:
        threads.append(threading.current_thread())
        return acquire(path, **rest)

    monkeypatch.setattr(lock, "acquire", noted)

    node.sweep()

    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
