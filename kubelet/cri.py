"""A client of the container runtime's socket (CRI), which kubelet also uses: lists the sandboxes. Read only.

The runtime lists a sandbox from the end of its ADD (containerd) until kubelet has it removed, also if its pod has ended.
"""

from pathlib import Path

import grpc
import grpc.aio

from kubelet.api import cri_pb2 as api
from vf.errors import NotReady

# containerd up to 1.5 has only v1alpha2, 1.6 and 1.7 have both, 2 has only v1 (containerd, RELEASES.md).
_SERVICES = ("runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService")
# The limit that kubelet uses (pkg/kubelet/cri/remote/utils.go).
_OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024),)


async def sandboxes(socket: Path, timeout_seconds: float) -> frozenset[str]:
    """Return the ids of all sandboxes of the container runtime.

    Raises:
        NotReady: the container runtime does not answer in time, or has neither version of the API.
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
