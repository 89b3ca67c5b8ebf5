"""The driver of DRA dies at each stage of a claim's pod, or runs twice: no VF is given twice, and nothing is left (fixture `dra`)."""

from collections.abc import Callable

import pytest

from tests.cluster.dead_daemon import kill
from tests.cluster.dra_node import RECORDS, SECONDS, left_of_claims, vfs
from tests.cluster.ground import KUBELET_FOLDER
from tests.cluster.node import ClusterNode
from tests.cluster.process import wait_until

_STATE = KUBELET_FOLDER / "dra_manager_state"


def asked(dra: ClusterNode) -> str:
    """Bring a pod to a frozen driver, until kubelet has asked it to prepare the claim: it notes the claim before."""
    dra.railnet.freeze()
    name = dra.bring("asked", 1)
    wait_until(lambda: name in _STATE.read_text(), SECONDS, "kubelet to note the claim")
    return name


def prepared(dra: ClusterNode) -> str:
    """Bring a pod until its claim is recorded; the sandbox may be there already."""
    before = len(list(RECORDS.glob("*")))
    name = dra.bring("prepared", 1)
    wait_until(lambda: len(list(RECORDS.glob("*"))) > before, SECONDS, "the claim to be recorded")
    return name


def attaching(dra: ClusterNode) -> str:
    """Bring a pod until its attachment is recorded."""
    name = dra.bring("attaching", 1)
    wait_until(lambda: bool(dra.records(name)), SECONDS, "the attachment to be recorded")
    return name


def running(dra: ClusterNode) -> str:
    return dra.run("running", 1)


@pytest.mark.parametrize("stage", [asked, prepared, attaching, running])
def test_driver_is_killed_while_a_pod_begins(dra: ClusterNode, stage: Callable[[ClusterNode], str]) -> None:
    earlier = dra.run("earlier", 1)
    had = vfs(dra, earlier)
    killed = stage(dra)
    kill(dra)
    dra.railnet.start()
    dra.wait_until_ready(earlier, killed)
    later = dra.run("later", 2)

    assert set(dra.addresses(killed)) == {"eth0", "net1"}
    assert vfs(dra, earlier) == had
    assert len(had | vfs(dra, killed) | vfs(dra, later)) == 4


def ending(dra: ClusterNode, name: str) -> None:
    """Delete the pod, and kill the driver as soon as the pod's VF is not attached any more."""
    dra.delete(name)
    wait_until(lambda: not dra.records(name), SECONDS, "the VF to be given back")
    kill(dra)


def unprepared(dra: ClusterNode, name: str) -> None:
    """Delete the pod, and kill the driver as soon as nothing of the claim is recorded any more."""
    dra.delete(name)
    wait_until(lambda: not left_of_claims(), SECONDS, "the claim to be unprepared")
    kill(dra)


@pytest.mark.parametrize("stage", [ending, unprepared])
def test_driver_is_killed_while_a_pod_ends(dra: ClusterNode, stage: Callable[[ClusterNode, str], None]) -> None:
    stage(dra, dra.run("ended", 8))
    dra.railnet.start()
    later = dra.run("later", 8)

    assert len(vfs(dra, later)) == 8


def test_two_drivers_at_once_give_no_vf_twice(dra: ClusterNode) -> None:
    """The API server has forgotten the first driver's pod, so the DaemonSet makes another while the first one still runs."""
    names = [dra.run("early", 1)]
    dra.railnet.lose_pod()
    names += [dra.bring("during", 1) for _ in range(6)]
    dra.railnet.roll_out()
    dra.wait_until_ready(*names)

    assert all("net1" in dra.addresses(name) for name in names)
    assert len(set().union(*(vfs(dra, name) for name in names))) == len(names)
