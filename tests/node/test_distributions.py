"""Whole nodes with the paths of each distribution, as the chart has them; and CNI folders that change, that are links, and that are wrong."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from railnet.cli.exit_status import ExitStatus
from simnode.kubernetes.cri import SOCKET, CriEndpoint
from simnode.kubernetes.kubelet import Kubelet
from simnode.kubernetes.runtime import Runtime
from simnode.linux import empty_folders, libc
from simnode.node import Node
from simnode.preinstalled_files import CONFIGURATION
from tests.charts.distributions import HOSTS
from tests.node.distribution_paths import FOLDERS, USUAL_BIN, USUAL_CONF, Paths, configure
from tests.node.primaries import node_links
from tests.node.rail_and_plain_pods import serve_pods
from tests.waiting import until

_SECONDS = 60
_LEAVE_SECONDS = 2.0  # a former folder is left a second after its requests have ended, and a look at these takes one


@pytest.fixture(autouse=True)
def _folders_of_distributions() -> Iterator[None]:
    with ExitStack() as mounted:
        for folder in FOLDERS:
            empty_folders.mount_empty(folder)
            mounted.callback(libc.unmount, str(folder))
        yield


@contextmanager
def a_node(host: dict[str, str]) -> Iterator[tuple[Node, Paths]]:
    """Run a node whose kubelet and runtime have the paths of `host`; Railnet is configured, and not installed."""
    paths = Paths(host)
    node = Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2)
    node.runtime = Runtime(paths.conf, paths.bin)
    node.runtime.remembers = "crio" in str(paths.cri)
    if "kubelet" in host:
        node.kubelet = Kubelet(Path(host["kubelet"]))
    with ExitStack() as stack:
        stack.enter_context(node)
        paths.make()
        if paths.cri != SOCKET:
            stack.enter_context(CriEndpoint(node.runtime.listed, paths.cri))
        configure({"cri": str(paths.cri), **host})
        yield node, paths


def railnet(command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "railnet", command, "--config", str(CONFIGURATION)]
    return subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)


def files() -> dict[str, bytes | str]:
    """Return the files and links of all folders in which distributions have CNI configurations and plugins, and of Railnet's own."""
    roots = (*FOLDERS, USUAL_CONF, USUAL_BIN, Path("/var/lib/cni"), Path("/var/lib/railnet"), Path("/run/railnet"))
    return {str(path): _content(path) for root in roots for path in sorted(root.rglob("*")) if not _is_kubelets(path)}


def _content(path: Path) -> bytes | str:
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else ""


def _is_kubelets(path: Path) -> bool:
    """Return whether other programs than Railnet change it: kubelet, flannel's plugins, and libcni, which keeps its folders."""
    return (
        "kubelet" in path.parts
        or path.is_socket()
        or path.name in ("networks", "flannel", "results", "cache", "cbr0")
        or (path.name in ("last_reserved_ip.0", "lock"))
    )


def bridges() -> list[str]:
    return [name for name in node_links() if name.startswith("veth")]


@pytest.mark.parametrize("distribution", HOSTS)
def test_node_of_a_distribution_is_served_and_keeps_nothing_of_railnet(distribution: str) -> None:
    with a_node(HOSTS[distribution]) as (node, paths):
        before = files()
        node.install()
        node.start_daemon()
        written = paths.ours.is_file(), paths.executable.is_file()

        serve_pods(node)

        done = railnet("uninstall")
        assert written == (True, True)
        assert done.returncode == 0, done.stderr
        assert files() == before
        assert bridges() == []


@pytest.mark.parametrize("remembers", [False, True], ids=["containerd", "CRI-O"])
def test_folders_that_are_configured_no_more_keep_nothing_and_running_pods_are_taken_down(remembers: bool) -> None:
    with a_node({}) as (node, usual):
        node.runtime.remembers = remembers
        node.install()
        node.start_daemon()
        rail, plain = node.run_pod("train", vfs=1), node.run_pod("plain")
        node.stop_daemon()
        before = files()
        moved = Paths({key: HOSTS["k3s"][key] for key in ("cniConf", "cniBin")})
        moved.make()
        shutil.copy(moved.primary, usual.primary)  # CRI-O's DEL has the configuration of ADD, which names this file
        node.runtime.look_in(moved.conf, moved.bin)
        configure({"cri": str(SOCKET), **moved.host})

        node.install()
        node.start_daemon()
        without_a_request = usual.ours.exists(), usual.executable.exists()
        node.remove_pod(node.run_pod("first"))
        until(lambda: not (usual.bin / ".railnet").exists(), _SECONDS, "the end of the files in the former folders")

        assert without_a_request == (True, True)
        assert (usual.ours.exists(), usual.executable.exists(), moved.ours.is_file()) == (False, False, True)
        node.remove_pod(rail)
        node.remove_pod(plain)
        serve_pods(node)
        done = railnet("uninstall")
        assert done.returncode == 0, done.stderr
        assert [path for path in files() if "railnet" in path] == []
        assert [path for path in before if "railnet" in path] != []


