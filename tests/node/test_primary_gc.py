"""What dead pods left of the primary network is taken back by the real flannel, bridge and host-local; other pods keep theirs."""

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simnode.kubernetes import cri
from simnode.linux import netns
from simnode.node import Node, Pod
from simnode.waiting import wait_until
from tests.node.primaries import OURS, PLUGINS, RUN, node_links, write_primary, write_stub
from tests.node.test_cni_1_1 import invoke, listed
from tests.node.test_flannel import FAILS_ONCE

CNI = Path("/var/lib/cni")
ADDRESSES, STATES, RESULTS = CNI / "networks/cbr0", CNI / "flannel", CNI / "results"
LONG_AGO = 100.0  # seconds: longer than the 90 of an ADD, and shorter than the uptime of a machine that has just booted
SWEPT_SECONDS = 90.0
MAPPING = {"portMappings": [{"hostPort": 8123, "containerPort": 80, "protocol": "tcp"}]}


def traces(container_id: str) -> list[Path]:
    """Return the files of the primary's plugins and of libcni that belong to a container."""
    files = [path for folder in ("networks/*", "flannel", "results") for path in CNI.glob(f"{folder}/*")]
    return [path for path in files if container_id in path.name or container_id in text(path)]


def text(path: Path) -> str:
    """Return the content of a file; it is empty if a sweep has just removed the file."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def mapped() -> bool:
    """Return whether the packet filter has rules for the mapped port."""
    return "8123" in subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout


def age(container_id: str, seconds: float = LONG_AGO) -> None:
    for path in traces(container_id):
        os.utime(path, (time.time() - seconds,) * 2)


def old(node: Node, name: str, vfs: int = 0, **runtime_config: object) -> Pod:
    """Run a pod whose ADD began longer ago than any ADD may take."""
    pod = node.run_pod(name, vfs, capability_args=runtime_config)
    age(pod.container_id)
    return pod


def dead(node: Node, name: str, vfs: int = 0, **runtime_config: object) -> Pod:
    """Let a pod die long after its start, without a DEL. The runtime does not list it any more."""
    pod = old(node, name, vfs, **runtime_config)
    node.destroy_netns(pod)
    node.kubelet.remove(pod.identity)
    assert traces(pod.container_id)
    return pod


def cbr0_of(plugin: dict[str, object], **keys: object) -> None:
    """Make this plugin the primary network, with the network name of Railnet's configuration."""
    write_primary(json.dumps({"cniVersion": "0.4.0", "name": "cbr0", **keys, "plugins": [plugin]}))


@pytest.fixture(autouse=True)
def silent(node: Node) -> Iterator[Path]:
    """Move the runtime's socket away, so that no sweep takes back what a test makes in this boot, and return the new path."""
    aside = cri.SOCKET.rename(cri.SOCKET.with_suffix(".aside"))
    yield aside
    if aside.exists():
        aside.rename(cri.SOCKET)


def sweep(node: Node, silent: Path) -> None:
    """Restart the daemon with a runtime that answers: the daemon sweeps at its start."""
    node.stop_daemon()
    silent.rename(cri.SOCKET)
    node.start_daemon()


def is_taken_back(pod: Pod) -> None:
    lock = RUN / "lock" / f"{pod.container_id}@eth0"  # the lock is removed last

    def is_over() -> bool:
        return not traces(pod.container_id) and not lock.exists()

    wait_until(is_over, SWEPT_SECONDS, f"the removal of what {pod.name} left")


def test_sweep_takes_back_what_dead_pods_left_and_touches_no_other_pod(node: Node, silent: Path) -> None:
    plain, train = dead(node, "dead"), dead(node, "dead-train", vfs=1)
    forgotten = old(node, "forgotten-by-the-runtime")  # as a pod of another client of the runtime
    node.runtime._listed.discard(forgotten.container_id)
    (RESULTS / f"cbr0-{forgotten.container_id}-eth0").unlink()  # only its address shows that it lives
    remembered = old(node, "remembered")
    netns.remove(remembered.netns)
    young = node.run_pod("young")
    node.runtime._listed.discard(young.container_id)
    netns.remove(young.netns)
    alive = (forgotten, remembered, young)
    before = [traces(pod.container_id) for pod in alive]

    sweep(node, silent)
    is_taken_back(plain)
    is_taken_back(train)

    assert [traces(pod.container_id) for pod in alive] == before
    assert not [path for path in (RUN / "lock").iterdir() if "@" in path.name]
    for pod in alive:
        node.kubelet.remove(pod.identity)
        node.runtime.delete(pod.sandbox)
        node.runtime._sandboxes.pop(pod.container_id)
    netns.remove(forgotten.netns)


