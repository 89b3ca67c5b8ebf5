"""The daemon is dead: pods without a rail do not notice; pods with one wait, or fail with an event that says why."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cni.host import lock
from cni.sandbox_locks import remove_unheld
from railnet.install import running_plugins
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.pods import job, pod
from tests.cluster.process import until_found, wait_until
from tests.cluster.railnet_on_node import CONFLIST

PODS = 20
_OURS, _FLANNELS = "ours", "flannels"
_SECONDS = 240.0  # as a pod may take on a busy node (tests/cluster/node.py)
_SERVES = "serving on "  # railnet/daemon/composition.py
_WAITS = "Railnet's daemon did not answer within 5 s"


@pytest.fixture
def conflist(node: ClusterNode) -> Iterator[Path]:
    """Give Railnet's CNI configuration, which is as before when the test ends."""
    content = CONFLIST.read_bytes()
    yield CONFLIST
    CONFLIST.write_bytes(content)


def plain_pods(prefix: str) -> list[str]:
    return [f"{prefix}-{number}" for number in range(PODS)]


def start_plain_pods(node: ClusterNode, prefix: str) -> float:
    """Start pods without a rail; gives the seconds until all run, and leaves none."""
    names = plain_pods(prefix)
    began = time.monotonic()
    node.create(*(pod(name) for name in names))
    node.wait_until_ready(*names, seconds=180)
    took = time.monotonic() - began
    node.delete(*names)
    assert node.left_over() == []
    return took


def test_pods_without_a_rail_start_as_with_flannel_alone(
    node: ClusterNode, conflist: Path, rounds: int, measured: Callable[[str], None]
) -> None:
    content = conflist.read_bytes()
    node.forget_events()
    node.railnet.kill()
    # It may have died while it took back what a dead pod left of the primary network. The next daemon would remove the lock that it held.
    remove_unheld(Path(lock.FOLDER))
    ours, flannels = [], []
    for number in range(rounds):
        # As often the one first as the other: what the machine does beside falls on both.
        if number % 2:
            flannels.append(start_pods_by_flannel(node, conflist, number))
        conflist.write_bytes(content)
        ours.append(start_plain_pods(node, f"{_OURS}-{number}"))
        if not number % 2:
            flannels.append(start_pods_by_flannel(node, conflist, number))

    measured(
        f"{PODS} pods without a rail, daemon dead: {_listed(ours)} s; flannel alone: {_listed(flannels)} s; "
        f"ratio {sum(ours) / sum(flannels):.2f}"
    )
    prefixes = [f"{whose}-{number}" for whose in (_OURS, _FLANNELS) for number in range(rounds)]
    assert node.warnings([name for prefix in prefixes for name in plain_pods(prefix)]) == []
    assert node.is_ready()


def start_pods_by_flannel(node: ClusterNode, conflist: Path, number: int) -> float:
    conflist.unlink(missing_ok=True)  # it is gone after the flannel of an earlier round
    return start_plain_pods(node, f"{_FLANNELS}-{number}")


def _listed(seconds: list[float]) -> str:
    return ", ".join(f"{one:.1f}" for one in seconds)


def test_rail_pod_that_is_not_bound_yet_waits_for_vfs(node: ClusterNode, measured: Callable[[str], None]) -> None:
    node.railnet.kill()
    measured(f"scheduler's window after the daemon's death: {node.wait_for_vfs(0):.1f} s")
    late = node.bring("late", 1)
    event = node.wait_for_event(late, "Insufficient rdma/ib_vf")
    node.railnet.start()

    node.wait_until_ready(late)
    measured(
        f"not bound yet: {event!r}; runs {time.time() - node.railnet.said_at(_SERVES):.1f} s after the daemon is back"
    )
    assert "net1" in node.addresses(late)