def test_former_folder_of_plugins_stays_while_the_runtime_looks_in_it() -> None:
    """The configured folder has plugins, so it looks right; but the runtime has not this one."""
    with a_node({}) as (node, usual):
        node.install()
        node.start_daemon()
        node.stop_daemon()
        wrong = Path("/var/snap/bin")
        shutil.copytree(usual.bin, wrong, ignore=shutil.ignore_patterns("*railnet"))
        configure({"cri": str(SOCKET), "cniBin": str(wrong)})

        node.install()
        node.start_daemon()
        pods = [node.run_pod("plain"), node.run_pod("train", vfs=1)]
        time.sleep(3 * _LEAVE_SECONDS)
        for pod in pods:
            node.remove_pod(pod)
        serve_pods(node)

        assert (usual.executable.exists(), (wrong / "railnet").exists()) == (True, True)


def test_uninstall_leaves_nothing_in_folders_that_were_configured_before() -> None:
    with a_node(HOSTS["k3s"]) as (node, paths):
        before = files()
        node.install()
        node.start_daemon()
        node.stop_daemon()
        shutil.copy(paths.primary, USUAL_CONF)
        configure({"cri": str(SOCKET)})

        done = railnet("uninstall")

        (USUAL_CONF / paths.primary.name).unlink()
        assert done.returncode == 0, done.stderr
        assert files() == before


def test_usual_folder_that_is_a_link_to_the_runtimes_keeps_its_files() -> None:
    with a_node(HOSTS["k3s"]) as (node, paths):
        (USUAL_CONF).rmdir()
        USUAL_CONF.symlink_to(paths.conf)
        node.install()
        node.start_daemon()

        serve_pods(node)

        assert paths.ours.is_file()
        USUAL_CONF.unlink()
        USUAL_CONF.mkdir()


def test_folders_behind_absolute_links_are_served() -> None:
    conf, plugins = Path("/var/snap/conf"), Path("/var/snap/bin")
    with a_node({"cniConf": "/var/snap/real/conf", "cniBin": "/var/snap/real/bin"}) as (node, real):
        conf.symlink_to(real.conf)
        plugins.symlink_to(real.bin)
        configure({"cri": str(SOCKET), "cniConf": str(conf), "cniBin": str(plugins)})
        node.install()
        node.start_daemon()

        serve_pods(node)

        assert (conf.is_symlink(), real.ours.is_file(), real.executable.is_file()) == (True, True, True)


def test_installation_names_a_folder_of_plugins_that_does_not_exist_and_changes_nothing() -> None:
    with a_node({}) as (node, _):
        node.install()
        before = files()
        configure({"cri": str(SOCKET), "cniBin": "/var/lib/rancher/k3s/data/cni"})

        done = railnet("install")

        assert done.returncode == ExitStatus.MISCONFIGURED
        assert "host.cniBin is /var/lib/rancher/k3s/data/cni, which is no folder of this host" in done.stderr
        assert files() == before


def test_daemon_waits_for_configurations_and_names_the_folder_that_does_not_exist() -> None:
    with a_node({}) as (node, _):
        node.install()
        configure({"cri": str(SOCKET), "cniConf": "/var/snap/nothing"})
        node.start_daemon(wait=False)

        until(lambda: "/var/snap/nothing has no CNI configuration" in node.daemon.log(), _SECONDS, "the reason")

        assert "(this host has no such folder)" in node.daemon.log()
        assert "host.cniConf" in node.daemon.log()


def test_runtime_goes_on_without_railnet_if_the_configured_folder_of_plugins_is_not_the_runtimes() -> None:
    with a_node(HOSTS["k3s"]) as (node, paths):
        Path("/var/snap/bin").mkdir()
        configure({**paths.host, "cniBin": "/var/snap/bin"})
        node.install()
        node.start_daemon(wait=False)

        until(lambda: "host.cniBin is /var/snap/bin" in node.daemon.log(), _SECONDS, "the reason")

        pod = node.run_pod("plain")
        node.remove_pod(pod)
        assert not paths.ours.exists()
