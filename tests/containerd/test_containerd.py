"""Pods of containerd 2, whose libcni supports CNI 1.1: configuration, STATUS, ADD, DEL, and libcni's cache."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import grpc
import pytest

from cni.host.chain import parse
from cni.primary_gc.state_files import StateFile, StateFolder
from cni.primary_gc.state_files import parse as parse_state_file
from railnet.kernel.foreign_state_files import entries
from railnet.kubelet import cri
from simnode.linux import empty_folders, libc
from simnode.linux.netns import run_inside
from simnode.preinstalled_files import CONFIGURATION, FlannelLease
from tests.charts.distributions import HOSTS
from tests.cluster.process import wait_until
from tests.containerd.conftest import ContainerdNode
from tests.containerd.runtime import SOCKET, Sandbox
from tests.node.distribution_paths import USUAL_BIN, USUAL_CONF, Paths, configure

LEASE = Path("/run/flannel/subnet.env")
PRIMARY = Path("/etc/cni/net.d/10-flannel.conflist")
RESULTS = Path("/var/lib/cni/results")
BRIDGE = {
    "type": "bridge",
    "bridge": "stub0",
    "isGateway": True,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/24"}]]},
}
PORTMAP = {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}


def links(netns: Path) -> set[str]:
    """Return the names of the links in a namespace."""
    lines = run_inside(netns, Path("/proc/thread-self/net/dev").read_text).splitlines()[2:]
    return {line.split(":")[0].strip() for line in lines}


def cached_state(sandbox: Sandbox) -> StateFile:
    """Return the facts about a sandbox in libcni's cache, as the daemon reads them."""
    folder = StateFolder("libcni", str(RESULTS))
    found = [
        parse_state_file(folder, entry, parse(PRIMARY.read_bytes(), "").name)
        for entry in entries(Path("/"), str(RESULTS))
    ]
    (trace,) = (trace for trace in found if trace is not None and trace.container_id == sandbox.container_id)
    return trace


def listed() -> frozenset[str]:
    return asyncio.run(cri.sandboxes(SOCKET, 10))


def cached(sandbox: Sandbox) -> dict[str, object]:
    """Return the result of ADD from libcni's cache."""
    (path,) = RESULTS.glob(f"*-{sandbox.container_id}-eth0")
    return json.loads(path.read_text())["result"]


def replace_primary(content: str) -> None:
    """Replace the primary network's configuration at once: runtime and daemon read the folder whenever it changes."""
    new = PRIMARY.with_suffix(".new")
    new.write_text(content)
    new.replace(PRIMARY)


@pytest.fixture
def no_lease() -> Iterator[None]:
    aside = LEASE.rename(LEASE.with_suffix(".aside"))
    yield
    aside.rename(LEASE)


@pytest.fixture(params=["0.4.0", "1.0.0"])
def other_primary(request: pytest.FixtureRequest, node: ContainerdNode) -> Iterator[str]:
    """Install a primary whose DEL gets the result of ADD. Yield its CNI version."""
    flannel, name = PRIMARY.read_text(), f"stubs-{request.param}"
    plugins = [BRIDGE, {"type": "tuning", "mtu": 1400}, PORTMAP]
    replace_primary(json.dumps({"cniVersion": request.param, "name": name, "plugins": plugins}))
    node.containerd.wait_for_network(name)
    yield request.param
    node.remove_all()
    replace_primary(flannel)
    node.containerd.wait_for_network("cbr0")


def test_runtime_is_containerd_2_and_uses_cni_version_1_1_0(node: ContainerdNode) -> None:
    assert node.containerd.version().startswith("containerd 2.")
    assert node.containerd.network() == ("cbr0", "1.1.0")


# STATUS.


@pytest.mark.parametrize("daemon", ["running", "absent"])
def test_node_is_ready_with_a_flannel_lease_even_without_the_daemon(node: ContainerdNode, daemon: str) -> None:
    if daemon == "absent":
        node.node.stop_daemon()

    assert node.containerd.why_not_ready() is None


def test_node_is_not_ready_without_a_lease_and_reports_the_reason(node: ContainerdNode, no_lease: None) -> None:
    why = node.containerd.why_not_ready()

    assert why is not None
    assert f"flannel has no lease for this node: {LEASE} cannot be read" in why


# ADD and DEL.


@pytest.mark.parametrize("daemon", ["running", "absent"])
def test_plain_pod_gets_flannels_result_in_flannels_cni_version(node: ContainerdNode, daemon: str) -> None:
    if daemon == "absent":
        node.node.stop_daemon()

    sandbox = node.run(node.admit("plain"))

    assert ip_address(sandbox.ip) in FlannelLease().subnet.network
    assert links(sandbox.netns) == {"lo", "eth0"}
    assert cached(sandbox)["cniVersion"] == "0.3.1"
    node.remove(sandbox)
    assert not list(RESULTS.glob("*"))


def test_pod_with_a_rail_has_net1_and_the_runtime_knows_only_eth0(node: ContainerdNode) -> None:
    sandbox = node.run(node.admit("train", vfs=1))

    assert links(sandbox.netns) == {"lo", "eth0", "net1"}
    assert ip_address(sandbox.ip) in FlannelLease().subnet.network
    assert [ip["address"].split("/")[0] for ip in cached(sandbox)["ips"]] == [sandbox.ip]


