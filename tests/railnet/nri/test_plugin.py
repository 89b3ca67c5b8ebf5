"""The plugin beside a runtime that registers it, asks it, dies, hangs, lies and floods it."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from railnet.nri import plugin
from railnet.nri.api import nri_pb2 as api
from railnet.nri.api import ttrpc_pb2 as ttrpc
from railnet.nri.created_container import CreatedContainer, ResourceLimit
from railnet.nri.messages import TO_PLUGIN, BadMessage
from railnet.nri.plugin import RuntimeRefused
from tests.railnet.nri.nri_runtime import Limit, NriRuntime, served

MEMLOCK = ResourceLimit("RLIMIT_MEMLOCK", 64 << 30)
UVERBS = api.LinuxDevice(path="/dev/infiniband/uverbs3", type="c", major=231, minor=195)
DISK = api.LinuxDevice(path="/dev/sda", type="b", major=8, minor=0)
REQUEST = api.CreateContainerRequest(
    pod=api.PodSandbox(id="s", name="train-0", uid="u-1", namespace="ml"),
    container=api.Container(
        id="c",
        name="main",
        linux=api.LinuxContainer(devices=[UVERBS, DISK]),
        rlimits=[api.POSIXRlimit(type="RLIMIT_NOFILE", hard=9, soft=9)],
    ),
)
ADJUSTED = api.CreateContainerResponse(
    adjust=api.ContainerAdjustment(rlimits=[api.POSIXRlimit(type="RLIMIT_MEMLOCK", hard=64 << 30, soft=64 << 30)])
)


async def always(_: CreatedContainer) -> ResourceLimit | None:
    return MEMLOCK


async def never(_: CreatedContainer) -> ResourceLimit | None:
    return None


def beside(
    script: Callable[[NriRuntime, "asyncio.Task[None]"], Awaitable[Any]],
    limit: Limit = always,
    registered: Callable[[], None] = lambda: None,
) -> Any:
    async def run() -> Any:
        async with served(limit, registered) as (runtime, task):
            return await script(runtime, task)

    return asyncio.run(run())


async def ends_with(task: "asyncio.Task[None]") -> BaseException:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the caller says which
        await task
    return raised.value


def test_plugin_registers_as_the_last_and_asks_for_created_containers_alone() -> None:
    calls: list[str] = []

    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> None:
        asked = await runtime.answer_registration()
        assert (asked.plugin_name, asked.plugin_idx) == ("railnet", "99")
        configured = await runtime.call("Configure", api.ConfigureRequest(runtime_name="containerd"))
        assert api.ConfigureResponse.FromString(configured.payload).events == 0b1000
        part = await runtime.call("Synchronize", api.SynchronizeRequest(more=True))
        assert api.SynchronizeResponse.FromString(part.payload).more
        assert calls == []
        last = await runtime.call("Synchronize", api.SynchronizeRequest())
        assert not api.SynchronizeResponse.FromString(last.payload).more
        await asyncio.sleep(0)
        assert calls == ["registered"]

    beside(script, registered=lambda: calls.append("registered"))


def test_container_gets_the_limit_and_is_told_by_its_character_devices() -> None:
    asked: list[CreatedContainer] = []

    async def limit(container: CreatedContainer) -> ResourceLimit:
        asked.append(container)
        return MEMLOCK

    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> api.CreateContainerResponse:
        await runtime.register()
        return await runtime.create(REQUEST)

    assert beside(script, limit) == ADJUSTED
    assert asked == [CreatedContainer("ml/train-0 main", "u-1", frozenset({(231, 195)}), frozenset({"RLIMIT_NOFILE"}))]


def test_answer_has_nris_field_numbers() -> None:
    # adjust is 1, rlimits 7; type 1, hard 2, soft 3 (containerd/nri v0.12.3 pkg/api/api.proto); 64 GiB as a varint.
    rlimit = b"\x0a\x0eRLIMIT_MEMLOCK" + b"\x10\x80\x80\x80\x80\x80\x02" + b"\x18\x80\x80\x80\x80\x80\x02"
    adjust = b"\x3a" + bytes([len(rlimit)]) + rlimit

    assert ADJUSTED.SerializeToString() == b"\x0a" + bytes([len(adjust)]) + adjust


def test_container_without_a_limit_is_left_as_it_is() -> None:
    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> api.CreateContainerResponse:
        await runtime.register()
        return await runtime.create(REQUEST)

    assert beside(script, never) == api.CreateContainerResponse()


@pytest.mark.parametrize("how", ["hangs", "fails"])
def test_container_is_created_in_time_when_the_limit_is_not_known(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_ANSWER_SECONDS", 0.05)

    async def limit(container: CreatedContainer) -> ResourceLimit:
        if how == "hangs" and container.pod.startswith("ml/train-0"):
            await asyncio.Event().wait()
        if how == "fails" and container.pod.startswith("ml/train-0"):
            raise OSError("the disk is gone")
        return MEMLOCK

    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> None:
        await runtime.register()
        assert await runtime.create(REQUEST) == api.CreateContainerResponse()
        after = api.CreateContainerRequest(pod=api.PodSandbox(name="train-1", namespace="ml"))
        assert await runtime.create(after) == ADJUSTED

    beside(script, limit)


def test_method_that_this_plugin_does_not_have_is_answered_so_and_the_next_call_is_served() -> None:
    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> None:
        await runtime.register()
        for method in ("ValidateContainerAdjustment", "StateChange", "", "x" * 5000):
            assert (await runtime.call(method, api.Empty())).status.code == 12
        assert (await runtime.call("Shutdown", api.Empty())).status.code == 0
        assert await runtime.create(REQUEST) == ADJUSTED

    beside(script)


def test_thousand_calls_that_come_at_once_are_all_answered_in_order() -> None:
    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> None:
        await runtime.register()
        for _ in range(1000):
            runtime.ask("CreateContainer", REQUEST)
        for _ in range(1000):
            answer = ttrpc.Response.FromString((await runtime.receive(TO_PLUGIN)).body)
            assert api.CreateContainerResponse.FromString(answer.payload) == ADJUSTED

    beside(script)


def test_frames_of_another_service_and_large_lists_of_containers_are_read_over() -> None:
    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> None:
        runtime.writer.write(struct.pack(">II", 77, 5) + b"hello")
        await runtime.answer_registration()
        await runtime.call("Configure", api.ConfigureRequest())
        large = api.CreateContainerRequest(container=api.Container(name="x" * (3 << 20)))
        await runtime.call("Synchronize", large)
        await runtime.call("Synchronize", api.SynchronizeRequest())
        assert await runtime.create(REQUEST) == ADJUSTED

    beside(script)


def test_refusal_of_the_runtime_is_told_in_its_words() -> None:
    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> BaseException:
        await runtime.answer_registration(ttrpc.Status(code=2, message="plugin index is taken"))
        return await ends_with(task)

    error = beside(script)
    assert isinstance(error, RuntimeRefused)
    assert str(error) == "the container runtime refused the plugin: plugin index is taken"


@pytest.mark.parametrize("after", ["connect", "registration", "register"])
def test_end_of_the_runtime_ends_the_plugin_with_words(after: str) -> None:
    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> BaseException:
        if after == "registration":
            await runtime.answer_registration()
        if after == "register":
            await runtime.register()
        runtime.writer.close()
        return await ends_with(task)

    error = beside(script)
    assert isinstance(error, OSError)


def test_runtime_that_never_registers_the_plugin_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "_REGISTRATION_SECONDS", 0.05)

    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> BaseException:
        return await ends_with(task)

    assert isinstance(beside(script), TimeoutError)


@pytest.mark.parametrize(
    "lie",
    [
        struct.pack(">II", TO_PLUGIN, 0xFFFFFFFF),
        struct.pack(">IIIIBB", TO_PLUGIN, 10, 0x7FFFFFFF, 1, 1, 0),
        struct.pack(">IIIIBB", TO_PLUGIN, 12, 2, 1, 1, 0) + b"\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
def test_what_is_no_nri_ends_the_connection_and_takes_no_memory(lie: bytes) -> None:
    async def script(runtime: NriRuntime, task: "asyncio.Task[None]") -> BaseException:
        await runtime.register()
        runtime.writer.write(lie)
        return await ends_with(task)

    assert isinstance(beside(script), BadMessage)
