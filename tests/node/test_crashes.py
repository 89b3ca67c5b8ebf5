"""An executable, a daemon, a driver or a namespace may die at any moment: what it held is taken back."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from railnet.vf.pci_address import PciAddress
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed, Sandbox
from simnode.node import RESOURCE, Node
from tests.node.primaries import OURS, PLUGINS, RUN, left_over, node_links, primary_of, write_stub

SLOW = "cat >/dev/null; echo $CNI_COMMAND >>/run/stub-calls; [ $CNI_COMMAND = DEL ] && exit 0; echo >/run/stub-runs; sleep 1; "
FIRST = PciAddress.parse("0000:03:00.1")
CONF, PRINTED = Path("/run/stub-conf"), Path("/run/stub-printed")
StartAdd = Callable[[int], tuple[Sandbox, subprocess.Popen[bytes]]]
ANSWER = 'printf \'{"cniVersion":"0.4.0"}\''


def test_rails_come_back_when_the_executable_dies_during_add(node: Node, start_add: StartAdd) -> None:
    write_stub("stub", SLOW + ANSWER)
    primary_of({"type": "stub"})
    box, process = start_add(1)
    until(Path("/run/stub-runs").exists)

    process.kill()
    process.wait()

    # The delegate holds the lock and still runs. After its end the daemon's next sweep removes the lock.
    until(lambda: {*left_over(node)} <= {f"lock {box.container_id}@eth0"})


@pytest.fixture
def port_down(node: Node) -> Iterator[None]:
    """Take the first VF's port down. An ADD then waits for the port after it has moved the netdev into the sandbox."""
    node.hca.set_port(FIRST, active=False)
    yield
    node.hca.set_port(FIRST, active=True)


def test_record_is_planned_until_the_whole_add_is_done(node: Node, port_down: None, start_add: StartAdd) -> None:
    box, process = start_add(1)
    until(lambda: "ibs5v0" not in node_links())

    during = stage(box)
    node.hca.set_port(FIRST, active=True)
    process.wait(60)

    assert (during, stage(box)) == ("planned", "attached")


def test_daemon_killed_during_add_takes_the_rail_back_at_its_next_start(
    node: Node, port_down: None, start_add: StartAdd
) -> None:
    box, process = start_add(1)
    until(lambda: "ibs5v0" not in node_links())

    node.kill_daemon()
    process.wait(60)
    node.start_daemon()
    returned = "ibs5v0" in node_links()
    node.runtime.delete(box)  # as a runtime does after an ADD that failed

    assert json.loads(PRINTED.read_text())["code"] == 11
    assert returned
    assert left_over(node) == []


def test_add_goes_on_with_the_next_daemon_when_its_daemon_is_killed(
    node: Node, port_down: None, start_add: StartAdd
) -> None:
    box, process = start_add(1)
    until(lambda: "ibs5v0" not in node_links())

    node.kill_daemon()
    node.hca.set_port(FIRST, active=True)
    node.start_daemon()
    process.wait(60)
    during = stage(box)
    node.runtime.delete(box)
    node.wait_for_answered_deletes()

    assert (process.returncode, during) == (0, "attached")
    assert left_over(node) == []


def test_plain_pod_gets_its_network_although_the_daemon_dies_during_its_add(node: Node, start_add: StartAdd) -> None:
    go_on = Path("/run/stub-go-on")
    write_stub("stub", SLOW.replace("sleep 1", f"until [ -e {go_on} ]; do sleep 0.05; done") + ANSWER)
    primary_of({"type": "stub"})
    _, process = start_add(0)
    until(Path("/run/stub-runs").exists)

    node.kill_daemon()
    go_on.touch()
    process.wait(60)

    assert PRINTED.read_bytes() == b'{"cniVersion":"0.4.0"}'
    assert Path("/run/stub-calls").read_text().split() == ["ADD", "DEL", "ADD"]


