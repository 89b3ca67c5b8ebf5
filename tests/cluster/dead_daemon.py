"""Pods on a node whose daemon is dead, and what becomes of them when it is back: what tests and a bench share.

Each function leaves its pods. After `railnet.kill()` there is no daemon until `railnet.start()`.
"""

import contextlib
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from cni.host import lock
from cni.sandbox_locks import remove_unheld
from railnet.install import running_plugins
from tests.cluster.node import ClusterNode
from tests.cluster.pods import job, pod
from tests.cluster.process import until_found, wait_until
from tests.cluster.railnet_on_node import CONFLIST

PODS = 20
_SECONDS = 240.0  # as a pod may take on a busy node (tests/cluster/node.py)
_SERVES = "serving on "  # railnet/daemon/composition.py
_WAITS = "Railnet's daemon did not answer within 5 s"
_DAEMON_SECONDS = 200  # the old pod goes ten seconds late, and machines are busy


class Again(NamedTuple):
    """A pod with a rail that runs, and how many seconds after the daemon served again it did."""

    pod: str
    seconds: float


class Replaced(NamedTuple):
    """The status of a Job's pod that failed, and how many seconds after the daemon served again the Job's next pod ran."""

    failed: dict[str, Any]
    seconds: float


def kill(node: ClusterNode) -> None:
    """Kill the daemon, and remove the locks of what it did at that moment: the next daemon would do so."""
    node.railnet.kill()
    remove_unheld(Path(lock.FOLDER))


def run_plain_pods(node: ClusterNode, prefix: str) -> list[str]:
    """Create pods without a rail, and wait until all are ready; gives their names."""
    names = [f"{prefix}-{number}" for number in range(PODS)]
    node.create(*(pod(name) for name in names))
    node.wait_until_ready(*names)
    return names


def pod_not_bound(node: ClusterNode) -> Again:
    """Have a pod wait for VFs until the daemon is back."""
    node.railnet.kill()
    node.wait_for_vfs(0)
    late = node.bring("late", 1)
    node.wait_for_event(late, "Insufficient rdma/ib_vf")
    node.railnet.start()
    node.wait_until_ready(late)
    return Again(late, _seconds_served(node))


def pod_just_bound(node: ClusterNode) -> Replaced:
    """Have the first pod of a Job be bound as the daemon dies."""
    node.railnet.freeze()  # kubelet still has its stream, so the scheduler sees VFs
    node.kubectl.apply(job("train", 1))
    wait_until(lambda: any("nodeName" in one["spec"] for one in _job_pods(node)), _SECONDS, "the first pod to be bound")
    node.railnet.kill()
    failed, *_ = until_found(lambda: _statuses(node, "Failed"), _SECONDS, "the first pod to fail")
    node.railnet.start()
    wait_until(lambda: bool(_statuses(node, "Running")), _SECONDS, "another pod to run")
    return Replaced(failed, _seconds_served(node))


def _job_pods(node: ClusterNode) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.kubectl.get("pods", "--selector=job-name=train")
    return found


def _statuses(node: ClusterNode, phase: str) -> list[dict[str, Any]]:
    """Return the statuses of the Job's pods that are in a phase."""
    return [one["status"] for one in _job_pods(node) if one["status"]["phase"] == phase]


def sandbox_in_time(node: ClusterNode) -> Again:
    """Kill a pod's sandbox while there is no daemon; the daemon is back while the next sandbox's ADD still waits for it."""
    train = node.run("train", 1)
    node.railnet.kill()
    before = CONFLIST.read_bytes()
    content = json.loads(before)  # only now: a daemon that lives puts its own back
    content["plugins"][0]["seconds"]["daemon"] = _DAEMON_SECONDS
    CONFLIST.write_text(json.dumps(content))
    try:
        sandbox = node.containerd.kill_sandbox(train)
        wait_until(lambda: any(added not in ("", sandbox) for added in _adds()), _SECONDS, "the next ADD")
        return _back(node, train)
    finally:
        CONFLIST.write_bytes(before)


def sandbox_late(node: ClusterNode) -> Again:
    """Kill a pod's sandbox while there is no daemon; the next sandbox's ADD has failed when the daemon is back."""
    train = node.run("train", 1)
    node.railnet.kill()
    node.containerd.kill_sandbox(train)
    node.wait_for_event(train, _WAITS)
    return _back(node, train)


def _back(node: ClusterNode, name: str) -> Again:
    """Start the daemon, and wait until a pod runs in its new sandbox."""
    node.railnet.start()
    node.wait_until_restarted(name)
    return Again(name, _seconds_served(node))


def _seconds_served(node: ClusterNode) -> float:
    return time.time() - node.railnet.said_at(_SERVES)


def _adds() -> list[str]:
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
