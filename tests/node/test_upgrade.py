"""Each old version of Railnet is upgraded to this checkout while pods run, and this checkout is rolled back to each old version.

Each test starts with one version on the node and ends with the other, in both directions. So each version reads what the other
has written: the journal, the frames of the socket, the configuration list, the locks. Meanwhile executables of one version meet
the daemon of the other. That is tested for each old version; an update that meets requests, a dead daemon or a half-written
primary network is tested for the newest alone, because a test waits for several sweeps of the daemon.
"""

import json
import os
import signal
import sys
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from railnet.vf.rail_memory import FILE, encode
from simnode.daemon_process import Daemon
from simnode.hardware.pf_properties import SimulatedPf
from simnode.judge.invariants import violations
from simnode.judge.node_state import NodeState
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed, Invocation
from simnode.node import RESOURCE, Node, Pod
from simnode.preinstalled_files import CONFIGURATION
from simnode.waiting import wait_until
from tests.node.primaries import PLUGINS, RUN
from tests.node.versions import CHECKOUT, OLD_COMMITS, Version, extract

pytestmark = pytest.mark.long_module

NETWORKS = Path("/etc/cni/net.d")
OURS, FLANNEL = NETWORKS / "00-railnet.conflist", NETWORKS / "10-flannel.conflist"
FOLDERS = PLUGINS / ".railnet"
JOURNAL, QUARANTINE = RUN / "journal", RUN / "quarantine"
GATES = Path("/run/gates")
RAILS = Path(FILE)
PFS = (SimulatedPf(), SimulatedPf(PciAddress(0, 0x0C, 0, 0), Guid(0xB8599F0300F98F10), "ibs6"))
VFS = 4  # of each PF
KINDS = {"plain": 0, "one-rail": 1, "two-rails": 2, "leased": 1}  # how many VFs each kind of pod has
LEASED = {"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.61.0.0/24"}]]}}
TRY_AGAIN, NOT_PERMITTED = 11, 104  # CNI's error code, and Railnet's
TIMEOUTS = {"delegate": "100s", "add": "200s", "daemon": "100s"}  # no request of a test may end by a time limit

# A plugin that passes the result on. It waits as long as there is a gate for the pod and the command, and writes to the gate.
# It makes no file: a plugin that a new daemon starts may still be here when the gate goes, and would leave the file behind.
GATE = f"""#!{sys.executable} -I
import contextlib, json, os, pathlib, sys, time

configuration, command = json.load(sys.stdin), os.environ["CNI_COMMAND"]
pod = dict(pair.split("=") for pair in os.environ["CNI_ARGS"].split(";"))["K8S_POD_NAME"]
gate = pathlib.Path("{GATES}", f"{{pod}} {{command}}")
with contextlib.suppress(FileNotFoundError):
    while True:
        with gate.open("r+") as file:
            file.write("reached")
        time.sleep(0.02)
if command == "ADD":
    print(json.dumps(configuration["prevResult"]))
"""


@dataclass(frozen=True)
class Change:
    """A node that one version serves, and the version that follows.

    `at_rest` is the state of the node, and `conflist` is Railnet's configuration list, after an installation of the second version
    on a node without Railnet. The change of the version must lead to the same.
    """

    node: Node
    first: Version
    second: Version
    at_rest: NodeState
    conflist: bytes

    def start_second(self) -> None:
        self.node.daemon.source = self.second.source
        self.node.start_daemon()

    def left(self, pods: Collection[Pod] = ()) -> list[str]:
        """Report what the node has beyond these pods, once the daemon has had the time of a few sweeps to take it back."""
        found: list[str] = []

        def nothing_is_left() -> bool:
            found[:] = map(str, violations(self.at_rest, self.node.look(), [pod.live_sandbox for pod in pods]))
            return not found

        try:
            wait_until(nothing_is_left, 40, "the end of all that was left over")
        except TimeoutError:
            return found
        return [f"quarantine {path.name}" for path in QUARANTINE.glob("*")]


@pytest.fixture(scope="module", params=OLD_COMMITS)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Version:
    return extract(OLD_COMMITS[request.param], tmp_path_factory.mktemp("old"))


