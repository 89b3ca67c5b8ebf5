"""What was left behind: owned again at start, and taken back by the sweep."""

import asyncio
import fcntl
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cni import netdevs, on_host
from cni.host import lock
from cni.rails import Rails
from cni.recovery import Recovery
from kernel import elsewhere, host_process
from kernel.files import below
from tests.cni.railway import KEY, NO_DRIVER, VF, Node, a_node, attached, planned
from tests.kernel.tree import IN_POD
from tests.vf.builders import an_attachment
from vf.address import PciAddress
from vf.adoption import Stray
from vf.difference import LinkState
from vf.network import PluginIpam
from vf.step import RenameLink
from vf.table import Owner, VfTable

NET1 = LinkState("net1", "InfiniBand", 4092, up=True, addresses=frozenset())


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return a_node(tmp_path, monkeypatch)


def test_restore_owns_what_the_journal_says(node: Node) -> None:
    node.run(attached)
    node.table = VfTable(node.sysfs.inventory())

    async def main(rails: Rails, _: int) -> None:
        rails.restore()

    node.run(main)

    assert node.table.owner(VF) == Owner("c0ffee", "eth0", "uid-1")


def test_restore_goes_on_when_two_records_name_one_vf(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    first = node.run(planned)
    node.journal.write(
        replace(first, container_id="f00", attachments=(*first.attachments, an_attachment(vf=NO_DRIVER)))
    )
    node.table = VfTable(node.sysfs.inventory())

    async def main(rails: Rails, _: int) -> None:
        rails.restore()

    node.run(main)

    assert node.table.owner(VF).container_id == "c0ffee"
    assert node.table.owner(NO_DRIVER).container_id == "f00"
    assert "sandbox f00@eth0: VF 0000:03:00.1 belongs to sandbox c0ffee" in caplog.text


@pytest.mark.parametrize("alive", [True, False], ids=["alive", "gone"])
@pytest.mark.parametrize("stage", ["planned", "attached", "detaching"])
def test_sweep_takes_what_no_sandbox_has_and_what_was_not_finished(node: Node, stage: str, alive: bool) -> None:
    node.journal.write(replace(node.run(attached), stage=stage))
    if not alive:
        node.netns.unlink()
        node.netns.parent.rmdir()

    node.sweep()

    expected = ("attached", True) if stage == "attached" else ("detaching", False)
    assert node.state == (expected if alive else (None, False))


def test_record_of_a_living_namespace_stays_without_rails_for_its_del(node: Node) -> None:
    node.run(planned)
    node.sweep()
    node.kernel.steps.clear()
    node.sweep()
    alive = node.state, node.kernel.steps

    node.netns.unlink()
    node.sweep()

    assert alive == (("detaching", False), [])
    assert node.state == (None, False)


def test_what_a_sandbox_left_is_counted_once(node: Node) -> None:
    counted: list[str] = []
    node.run(planned)

    for _ in range(2):
        asyncio.run(Recovery(node.rails(), took_back=counted.append).sweep())
        node.netns.unlink(missing_ok=True)

    assert (node.state, counted) == ((None, False), ["rails"])


def test_record_of_an_older_boot_is_nobodys_though_a_namespace_has_its_number_again(node: Node) -> None:
    node.run(attached)
    node.boot = "boot-2"

    node.sweep()

    assert node.state == (None, False)


@pytest.mark.parametrize(("recorded", "now"), [("", "boot-2"), ("boot-1", "")])
def test_record_of_an_unknown_boot_lives_as_long_as_its_namespace(node: Node, recorded: str, now: str) -> None:
    node.boot = recorded
    node.run(attached)
    node.boot = now

    node.sweep()

    assert node.state == ("attached", True)


def test_namespace_that_is_bound_nowhere_any_more_lives_on_where_its_vf_is_found(node: Node, monkeypatch) -> None:
    record = node.run(attached)
    node.netns.unlink()
    node.netdev_is(None)
    by_process = record.netns._replace(path="/proc/7/ns/net")
    monkeypatch.setattr(elsewhere, "find_strays", lambda vfs, root: {VF: Stray(by_process, NET1, None)})

    node.sweep()

    assert node.journal.get(KEY) == replace(record, stage="attached", netns=by_process)


def test_vf_that_was_moved_before_its_namespace_died_is_taken_home(node: Node, monkeypatch) -> None:
    record = node.run(attached)
    node.netns.unlink()
    node.netdev_is(None)
    strangers = record.netns._replace(path="/run/netns/x", inode=7)
    monkeypatch.setattr(elsewhere, "find_strays", lambda vfs, root: {VF: Stray(strangers, NET1, None)})
    monkeypatch.setattr(elsewhere, "take_home", lambda steps, strays, root: node.netdev_is("net1"))

    node.sweep()

    assert node.state == (None, False)
    assert node.kernel.steps[-1] == RenameLink(31, "ibs5v0")


class Clock:
    """The time that waits for netdevs take: it passes when somebody sleeps, and then at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        loop = SimpleNamespace(time=lambda: self.now)
        monkeypatch.setattr(netdevs, "asyncio", SimpleNamespace(get_running_loop=lambda: loop, sleep=self._sleep))

    async def _sleep(self, seconds: float) -> None:
        until = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, until)


@pytest.fixture
def lost(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two sandboxes that have died, and the netdev of neither's VF is anywhere; gives how many VFs each look was for."""
    looks = []
    record = node.run(attached)
    node.netns.unlink()
    node.netdev_is(None)
    other = an_attachment(vf=PciAddress.parse(IN_POD))
    node.journal.write(replace(record, stage="attached", container_id="f00", attachments=(other,)))
    monkeypatch.setattr(elsewhere, "find_strays", lambda vfs, root: looks.append(len(vfs)) or {})
    return looks


def test_netdevs_that_never_return_are_waited_for_once_and_all_at_once(
    node: Node, lost: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)

    node.sweep()

    assert list(node.journal.records()) == []
    assert 0.1 <= clock.now < 0.2


def test_namespaces_are_looked_into_once_for_all_that_is_missing_at_a_time(
    node: Node, lost: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch)

    node.sweep()

    assert lost == [2, 2]  # whose namespace lives by its processes, and whose VF is in another's


def test_sweep_does_not_wait_for_a_sandbox_that_a_request_is_at(node: Node) -> None:
    async def main(rails: Rails, netns_fd: int) -> None:
        await planned(rails, netns_fd)
        async with rails.one_at_a_time.held(KEY):
            await asyncio.wait_for(Recovery(rails).sweep(), 1)

    node.run(main)

    assert node.state == ("planned", True)


def test_sweep_goes_on_when_one_sandbox_cannot_be_taken_back(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    first = node.run(planned)
    node.journal.write(replace(first, container_id="f00", attachments=()))
    node.kernel.refuses = OSError(16, "busy")

    refused = node.kernel.detach

    def once(steps: Iterable[object], netns_fd: int | None) -> None:
        try:
            refused(steps, netns_fd)
        finally:
            node.kernel.refuses = None

    node.kernel.detach = once
    with caplog.at_level(logging.ERROR):
        node.netns.unlink()
        node.sweep()

    assert [record.key for record in node.journal.records()] == [KEY]
    assert node.state == ("detaching", True)
    assert "the next sweep tries again" in caplog.text


@pytest.fixture
def dead_with_an_address(node: Node, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sandbox whose namespace has died, and its IPAM plugin, which can be put where this path says."""
    plugin = node.folder / "bin/stub-ipam"

    def execute(root: Path, program: str, *rest: Any) -> host_process.Ended:
        return host_process.execute(Path("/"), str(below(root, program)), *rest)

    monkeypatch.setattr(on_host, "execute", execute)
    plugin.parent.mkdir()
    node.network = replace(node.network, ipam=PluginIpam({"type": "stub-ipam"}))

    async def main(rails: Rails, netns_fd: int) -> None:
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
    ("script", "words"),
    [
        (None, "'stub-ipam' cannot be executed"),
        ('echo \'{"code": 100, "msg": "its store is broken"}\'; exit 1', "its store is broken"),
        ("sleep 60", "took longer than its time limit"),
    ],
    ids=["missing", "failing", "hanging"],
)
def test_record_stays_until_the_ipam_plugin_has_taken_its_address_back(
    node: Node, dead_with_an_address: Path, caplog: pytest.LogCaptureFixture, script: str | None, words: str
) -> None:
    node.delegate_seconds = 0.2
    if script is not None:
        is_a_script(dead_with_an_address, script)

    node.sweep()
    before = node.state
    is_a_script(dead_with_an_address, "true")
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
    ends, execute = [], on_host.execute

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
        monkeypatch.setattr(on_host, "execute", noted)
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
