"""Pods on the host's network that have a VF: the runtime calls no CNI plugin for them, and their containers start all the same."""

import uuid
from pathlib import Path

import grpc
import pytest

from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import RESOURCE, Node


def allocated(node: Node, name: str) -> PodIdentity:
    identity = PodIdentity(name, "default", str(uuid.uuid4()))
    node.kubelet.allocate(identity, RESOURCE, 1)
    return identity


def test_container_on_the_hosts_network_starts_with_its_vfs_device_nodes(node: Node) -> None:
    pod = allocated(node, "host")
    node.runtime.create_host_sandbox(pod.uid)

    node.kubelet.pre_start(pod)

    (allocation,) = node.kubelet.allocations(pod)
    (device,) = allocation.device_ids
    nodes = {Path(one.host_path).name for one in allocation.response.devices}
    assert allocation.response.envs["PCIDEVICE_RDMA_IB_VF"] == device
    assert "rdma_cm" in nodes
    assert any(name.startswith("uverbs") for name in nodes)
    node.kubelet.remove(pod)


def test_container_whose_sandbox_was_made_without_railnet_is_refused_still(node: Node) -> None:
    pod = allocated(node, "elsewhere")

    with pytest.raises(grpc.RpcError) as refused:
        node.kubelet.pre_start(pod)

    assert "is not attached to a pod" in str(refused.value)
    node.kubelet.remove(pod)


def test_pod_on_the_hosts_network_does_not_get_the_vf_of_another_pod(node: Node) -> None:
    """The other pod was allocated the VF, and has not run ADD yet."""
    other, host = allocated(node, "other"), PodIdentity("host", "default", str(uuid.uuid4()))
    node.runtime.create_host_sandbox(host.uid)
    (allocation,) = node.kubelet.allocations(other)
    node.kubelet.claim(host, RESOURCE, allocation.device_ids)

    with pytest.raises(grpc.RpcError) as refused:
        node.kubelet.pre_start(host)

    assert "is not attached to a pod" in str(refused.value)
    node.kubelet.remove(other)
    node.kubelet.remove(host)
