"""A full `/run/railnet`: without a free block or without a free inode, plain pods and the taking back of rails go on."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from errno import ENOSPC
from pathlib import Path

import pytest

from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.linux import libc
from simnode.node import RESOURCE, Node
from tests.node import conftest
from tests.node.primaries import RUN, left_over, node_links
from tests.waiting import until

_BALLAST = RUN / "ballast"


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    """Provide a node with a small tmpfs at /run/railnet."""
    RUN.mkdir(mode=0o700, exist_ok=True)
    libc.mount("small", str(RUN), fstype="tmpfs", data="size=256k,nr_inodes=64,mode=0700")
    try:
        yield from conftest.shared_node.__wrapped__()
    finally:
        libc.unmount(str(RUN))


@pytest.fixture(params=["blocks", "inodes"])
def fill(request: pytest.FixtureRequest, node: Node) -> Iterator[Callable[[], None]]:
    """Return a function that uses up the blocks or the inodes of /run/railnet until the end of the test."""
    fillers = {"blocks": _fill_blocks, "inodes": _fill_inodes}
    yield fillers[request.param]
    for path in (_BALLAST, *RUN.glob("ballast-*")):
        path.unlink(missing_ok=True)


def _fill_blocks() -> None:
    with _BALLAST.open("ab", buffering=0) as file:
        _until_full(lambda _: file.write(bytes(4096)))


def _fill_inodes() -> None:
    _until_full(lambda number: Path(RUN, f"ballast-{number}").touch())


def _until_full(use: Callable[[int], object]) -> None:
    with pytest.raises(OSError, match=os.strerror(ENOSPC)):
        deque(map(use, range(1000)))


def test_plain_pod_comes_and_goes(node: Node, daemon: str, fill: Callable[[], None]) -> None:
    fill()

    pod = node.run_pod("plain")
    node.remove_pod(pod)

    assert pod.result


def test_daemon_that_finds_no_inode_for_its_socket_waits_for_one(node: Node) -> None:
    node.stop_daemon()  # which removes its socket
    _fill_inodes()
    node.start_daemon(wait=False)
    until(lambda: "cni.sock cannot be made (No space left on device)" in node.daemon.log(), 10, "the log says it")
    plain = node.run_pod("plain")
    node.remove_pod(plain)

    for path in RUN.glob("ballast-*"):
        path.unlink()

    until((RUN / "cni.sock").exists, 10, "the daemon serves")
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, 60)
    assert node.daemon.process.poll() is None


def test_rails_of_a_running_pod_are_taken_back_by_its_del(node: Node, fill: Callable[[], None]) -> None:
    pod = node.run_pod("train", vfs=1)
    fill()

    node.remove_pod(pod)

    assert left_over(node) == []


def test_rails_of_a_namespace_that_died_are_taken_back_by_a_daemon_that_starts(
    node: Node, fill: Callable[[], None]
) -> None:
    pod = node.run_pod("train", vfs=1)
    node.kill_daemon()
    node.destroy_netns(pod)
    fill()

    node.start_daemon()

    records = list((RUN / "journal").iterdir())
    node.remove_pod(pod)
    assert records == []
    assert "ibs5v0" in node_links()


def test_pod_with_a_rail_is_refused_with_the_remedy(node: Node, fill: Callable[[], None]) -> None:
    identity = PodIdentity("train", "default", "uid-train")
    node.kubelet.allocate(identity, RESOURCE, 1)
    box = node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
    fill()

    with pytest.raises(CniFailed) as failure:
        node.runtime.add(box)

    node.runtime.tear_down(box)
    node.kubelet.remove(identity)
    assert failure.value.code == 5
    assert "df -i /run/railnet" in failure.value.msg
    assert os.strerror(ENOSPC) in failure.value.msg
