"""The health of devices, as kubelet gets it."""

import asyncio
from typing import Any, cast

from railnet.dra.device_health import DeviceHealthService, health
from railnet.dra.devices import DraDevice
from railnet.dra.slice_publisher import SlicePublisher
from railnet.kubelet.api import drahealth_pb2 as api
from tests.railnet.dra.slice_store import a_device

DOWN = "no driver is bound to VF 0000:03:00.1: bind one"


def test_health_has_the_whole_reason_of_each_unhealthy_device() -> None:
    first, second = health([a_device(0), a_device(1, DOWN)], "gpu-7", 1_700_000_000).devices

    assert (first.device.pool_name, first.device.device_name) == ("gpu-7", a_device(0).name)
    assert (first.health, first.message) == (api.HEALTHY, "")
    assert (second.health, second.message) == (api.UNHEALTHY, DOWN)
    assert {device.last_updated_time for device in (first, second)} == {1_700_000_000}
    assert second.health_check_timeout_seconds == 120


def test_reason_is_cut_to_what_kubelet_takes() -> None:
    (device,) = health([a_device(0, "x" * 2000)], "gpu-7", 0).devices

    assert len(device.message) == 1024


def test_stream_begins_with_the_first_devices_and_ends_with_its_reader() -> None:
    async def compute() -> tuple[DraDevice, ...]:
        return (a_device(0),)

    async def whole() -> list[str]:
        publisher = SlicePublisher(compute)
        stream = DeviceHealthService(publisher, "gpu-7", 0.0).NodeWatchResources(
            api.NodeWatchResourcesRequest(), cast(Any, None)
        )
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        publisher._take(await compute())
        names = [device.device.device_name for device in (await first).devices]
        await stream.aclose()
        assert publisher._observers == []
        return names

    assert asyncio.run(whole()) == [a_device(0).name]
