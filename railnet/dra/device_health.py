"""The health of a node's devices for kubelet, which shows it in the status of pods. The socket of the DRA driver serves it.

It keeps no new pod away: taints do (`railnet.dra.resource_slices`).

Source: kubernetes/kubelet, pkg/apis/dra-health/v1alpha1/api.proto.
"""
# ruff: noqa: ARG002, N802 (gRPC calls these methods by the names and with the arguments of the .proto file)

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, Final

from grpc.aio import ServicerContext

from railnet.dra.devices import DraDevice
from railnet.dra.slice_publisher import SlicePublisher
from railnet.kubelet.api import drahealth_pb2 as api
from railnet.kubelet.api import drahealth_pb2_grpc as grpc_api

SERVICE: Final = "v1alpha1.DRAResourceHealth"
"""What a driver with this service adds to its supported versions."""

_MOST_CHARACTERS = 1024  # DeviceHealth.message
_EVERY_SECONDS = 30.0
_TIMEOUT_SECONDS = 120  # several messages may be late
_SETTLE_SECONDS = 1.0


def health(devices: Iterable[DraDevice], pool: str, seconds: int) -> api.NodeWatchResourcesResponse:
    """Return the health of all devices of a pool at a moment, in seconds since 1970."""
    return api.NodeWatchResourcesResponse(
        devices=[
            api.DeviceHealth(
                device=api.DeviceIdentifier(pool_name=pool, device_name=device.name),
                health=api.HEALTHY if device.reason is None else api.UNHEALTHY,
                last_updated_time=seconds,
                health_check_timeout_seconds=_TIMEOUT_SECONDS,
                message=(device.reason or "")[:_MOST_CHARACTERS],
            )
            for device in devices
        ]
    )


class DeviceHealthService(grpc_api.DRAResourceHealthServicer):
    """Streams the health of the devices of a publisher."""

    def __init__(self, publisher: SlicePublisher, pool: str, settle_seconds: float = _SETTLE_SECONDS) -> None:
        """Serve the devices that `publisher` computes.

        Args:
            publisher: computes the devices.
            pool: the name of the node.
            settle_seconds: after a change, for those that come with it.
        """
        self._publisher, self._pool, self._settle_seconds = publisher, pool, settle_seconds

    async def NodeWatchResources(
        self, request: api.NodeWatchResourcesRequest, context: ServicerContext[Any, Any]
    ) -> AsyncIterator[api.NodeWatchResourcesResponse]:
        """Yield the health of all devices, after each change and every half minute."""
        changed = asyncio.Event()
        forget = self._publisher.observe(changed.set)
        try:
            while True:
                changed.clear()
                if self._publisher.devices is not None:
                    yield health(self._publisher.devices, self._pool, int(time.time()))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_SECONDS):
                        await changed.wait()
                    await asyncio.sleep(self._settle_seconds)
        finally:
            forget()
