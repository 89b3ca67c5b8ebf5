"""kubelet's connection to one registered device plugin: its gRPC client, its options, its devices.

`plugin_watcher` finds plugins; `kubelet` allocates devices to pods.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence

import grpc

from railnet.kubelet.api import deviceplugin_pb2 as api
from railnet.kubelet.api import deviceplugin_pb2_grpc

_CALL_SECONDS = 30  # as kubelet has for PreStartContainer; it has none for Allocate, and others are not its own


class PluginEndpoint:
    """A connection to a device plugin with its ListAndWatch stream; it calls `changed` after each update.

    Raises:
        grpc.RpcError: the plugin does not answer GetDevicePluginOptions.
    """

    def __init__(self, resource: str, socket_path: str, changed: Callable[[], None]) -> None:
        self.resource, self.socket_path = resource, socket_path
        self.devices: Mapping[str, api.Device] = {}
        self._changed = changed
        self._channel = grpc.insecure_channel(f"unix:{socket_path}")
        self._stub = deviceplugin_pb2_grpc.DevicePluginStub(self._channel)
        try:
            self.options = self._stub.GetDevicePluginOptions(api.Empty(), timeout=_CALL_SECONDS, wait_for_ready=True)
        except grpc.RpcError:
            self._channel.close()
            raise
        self._stream = self._stub.ListAndWatch(api.Empty())
        self._thread = threading.Thread(target=self._listen, name=f"ListAndWatch {resource}", daemon=True)
        self._thread.start()

    def healthy(self) -> list[str]:
        """Return the ids of the healthy devices, sorted."""
        return sorted(device_id for device_id, device in self.devices.items() if device.health == "Healthy")

    def by_numa_node(self, ids: Sequence[str]) -> dict[int, list[str]]:
        """Group ids by NUMA node, with -1 for a device without topology (nodeWithoutTopology)."""
        grouped: dict[int, list[str]] = {}
        for device_id in ids:
            nodes = self.devices[device_id].topology.nodes
            grouped.setdefault(nodes[0].ID if nodes else -1, []).append(device_id)
        return grouped

    def preferred(self, available: Sequence[str], count: int) -> list[str]:
        """Return `count` of the available ids; those that the plugin prefers come first."""
        wanted = self._preference(available, count) if self.options.get_preferred_allocation_available else []
        return [*wanted, *(device_id for device_id in available if device_id not in wanted)][:count]

    def _preference(self, available: Sequence[str], count: int) -> list[str]:
        """Call GetPreferredAllocation for one container; return the ids of its answer that are available."""
        container = api.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=count)
        request = api.PreferredAllocationRequest(container_requests=[container])
        answer = self._stub.GetPreferredAllocation(request, timeout=_CALL_SECONDS).container_responses
        return [device_id for device_id in (answer[0].deviceIDs if answer else ()) if device_id in available]

    def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """Call Allocate for one container."""
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])
        return self._stub.Allocate(request, timeout=_CALL_SECONDS).container_responses[0]

    def pre_start(self, ids: Sequence[str]) -> None:
        """Call PreStartContainer if the plugin requires it."""
        if self.options.pre_start_required:
            self._stub.PreStartContainer(api.PreStartContainerRequest(devices_ids=ids), timeout=_CALL_SECONDS)

    def close(self) -> None:
        """Disconnect; the devices become unhealthy."""
        self._stream.cancel()
        self._channel.close()
        self._thread.join()

    def _listen(self) -> None:
        with contextlib.suppress(
            grpc.RpcError, ValueError
        ):  # RpcError: the stream ended; ValueError: the channel was closed
            for update in self._stream:
                self.devices = {device.ID: device for device in update.devices}
                self._changed()
        self.devices = {device_id: _unhealthy(device) for device_id, device in self.devices.items()}
        self._changed()


def _unhealthy(device: api.Device) -> api.Device:
    return api.Device(ID=device.ID, health="Unhealthy", topology=device.topology)