def test_port_mappings_that_libcni_has_forgotten_go_with_the_rest(node: Node, silent: Path) -> None:
    web = dead(node, "web", **MAPPING)
    (RESULTS / f"cbr0-{web.container_id}-eth0").unlink()
    was = mapped()

    sweep(node, silent)
    is_taken_back(web)

    assert was
    assert not mapped()


# A reboot.


@pytest.fixture
def other_networks() -> Iterator[list[Path]]:
    """Write state files of other networks that are older than the boot, and a file of unknown origin."""
    content = {
        CNI / "networks/other/10.9.9.9": "0ddba11\r\neth0",
        STATES / "0ddba11": '{"name": "other", "type": "bridge"}',
        RESULTS / "other-0ddba11-eth0": '{"kind": "cniCacheV1", "networkName": "other", "containerId": "0ddba11"}',
        ADDRESSES / "README": "odd",
    }
    for path, text in content.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1, 1))
    yield list(content)
    for path in content:
        path.unlink()
    (CNI / "networks/other").rmdir()


def test_state_that_is_older_than_the_boot_is_taken_back(node: Node, other_networks: list[Path]) -> None:
    lost = dead(node, "lost", **MAPPING)
    (STATES / lost.container_id).rename(STATES / f".{lost.container_id}.railnet")  # its DEL was killed
    ownerless, broken = ADDRESSES / "10.244.3.250", STATES / "decafbad"
    ownerless.touch()
    broken.write_text('{"na')
    # The node does not have the delegate that this state names.
    undeletable = STATES / "decafbed", ADDRESSES / "10.244.3.251"
    for path, text in zip(undeletable, ('{"name": "cbr0", "type": "stub-gone"}', "decafbed\r\neth0"), strict=True):
        path.write_text(text)
    alive = node.run_pod("alive")  # the clock was set after the start of this pod
    node.runtime._listed.add(lost.container_id)
    without_owner = (ownerless, broken, *undeletable)
    for path in (*without_owner, *traces(lost.container_id), *traces(alive.container_id)):
        os.utime(path, (86400, 86400))
    before = traces(alive.container_id)

    node.stop_daemon()
    node.start_daemon()
    is_taken_back(lost)
    wait_until(
        lambda: not any(path.exists() for path in without_owner),
        SWEPT_SECONDS,
        "the removal of all state without an owner",
    )

    node.runtime._listed.discard(lost.container_id)
    assert traces(alive.container_id) == before
    assert all(path.exists() for path in other_networks)
    assert not mapped()
    node.remove_pod(alive)


def test_plugin_that_hangs_for_a_dead_pod_has_its_lock_and_ends_with_the_daemon(node: Node, silent: Path) -> None:
    lost = dead(node, "lost")
    flannel, begun = PLUGINS / "flannel", Path("/run/stub-begun")
    aside = flannel.rename(flannel.with_suffix(".aside"))
    write_stub("flannel", f"readlink /proc/$$/fd/* > {begun}.tmp; mv {begun}.tmp {begun}; exec sleep 60")
    try:
        sweep(node, silent)
        wait_until(begun.exists, SWEPT_SECONDS, "the start of its DEL")
        status = node.stop_daemon()
    finally:
        aside.replace(flannel)
    node.start_daemon()

    is_taken_back(lost)
    assert (
        status == 0
    )  # a daemon that goes on for half a minute after SIGTERM is killed, and the plugin would hang for a minute
    assert str(RUN / "lock" / f"{lost.container_id}@eth0") in begun.read_text().split()


# The runtime does not answer.


def test_nothing_of_this_boot_is_taken_back_while_the_runtime_does_not_answer(node: Node, silent: Path) -> None:
    lost = dead(node, "lost")
    node.stop_daemon()
    warnings = node.daemon.log().count("host.cri")

    node.start_daemon()
    wait_until(lambda: node.daemon.log().count("host.cri") > warnings, SWEPT_SECONDS, "the warning")
    kept = traces(lost.container_id)
    sweep(node, silent)

    is_taken_back(lost)
    assert len(kept) == 3


