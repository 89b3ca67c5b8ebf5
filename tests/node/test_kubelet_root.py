"""Kubelets with another root folder: as distributions configure it, found by the running kubelet, and gone."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simnode.daemon_process import CONFIGURATION
from simnode.kubernetes.kubelet import Kubelet
from simnode.node import RESOURCE, Node
from tests.node.rail_and_plain_pods import serve_pods
from tests.waiting import until

HOST = Path("/run/host")  # the simulated node has no private folder with the distributions' own paths
K0S, MICROK8S = HOST / "var/lib/k0s/kubelet", HOST / "var/snap/microk8s/common/var/lib/kubelet"
K3S = HOST / "data/kubelet"
_SECONDS = 60


@contextmanager
def a_node(root: Path) -> Iterator[Node]:
    node = Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2)
    node.kubelet = Kubelet(root)
    with node:
        node.install()
        yield node
    shutil.rmtree(HOST, ignore_errors=True)


@contextmanager
def kubelets_process(*words: str, **environ: str) -> Iterator[None]:
    """Run a program with this command line: all that a process shows of a kubelet."""
    name, *arguments = words
    process = subprocess.Popen(
        [name, "-c", "read line", *arguments],
        executable="/bin/sh",
        stdin=subprocess.PIPE,
        env={**os.environ, **environ},
    )
    try:
        yield
    finally:
        process.communicate()


@contextmanager
def k3s_process(root: Path) -> Iterator[None]:
    """Run a program that shows of a kubelet what K3s does: a title in place of its command line, and the socket on which it listens."""
    socket = root / "pod-resources/kubelet.sock"
    socket.parent.mkdir(parents=True)
    # The simulated kubelet answers there, in another process. The kernel goes on to show the path.
    listens = "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); os.unlink(sys.argv[1]); print(flush=True); input()"
    words = ["/usr/local/bin/k3s server", "-c", listens, str(socket)]
    process = subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.communicate(b"\n")


def configure(**host: str) -> None:
    document = json.loads(CONFIGURATION.read_text())
    document["host"] |= host
    CONFIGURATION.write_text(json.dumps(document))


def test_pod_gets_its_rail_where_the_configuration_names_the_root() -> None:
    with a_node(K0S) as node:
        configure(kubelet=str(K0S))
        node.start_daemon()

        serve_pods(node)


def test_pod_gets_its_rail_where_the_running_kubelet_names_the_root() -> None:
    with a_node(K0S) as node, kubelets_process("/var/lib/k0s/bin/kubelet", f"--root-dir={K0S}"):
        node.start_daemon()

        serve_pods(node)


def test_pod_gets_its_rail_where_kubelets_file_of_arguments_names_the_root() -> None:
    file = HOST / "var/snap/microk8s/9072/args/kubelet"
    with a_node(MICROK8S) as node:
        file.parent.mkdir(parents=True)
        file.write_text("--root-dir=${SNAP_COMMON}/var/lib/kubelet\n")
        common = str(HOST / "var/snap/microk8s/common")
        with kubelets_process("/snap/microk8s/9072/kubelite", f"--kubelet-args-file={file}", SNAP_COMMON=common):
            node.start_daemon()

            serve_pods(node)


def test_pod_gets_its_rail_where_k3s_hides_its_arguments() -> None:
    with k3s_process(K3S), a_node(K3S) as node:
        node.start_daemon()

        serve_pods(node)


def test_readiness_names_the_folder_that_the_daemon_uses_while_kubelet_has_another() -> None:
    with a_node(K0S) as node:
        configure(kubelet="/run/nowhere")
        node.start_daemon(wait=False)

        until(lambda: "/run/nowhere/plugins_registry cannot be opened" in node.daemon.log(), _SECONDS, "the reason")

        assert node.kubelet.healthy(RESOURCE) == []


@pytest.mark.parametrize("folder", [None, "/run/nowhere"])
def test_plain_pod_starts_without_the_daemon_and_without_the_folder_of_device_plugins(folder: str | None) -> None:
    with a_node(K0S) as node:
        configure(kubelet=str(K0S), **({} if folder is None else {"devicePlugins": folder}))
        node.start_daemon()
        node.stop_daemon()
        shutil.rmtree("/var/lib/kubelet/device-plugins")

        pod = node.run_pod("plain")

        Path("/var/lib/kubelet/device-plugins").mkdir()
        node.remove_pod(pod)
