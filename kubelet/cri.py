"""The runtime's socket, by which kubelet asks for sandboxes (CRI): which ones there are. Read only.

A sandbox is listed from the end of its ADD on (containerd) until kubelet has it removed, whether its pod still runs or not.
"""

from pathlib import Path

import grpc
import grpc.aio

from kubelet.api import cri_pb2 as api
from vf.errors import NotReady

# containerd up to 1.5 has v1alpha2 alone, 1.6 and 1.7 have both, 2 has v1 alone (containerd, RELEASES.md).
_SERVICES = ("runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService")
_OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024),)  # kubelet's own (pkg/kubelet/cri/remote/utils.go)


async def sandboxes(socket: Path, timeout_seconds: float) -> frozenset[str]:
    """Return the ids of all sandboxes that the runtime has.

    Raises:
        NotReady: the runtime does not answer in time, or speaks neither version.
    """
    try:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
            return await _listed(channel, timeout_seconds)
    except grpc.aio.AioRpcError as error:
        raise NotReady(f"the container runtime does not list its sandboxes: {error.details()}") from error


async def _listed(channel: grpc.aio.Channel, timeout_seconds: float) -> frozenset[str]:
    first, second = _SERVICES
    try:
        return await _ask(channel, first, timeout_seconds)
    except grpc.aio.AioRpcError as error:
        if error.code() != grpc.StatusCode.UNIMPLEMENTED:
            raise
        return await _ask(channel, second, timeout_seconds)


async def _ask(channel: grpc.aio.Channel, service: str, timeout_seconds: float) -> frozenset[str]:
    ask = channel.unary_unary(
        f"/{service}/ListPodSandbox",
        request_serializer=api.ListPodSandboxRequest.SerializeToString,
        response_deserializer=api.ListPodSandboxResponse.FromString,
    )
    answer: api.ListPodSandboxResponse = await ask(api.ListPodSandboxRequest(), timeout=timeout_seconds)
    return frozenset(sandbox.id for sandbox in answer.items)
