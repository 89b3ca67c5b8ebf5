"""Many requests at once, requests that end other requests, and delegates that hang, with the real executable, daemon and plugins."""

import http.client
import json
import resource
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from railnet.kernel import waiting
from simnode.kubernetes import cni_config
from simnode.kubernetes.cni_load_generator import Executed, at_once, execute
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed, Sandbox
from simnode.node import RESOURCE, Node
from tests.node.primaries import OURS, PLUGINS, RUN, primary_of, set_seconds, write_stub

PID, CALLS = Path("/run/stub-pid"), Path("/run/stub-calls")
# ADD writes its process id and hangs. DEL writes `beside` if that ADD still runs. A killed process keeps its `comm` until its
# parent reaps it. Its `cmdline` is empty before it releases the lock (kernel/exit.c: exit_mm comes before exit_files).
HANGS = f"""cat >/dev/null
if [ $CNI_COMMAND = ADD ]; then echo $$ >{PID}.new; mv {PID}.new {PID}; exec sleep 3600; fi
if grep -q sleep /proc/$(cat {PID})/cmdline; then echo beside >>{CALLS}; fi
echo $CNI_COMMAND >>{CALLS}"""


class Pods:
    """The pods of one test. The test begins their ADDs; their DELs run after the test."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._network = cni_config.find(OURS.parent)
        self._made: list[tuple[PodIdentity, Sandbox]] = []
        self._begun: list[subprocess.Popen[bytes]] = []

    def one(self, name: str, vfs: int = 0, of: Sandbox | None = None) -> Sandbox:
        """Make a pod with this number of VFs, or, in kubelet's checkpoint, with the VFs of another pod."""
        identity = PodIdentity(name, "default", str(uuid.uuid4()))
        if vfs:
            self._node.kubelet.allocate(identity, RESOURCE, vfs)
        if of is not None:
            (owner,) = (pod for pod, box in self._made if box == of)
            (allocation,) = self._node.kubelet.allocations(owner)
            self._node.kubelet.claim(identity, RESOURCE, allocation.device_ids)
        self._made.append((identity, self._node.runtime.create_sandbox(identity.namespace, name, identity.uid)))
        return self._made[-1][1]

    def execute(self, command: str, box: Sandbox) -> Executed:
        """Execute Railnet with this CNI command."""
        return execute(self._node.runtime, command, box, self._network, self._network.plugins[0])

    def status(self) -> Executed:
        """Execute Railnet with STATUS."""
        newer = replace(self._network, version="1.1.0")
        return execute(self._node.runtime, "STATUS", Sandbox("", Path(), "", "", ""), newer, newer.plugins[0])

    def begin_add(self, name: str) -> subprocess.Popen[bytes]:
        """Begin an ADD and do not wait for it."""
        environ = self._node.runtime.environment("ADD", self.one(name))
        process = subprocess.Popen([PLUGINS / "railnet"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.stdin.write(cni_config.stdin(self._network, self._network.plugins[0], {}, None))
        process.stdin.close()
        self._begun.append(process)
        return process

    def remove(self) -> None:
        """Take all pods down. The DEL of a pod ends its hanging ADD."""
        for identity, box in self._made:
            self._node.kubelet.remove(identity)
            self._node.runtime.tear_down(box)
        for process in self._begun:
            with process:
                process.stdout.read()


@pytest.fixture
def pods(node: Node) -> Iterator[Pods]:
    """Provide pods on a node whose flannel hangs for the pod with the name `held`."""
    flannel = PLUGINS / "flannel"
    flannel.rename(PLUGINS / "flannel.real")
    hang = f"case $CNI_COMMAND$CNI_ARGS in ADD*K8S_POD_NAME=held*) echo >{PID}; exec sleep 3600 ;; esac"
    write_stub("flannel", f"{hang}\nexec {PLUGINS}/flannel.real")
    pods = Pods(node)
    yield pods
    try:
        pods.remove()
    finally:
        (PLUGINS / "flannel.real").replace(flannel)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture
def sandbox(node: Node) -> Iterator[Sandbox]:
    box = node.runtime.create_sandbox("default", "plain", "uid-plain")
    yield box
    node.runtime.remove_sandbox(box)


@pytest.fixture
def hanging_add(node: Node, sandbox: Sandbox) -> Iterator[subprocess.Popen[bytes]]:
    """Begin an ADD whose delegate hangs."""
    write_stub("stub", HANGS)
    primary_of({"type": "stub"})
    network = cni_config.find(OURS.parent)
    environ = node.runtime.environment("ADD", sandbox)
    executable = [PLUGINS / "railnet"]
    with subprocess.Popen(executable, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            process.stdin.write(cni_config.stdin(network, network.plugins[0], {}, None))
            process.stdin.close()
            until(PID.exists)
            yield process
        finally:
            process.kill()


def test_del_ends_a_running_add_whose_delegate_hangs(
    node: Node, sandbox: Sandbox, hanging_add: subprocess.Popen[bytes]
) -> None:
    node.runtime.delete(sandbox)

    answer = json.loads(hanging_add.stdout.read())
    assert (answer["code"], hanging_add.wait(60)) == (11, 1)
    assert "asked for a DEL of this sandbox during its ADD" in answer["msg"]
    assert CALLS.read_text().split() == ["DEL", "DEL"]  # the DEL of the undo, and the runtime's DEL


def test_del_ends_the_delegates_of_a_killed_executable_before_it_runs(
    node: Node, sandbox: Sandbox, daemon: str, hanging_add: subprocess.Popen[bytes]
) -> None:
    hanging_add.kill()
    hanging_add.wait()

    node.runtime.delete(sandbox)

    assert CALLS.read_text().split() == ["DEL"]


def test_hanging_delegate_delays_no_other_request(node: Node, pods: Pods) -> None:
    held = pods.begin_add("held")
    until(PID.exists)
    running = pods.one("train", vfs=1)
    assert pods.execute("ADD", running).status == 0
    served = [pods.one("train", vfs=1) for _ in range(node.vfs - 1)] + [pods.one("plain") for _ in range(12)]
    others = [pods.one("other", of=running) for _ in range(4)]

    adds = [lambda pod=pod: pods.execute("ADD", pod) for pod in (*served, *others)]
    _, answers = at_once([*adds, *[pods.status] * 4])

    assert held.poll() is None
    answered = [one.answer for one in answers]
    assert [one for one in answered[: len(served)] if one.status] == []
    refused = answered[len(served) : len(adds)]
    assert [json.loads(one.printed)["code"] for one in refused] == [100] * len(others)
    assert answered[len(adds) :] == [Executed(0, b"")] * 4


def test_metrics_are_served_beside_healthz(node: Node) -> None:
    node.remove_pod(node.run_pod("train", vfs=1))
    connection = http.client.HTTPConnection("127.0.0.1", 9474, timeout=30)
    connection.request("GET", "/metrics")

    text = connection.getresponse().read().decode()

    connection.close()
    samples = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}
    assert samples['railnet_cni_requests_total{verb="ADD",code="0"}'] >= 1
    assert samples['railnet_cni_seconds_count{verb="ADD",stage="kernel"}'] >= 1
    assert samples["railnet_cni_queue"] == 0
    assert sum(count for name, count in samples.items() if name.startswith('railnet_vfs{pool="rdma/ib_vf"')) == node.vfs
    assert samples['railnet_registrations_total{resource="rdma/ib_vf"}'] >= 1


# A daemon that is stopped in the middle of a request.


@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_plain_pod_of_a_daemon_that_stops_after_go_is_served_on_by_its_executable(node: Node, command: str) -> None:
    stop = f"[ $CNI_COMMAND = {command} ] && kill -STOP {node.daemon.process.pid}"
    note = 'cat >/dev/null; echo "$CNI_COMMAND $0" >>/run/stub-calls'
    answer = """[ $CNI_COMMAND = DEL ] || printf '{"cniVersion":"0.4.0"}'"""
    write_stub("stub1", f"{note}; {stop}; {answer}")
    write_stub("stub2", f"{note}; {stop}; {answer}")
    primary_of({"type": "stub1"}, {"type": "stub2"})
    began = time.monotonic()

    pod = node.run_pod("plain")
    node.remove_pod(pod)

    took = time.monotonic() - began
    node.daemon.process.send_signal(signal.SIGCONT)
    time.sleep(0.5)  # a daemon that continues could have a delegate executed now
    calls = [line.replace(f"{PLUGINS}/", "") for line in CALLS.read_text().splitlines()]
    assert calls == ["ADD stub1", "ADD stub2", "DEL stub2", "DEL stub1"]
    assert took < 45  # it was timeouts.add and timeouts.delegate, 90 s


def test_pod_with_a_rail_of_a_daemon_that_stops_after_go_is_refused_and_taken_back(node: Node) -> None:
    write_stub(
        "stub",
        f"cat >/dev/null; [ $CNI_COMMAND = ADD ] && kill -STOP {node.daemon.process.pid}; "
        """[ $CNI_COMMAND = DEL ] || printf '{"cniVersion":"0.4.0"}'""",
    )
    primary_of({"type": "stub"})
    set_seconds(daemon=0.5)
    identity = PodIdentity("train", "default", "uid-train")
    node.kubelet.allocate(identity, RESOURCE, 1)

    with pytest.raises(CniFailed) as failure:
        node.run_sandbox(identity)

    node.daemon.process.send_signal(signal.SIGCONT)
    node.kubelet.remove(identity)
    waiting.block_until(lambda: not list((RUN / "journal").iterdir()), 60, 0.1)  # the sweep, after the sandbox's end
    assert failure.value.code == 11


def test_plain_pod_of_a_daemon_without_descriptors_comes_and_goes(node: Node) -> None:
    daemon = node.daemon.process
    opened = len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))
    limits = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    # enough to accept, and not to read files
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (opened + 2, limits[1]))
    try:
        began = time.monotonic()
        for _ in range(3):
            node.remove_pod(node.run_pod("plain"))
        took = time.monotonic() - began
    finally:
        is_alive = daemon.poll() is None
        if is_alive:
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, limits)
    # A plain pod needs no daemon: so it must be the one without descriptors that serves the pod with a rail after it.
    assert is_alive
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, 60)
    node.remove_pod(node.run_pod("after", vfs=1))

    assert took < 24  # six requests of a second and the chain's time, on a machine that may stand still for a while
    assert node.daemon.process is daemon
    assert daemon.poll() is None
