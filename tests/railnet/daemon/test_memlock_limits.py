"""Which containers get the limit of locked memory; and the connection to a runtime that is absent, comes, starts anew or lies."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon import memlock_limits
from railnet.daemon.memlock_limits import MemlockLimits
from railnet.nri.api import nri_pb2 as api
from railnet.nri.created_container import CreatedContainer, ResourceLimit
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import SandboxPod
from railnet.vf.vf_table import VfTable
from tests.deviceplugin.builders import two_rails
from tests.railnet.nri.nri_runtime import NriRuntime
from tests.railnet.vf.builders import a_record, an_attachment

LIMIT = ResourceLimit("RLIMIT_MEMLOCK", 64 << 30)
NODE = two_rails()
ON_HOST = NODE.pfs[0].vfs[0]
RECORD = a_record(an_attachment(), pod=SandboxPod("ml", "train-0", "uid-1"), stage="attached")
RAIL = (231, 196)  # of the record's attachment
DISK_LIKE = (8, 0)


def numbers_on_host() -> tuple[int, int]:
    assert ON_HOST.rdma is not None
    assert ON_HOST.rdma.uverbs is not None
    return ON_HOST.rdma.uverbs.major, ON_HOST.rdma.uverbs.minor


def limits(
    root: Path = Path("/"), memlock: int | None = LIMIT.value, holders: Mapping[PciAddress, str] | None = None
) -> MemlockLimits:
    async def pods() -> Mapping[PciAddress, str] | None:
        return holders

    host = HostConfiguration(root=root, nri=Path("/run/nri/nri.sock"))
    return MemlockLimits(Configuration(host=host, memlock=memlock), VfTable(NODE), lambda: [RECORD], pods)


def limit_of(
    *devices: tuple[int, int],
    pod: str = "uid-1",
    own: str = "RLIMIT_NOFILE",
    holders: Mapping[PciAddress, str] | None = None,
) -> ResourceLimit | None:
    container = CreatedContainer("ml/x main", pod, frozenset(devices), frozenset({own}))
    return asyncio.run(limits(holders=holders).limit(container))


def test_container_with_its_pods_rail_gets_the_limit() -> None:
    assert limit_of(RAIL, DISK_LIKE) == LIMIT


@pytest.mark.parametrize("devices", [(), (DISK_LIKE,)])
def test_container_without_the_rail_in_a_pod_with_one_gets_none(devices: tuple[tuple[int, int], ...]) -> None:
    assert limit_of(*devices) is None


@pytest.mark.parametrize("pod", ["uid-2", ""])
def test_privileged_container_of_another_pod_which_has_every_device_gets_none(pod: str) -> None:
    holders = {ON_HOST.address: "uid-1"}
    assert limit_of(RAIL, numbers_on_host(), pod=pod, holders=holders) is None


def test_pod_on_the_hosts_network_is_known_by_kubelets_files() -> None:
    holders = {ON_HOST.address: "uid-3"}
    assert limit_of(numbers_on_host(), pod="uid-3", holders=holders) == LIMIT


def test_container_keeps_the_runtimes_limit_when_kubelets_files_cannot_be_read() -> None:
    assert limit_of(numbers_on_host(), pod="uid-3", holders=None) is None


def test_limit_of_the_containers_own_stands() -> None:
    assert limit_of(RAIL, own="RLIMIT_MEMLOCK") is None


def test_nothing_is_done_where_the_runtimes_limits_stand() -> None:
    assert limits(memlock=None).work() == {}
    assert list(limits().work()) == ["the limits of locked memory"]


class Runtime:
    """A runtime at the socket of a root folder; it takes plugins as they come."""

    def __init__(self, root: Path) -> None:
        self._socket = root / "run/nri/nri.sock"
        self.plugins: list[NriRuntime] = []
        self._server: asyncio.Server

    async def start(self) -> None:
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self._socket)

    async def stop(self) -> None:
        self._server.close()
        for plugin in self.plugins:
            plugin.writer.close()
        self.plugins.clear()

    async def wait_for_plugin(self) -> NriRuntime:
        await until(lambda: bool(self.plugins))
        return self.plugins[0]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.plugins.append(NriRuntime(reader, writer))


async def wait_for(limit: MemlockLimits, words: str | None) -> None:
    await until(lambda: limit.trouble is None if words is None else words in (limit.trouble or ""))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - of the state of another task, or of the kernel
            await asyncio.sleep(0.01)


def test_runtime_may_be_absent_come_start_anew_and_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memlock_limits, "_AGAIN_SECONDS", 0.02)

    async def script() -> None:
        limit, runtime = limits(tmp_path), Runtime(tmp_path)
        serving = asyncio.create_task(limit.serve())
        await wait_for(limit, "no NRI at /run/nri/nri.sock: switch NRI on")

        for _ in range(2):
            await runtime.start()
            plugin = await runtime.wait_for_plugin()
            await plugin.register()
            await wait_for(limit, None)
            device = api.LinuxDevice(type="c", major=RAIL[0], minor=RAIL[1])
            created = await plugin.create(
                api.CreateContainerRequest(
                    pod=api.PodSandbox(uid="uid-1"),
                    container=api.Container(linux=api.LinuxContainer(devices=[device])),
                )
            )
            assert [(one.type, one.hard, one.soft) for one in created.adjust.rlimits] == [(*LIMIT, LIMIT.value)]
            await runtime.stop()
            await wait_for(limit, "no NRI at")

        await runtime.start()
        liar = await runtime.wait_for_plugin()
        liar.writer.write(b"\xff" * 100)
        await wait_for(limit, "NRI permits 4194314; it is tried again")
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await runtime.stop()

    asyncio.run(script())