# GC.


def test_gc_takes_back_what_is_not_listed(node: Node) -> None:
    ours, conflist = dead(node, "ours"), OURS.read_bytes()
    OURS.unlink()
    before_the_install, lost_before = old(node, "before-the-install"), dead(node, "lost-before-the-install")
    OURS.write_bytes(conflist)
    listed_ = dead(node, "listed")
    young = node.run_pod("young")
    kept = [traces(pod.container_id) for pod in (before_the_install, listed_, young)]

    answer = invoke(node, "GC", **listed(before_the_install, listed_))

    assert (answer.status, answer.stdout) == (0, b"")
    assert traces(ours.container_id) == traces(lost_before.container_id) == []
    assert [traces(pod.container_id) for pod in (before_the_install, listed_, young)] == kept
    node.remove_pod(before_the_install)
    node.remove_pod(young)
    assert invoke(node, "GC", **listed()).status == 0
    assert traces(listed_.container_id) == []


def test_gc_of_a_runtime_that_shares_the_network_collects_nothing_of_this_boot(node: Node) -> None:
    bridge = {"type": "bridge", "bridge": "stub0", "isGateway": True}
    primary = {**bridge, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]}}
    cbr0_of(primary)
    others = dead(node, "others")
    cbr0_of(primary, disableGC=True)

    assert invoke(node, "GC", **listed()).status == 0
    kept = traces(others.container_id)
    cbr0_of(primary)
    assert invoke(node, "GC", **listed()).status == 0

    assert [path.parent for path in kept] == [ADDRESSES, RESULTS]
    assert traces(others.container_id) == []


def test_container_whose_lock_is_held_is_left_alone(node: Node) -> None:
    pod = dead(node, "dead")
    path = RUN / f"lock/{pod.container_id}@eth0"

    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert invoke(node, "GC", **listed()).status == 0
        kept = traces(pod.container_id)
    assert invoke(node, "GC", **listed()).status == 0

    assert len(kept) == 3
    assert traces(pod.container_id) == []


def test_container_whose_add_takes_too_long_is_left_alone(node: Node) -> None:
    began, go_on = Path("/run/stub-began"), Path("/run/stub-go-on")
    wait = f"touch {began}; until [ -e {go_on} ]; do sleep 0.05; done"
    write_stub("stub", f"[ $CNI_COMMAND = ADD ] && {{ {wait}; }}; exec /opt/cni/bin/bridge")
    cbr0_of({"type": "flannel", "delegate": {"type": "stub", "isGateway": True}})

    with ThreadPoolExecutor(1) as kubelet:
        starting = kubelet.submit(node.run_pod, "starting")
        wait_until(began.exists, 20, "the start of the delegate")
        (state,) = STATES.iterdir()
        age(state.name)
        answer = invoke(node, "GC", **listed())
        kept = traces(state.name)
        go_on.touch()
        pod = starting.result(60)

    node.remove_pod(pod)
    assert (answer.status, kept) == (0, [state])


def test_failed_del_is_reported_and_tried_again_with_the_same_configuration(node: Node) -> None:
    write_stub("stub", FAILS_ONCE)
    cbr0_of({"type": "flannel", "delegate": {"type": "stub", "isGateway": True}})
    pod = dead(node, "dead")

    failed = invoke(node, "GC", **listed())
    kept = traces(pod.container_id)
    again = invoke(node, "GC", **listed())

    assert (failed.status, "not today" in json.loads(failed.stdout)["msg"]) == (1, True)
    assert len(kept) == 3
    assert (again.status, traces(pod.container_id)) == (0, [])


def test_veth_of_a_dead_pod_is_deleted_while_a_process_keeps_the_namespace_open(node: Node) -> None:
    pod, other = old(node, "kept"), old(node, "other")
    fd = os.open(pod.netns, os.O_RDONLY)
    node.destroy_netns(pod)
    node.kubelet.remove(pod.identity)
    veths = {name for name in node_links() if name.startswith("veth")}

    answer = invoke(node, "GC", **listed(other))

    left = {name for name in node_links() if name.startswith("veth")}
    os.close(fd)
    node.remove_pod(other)
    interfaces = {one["name"] for one in json.loads(other.result)["interfaces"]}
    assert answer.status == 0
    assert (len(veths), left) == (2, veths & interfaces)
