"""Installers of service meshes append their plugin to the configurations of a node with Railnet: each pod gets each plugin once."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.node import RESOURCE, Node, Pod
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until
from tests.node.mesh_installers import (
    CLEAN_WHENEVER_THEY_END,
    INSTALLERS,
    RECORD,
    Installer,
    LinkerdInstaller,
    calls,
    types,
)
from tests.node.primaries import PLUGINS

NETWORKS = Path("/etc/cni/net.d")
OURS, FLANNEL = NETWORKS / "00-railnet.conflist", NETWORKS / "10-flannel.conflist"
SORTS_FIRST = "istio's own file, first"
PODS = 15


@pytest.fixture
def node() -> Iterator[Node]:
    """Provide a node with flannel, and without Railnet."""
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), vfs=2) as node:
        yield node
        RECORD.unlink(missing_ok=True)


@pytest.fixture(params=list(INSTALLERS))
def installer(request: pytest.FixtureRequest, node: Node) -> Iterator[Installer]:
    installer = {**INSTALLERS, **CLEAN_WHENEVER_THEY_END}[request.param]()
    yield installer
    installer.stop()


def install(node: Node) -> None:
    node.install()
    node.start_daemon()


def settled(*kinds: str) -> None:
    """Wait until Railnet's conflist has Railnet and these plugins, and stays so for two looks of the daemon."""

    wait_until(lambda: OURS.exists() and types(OURS) == ["railnet", *kinds] and _rests(), 30, f"{kinds} in {OURS}")


def _rests() -> bool:
    before = OURS.stat().st_mtime_ns
    time.sleep(2.2)
    return OURS.exists() and OURS.stat().st_mtime_ns == before


def run_pods(node: Node, name: str, count: int = PODS) -> list[Pod]:
    return [node.run_pod(f"{name}-{number}") for number in range(count)]


def assert_once(kind: str, command: str, pods: list[Pod]) -> None:
    counted = calls(kind, command)
    assert {pod.name: counted.get(pod.container_id, 0) for pod in pods} == {pod.name: 1 for pod in pods}


@pytest.mark.parametrize(
    ("installer", "first"),
    [
        (name, first)
        for name in INSTALLERS
        for first in ("railnet", "installer")
        if (name, first) != (SORTS_FIRST, "installer")
    ],
    indirect=["installer"],
)
def test_each_pod_gets_the_plugin_once_while_both_start_again(node: Node, installer: Installer, first: str) -> None:
    steps = [lambda: install(node), installer.start]
    for step in steps if first == "railnet" else reversed(steps):
        step()
        time.sleep(1.5)
    settled(installer.kind)

    def start_both_again() -> None:
        for _ in range(2):
            node.stop_daemon()
            installer.stop()
            installer.start()
            node.start_daemon()

    restarting = threading.Thread(target=start_both_again)
    restarting.start()
    pods = run_pods(node, "during")
    while restarting.is_alive():
        pods += run_pods(node, f"more-{len(pods)}", 1)
    restarting.join()
    settled(installer.kind)
    for pod in pods:
        node.remove_pod(pod)

    assert_once(installer.kind, "ADD", pods)
    assert_once(installer.kind, "DEL", pods)


@pytest.mark.parametrize("first", ["railnet", "installer"])
def test_list_of_version_0_3_0_that_linkerd_makes_of_a_single_plugin_serves_pods_with_and_without_a_rail(
    node: Node, first: str
) -> None:
    single = {"cniVersion": "0.3.1", "name": "cbr0", "type": "flannel", "delegate": {"isDefaultGateway": True}}
    FLANNEL.unlink()
    FLANNEL.with_suffix(".conf").write_text(json.dumps(single))
    linkerd = LinkerdInstaller()
    steps = [lambda: install(node), linkerd.start]
    for step in steps if first == "railnet" else reversed(steps):
        step()
    settled("linkerd-cni")

    pods = [*run_pods(node, "plain", 2), node.run_pod("train", vfs=1)]
    node.stop_daemon()
    pods += run_pods(node, "alone", 1)
    node.start_daemon()
    linkerd.stop()
    for pod in pods:
        node.remove_pod(pod)

    written = json.loads(FLANNEL.read_bytes())["cniVersion"], json.loads(OURS.read_bytes())["cniVersion"]
    assert written == ("0.3.0", "0.3.0")
    assert_once("linkerd-cni", "ADD", pods)
    assert_once("linkerd-cni", "DEL", pods)


def test_plugin_goes_with_its_installer(node: Node, installer: Installer) -> None:
    install(node)
    installer.start()
    settled(installer.kind)
    before = run_pods(node, "before", 3)

    installer.remove()
    settled()
    after = run_pods(node, "after", 3)
    for pod in (*before, *after):
        node.remove_pod(pod)

    assert_once(installer.kind, "ADD", before)
    assert calls(installer.kind, "ADD").keys() == {pod.container_id for pod in before}


