"""A client of the container runtime's socket (CRI), which kubelet also uses: lists the sandboxes, and which are on the host's network.

Read only.

The runtime lists a sandbox from the end of its ADD (containerd) until kubelet has it removed, also if its pod has ended.
"""

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path

import grpc
import grpc.aio

from railnet.errors import NotReady
from railnet.kubelet.api import cri_pb2 as api

_SERVICE = "runtime.v1.RuntimeService"  # the only version of CRI that kubelet 1.26 and newer speaks
# The limit that kubelet uses (pkg/kubelet/cri/remote/utils.go).
_OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024),)


async def sandboxes(socket: Path, timeout_seconds: float) -> frozenset[str]:
    """Return the ids of all sandboxes of the container runtime.

    Raises:
        NotReady: the container runtime does not answer in time, or has not this version of the API.
    """
    return frozenset(sandbox.id for sandbox in await _all(socket, timeout_seconds))


async def pods_with_sandboxes(socket: Path, timeout_seconds: float) -> frozenset[str]:
    """Return the UIDs of all pods that have a sandbox in the container runtime, also one that has ended.

    Raises:
        NotReady: as `sandboxes`.
    """
    return frozenset(sandbox.metadata.uid for sandbox in await _all(socket, timeout_seconds))


async def _all(socket: Path, timeout_seconds: float) -> Iterable[api.PodSandbox]:
    try:
        async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
            listed = await _list(channel, timeout_seconds)
    except grpc.aio.AioRpcError as error:
        raise NotReady(f"the container runtime does not list its sandboxes: {error.details()}") from error
    return listed.items


async def pods_on_host_network(socket: Path, pod_uids: Collection[str], timeout_seconds: float) -> frozenset[str]:
    """Return which of some pods are on the host's network: each of their sandboxes that are ready is.

    The runtime knows it from kubelet, which made the sandbox from the pod that the API server admitted. The pod cannot change it.

    Raises:
        NotReady: the container runtime does not answer in time, or has not this version of the API.
    """
    try:
        async with (
            asyncio.timeout(timeout_seconds),
            grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel,
        ):
            listed = await _list(channel, timeout_seconds)
            ready = [
                sandbox
                for sandbox in listed.items
                if sandbox.state == api.SANDBOX_READY and sandbox.metadata.uid in pod_uids
            ]
            modes = [
                (sandbox.metadata.uid, await _network_mode(channel, sandbox.id, timeout_seconds)) for sandbox in ready
            ]
    except (grpc.aio.AioRpcError, TimeoutError) as error:
        why = error.details() if isinstance(error, grpc.aio.AioRpcError) else f"no answer in {timeout_seconds:g} s"
        raise NotReady(f"the container runtime does not say which network the pod's sandbox has: {why}") from error
    elsewhere = {uid for uid, mode in modes if mode != api.NODE}
    return frozenset(uid for uid, _ in modes if uid not in elsewhere)


async def _list(channel: grpc.aio.Channel, timeout_seconds: float) -> api.ListPodSandboxResponse:
    ask = channel.unary_unary(
        f"/{_SERVICE}/ListPodSandbox",
        request_serializer=api.ListPodSandboxRequest.SerializeToString,
        response_deserializer=api.ListPodSandboxResponse.FromString,
    )
    answer: api.ListPodSandboxResponse = await ask(api.ListPodSandboxRequest(), timeout=timeout_seconds)
    return answer


async def _network_mode(channel: grpc.aio.Channel, sandbox: str, timeout_seconds: float) -> int:
    ask = channel.unary_unary(
        f"/{_SERVICE}/PodSandboxStatus",
        request_serializer=api.PodSandboxStatusRequest.SerializeToString,
        response_deserializer=api.PodSandboxStatusResponse.FromString,
    )
    answer: api.PodSandboxStatusResponse = await ask(
        api.PodSandboxStatusRequest(pod_sandbox_id=sandbox), timeout=timeout_seconds
    )
    return answer.status.linux.namespaces.options.network