def test_annotations_of_a_pod_reach_railnet(node: ContainerdNode) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        node.run(node.admit("train", vfs=1), {"railnet.io/network": "elsewhere"})

    assert "elsewhere" in raised.value.details()
    wait_until(lambda: not list(RESULTS.glob("*")), 120, "the failed sandbox to be taken down")


@pytest.mark.parametrize("vfs", [0, 1])
def test_primarys_plugins_get_their_result_at_del(node: ContainerdNode, other_primary: str, vfs: int) -> None:
    sandbox = node.run(node.admit("mapped", vfs), host_ports=(8081,))
    assert cached(sandbox)["cniVersion"] == other_primary

    node.remove(sandbox)

    assert not list(Path("/var/lib/cni/networks").glob("stubs-*/10.*"))


# Leftovers of the primary network.


def test_runtime_lists_its_sandboxes(node: ContainerdNode) -> None:
    one, other = node.run(node.admit("one")), node.run(node.admit("other"))

    both = listed()
    node.remove(one)

    assert both == {one.container_id, other.container_id}
    assert listed() == {other.container_id}


def test_libcnis_cache_has_all_that_a_del_by_the_daemon_needs(node: ContainerdNode) -> None:
    sandbox = node.run(node.admit("mapped"), host_ports=(8082,))

    trace = cached_state(sandbox)

    assert trace.cached is not None
    assert (trace.ifname, [str(address) for address in trace.addresses]) == ("eth0", [sandbox.ip])
    assert trace.cached.sandboxes == (str(sandbox.netns),)
    assert trace.cached.pod == (sandbox.pod.namespace, sandbox.pod.name, sandbox.pod.uid)
    (mapping,) = trace.cached.runtime_config["portMappings"]
    assert mapping["HostPort"] == 8082  # containerd's form; plugins accept any case
    assert any(name.startswith("veth") for name, _ in trace.cached.host_links)


def test_live_pods_keep_their_state_when_leftovers_of_dead_pods_are_removed(node: ContainerdNode) -> None:
    one, other = node.run(node.admit("one")), node.run(node.admit("other"))
    addresses = Path("/var/lib/cni/networks/cbr0")
    lost = addresses / "10.244.3.250"
    lost.write_text("0ddba11\r\neth0")
    for path in (*addresses.glob("10.*"), *Path("/var/lib/cni/flannel").iterdir(), *RESULTS.iterdir()):
        os.utime(path, (time.time() - 100,) * 2)

    node.node.stop_daemon()
    node.node.start_daemon()
    wait_until(lambda: not lost.exists(), 150, "the lost address to be freed")  # at the start, and every minute

    assert {path.name for path in addresses.glob("10.*")} == {one.ip, other.ip}
    assert len(list(RESULTS.glob("cbr0-*"))) == 2


# Other CNI folders.


@pytest.fixture
def k3s(node: ContainerdNode) -> Iterator[Paths]:
    """Have the runtime's folders where K3s has them, and Railnet after them; then where they were before."""
    before, paths = CONFIGURATION.read_bytes(), Paths({key: HOSTS["k3s"][key] for key in ("cniConf", "cniBin")})
    empty_folders.mount_empty(Path("/var/lib/rancher"))
    node.node.stop_daemon()
    paths.make()
    configure({"cri": str(SOCKET), **paths.host})
    _move_to(node, (paths.conf, paths.bin))
    yield paths
    node.remove_all()
    node.node.stop_daemon()
    paths.undo()
    CONFIGURATION.write_bytes(before)
    _move_to(node, None)
    libc.unmount("/var/lib/rancher")


def _move_to(node: ContainerdNode, folders: tuple[Path, Path] | None) -> None:
    node.containerd.look_in(folders)
    node.node.install()
    node.node.start_daemon()
    node.containerd.wait_for_network("cbr0")


def test_runtime_with_the_folders_of_k3s_runs_pods_with_a_rail_and_without(node: ContainerdNode, k3s: Paths) -> None:
    plain, train = node.run(node.admit("plain")), node.run(node.admit("train", vfs=1))
    # The usual folders are left when the runtime has used the others.
    wait_until(lambda: not (USUAL_BIN / ".railnet").exists(), 60, "the end of the files in the usual folders")

    assert (links(plain.netns), links(train.netns)) == ({"lo", "eth0"}, {"lo", "eth0", "net1"})
    assert (k3s.ours.is_file(), k3s.executable.is_file(), (USUAL_CONF / k3s.ours.name).exists()) == (True, True, False)
    node.remove_all()
    node.node.stop_daemon()
    node.remove(node.run(node.admit("plain")))


# Restarts.


def test_pods_survive_a_restart_of_the_runtime_and_can_be_removed_after_it(node: ContainerdNode) -> None:
    plain, train = node.run(node.admit("plain")), node.run(node.admit("train", vfs=1))

    node.containerd.restart()

    assert (links(plain.netns), links(train.netns)) == ({"lo", "eth0"}, {"lo", "eth0", "net1"})
    node.remove_all()


def test_del_without_a_daemon_succeeds_and_the_next_daemon_returns_the_vf(node: ContainerdNode) -> None:
    train = node.run(node.admit("train", vfs=1))
    node.node.stop_daemon()

    node.remove(train)

    assert not list(RESULTS.glob("*"))


def test_pod_with_a_rail_is_refused_without_a_daemon(node: ContainerdNode) -> None:
    pod = node.admit("train", vfs=1)
    node.node.stop_daemon()

    with pytest.raises(grpc.RpcError) as raised:
        node.run(pod)

    assert "Railnet's daemon did not answer within 5 s" in raised.value.details()
