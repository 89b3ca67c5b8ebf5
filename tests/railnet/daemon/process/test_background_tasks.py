"""The daemon's background tasks: what a file or the kernel refuses ends none of them, is said, and is over when the error is over."""

import asyncio
import logging
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from errno import EACCES, EAGAIN, EIO, ELOOP, EMFILE, ENAMETOOLONG, ENOSPC, EPERM, EROFS, ESTALE
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cni import server as server_module
from cni.delegate_slots import DelegateSlots
from cni.flannel_shortcut import FlannelDelegates
from cni.request_cancellation import TimeLimits
from cni.server import Server
from deviceplugin import plugin_socket
from deviceplugin.pool_selection import DEFAULT
from deviceplugin.registration import Registration
from deviceplugin.service import PoolService
from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon import primary_gc_schedule
from railnet.daemon.conflist import conflist, keeper
from railnet.daemon.conflist.keeper import ConflistKeeper
from railnet.daemon.process.background_tasks import BackgroundTasks, TaskPauses
from railnet.daemon.resync import periodic_resync, port_watch
from railnet.daemon.resync.resync_requests import ResyncRequests
from railnet.errors import Misconfigured
from railnet.kernel.netlink import link_changes
from railnet.kernel.sysfs.functions import Sysfs
from railnet.kernel.threads.file_reads import read_in_time
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.kubelet.root_folder import KubeletFolder
from railnet.vf.inventory import Inventory, PhysicalFunction
from railnet.vf.pci_address import PciAddress
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import two_rails
from tests.waiting import until_async

SECONDS = 20.0
ERRORS = [EACCES, EAGAIN, EIO, ELOOP, EMFILE, ENAMETOOLONG, ENOSPC, EROFS, ESTALE]
Work = Callable[[], Awaitable[None]]


@dataclass
class FakeRecovery:
    """Finds nothing to take back."""

    async def sweep(self) -> None: ...

    async def find_orphans(self) -> None: ...

    async def release_ipam(self) -> None: ...


def configuration(folder: Path) -> Configuration:
    (folder / "etc/cni/net.d").mkdir(parents=True)
    (folder / "etc/cni/net.d/10-flannel.conflist").write_text('{"cniVersion": "1.0.0", "name": "n", "type": "bridge"}')
    return Configuration(host=replace(HostConfiguration(), root=folder))


def look_at_vfs(_: Path) -> Work:
    requests, looked = ResyncRequests(), asyncio.Event()
    table, recovery = VfTable(two_rails()), FakeRecovery()
    return lambda: periodic_resync.resyncing(table, recovery, Sysfs(Path("/sys")), lambda: None, requests, looked)  # type: ignore[arg-type]


def release_addresses(_: Path) -> Work:
    looked = asyncio.Event()
    looked.set()
    return lambda: periodic_resync.releasing_ipam(FakeRecovery(), looked)  # type: ignore[arg-type]


def watch_ports(_: Path) -> Work:
    table, requests = VfTable(two_rails()), ResyncRequests()
    return lambda: port_watch.watching_ports(table, Sysfs(Path("/sys")), lambda: None, requests)


def keep_conflist(folder: Path) -> Work:
    conflist_keeper = ConflistKeeper(configuration(folder))
    return lambda: conflist_keeper.serve(lambda: None)


def search_leftovers(folder: Path) -> Work:
    configured = configuration(folder)
    return lambda: primary_gc_schedule.sweeping(configured, None)  # type: ignore[arg-type]


def register(folder: Path) -> Work:
    (folder / "plugins_registry").mkdir()
    service = PoolService(
        DEFAULT[0], DEFAULT, VfTable(two_rails()), {}.get, CheckpointReads(folder / "device-plugins", read_in_time)
    )

    async def look() -> KubeletFolder:
        return KubeletFolder(folder, "a test")

    return Registration(service, look, Path("/"), 0.01).serve


def serve_requests(folder: Path) -> Work:
    server = Server(None, TimeLimits(1, 1), DelegateSlots(), FlannelDelegates(Path("/")), bytes)  # type: ignore[arg-type]

    async def ready() -> None: ...

    return lambda: server.serve(folder / "cni.sock", ready)


class Row(NamedTuple):
    """A task, and the place of one of its calls that the node's files or kernel may refuse."""

    task: Callable[[Path], Work]
    place: Any
    call: str


