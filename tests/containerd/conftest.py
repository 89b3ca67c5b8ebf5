"""A simulated node with a real containerd 2 as its runtime. scripts/with-containerd runs the tests of this folder."""

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
import pytest

from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import RESOURCE, Node
from tests.containerd.runtime import SOCKET, Containerd, Sandbox
from tests.node.primaries import left_over

_SYSFS = Path("/run/simnode/sys")  # a folder other than /sys, since runc needs the kernel's


class ContainerdNode:
    """A node with containerd.

    Attributes:
        node: the simulated node; its `runtime` is not used.
        containerd: the runtime.
    """

    def __init__(self, node: Node, containerd: Containerd) -> None:
        self.node, self.containerd = node, containerd
        self._sandboxes: list[Sandbox] = []

    def admit(self, name: str, vfs: int = 0) -> PodIdentity:
        """Allocate a pod's devices, as kubelet does before the sandbox exists."""
        pod = PodIdentity(name, "default", str(uuid.uuid4()))
        if vfs:
            self.node.kubelet.allocate(pod, RESOURCE, vfs)
        return pod

    def run(
        self, pod: PodIdentity, annotations: Mapping[str, str] | None = None, host_ports: tuple[int, ...] = ()
    ) -> Sandbox:
        """Run an admitted pod as kubelet does, until its containers may start. A pod that fails is removed.

        Raises:
            grpc.RpcError: the runtime, or PreStartContainer, refused.
        """
        try:
            sandbox = self.containerd.run(pod, annotations, host_ports)
        except grpc.RpcError:
            self.node.kubelet.remove(pod)
            raise
        self._sandboxes.append(sandbox)
        self.node.kubelet.pre_start(pod)
        return sandbox

    def remove(self, sandbox: Sandbox) -> None:
        """End a pod as kubelet does."""
        self.node.kubelet.remove(sandbox.pod)
        self.containerd.remove(sandbox)
        self._sandboxes.remove(sandbox)

    def remove_all(self) -> None:
        for sandbox in tuple(self._sandboxes):
            self.remove(sandbox)


@pytest.fixture(scope="session")
def shared_node() -> Iterator[ContainerdNode]:
    with contextlib.ExitStack() as cleanup:
        node = cleanup.enter_context(Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), sysfs=_SYSFS, cri=SOCKET))
        node.install()
        containerd = Containerd()
        containerd.start()
        cleanup.callback(containerd.stop)
        containerd.load_image()
        node.start_daemon()
        containerd.wait_for_network("cbr0")
        yield ContainerdNode(node, containerd)


@pytest.fixture
def node(shared_node: ContainerdNode) -> Iterator[ContainerdNode]:
    """Yield a node with a running daemon. After each test, nothing may be left over."""
    yield shared_node
    shared_node.remove_all()
    if shared_node.node.daemon.process is None:
        shared_node.node.start_daemon()
    shared_node.node.kubelet.wait_for_devices(RESOURCE, shared_node.node.vfs, 60)
    assert left_over(shared_node.node) == []
