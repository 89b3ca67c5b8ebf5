"""A client of kubelet's pod-resources socket: the second source for the devices of a pod.

It is used only if the checkpoint is missing or not understood, or if the container runtime did not pass the pod's UID: this API identifies
pods by name alone, and each request needs a connection.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio

from railnet.errors import NotReady
from railnet.kubelet.api import podresources_pb2 as api
from railnet.kubelet.api import podresources_pb2_grpc as service
from railnet.kubelet.dra_driver_name import DRIVER

# A List of a full node can be larger than gRPC's default of 4 MiB; kubelet's own tests read with 16 MiB (test/e2e_node/util.go,
# defaultPodResourcesMaxSize).
_OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024),)


class Listed(NamedTuple):
    """What kubelet lists for one pod.

    Attributes:
        devices: sorted pairs of resource and device id; of claims, of driver and device.
        has_claims: whether kubelet lists claims at all: it names one of any pod. A feature gate may be off, and then it lists none.
    """

    devices: list[tuple[str, str]]
    has_claims: bool


async def devices(
    socket: Path, namespace: str, name: str, resources: Collection[str], timeout_seconds: float
) -> Listed:
    """Return one pod's devices of the given resources, and those of Railnet's driver that its claims have.

    It calls `List` and filters, since `Get` is available by default only from Kubernetes 1.34.

    Raises:
        NotReady: kubelet does not answer in time, or lists devices of more than one pod of this name.
    """
    listed = await _list(socket, timeout_seconds)
    pods = [_devices(pod, resources) for pod in listed if (pod.namespace, pod.name) == (namespace, name)]
    holding = [pod for pod in pods if pod]
    if len(holding) > 1:  # one may be terminated but not yet removed; the API does not say which
        raise NotReady(f"kubelet lists {len(holding)} pods {namespace}/{name} with devices at {socket}")
    has_claims = any(container.dynamic_resources for pod in listed for container in pod.containers)
    return Listed(sorted(holding[0]) if holding else [], has_claims)


async def _list(socket: Path, timeout_seconds: float) -> Sequence[api.PodResources]:
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        try:
            answer = await service.PodResourcesListerStub(channel).List(
                api.ListPodResourcesRequest(), timeout=timeout_seconds
            )
        except grpc.aio.AioRpcError as error:
            raise NotReady(f"kubelet does not list a pod's devices at {socket}: {error.details()}") from error
    return answer.pod_resources


def _devices(pod: api.PodResources, resources: Collection[str]) -> set[tuple[str, str]]:
    plugins = {
        (devices.resource_name, device)
        for container in pod.containers
        for devices in container.devices
        if devices.resource_name in resources
        for device in devices.device_ids
    }
    claims = {
        (device.driver_name, device.device_name)
        for container in pod.containers
        for claim in container.dynamic_resources
        for device in claim.claim_resources
        if device.driver_name == DRIVER
    }
    return plugins | claims
