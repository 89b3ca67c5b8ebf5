"""The executable works on a host without Python, libc and shell: its root folder contains only the bundle."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from railnet.install import python_bundle
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed
from simnode.node import RESOURCE, Node
from tests.node.primaries import PLUGINS, primary_of, set_seconds

BARE = Path("/run/bare")
CALLS = Path("/run/stub-calls")
# The folders that a container runtime shares with its plugins. All else in the root folder is in /run/bare.
SHARED = ("proc", "run", "sys", "dev", "etc/cni", "var/lib/cni", "var/lib/kubelet")
# Each request mounts them in a mount namespace of its own, so that the mounts of the sandboxes' namespaces are included.
ENTER = f"""#!/bin/sh
exec unshare --mount --propagation private sh -c '
for folder in {" ".join(SHARED)}; do mount --rbind /$folder {BARE}/$folder; done
exec env --unset=PATH $(command -v chroot) {BARE} {PLUGINS}/railnet'
"""
# A primary plugin that needs only the bundle, too.
STUB = f"""#!{{interpreter}} {python_bundle.FLAGS}
import posix

while posix.read(0, 4096):
    pass
command = posix.environ[b"CNI_COMMAND"]
log = posix.open("{CALLS}", posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT)
posix.write(log, command + b" ")
if command == b"ADD":
    posix.write(1, b'{{{{"cniVersion": "0.4.0", "ips": [], "here": %d}}}}' % len(posix.listdir("/")))
"""


@pytest.fixture
def bare(node: Node) -> Iterator[None]:
    """Serve the node's requests in a root folder that contains only the bundle and the stub."""
    for folder in SHARED:
        (BARE / folder).mkdir(parents=True)
    below = BARE / PLUGINS.relative_to("/")
    shutil.copytree(PLUGINS / ".railnet", below / ".railnet")
    shutil.copy(PLUGINS / "railnet", below / "railnet")
    ((version),) = (PLUGINS / ".railnet").iterdir()
    (below / "stub").write_text(
        STUB.format(interpreter=python_bundle.interpreter(str(PLUGINS / ".railnet"), version.name))
    )
    (below / "stub").chmod(0o755)
    primary_of({"type": "stub"})
    kept = (PLUGINS / "railnet").rename(PLUGINS / "railnet.kept")
    (PLUGINS / "railnet").write_text(ENTER)
    (PLUGINS / "railnet").chmod(0o755)
    yield
    kept.rename(PLUGINS / "railnet")
    shutil.rmtree(BARE)


# The seven folders are proc, run, sys, dev, etc, var and opt.
RESULT = b'{"cniVersion": "0.4.0", "ips": [], "here": 7}'


@pytest.mark.usefixtures("bare")
def test_pod_without_a_rail_needs_nothing_of_the_host_in_any_state_of_the_daemon(node: Node, daemon: str) -> None:
    pod = node.run_pod("plain")
    node.remove_pod(pod)

    assert pod.result == RESULT
    assert CALLS.read_text().split() == ["ADD", "DEL"]


@pytest.mark.usefixtures("bare")
def test_pod_with_a_rail_needs_nothing_of_the_host(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    records = [path.name for path in Path("/run/railnet/journal").iterdir()]
    node.remove_pod(pod)

    assert pod.result == RESULT
    assert records == [f"{pod.container_id}@eth0.json"]


@pytest.mark.usefixtures("bare")
def test_executable_without_a_daemon_reads_kubelets_checkpoint_on_a_host_that_has_nothing(node: Node) -> None:
    identity = PodIdentity("late", "default", "uid-late")
    node.kubelet.allocate(identity, RESOURCE, 1)
    node.stop_daemon()
    set_seconds(daemon=0.2)

    with pytest.raises(CniFailed) as failure:
        node.run_sandbox(identity)
    node.kubelet.remove(identity)

    assert failure.value.code == 11
