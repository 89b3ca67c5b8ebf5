"""The device plugin's answers to Allocate, read from kubelet's device checkpoint. Kubelet uses them for every sandbox of the pod.

In the device checkpoint, AllocResp is the marshalled ContainerAllocateResponse in base64 (`PodDevicesEntry`,
pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go). Not here: whether an answer is right (`cni.stale_allocate_response_check`).
"""

import binascii
from base64 import b64decode
from typing import NamedTuple

from google.protobuf.message import DecodeError

from railnet.kubelet import checkpoint
from railnet.kubelet.api import deviceplugin_pb2 as api


class ContainerAllocation(NamedTuple):
    """One container got this for one resource: the ids of its devices, the host's device nodes, and environment variables."""

    ids: frozenset[str]
    device_nodes: frozenset[str]
    envs: dict[str, str]


def of_pod(entries: checkpoint.Listed, pod_uid: str, resources: frozenset[str]) -> tuple[ContainerAllocation, ...]:
    """Return the allocations of one pod, without the containers for which the checkpoint has no answer.

    Raises:
        ValueError: an answer is not understood; the message says why.
    """
    return tuple(
        _allocation(ids, response)
        for ids, resource, response in checkpoint.responses(entries, pod_uid)
        if resource in resources and response
    )


def _allocation(ids: set[str], response: str) -> ContainerAllocation:
    try:
        allocated = api.ContainerAllocateResponse.FromString(b64decode(response, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ValueError(
            f"kubelet's device checkpoint is not understood: an AllocResp is not a ContainerAllocateResponse ({error})"
        ) from None
    return ContainerAllocation(
        frozenset(ids), frozenset(device.host_path for device in allocated.devices), dict(allocated.envs)
    )