from_and_to_the_newest = pytest.mark.parametrize("old", [[*OLD_COMMITS][-1]], indirect=True, scope="module")


@pytest.fixture(params=["upgrade", "rollback"])
def change(request: pytest.FixtureRequest, old: Version) -> Iterator[Change]:
    """Provide a node with the first version. The second version was installed before it, so that its files at rest are known."""
    versions = (old, Version(CHECKOUT))
    first, second = versions if request.param == "upgrade" else versions[::-1]
    with Node(Path(os.environ["RAILNET_CNI_PLUGINS"]), PFS, VFS) as node:
        prepare()
        serve(node, second)
        for pod in run_pods(node, "before"):
            node.remove_pod(pod)
        wait_until(lambda: list(JOURNAL.iterdir()) == [], 20, "the end of the last record")
        at_rest, conflist = node.look(), OURS.read_bytes()
        node.stop_daemon()
        configure(daemon="99s")  # the second version has another configuration list to write
        serve(node, first)
        configure()
        yield Change(node, first, second, at_rest, conflist)


@pytest.fixture(params=[False, True], ids=["containerd", "CRI-O"])
def runtime(request: pytest.FixtureRequest, change: Change) -> None:
    """Choose the configuration of the runtime's DEL: the present one, or the one that ADD was made with."""
    change.node.runtime.remembers = request.param


def prepare() -> None:
    """Write a primary network that has CHECK and whose last plugin is the gate, the node configuration, and a memory of no rails.

    The memory of rails stays on a node at a rollback to a version that has none, so it belongs to the node at rest.
    """
    RAILS.write_bytes(encode(()))
    (PLUGINS / "gate").write_text(GATE)
    (PLUGINS / "gate").chmod(0o755)
    GATES.mkdir()
    flannel = json.loads(FLANNEL.read_text())
    FLANNEL.write_text(
        json.dumps({**flannel, "cniVersion": "0.4.0", "plugins": [*flannel["plugins"], {"type": "gate"}]})
    )
    configure()


def configure(**timeouts: str) -> None:
    document = json.loads(CONFIGURATION.read_text())
    networks = {"networks": {"leased": LEASED}, "limits": {"*": {"networks": ["default", "leased"]}}}
    CONFIGURATION.write_text(json.dumps({**document, **networks, "timeouts": {**TIMEOUTS, **timeouts}}))


def serve(node: Node, version: Version) -> None:
    version.install()
    node.daemon.source = version.source
    node.start_daemon()
    wait_until(OURS.exists, 10, "Railnet's configuration list")


def run_pods(node: Node, prefix: str) -> list[Pod]:
    """Run a pod of each kind."""
    return [node.run_pod(f"{prefix}-{kind}", vfs, capability_args=annotations(kind)) for kind, vfs in KINDS.items()]


def annotations(kind: str) -> dict[str, Any] | None:
    return {"io.kubernetes.cri.pod-annotations": {"railnet.io/network": "leased"}} if kind == "leased" else None


def admitted(node: Node, name: str, vfs: int = 0) -> PodIdentity:
    """Admit a pod, as kubelet does before the pod has a sandbox."""
    identity = PodIdentity(name, "default", str(uuid.uuid4()))
    if vfs:
        node.kubelet.allocate(identity, RESOURCE, vfs)
    return identity


def add(node: Node, identity: PodIdentity) -> Pod:
    """Run a pod without its containers. Kubelet starts containers only after the daemon has registered."""
    sandbox = node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
    devices = (device for allocation in node.kubelet.allocations(identity) for device in allocation.device_ids)
    return Pod(identity, sandbox, node.runtime.set_up(sandbox), tuple(devices), {}, ())


def add_until_served(node: Node, identity: PodIdentity) -> Pod:
    """Run a pod as kubelet does: after an ADD that lost its daemon and failed with code 11, kubelet makes another sandbox."""
    try:
        return add(node, identity)
    except CniFailed as failure:
        if failure.code != TRY_AGAIN:
            raise
        return add(node, identity)


@contextmanager
def gate(pod: str, command: str) -> Iterator[Path]:
    """Let the last plugin of a pod's chain wait until the end of this context. Yield the gate's path."""
    closed = GATES / f"{pod} {command}"
    closed.touch()
    try:
        yield closed
    finally:
        closed.unlink()