def test_sweep_frees_the_vf_of_a_namespace_that_died_and_was_never_deleted(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    node.destroy_netns(pod)

    until(lambda: list((RUN / "journal").iterdir()) == [])

    node.remove_pod(pod)
    assert "ibs5v0" in node_links()


def test_del_succeeds_although_the_vfs_driver_was_unbound(node: Node) -> None:
    pod = node.run_pod("train", vfs=1)
    Path("/sys/bus/pci/drivers/mlx5_core/unbind").write_text("0000:03:00.1\n")
    node.hca.settle()

    node.remove_pod(pod)

    records = list((RUN / "journal").iterdir())
    node.kubelet.wait_for_devices(RESOURCE, node.vfs - 1, 60)
    Path("/sys/bus/pci/drivers/mlx5_core/bind").write_text("0000:03:00.1\n")
    node.kubelet.wait_for_devices(RESOURCE, node.vfs, 60)
    assert records == []


def test_link_that_a_pod_made_stays_in_the_pod_even_if_its_alias_names_a_vf(node: Node) -> None:
    write_stub("stub", "cat >/dev/null; [ $CNI_COMMAND = DEL ] || " + ANSWER)
    primary_of({"type": "stub"})
    pod = node.run_pod("train", vfs=1)
    inside = ["nsenter", f"--net={pod.netns}", "ip", "link"]
    subprocess.run([*inside, "add", "forged", "alias", "railnet 0000:03:00.1", "type", "veth"], check=True)

    node.runtime.delete(pod.sandbox)
    node.wait_for_answered_deletes()

    shown = subprocess.run([*inside, "show", "forged"], capture_output=True, check=False)
    node.remove_pod(pod)
    assert shown.returncode == 0
    assert "ibs5v0" in node_links()


def test_add_that_takes_too_long_is_undone_and_code_11(node: Node, short_add: None) -> None:
    # The first delegate is quick, so that the second has begun when the time is over, on a slow machine, too.
    write_stub("stub", SLOW.replace("sleep 1", "[ $(grep -c ADD /run/stub-calls) = 1 ] || sleep 20") + ANSWER)
    primary_of({"type": "stub"}, {"type": "stub"})
    identity = PodIdentity("plain", "default", "uid-plain")

    with pytest.raises(CniFailed) as failure:
        node.runtime.add(box := node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid))

    calls = Path("/run/stub-calls").read_text().split()
    node.runtime.tear_down(box)
    assert failure.value.code == 11
    assert "timeouts.add" in failure.value.msg
    assert calls == ["ADD", "ADD", "DEL", "DEL"]


def test_children_of_a_crashed_delegate_end_before_its_undo(node: Node) -> None:
    child = "(sleep 1; echo late >>/run/stub-calls) & "
    write_stub(
        "stub",
        f"cat >/dev/null; echo $CNI_COMMAND >>/run/stub-calls; [ $CNI_COMMAND = DEL ] || {{ {child} kill -KILL $$; }}",
    )
    primary_of({"type": "stub"})
    box = node.runtime.create_sandbox("default", "plain", "uid-plain")

    with pytest.raises(CniFailed):
        node.runtime.add(box)
    time.sleep(1.3)

    node.runtime.remove_sandbox(box)
    assert Path("/run/stub-calls").read_text().split() == ["ADD", "DEL"]


@pytest.fixture
def short_add(node: Node) -> Iterator[None]:
    """Run a daemon with `timeouts.add` of two seconds."""
    conf = Path("/etc/railnet/node.yaml")
    good = conf.read_text()
    conf.write_text(json.dumps({**json.loads(good), "timeouts": {"add": "2s"}}))
    node.stop_daemon()
    node.start_daemon()
    yield
    conf.write_text(good)
    node.stop_daemon()


@pytest.fixture
def start_add(node: Node) -> Iterator[Callable[[int], tuple[Sandbox, subprocess.Popen[bytes]]]]:
    """Return a function that begins an ADD of a pod with some VFs and does not wait for its end. The sandbox is torn down after the test."""
    begun: list[tuple[PodIdentity, Sandbox, subprocess.Popen[bytes]]] = []

    def start(vfs: int) -> tuple[Sandbox, subprocess.Popen[bytes]]:
        identity = PodIdentity("train", "default", f"uid-{time.monotonic_ns()}")
        if vfs:
            node.kubelet.allocate(identity, RESOURCE, vfs)
        box = node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
        conflist = json.loads(OURS.read_text())
        conf = {**conflist["plugins"][0], "name": conflist["name"], "cniVersion": conflist["cniVersion"]}
        CONF.write_text(json.dumps(conf))
        with CONF.open("rb") as stdin, PRINTED.open("wb") as stdout:
            environ = node.runtime.environment("ADD", box)
            process = subprocess.Popen([PLUGINS / "railnet"], env=environ, stdin=stdin, stdout=stdout)
        begun.append((identity, box, process))
        return box, process

    yield start
    for identity, box, process in begun:
        process.wait(60)
        node.kubelet.remove(identity)
        node.runtime.tear_down(box)


def stage(box: Sandbox) -> str:
    return str(json.loads((RUN / "journal" / f"{box.container_id}@eth0.json").read_text())["stage"])


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "the condition did not come true in time"
        time.sleep(0.02)
