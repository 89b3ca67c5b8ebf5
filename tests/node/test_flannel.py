"""flannel's real plugin: its state over a DEL that fails once, and its delegate, which is executed in its place from the third pod on."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from simnode.kubernetes.runtime import CniFailed
from simnode.node import Node, Pod
from tests.node.primaries import PLUGINS, primary_of, write_stub

# The plugin bridge, but the first DEL fails before it has done anything.
FAILS_ONCE = """\
if [ $CNI_COMMAND = DEL ] && [ ! -e /run/stub-failed ]; then
  touch /run/stub-failed; cat >/dev/null; printf '{"code": 100, "msg": "not today"}'; exit 1
fi
exec /opt/cni/bin/bridge"""
# Debian 12's flannel keeps its state if the delegate failed. Since v1.2.0 flannel deletes it.
FORGETS = """\
/opt/cni/bin/.flannel; status=$?
[ $CNI_COMMAND = DEL ] && rm -f /var/lib/cni/flannel/$CNI_CONTAINERID
exit $status"""
FLANNEL = {"type": "flannel", "delegate": {"type": "stub", "isGateway": True, "isDefaultGateway": True}}


@pytest.fixture(params=["of Debian 12", "since v1.2.0"])
def flannel(request: pytest.FixtureRequest) -> Iterator[None]:
    real = PLUGINS / "flannel"
    if request.param == "of Debian 12":
        yield
        return
    aside = real.rename(PLUGINS / ".flannel")
    write_stub("flannel", FORGETS)
    yield
    aside.replace(real)


def test_del_that_failed_in_a_delegate_succeeds_the_next_time(node: Node, flannel: None, daemon: str) -> None:
    write_stub("stub", FAILS_ONCE)
    primary_of(FLANNEL)
    pod = node.run_pod("pod")

    with pytest.raises(CniFailed, match="not today"):
        node.runtime.delete(pod.sandbox)
    kept = [path.name for path in Path("/var/lib/cni/flannel").iterdir()]
    node.remove_pod(pod)

    assert kept == [pod.container_id]  # the fixture `node` asserts that nothing is left over


# The plugin bridge, which writes down by which program it is executed.
TELLS_ITS_PARENT = """\
[ $CNI_COMMAND = CHECK ] || echo $CNI_COMMAND $(cat /proc/$PPID/comm) >>/run/stub-parents
exec /opt/cni/bin/bridge"""
STATES = Path("/var/lib/cni/flannel")
SUBNET = Path("/run/flannel/subnet.env")
_OF_ONE_POD = re.compile(r'"(name|mac|sandbox|address)": *"[^"]*"')


class Bridges:
    """A primary network of flannel with such a bridge."""

    def __init__(self, node: Node) -> None:
        write_stub("stub", TELLS_ITS_PARENT)
        primary_of(FLANNEL)
        self._node = node
        self._told = 0

    def parents(self) -> list[str]:
        """Name the programs by which the bridge was executed since the last call."""
        lines = Path("/run/stub-parents").read_text().splitlines()
        told, self._told = self._told, len(lines)
        return [line.split()[1] for line in lines[told:]]

    def run(self, *names: str) -> tuple[list[Pod], list[bool]]:
        """Run pods one after another. Return also whether flannel ran for each."""
        pods = [self._node.run_pod(name) for name in names]
        return pods, [parent == "flannel" for parent in self.parents()]


@pytest.fixture
def bridges(node: Node) -> Bridges:
    node.stop_daemon()
    node.start_daemon()  # it knows nothing yet
    return Bridges(node)


def flannel_alone(node: Node, pod: Pod, command: str) -> None:
    """Run flannel's plugin as the runtime does without Railnet, for the pod's eth0."""
    conf = {**FLANNEL, "name": "stubs", "cniVersion": "0.4.0"}
    environment = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": pod.container_id,
        "CNI_NETNS": str(pod.sandbox.netns),
        "CNI_IFNAME": "eth0",
        "CNI_PATH": str(PLUGINS),
        "PATH": "/usr/bin:/bin",
    }
    done = node.runtime.invoke(command, "flannel", environment, json.dumps(conf).encode())
    assert done.status == 0, done.stdout


def test_flannel_runs_for_two_pods_and_after_that_its_delegate_alone(node: Node, bridges: Bridges) -> None:
    pods, by_flannel = bridges.run("first", "second", "third", "fourth")
    states = {(STATES / pod.container_id).read_bytes() for pod in pods}
    modes = {(STATES / pod.container_id).stat().st_mode & 0o777 for pod in pods}
    results = {_OF_ONE_POD.sub("", pod.added.result.decode()) for pod in pods}
    for pod in pods:
        node.runtime.check(pod.sandbox)
        node.remove_pod(pod)

    assert by_flannel == [True, True, False, False]
    assert (len(states), modes) == (1, {0o600})
    assert len(results) == 1  # with every blank and line break
    assert "flannel" not in bridges.parents()  # of DEL


def test_flannel_takes_down_what_its_delegate_alone_has_set_up(node: Node, bridges: Bridges) -> None:
    (*others, third), by_flannel = bridges.run("first", "second", "third")

    flannel_alone(node, third, "DEL")
    left = (STATES / third.container_id).exists()
    for pod in (*others, third):
        node.remove_pod(pod)

    assert by_flannel == [True, True, False]
    assert not left


def test_flannel_is_asked_again_after_its_subnet_file_was_written(node: Node, bridges: Bridges) -> None:
    before, _ = bridges.run("first", "second")

    SUBNET.write_text(SUBNET.read_text())
    after, by_flannel = bridges.run("third", "fourth", "fifth")
    for pod in (*before, *after):
        node.remove_pod(pod)

    assert by_flannel == [True, True, False]


def test_pods_without_a_daemon_are_flannels_and_taken_down_with_one(node: Node, bridges: Bridges) -> None:
    pods, _ = bridges.run("first", "second", "third")
    node.stop_daemon()
    alone, by_flannel = bridges.run("alone")
    node.start_daemon()
    for pod in (*pods, *alone):
        node.remove_pod(pod)

    assert by_flannel == [True]
    assert "flannel" not in bridges.parents()  # of DEL


def test_delegate_that_fails_once_is_taken_down_by_the_next_del(node: Node, bridges: Bridges) -> None:
    write_stub("stub", FAILS_ONCE)
    pods = [node.run_pod(name) for name in ("first", "second", "third")]

    with pytest.raises(CniFailed, match="not today"):
        node.runtime.delete(pods[2].sandbox)
    kept = (STATES / pods[2].container_id).exists()
    for pod in pods:
        node.remove_pod(pod)

    assert kept