ROWS = [
    Row(look_at_vfs, periodic_resync, "inventory"),
    Row(look_at_vfs, periodic_resync, "remove_unheld"),
    Row(look_at_vfs, periodic_resync.uevents, "changes"),
    Row(look_at_vfs, FakeRecovery, "sweep"),
    Row(look_at_vfs, FakeRecovery, "find_orphans"),
    Row(release_addresses, FakeRecovery, "release_ipam"),
    Row(watch_ports, link_changes, "socket"),
    Row(watch_ports, link_changes, "attach"),
    Row(keep_conflist, conflist.os, "scandir"),
    Row(keep_conflist, conflist, "read_below"),
    Row(keep_conflist, keeper, "read_below"),
    Row(keep_conflist, keeper, "write_atomically"),
    Row(search_leftovers, conflist.os, "scandir"),
    Row(search_leftovers, primary_gc_schedule, "read_below"),
    Row(register, plugin_socket, "open_below"),
    Row(register, Path, "exists"),
    Row(register, Path, "rename"),
    Row(register, plugin_socket, "remove_stale_sockets"),
    Row(serve_requests, server_module, "_listen"),
]
IDS = [f"{row.task.__name__}-{row.place.__name__.rpartition('.')[2]}-{row.call}" for row in ROWS]


class Refusing:
    """A call that is refused two times, and then does what it did before."""

    def __init__(self, call: Callable[..., Any], error: Exception) -> None:
        self._call, self._error = call, error
        self.calls = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls <= 2:
            raise self._error
        return self._call(*arguments, **named)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="daemon-") as name:  # short: a socket's path has at most 107 bytes
        yield Path(name)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(periodic_resync, "_RESYNC_SECONDS", 0.01)
    monkeypatch.setattr(periodic_resync, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(periodic_resync.lock, "FOLDER", str(tmp_path))
    monkeypatch.setattr(periodic_resync, "inventory", read)
    monkeypatch.setattr(periodic_resync.uevents, "changes", nothing)
    monkeypatch.setattr(port_watch, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(port_watch, "reread_pfs", read_no_pfs)
    monkeypatch.setattr(link_changes, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(keeper, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(primary_gc_schedule, "_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(primary_gc_schedule, "_sweep", swept)
    monkeypatch.setattr(server_module, "_ROOM_SECONDS", 0.01)


@contextmanager
def nothing(_: object) -> Iterator[None]:
    yield


async def swept(*_: object) -> None: ...


async def read(*_: object) -> Inventory:
    return two_rails()


async def read_no_pfs(*_: object) -> dict[PciAddress, PhysicalFunction]:
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS, ids=[os.strerror(number) for number in ERRORS])
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_task_outlives_a_refused_call_and_the_call_succeeds_later(
    row: Row, error: int, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    outlives(row, OSError(error, os.strerror(error)), folder, monkeypatch)

    assert os.strerror(error) in caplog.text


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_task_outlives_a_full_limit_of_processes(row: Row, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outlives(row, RuntimeError("can't start new thread"), folder, monkeypatch)


def outlives(row: Row, error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(getattr(row.place, row.call), error)

    def call(*arguments: Any, **named: Any) -> Any:  # a function, so that a class binds it as a method
        return refusing(*arguments, **named)

    async def main() -> None:
        tasks = BackgroundTasks(TaskPauses(again=0.01))
        work = row.task(folder)
        with monkeypatch.context() as patched:
            patched.setattr(row.place, row.call, call)
            task = asyncio.create_task(tasks.keep(row.call, work))
            await until_async(lambda: refusing.calls > 2 or task.done(), SECONDS, "a call that is not refused")
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_reason_of_a_failure_is_said_until_the_task_has_gone_on_for_some_time() -> None:
    async def main() -> tuple[list[str], list[str]]:
        tasks = BackgroundTasks(TaskPauses(again=0.01, over=0.2))
        failing = Refusing(asyncio.Event().wait, OSError(EIO, "Input/output error", "/var/lib/x"))
        task = asyncio.create_task(tasks.keep("the work", failing))
        await until_async(lambda: failing.calls > 2, SECONDS, "a call that is not refused")
        during = tasks.reasons()
        await until_async(lambda: not tasks.reasons(), SECONDS, "the end of the reason")
        task.cancel()
        return during, tasks.reasons()

    during, after = asyncio.run(main())

    assert during == ["the work: [Errno 5] Input/output error: '/var/lib/x'; it is tried again"]
    assert after == []


def test_wrong_configuration_ends_the_daemon() -> None:
    with pytest.raises(Misconfigured, match="too long"):
        asyncio.run(BackgroundTasks().keep("the work", Refusing(bytes, Misconfigured("too long"))))


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (OSError(EIO, "Input/output error"), False),
        (PermissionError(EPERM, "setns"), True),
        (PermissionError(EPERM, "Operation not permitted", "/run/railnet/immutable"), False),
        (PermissionError(EACCES, "Permission denied", "/run/railnet"), False),
    ],
    ids=["a file", "no privilege", "an immutable file", "a file of another user"],
)
def test_start_is_repeated_unless_a_privilege_is_missing(error: OSError, ends: bool) -> None:
    async def value() -> str:
        return "started"

    start = Refusing(value, error)

    async def main() -> str:
        return await BackgroundTasks(TaskPauses(again=0.01)).start("the start", start)

    if ends:
        with pytest.raises(PermissionError):
            asyncio.run(main())
    else:
        assert asyncio.run(main()) == "started"
    assert start.calls == (1 if ends else 3)