@pytest.mark.parametrize("first", ["railnet", "installer"])
@pytest.mark.parametrize("installer", list(CLEAN_WHENEVER_THEY_END), indirect=True)
def test_installer_that_cleans_up_whenever_it_ends_gives_each_pod_its_plugin_once(
    node: Node, installer: Installer, first: str
) -> None:
    steps = [lambda: install(node), installer.start]
    for step in steps if first == "railnet" else reversed(steps):
        step()
        time.sleep(1.5)
    settled(installer.kind)
    pods = run_pods(node, "before", 3)

    installer.stop()
    settled()
    node.stop_daemon()
    installer.start()
    node.start_daemon()
    settled(installer.kind)
    pods += run_pods(node, "after", 3)
    for pod in pods:
        node.remove_pod(pod)
    installer.remove()
    settled()
    without = run_pods(node, "without", 2)
    for pod in without:
        node.remove_pod(pod)

    assert_once(installer.kind, "ADD", pods)
    assert_once(installer.kind, "DEL", pods)
    assert calls(installer.kind, "ADD").keys() == {pod.container_id for pod in pods}


def test_istio_that_was_first_and_started_again_leaves_no_plugin_behind(node: Node) -> None:
    """Its clean-up is of the file that it wrote last. The other file still names its executable, which is gone."""
    installer = INSTALLERS["istio"]()
    installer.start()
    time.sleep(0.5)
    install(node)
    settled("istio-cni")
    installer.stop()
    installer.start()
    settled("istio-cni")

    installer.remove()
    settled()
    stale = types(FLANNEL)
    pods = run_pods(node, "after", 3)
    for pod in pods:
        node.remove_pod(pod)

    assert "istio-cni" in stale
    assert calls("istio-cni", "ADD") == {}


def test_istios_own_file_that_sorts_first_calls_railnet_when_its_installer_starts_again(node: Node) -> None:
    installer = INSTALLERS[SORTS_FIRST]()
    installer.start()
    time.sleep(0.5)
    node.install()
    node.start_daemon(wait=False)
    wait_until(lambda: "it takes 00-istio-cni.conflist" in node.daemon.log(), 30, "a warning")
    installer.stop()

    installer.start()
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, 60)
    pods = run_pods(node, "pod", 3)
    installer.stop()
    for pod in pods:
        node.remove_pod(pod)

    assert_once("istio-cni", "ADD", pods)


def test_uninstall_of_railnet_leaves_the_plugin_to_the_primary(node: Node, installer: Installer) -> None:
    install(node)
    installer.start()
    settled(installer.kind)
    before = run_pods(node, "before", 3)
    node.stop_daemon()

    ended = subprocess.run(
        [sys.executable, "-m", "railnet", "uninstall", "--config", str(CONFIGURATION)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    after = run_pods(node, "after", 3)
    files = [path.read_text() for path in NETWORKS.glob("*.conf*")]
    for pod in (*before, *after):
        node.remove_pod(pod)

    assert ended.returncode == 0, ended.stderr
    assert not (PLUGINS / "railnet").exists()
    assert [content for content in files if "railnet" in content] == []
    assert {"flannel", "portmap", installer.kind} == {
        plugin.plugin for pod in after for plugin in pod.added.invocations
    }
    assert_once(installer.kind, "ADD", [*before, *after])
    assert_once(installer.kind, "DEL", [*before, *after])


def test_two_meshes_and_a_persons_plugin_live_on_one_node(node: Node) -> None:
    install(node)
    istio, linkerd = INSTALLERS["istio"](), LinkerdInstaller()
    istio.start()
    linkerd.start()
    wait_until(lambda: {"istio-cni", "linkerd-cni"} <= set(types(OURS)), 10, "both plugins")
    istio.stop()
    conf = json.loads(OURS.read_bytes())
    conf["plugins"].append({"type": "tuning", "sysctl": {"net.core.somaxconn": "511"}})
    OURS.with_name("person").write_text(json.dumps(conf))
    OURS.with_name("person").rename(OURS)
    wait_until(lambda: "tuning" in types(OURS) and _rests(), 20, "an end of the writes")

    pods = run_pods(node, "pod", 3)
    linkerd.stop()
    for pod in pods:
        node.remove_pod(pod)

    assert sorted(types(OURS)) == ["istio-cni", "linkerd-cni", "railnet", "tuning"]
    for kind in ("istio-cni", "linkerd-cni"):
        assert_once(kind, "ADD", pods)
        assert_once(kind, "DEL", pods)


def test_installer_that_writes_the_file_each_second_costs_no_pod_its_plugin(node: Node) -> None:
    install(node)
    end = threading.Event()
    installer = INSTALLERS["istio"]()
    installer.start()
    settled("istio-cni")
    installer.stop()

    def write_again_and_again() -> None:
        while not end.wait(1):
            OURS.with_name("again").write_bytes(OURS.read_bytes())
            OURS.with_name("again").rename(OURS)

    writing = threading.Thread(target=write_again_and_again)
    writing.start()
    wait_until(lambda: "times within a minute" in node.daemon.log(), 20, "a warning")
    pods = run_pods(node, "pod", 3)
    time.sleep(6)
    end.set()
    writing.join()
    for pod in pods:
        node.remove_pod(pod)

    assert node.daemon.log().count("times within a minute") == 1
    assert_once("istio-cni", "ADD", pods)