def test_rail_pod_that_is_bound_as_the_daemon_dies_fails_and_its_job_makes_another(
    node: ClusterNode, measured: Callable[[str], None]
) -> None:
    node.railnet.freeze()  # kubelet still has its stream, so the scheduler sees VFs
    node.kubectl.apply(job("train", 1))
    wait_until(lambda: any("nodeName" in one["spec"] for one in job_pods(node)), _SECONDS, "the first pod to be bound")
    node.railnet.kill()
    failed, *_ = until_found(lambda: statuses(node, "Failed"), _SECONDS, "the first pod to fail")
    node.railnet.start()
    served = node.railnet.said_at(_SERVES)

    wait_until(lambda: bool(statuses(node, "Running")), _SECONDS, "another pod to run")
    measured(
        f"bound as the daemon died: {failed['reason']}, {failed['message']!r}; its Job's next pod runs "
        f"{time.time() - served:.1f} s after the daemon is back"
    )
    assert failed["reason"] == "UnexpectedAdmissionError"


def job_pods(node: ClusterNode) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.kubectl.get("pods", "--selector=job-name=train")
    return found


def statuses(node: ClusterNode, phase: str) -> list[dict[str, Any]]:
    """Return the statuses of the Job's pods that are in a phase."""
    return [one["status"] for one in job_pods(node) if one["status"]["phase"] == phase]


def test_sandbox_made_again_waits_for_a_daemon_that_comes_in_time(
    node: ClusterNode, conflist: Path, measured: Callable[[str], None]
) -> None:
    train = node.run("train", 1)
    node.railnet.kill()
    content = json.loads(conflist.read_text())  # only now: a daemon that lives puts its own back
    content["plugins"][0]["seconds"]["daemon"] = 90  # the old pod goes ten seconds late, and machines are busy
    conflist.write_text(json.dumps(content))
    sandbox = node.containerd.kill_sandbox(train)
    wait_for_add(sandbox)
    measured(f"sandbox made again, daemon back within the ADD's wait: runs {seconds_to_run(node, train):.1f} s later")

    assert not any("did not answer" in event["message"] for event in node.kubectl.events(train))


def test_sandbox_made_again_is_retried_when_the_daemon_comes_late(
    node: ClusterNode, measured: Callable[[str], None]
) -> None:
    train = node.run("train", 1)
    node.railnet.kill()
    node.containerd.kill_sandbox(train)
    event = node.wait_for_event(train, _WAITS)
    measured(
        f"sandbox made again, daemon back after the ADD: runs {seconds_to_run(node, train):.1f} s later; {event!r}"
    )

    assert "net1" in node.addresses(train)


def wait_for_add(last: str) -> None:
    """Wait until the ADD of the next sandbox is at work."""
    wait_until(lambda: any(added not in ("", last) for added in adds()), _SECONDS, "the next ADD")


def adds() -> list[str]:
    """Return the containers that an ADD is running for."""
    found = []
    for process in running_plugins.requests(Path("/")):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            environ = dict(
                pair.partition(b"=")[::2] for pair in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
            )
            if environ.get(b"CNI_COMMAND") == b"ADD":
                found.append(environ.get(b"CNI_CONTAINERID", b"").decode())
    return found


def seconds_to_run(node: ClusterNode, name: str) -> float:
    """Start the daemon; gives the seconds from when it serves until a pod runs in its new sandbox."""
    node.railnet.start()
    node.wait_until_restarted(name)
    return time.time() - node.railnet.said_at(_SERVES)


def test_pod_deleted_without_a_daemon_gives_its_vfs_back_to_the_next(node: ClusterNode) -> None:
    train = node.run("train", 1)
    node.railnet.kill()
    node.delete(train)
    wait_until(lambda: not list(Path("/run/netns").glob("*")), _SECONDS, "the sandbox to go")
    node.railnet.start()

    node.forget_pods()
    wide = node.run("wide", VFS * len(PFS))
    assert len(node.addresses(wide)) == 1 + VFS * len(PFS)
