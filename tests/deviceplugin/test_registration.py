"""The registration of a pool: its socket in kubelet's plugins_registry, from start to end."""

import asyncio
import logging
import socket
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from errno import ETIMEDOUT
from pathlib import Path

import grpc.aio
import pytest

from deviceplugin import registration
from deviceplugin.plugin_socket import PluginSocket, socket_name
from deviceplugin.pool_selection import DEFAULT
from deviceplugin.registration import Registration
from deviceplugin.service import PoolService
from railnet.errors import Misconfigured
from railnet.kernel.threads.file_reads import FileReads, read_in_time
from railnet.kubelet.checkpoint_file import CheckpointReads
from railnet.kubelet.root_folder import KubeletFolder
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import two_rails
from tests.deviceplugin.fake_kubelet import WAIT_SECONDS, Kubelet, dial

RAIL = "rdma/ib_vf"
Act = Callable[[Kubelet, Registration], Awaitable[None]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path: a Unix socket's path has at most 107 bytes, and pytest's folders take most of them."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as name:
        yield Path(name)


@pytest.fixture
def kubelet(folder: Path) -> Kubelet:
    kubelet = Kubelet(folder)
    kubelet.start()
    return kubelet


def kubelet_is_in(folder: Callable[[], Path]) -> Callable[[], Awaitable[KubeletFolder]]:
    async def look() -> KubeletFolder:
        return KubeletFolder(folder(), "a test")

    return look


def a_registration(folder: Path, retry_seconds: float = 0.05) -> Registration:
    service = PoolService(
        DEFAULT[0], DEFAULT, VfTable(two_rails()), {}.get, CheckpointReads(folder / "device-plugins", read_in_time)
    )
    return Registration(service, kubelet_is_in(lambda: folder), Path("/"), retry_seconds)


def during(kubelet: Kubelet, act: Act, retry_seconds: float = 0.05) -> None:
    """Run `act` while the pool is served, then stop serving."""

    async def main() -> None:
        registration = a_registration(kubelet.folder, retry_seconds)
        task = asyncio.create_task(registration.serve())
        try:
            await act(kubelet, registration)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_registration_answers_get_info(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        path = await kubelet.socket()
        async with dial(path) as dialled:
            info = await dialled.info()

        assert (info.type, info.name, info.endpoint) == ("DevicePlugin", RAIL, str(path))
        assert list(info.supported_versions) == ["v1beta1"]

    during(kubelet, act)


class Driver:
    """A plugin of another type than a device plugin."""

    kind, name, versions, watched = "DRAPlugin", "rdma.railnet.io", ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth"), True
    outdated = False

    def __init__(self) -> None:
        self.servers: list[grpc.aio.Server] = []

    def serve_on(self, server: grpc.aio.Server) -> None:
        self.servers.append(server)


def test_registration_names_any_type_of_plugin(kubelet: Kubelet) -> None:
    async def look() -> KubeletFolder:
        return KubeletFolder(kubelet.folder, "a test")

    async def main() -> None:
        driver = Driver()
        registration = Registration(driver, look, Path("/"), 0.05)
        task = asyncio.create_task(registration.serve())
        path = await kubelet.socket()
        async with dial(path) as dialled:
            info = await dialled.info()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "rdma.railnet.io", str(path))
        assert list(info.supported_versions) == ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
        assert (path.name.startswith("railnet-rdma-railnet-io-"), len(driver.servers)) == (True, 1)

    asyncio.run(main())


def test_registration_makes_a_new_socket_when_what_kubelet_learned_is_outdated(kubelet: Kubelet) -> None:
    async def main() -> None:
        driver = Driver()
        driver.outdated = True
        registration = Registration(driver, kubelet_is_in(lambda: kubelet.folder), Path("/"), 0.05)
        task = asyncio.create_task(registration.serve())
        first = await kubelet.socket()
        async with dial(first) as dialled:
            await dialled.notify(registered=True)
        second = await kubelet.socket(first)
        driver.outdated = False
        async with dial(second) as dialled:
            await dialled.notify(registered=True)
        await asyncio.sleep(0.2)
        assert (kubelet.sockets(), registration.registered) == ([second], True)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_registration_serves_the_device_plugin_on_the_same_socket(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        async with dial(await kubelet.socket()) as dialled:
            assert len(await dialled.watch().next()) == 4

    during(kubelet, act)


def test_socket_accepts_connections_as_soon_as_it_is_visible(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        path = await kubelet.socket()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))  # no ConnectionRefusedError

    during(kubelet, act)


def test_socket_is_accessible_for_root_only(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        assert (await kubelet.socket()).stat().st_mode & 0o777 == 0o600

    during(kubelet, act)


def test_registration_is_registered_after_kubelets_notification(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, registration: Registration) -> None:
        async with dial(await kubelet.socket()) as dialled:
            before = registration.registered
            await dialled.notify(registered=True)

        assert (before, registration.registered) == (False, True)

    during(kubelet, act, retry_seconds=WAIT_SECONDS)  # a registration without a stream is given up after some looks


def test_registration_makes_a_new_socket_when_kubelet_refuses(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(kubelet: Kubelet, registration: Registration) -> None:
        first = await kubelet.socket()
        async with dial(first) as dialled:
            await dialled.notify(registered=False, error="bad resource name")

        second = await kubelet.socket(first)
        async with dial(second) as dialled:
            assert (await dialled.info()).endpoint == str(second)
        assert not registration.registered
        assert kubelet.sockets() == [second]

    during(kubelet, act)

    assert "bad resource name" in caplog.text


def test_registration_makes_a_new_socket_when_the_old_one_is_deleted(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        first = await kubelet.socket()
        first.unlink()

        async with dial(await kubelet.socket(first)) as dialled:
            assert (await dialled.info()).name == RAIL

    during(kubelet, act)


@pytest.mark.slow
def test_registration_makes_a_new_socket_when_kubelet_no_longer_watches(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, registration: Registration) -> None:
        first = await kubelet.socket()
        async with dial(first) as dialled:
            stream = dialled.watch()
            await stream.next()
            await dialled.notify(registered=True)  # the socket stays until its answer is there, because kubelet watches

        await kubelet.socket(first)

        assert (registration.registered, registration.registrations) == (False, 1)

    during(kubelet, act)


def test_registration_serves_again_when_the_folder_was_gone(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        first = await kubelet.socket()
        first.unlink()
        kubelet.registry.rmdir()
        await asyncio.sleep(0.15)

        kubelet.start()

        async with dial(await kubelet.socket(first)) as dialled:
            assert (await dialled.info()).name == RAIL

    during(kubelet, act)


def test_registration_tries_again_when_the_socket_cannot_be_renamed(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["missing/folder.sock", "railnet-rdma-ib_vf-00000000002.sock"])
    monkeypatch.setattr("deviceplugin.plugin_socket.socket_name", lambda *_: next(names))

    async def act(kubelet: Kubelet, _: Registration) -> None:
        assert (await kubelet.socket()).name == "railnet-rdma-ib_vf-00000000002.sock"

    during(kubelet, act)


def test_registration_keeps_its_socket_when_kubelet_restarts(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        path = await kubelet.socket()
        for _restart in range(2):
            async with dial(path) as dialled:
                await dialled.notify(registered=True)
                assert len(await dialled.watch().next()) == 4

        assert kubelet.sockets() == [path]

    during(kubelet, act, retry_seconds=5)  # the product's value: a restarted kubelet has half a minute to watch


def test_registration_waits_for_kubelet_to_create_the_folder(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        await asyncio.sleep(0.15)
        assert not kubelet.registry.exists()

        kubelet.start()

        assert (await kubelet.socket()).name.startswith("railnet-rdma-ib_vf-")

    during(Kubelet(folder), act)

    waiting = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert ["plugins_registry cannot be opened: No such file" in record.getMessage() for record in waiting] == [True]


def test_registration_removes_its_socket_when_it_stops(kubelet: Kubelet) -> None:
    async def act(kubelet: Kubelet, _: Registration) -> None:
        await kubelet.socket()

    during(kubelet, act)

    assert list(kubelet.registry.iterdir()) == []


@pytest.mark.parametrize("steps", range(1, 8))
def test_registration_that_is_cancelled_while_it_starts_ends_and_leaves_no_socket(kubelet: Kubelet, steps: int) -> None:
    async def main() -> None:
        task = asyncio.create_task(a_registration(kubelet.folder).serve())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=WAIT_SECONDS)

        assert task.cancelled()

    asyncio.run(main())
    assert list(kubelet.registry.iterdir()) == []


def test_registration_ends_open_streams_when_it_stops(kubelet: Kubelet) -> None:
    async def main() -> None:
        registration = a_registration(kubelet.folder)
        task = asyncio.create_task(registration.serve())
        async with dial(await kubelet.socket()) as dialled:
            await dialled.watch().next()

            task.cancel()
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.gather(task, return_exceptions=True)

        assert task.cancelled()

    asyncio.run(main())


def test_registration_refuses_a_folder_whose_path_is_too_long_for_a_socket(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    kubelet = Kubelet(long)
    kubelet.start()

    with pytest.raises(Misconfigured, match=r"host\.kubelet or the pool's resource is too long"):
        asyncio.run(a_registration(long).serve())


@pytest.mark.parametrize("name", [socket_name(RAIL, 1), f".{socket_name(RAIL, 1)}"])
def test_folder_that_is_named_like_a_stale_socket_stays_and_blocks_nothing(
    kubelet: Kubelet, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = kubelet.folder / "plugins_registry" / name
    odd.mkdir()

    async def act(kubelet: Kubelet, _: Registration) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not any(path.is_socket() for path in odd.parent.glob("railnet-*.sock")):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)

    during(kubelet, act)

    assert odd.is_dir()
    assert f"{name} stays" in caplog.text


def test_registration_moves_to_the_folder_of_a_kubelet_that_starts_later_with_another_root(folder: Path) -> None:
    for name in ("default", "other"):
        (folder / name).mkdir()
    default, other = Kubelet(folder / "default"), Kubelet(folder / "other")
    default.start()
    now = [default.folder]

    async def main() -> None:
        service = PoolService(DEFAULT[0], DEFAULT, VfTable(two_rails()), {}.get, CheckpointReads(folder, read_in_time))
        registration = Registration(service, kubelet_is_in(lambda: now[0]), Path("/"), 0.01)
        task = asyncio.create_task(registration.serve())
        await default.socket()
        other.start()
        now[0] = other.folder
        path = await other.socket()
        async with dial(path) as dialled:
            assert (await dialled.info()).endpoint == str(path)
        assert default.sockets() == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def give_the_disk(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let work with files take so long. What waits for work that was not done in time must know the same work."""
    reads = FileReads(seconds)
    monkeypatch.setattr(registration, "read_in_time", reads.read)
    monkeypatch.setattr(registration, "answered", reads.answered)


@pytest.mark.parametrize("step", ["open", "bind", "show"])
def test_disk_that_hangs_holds_no_event_loop_and_the_pool_is_served_when_the_disk_answers(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk, whole = threading.Event(), getattr(PluginSocket, step)

    def hang(plugin_socket: PluginSocket, *arguments: object) -> None:
        assert disk.wait(WAIT_SECONDS)
        whole(plugin_socket, *arguments)

    monkeypatch.setattr(PluginSocket, step, hang)
    give_the_disk(0.05, monkeypatch)

    async def act(kubelet: Kubelet, _: Registration) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while "does its disk answer" not in caplog.text:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)  # the event loop goes on
        assert kubelet.sockets() == []
        disk.set()
        async with dial(await kubelet.socket()) as dialled:
            assert (await dialled.info()).name == RAIL

    during(kubelet, act)


def listening_sockets(name: str) -> list[str]:
    """Return the paths by which this process's listening Unix sockets of that name were bound."""
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            own.add(str(descriptor.readlink()))
    # The fourth column of /proc/net/unix is the flags; 10000 is __SO_ACCEPTCON (include/linux/net.h). The seventh is the inode.
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    return [
        row[7]
        for row in rows
        if len(row) > 7 and row[3] == "00010000" and name in row[7] and f"socket:[{row[6]}]" in own
    ]


@pytest.mark.parametrize("fails", [False, True], ids=["bound at last", "refused at last"])
def test_socket_that_is_bound_after_its_time_is_closed_and_its_file_removed(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, fails: bool
) -> None:
    disk, whole, late = threading.Event(), PluginSocket.bind, list[str]()

    def hang(plugin_socket: PluginSocket, bind: Callable[[str], object]) -> None:
        def bind_late(path: str) -> None:
            if not disk.is_set():
                late.append(plugin_socket.name)
                assert disk.wait(WAIT_SECONDS)
                if fails:
                    raise RuntimeError("Failed to bind to address")
            bind(path)

        whole(plugin_socket, bind_late)

    monkeypatch.setattr(PluginSocket, "bind", hang)
    give_the_disk(0.05, monkeypatch)

    async def act(kubelet: Kubelet, _: Registration) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while "does its disk answer" not in caplog.text:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
            disk.set()
            path = await kubelet.socket()
            while [each.name for each in kubelet.registry.iterdir()] != [path.name] or listening_sockets(late[0]):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        assert len(listening_sockets(path.name)) == 1

    during(kubelet, act)


def test_disk_that_hangs_ends_no_registration_that_kubelet_watches(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = threading.Event()
    monkeypatch.setattr(PluginSocket, "exists", lambda _: disk.wait(WAIT_SECONDS))
    give_the_disk(0.05, monkeypatch)

    async def act(kubelet: Kubelet, registration: Registration) -> None:
        async with dial(await kubelet.socket()) as dialled:
            stream = dialled.watch()
            await stream.next()
            await dialled.notify(registered=True)
            async with asyncio.timeout(WAIT_SECONDS):
                while "is still there is not known" not in caplog.text:  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.01)
            assert (registration.registered, registration.registrations) == (True, 1)
        disk.set()

    during(kubelet, act)


def test_registration_ends_in_time_while_the_disk_hangs(kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()
    monkeypatch.setattr(PluginSocket, "remove", lambda _: disk.wait(WAIT_SECONDS))
    give_the_disk(0.05, monkeypatch)

    async def main() -> None:
        task = asyncio.create_task(a_registration(kubelet.folder).serve())
        await kubelet.socket()
        task.cancel()
        await asyncio.wait({task}, timeout=WAIT_SECONDS / 2)
        assert task.cancelled()

    asyncio.run(main())
    disk.set()


def test_registration_waits_for_the_next_search_while_kubelets_folder_is_not_known(folder: Path) -> None:
    for name in ("default", "other"):
        (folder / name).mkdir()
    default, other = Kubelet(folder / "default"), Kubelet(folder / "other")
    default.start()
    other.start()
    errors = iter([OSError(ETIMEDOUT, "not read within 2 s", "/proc/7")] * 2)
    troubles = list[str]()

    async def main() -> None:
        async def look() -> KubeletFolder:
            troubles.append(served.trouble)
            error = next(errors, None)
            if error is not None:
                raise error
            return KubeletFolder(other.folder, "a test")

        service = PoolService(DEFAULT[0], DEFAULT, VfTable(two_rails()), {}.get, CheckpointReads(folder, read_in_time))
        served = Registration(service, look, Path("/"), 0.01)
        task = asyncio.create_task(served.serve())
        async with dial(await other.socket()) as dialled:
            assert (await dialled.info()).name == RAIL
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert default.sockets() == []
    assert troubles[1:3] == ["/proc/7 was not read within 2 s"] * 2


def test_socket_stays_while_it_is_not_known_whether_kubelet_has_another_folder(kubelet: Kubelet) -> None:
    known, looks = [True], list[bool]()

    async def main() -> None:
        async def look() -> KubeletFolder:
            looks.append(known[0])
            if not known[0]:
                raise OSError(ETIMEDOUT, "not read within 2 s", "/proc/7")
            return KubeletFolder(kubelet.folder, "a test")

        service = PoolService(
            DEFAULT[0], DEFAULT, VfTable(two_rails()), {}.get, CheckpointReads(kubelet.folder, read_in_time)
        )
        task = asyncio.create_task(Registration(service, look, Path("/"), 0.01).serve())
        path = await kubelet.socket()
        known[0] = False
        async with asyncio.timeout(WAIT_SECONDS):
            while looks[-3:] != [False] * 3:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        assert kubelet.sockets() == [path]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_endpoint_is_the_path_in_the_hosts_root_and_links_are_followed_there(folder: Path) -> None:
    kubelet = Kubelet(folder)
    kubelet.start()
    root = folder / "root"
    root.mkdir()
    (root / "snap").symlink_to("/real")
    (root / "real/plugins_registry").mkdir(parents=True)

    async def main() -> None:
        service = PoolService(DEFAULT[0], DEFAULT, VfTable(two_rails()), {}.get, CheckpointReads(folder, read_in_time))
        registration = Registration(service, kubelet_is_in(lambda: Path("/snap")), root, 0.01)
        task = asyncio.create_task(registration.serve())
        kubelet.registry = root / "real/plugins_registry"
        path = await kubelet.socket()
        async with dial(path) as dialled:
            assert (await dialled.info()).endpoint == f"/snap/plugins_registry/{path.name}"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