def is_reached(gate: Path) -> bool:
    """Return whether the plugin waits at the gate, or has waited there."""
    return gate.stat().st_size > 0


def folders() -> set[str]:
    """Name the versions' folders on the host."""
    return {path.name for path in FOLDERS.iterdir()}


def executables_folder() -> str:
    """Name the folder that the installed executable runs from."""
    interpreter = (PLUGINS / "railnet").read_text().split()[0].removeprefix("#!")
    return Path(interpreter).relative_to(FOLDERS).parts[0]


def running_from(folder: str) -> int:
    """Count the executables that the runtime has started and whose interpreter is in a version's folder."""
    return sum(is_child(path) and is_from(path, folder) for path in Path("/proc").glob("[0-9]*"))


def is_child(process: Path) -> bool:
    """Return whether this process, which is the runtime, has started the other; an executable's own children do not count."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid())
    except OSError:  # the process has ended
        return False


def is_from(process: Path, folder: str) -> bool:
    try:
        return (process / "exe").readlink().is_relative_to(FOLDERS / folder)
    except OSError:  # the process has ended
        return False


def records() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in JOURNAL.iterdir()}


def rails_in(report: dict[str, Any]) -> dict[str, set[str]]:
    """Return from a report of `railnet status --json` which sandbox has which VFs."""
    return {one["id"]: {rail["vf"] for rail in one["rails"]} for one in report["sandboxes"]}


def status(version: Version) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(version.railnet("status", "--json").stdout)
    return report


def rails_of(pods: Collection[Pod]) -> dict[str, set[str]]:
    return {pod.container_id: set(pod.device_ids) for pod in pods if pod.device_ids}


def remove(node: Node, pods: Collection[Pod]) -> None:
    for pod in pods:
        node.remove_pod(pod)


def test_running_pods_are_kept_checked_and_taken_down_by_the_other_version(change: Change, runtime: None) -> None:
    node = change.node
    older, before, ours = run_pods(node, "older"), records(), OURS.read_bytes()
    first_folder = executables_folder()

    change.second.install()
    node.stop_daemon()
    change.start_second()

    after, left_at_start = records(), change.left(older)
    wait_until(lambda: OURS.read_bytes() == change.conflist, 10, "the configuration list of a new installation")
    younger = run_pods(node, "younger")
    report, left = judge(change, [*older, *younger])
    assert after == before
    assert ours != change.conflist
    assert report["version"] == change.second.number
    assert (left_at_start, left, change.left()) == ([], [], [])
    assert first_folder.startswith(f"{change.first.number}-")
    assert executables_folder().startswith(f"{change.second.number}-")
    assert folders() == {executables_folder()}


@contextmanager
def in_flight(node: Node) -> Iterator[list["Future[Any]"]]:
    """Begin the ADD of a plain pod, the ADD of a pod with a rail, and a DEL. Their last plugin waits until the end of this context.

    No request waits for another: the pod with a rail has its VF before the VF of the pod that leaves is free.
    """
    leaving, plain, train = node.run_pod("leaving", vfs=1), admitted(node, "plain"), admitted(node, "train", vfs=1)
    node.kubelet.remove(leaving.identity)
    with (
        ThreadPoolExecutor() as pool,
        gate("plain", "ADD") as adding_plain,
        gate("train", "ADD") as adding_train,
        gate("leaving", "DEL") as deleting,
    ):
        running = [
            pool.submit(add, node, plain),
            pool.submit(add_until_served, node, train),
            pool.submit(node.runtime.tear_down, leaving.sandbox),
        ]
        for waiting in (adding_plain, adding_train, deleting):
            wait_until(partial(is_reached, waiting), 20, f"a plugin at {waiting}")
        yield running


@from_and_to_the_newest
def test_daemon_that_is_ended_finishes_its_requests_before_the_other_version_serves(change: Change) -> None:
    node, first, second = change.node, change.node.daemon, Daemon()
    older, folder = run_pods(node, "older"), executables_folder()
    ending, second.source = first.process, change.second.source
    with in_flight(node) as running:
        change.second.install()
        ending.send_signal(signal.SIGTERM)
        second.start()
        node.daemon = second
        wait_until(lambda: "another railnet daemon" in second.log(), 20, "the wait for the first daemon's end")
        during = folders(), running_from(folder), ending.poll()
    plain, train, _ = (one.result(60) for one in running)
    ended = ending.wait(60)
    node.kubelet.wait_for_devices(RESOURCE, VFS * len(PFS), 60)

    report, left = judge(change, [*older, plain, train])
    assert during == ({folder, executables_folder()}, 3, None)
    assert ended == 0
    assert report["version"] == change.second.number
    assert (left, change.left()) == ([], [])
    assert folders() == {executables_folder()}


@from_and_to_the_newest
def test_requests_whose_daemon_is_killed_end_well_with_the_other_version(change: Change) -> None:
    node = change.node
    older, folder = run_pods(node, "older"), executables_folder()
    with in_flight(node) as running:
        change.second.install()
        node.kill_daemon()
        during = folders(), running_from(folder)
        change.start_second()
    plain, train, _ = (one.result(60) for one in running)

    _, left = judge(change, [*older, plain, train])
    assert during == ({folder, executables_folder()}, 3)
    assert (left, change.left()) == ([], [])
    assert folders() == {executables_folder()}


def judge(change: Change, pods: Collection[Pod]) -> tuple[dict[str, Any], list[str]]:
    """Let the second version report, check and take down the pods. Return its report, and what the node had beyond the pods.

    First it is installed once more: an installation keeps a folder from which requests run, and the next one removes it.
    """
    change.second.install()
    node, left = change.node, change.left(pods)
    report = status(change.second)
    for pod in pods:
        node.runtime.check(pod.sandbox)
        node.kubelet.pre_start(pod.identity)  # a container of the pod may start, or start again
    remove(node, pods)
    assert rails_in(report) == rails_of(pods)
    return report, left


@from_and_to_the_newest
def test_requests_that_found_no_daemon_are_served_by_the_daemon_of_the_other_version(change: Change) -> None:
    node = change.node
    leaving, folder = run_pods(node, "leaving"), executables_folder()
    identity = admitted(node, "train", vfs=1)
    node.stop_daemon()
    remove(node, leaving)
    kept = set(records())
    with ThreadPoolExecutor() as pool, gate("train", "ADD") as adding:
        train = pool.submit(add, node, identity)
        wait_until(lambda: running_from(folder) == 1, 20, "the start of the executable")
        change.second.install()
        waiting = folders(), running_from(folder), is_reached(adding)
        change.start_second()
        wait_until(partial(is_reached, adding), 30, f"a plugin at {adding}")
    pod = train.result(60)

    _, left = judge(change, [pod])
    assert kept == {f"{pod.container_id}@eth0.json" for pod in leaving if pod.device_ids}
    assert waiting == ({folder, executables_folder()}, 1, False)
    assert (left, change.left()) == ([], [])
    assert folders() == {executables_folder()}


def test_executable_of_one_version_is_served_by_the_daemon_of_the_other(change: Change) -> None:
    node = change.node
    older = run_pods(node, "older")

    change.second.install()

    dead = node.run_pod("dead", vfs=1)
    node.destroy_netns(dead)
    collected = gc(node, older)
    after_gc = {path.stem.partition("@")[0] for path in JOURNAL.iterdir()}
    node.remove_pod(dead)
    refusal = refused(node, "nowhere")
    ready = invoke(node, "STATUS")
    younger = run_pods(node, "younger")
    report = status(change.second)
    for pod in (*older, *younger):
        node.runtime.check(pod.sandbox)
    remove(node, [*older, *younger])
    no_records = records()
    node.stop_daemon()
    change.start_second()
    assert collected.status == 0, collected.stdout
    assert after_gc == rails_of(older).keys()
    assert refusal.code == NOT_PERMITTED
    assert "'nowhere'" in refusal.msg
    assert ready.status == 0, ready.stdout
    assert rails_in(report) == rails_of([*older, *younger])
    assert no_records == {}
    assert change.left() == []


def gc(node: Node, living: Collection[Pod]) -> Invocation:
    attachments = [{"containerID": pod.container_id, "ifname": "eth0"} for pod in living]
    return invoke(node, "GC", **{"cni.dev/valid-attachments": attachments})


def invoke(node: Node, command: str, **injected: object) -> Invocation:
    """Run the executable as a libcni that has chosen 1.1.0 of `cniVersions` does, for a command without a sandbox."""
    conflist = json.loads(OURS.read_bytes())
    conf = {**conflist["plugins"][0], "name": conflist["name"], "cniVersion": max(conflist["cniVersions"]), **injected}
    empty = dict.fromkeys(("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"), "")
    environment = {"CNI_COMMAND": command, "CNI_PATH": str(PLUGINS), "PATH": "/usr/bin:/bin", **empty}
    return node.runtime.invoke(command, "railnet", environment, json.dumps(conf).encode())


def refused(node: Node, network: str) -> CniFailed:
    """Run a pod that asks for a network that it may not use. Return the failure of its ADD."""
    identity = admitted(node, "refused", vfs=1)
    asks = {"io.kubernetes.cri.pod-annotations": {"railnet.io/network": network}}
    sandbox = node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid, asks)
    with pytest.raises(CniFailed) as raised:
        node.runtime.set_up(sandbox)
    node.kubelet.remove(identity)
    return raised.value


@from_and_to_the_newest
def test_pods_are_taken_down_by_the_executable_of_the_other_version_without_a_daemon(
    change: Change, runtime: None
) -> None:
    node = change.node
    older = run_pods(node, "older")
    node.stop_daemon()
    change.second.install()

    plain = node.run_pod("plain")
    remove(node, [plain, *older])

    kept = set(records())
    change.start_second()
    younger = run_pods(node, "younger")
    _, left = judge(change, younger)
    assert kept == {f"{pod.container_id}@eth0.json" for pod in older if pod.device_ids}
    assert (left, change.left()) == ([], [])


@from_and_to_the_newest
def test_add_that_a_killed_daemon_left_half_done_is_done_by_the_other_version(change: Change) -> None:
    node = change.node
    identity = admitted(node, "train", vfs=1)
    (vf,) = (PciAddress.parse(device) for one in node.kubelet.allocations(identity) for device in one.device_ids)
    node.hca.set_port(vf, active=False)  # ADD moves the netdev and then waits for the port
    with ThreadPoolExecutor() as pool:
        train = pool.submit(add_until_served, node, identity)
        try:
            wait_until(lambda: vf not in at_home(node), 20, "the move of the netdev")
            stages = [json.loads(record)["stage"] for record in records().values()]
            node.kill_daemon()
            change.second.install()
            change.start_second()
        finally:
            node.hca.set_port(vf, active=True)
        pod = train.result(60)

    _, left = judge(change, [pod])
    assert stages == ["planned"]
    assert (left, change.left()) == ([], [])


def at_home(node: Node) -> set[PciAddress]:
    """Name the VFs whose netdevs are in the node's own network namespace."""
    own = Path("/proc/self/ns/net").stat().st_ino
    return {vf for vf, place in node.hca.places().items() if place.netns == own}


@from_and_to_the_newest
def test_primary_that_the_other_version_named_is_kept_while_it_is_half_written(change: Change) -> None:
    node, ours, flannel = change.node, OURS.read_bytes(), FLANNEL.read_bytes()
    change.second.install()
    node.stop_daemon()
    other = FLANNEL.with_name("20-other.conflist")
    other.write_text('{"cniVersion": "0.4.0", "name": "other", "plugins": [{"type": "other"}]}')
    FLANNEL.write_bytes(flannel[:40])
    try:
        change.start_second()
        wait_until(lambda: any(FLANNEL.name in reason for reason in status(change.second)["reasons"]), 20, "the reason")
        during = OURS.read_bytes()
    finally:
        FLANNEL.write_bytes(flannel)
        other.unlink()
    wait_until(lambda: OURS.read_bytes() == change.conflist, 10, "the configuration list of a new installation")

    pod = node.run_pod("plain")
    node.remove_pod(pod)
    assert during == ours
    assert change.left() == []
