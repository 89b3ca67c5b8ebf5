"""A fake kubelet, as a device plugin sees it: its state folder, its checkpoint, and its calls on a plugin's socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from railnet.kubelet.api import deviceplugin_pb2 as api
from railnet.kubelet.api import deviceplugin_pb2_grpc as grpc_api
from railnet.kubelet.api import pluginregistration_pb2 as registration_api
from railnet.kubelet.api import pluginregistration_pb2_grpc as registration_grpc

WAIT_SECONDS = 20


class Stream:
    """One open ListAndWatch."""

    def __init__(self, call) -> None:
        self.call = call

    async def next(self) -> dict[str, str]:
        """Wait for the next list, and return the health of each device by id."""
        async with asyncio.timeout(WAIT_SECONDS):
            response = await self.call.read()
        return {device.ID: device.health for device in response.devices}


class Dialled:
    """A connection to one plugin's socket."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.plugin = grpc_api.DevicePluginStub(channel)
        self.registration = registration_grpc.RegistrationStub(channel)

    async def info(self) -> registration_api.PluginInfo:
        return await self.registration.GetInfo(registration_api.InfoRequest(), timeout=WAIT_SECONDS)

    async def notify(self, *, registered: bool, error: str = "") -> None:
        status = registration_api.RegistrationStatus(plugin_registered=registered, error=error)
        await self.registration.NotifyRegistrationStatus(status, timeout=WAIT_SECONDS)

    def watch(self) -> Stream:
        return Stream(self.plugin.ListAndWatch(api.Empty()))

    async def allocate(self, *containers: list[str]) -> list[api.ContainerAllocateResponse]:
        requests = [api.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        answer = await self.plugin.Allocate(api.AllocateRequest(container_requests=requests), timeout=WAIT_SECONDS)
        return list(answer.container_responses)

    async def preferred(self, *containers: tuple[list[str], list[str], int]) -> list[list[str]]:
        """Return the preferred ids for containers, each given as available ids, settled ids, and the number of ids."""
        requests = [
            api.ContainerPreferredAllocationRequest(
                available_deviceIDs=available, must_include_deviceIDs=settled, allocation_size=size
            )
            for available, settled, size in containers
        ]
        request = api.PreferredAllocationRequest(container_requests=requests)
        answer = await self.plugin.GetPreferredAllocation(request, timeout=WAIT_SECONDS)
        return [list(container.deviceIDs) for container in answer.container_responses]

    async def pre_start(self, *ids: str) -> None:
        await self.plugin.PreStartContainer(api.PreStartContainerRequest(devices_ids=ids), timeout=WAIT_SECONDS)


@asynccontextmanager
async def dial(socket: Path) -> AsyncIterator[Dialled]:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        yield Dialled(channel)


class Kubelet:
    """Kubelet's state folder; `sockets` are those that its plugin watcher dials."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = folder / "plugins_registry"
        (folder / "device-plugins").mkdir()

    def start(self) -> None:
        self.registry.mkdir()

    def allocated(self, resource: str, **ids_by_pod_uid: list[str]) -> None:
        entries = [
            {
                "PodUID": uid.replace("_", "-"),
                "ContainerName": "main",
                "ResourceName": resource,
                "DeviceIDs": {"0": ids},
            }
            for uid, ids in ids_by_pod_uid.items()
        ]
        document = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 0}
        (self.folder / "device-plugins" / "kubelet_internal_checkpoint").write_text(json.dumps(document))

    def sockets(self) -> list[Path]:
        return sorted(path for path in self.registry.iterdir() if not path.name.startswith("."))

    async def socket(self, *excluded: Path) -> Path:
        """Wait for a socket that is not one of `excluded`, and return its path."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                found = [path for path in self.sockets() if path not in excluded] if self.registry.is_dir() else []
                if found:
                    return found[0]
                await asyncio.sleep(0.01)
