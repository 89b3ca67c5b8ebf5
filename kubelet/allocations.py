"""What a device plugin answered for a pod's containers, as kubelet keeps it: it gives that to every sandbox of the pod.

In the device checkpoint, AllocResp is the marshalled ContainerAllocateResponse in base64 (`PodDevicesEntry`,
pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go). Not here: what should have been answered.
"""

import binascii
from base64 import b64decode
from typing import NamedTuple

from google.protobuf.message import DecodeError

from kubelet import checkpoint
from kubelet.api import deviceplugin_pb2 as api


class Answer(NamedTuple):
    """One container's answer for one resource: its devices' ids, the host's device nodes, and environment."""

    ids: frozenset[str]
    device_nodes: frozenset[str]
    envs: dict[str, str]


def parse(raw: bytes, pod_uid: str, resources: frozenset[str]) -> tuple[Answer, ...]:
    """Read the answers for one pod; containers whose answer kubelet did not write down are left out.

    Raises:
        ValueError: anything not understood; the message says what.
    """
    return tuple(
        _answer(ids, response)
        for ids, resource, response in checkpoint.responses(raw, pod_uid)
        if resource in resources and response
    )


def _answer(ids: set[str], response: str) -> Answer:
    try:
        answered = api.ContainerAllocateResponse.FromString(b64decode(response, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ValueError(
            f"kubelet's device checkpoint is not understood: an AllocResp is not an answer ({error})"
        ) from None
    return Answer(frozenset(ids), frozenset(device.host_path for device in answered.devices), dict(answered.envs))
