"""Measure, on a real cluster, an installation step by step, and pods while the daemon is dead.

Run by `scripts/bench cluster`, inside scripts/with-cluster: a control plane and nodes with kubelet, containerd and flanneld, two PFs with four VFs on
each. In each round Railnet is installed, its daemon is killed, and Railnet is uninstalled. Each step of the installation is timed by the program
that acted: containerd's events, the kernel's time of the daemon's socket, the daemon's log. What the API server knows is seen by watching it.
kubelet reports its node's state each second, not each ten seconds. Twenty pods without a rail run in turns with flannel alone.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from benches.pods import Watch, summary, tell
from tests.cluster import dead_daemon
from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import NODE
from tests.cluster.manifests import LABEL, NAMESPACE
from tests.cluster.node import PFS, ClusterNode
from tests.cluster.pods import RESOURCE
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import CONFLIST, parse_time
from tests.cluster.runtime import command
from tests.cluster.worker import VFS

_REGISTRY = Path("/var/lib/kubelet/plugins_registry")
_TASK = re.compile(r"(\S+ \S+) \+0000 UTC k8s\.io /tasks/(start|exit) ")
_SECONDS = 120.0
_DEAD = f"daemon dead: {dead_daemon.PODS} pods without a rail are Ready"
_FLANNEL = f"flannel alone: {dead_daemon.PODS} pods without a rail are Ready"
_BACK: dict[str, Callable[[ClusterNode], dead_daemon.Again | dead_daemon.Replaced]] = {
    "daemon back: a pod that was not bound is Ready": dead_daemon.pod_not_bound,
    "daemon back: the next pod of a Job runs, whose pod was bound as the daemon died": dead_daemon.pod_just_bound,
    "daemon back: a pod runs, whose sandbox was made again, and whose ADD still waits": dead_daemon.sandbox_in_time,
    "daemon back: a pod runs, whose sandbox was made again, and whose ADD has failed": dead_daemon.sandbox_late,
}
Figures = dict[str, list[float]]
"""By what happened, the milliseconds until then, in each round."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    figures: Figures = {}
    with ClusterNode(arguments.nodes) as cluster:
        for number in range(arguments.rounds):
            tell(f"round {number + 1} of {arguments.rounds}")
            for what, seconds in measure(cluster, flannel_first=bool(number % 2)):
                tell(f"  {seconds:7.2f} s {what}")
                figures.setdefault(what, []).append(seconds * 1000)
    report(figures, arguments.json)


def measure(cluster: ClusterNode, *, flannel_first: bool) -> Iterator[tuple[str, float]]:
    """Install Railnet, kill its daemon, uninstall it; yield what each took, in seconds."""
    yield from install(cluster)
    yield from plain_pods(cluster, flannel_first=flannel_first)
    settle(cluster)
    for what, act in _BACK.items():
        yield what, act(cluster).seconds
        settle(cluster)
    cluster.railnet.uninstall()
    cluster.railnet.roll_out()
    cluster.railnet.delete()
    cluster.railnet.forget()


def install(cluster: ClusterNode) -> Iterator[tuple[str, float]]:
    """Install Railnet on a node without it; yield the seconds of each step, in order, and of all after the image's import."""
    began = time.time()
    cluster.railnet.load()
    yield "installation: the image is imported", time.time() - began
    kubectl = ["kubectl", f"--kubeconfig={ADMIN}", "get", "--watch"]
    bound = [*kubectl, "pods", f"--namespace={NAMESPACE}", '--output=jsonpath={.spec.nodeName}{"\\n"}']
    allocatable = [*kubectl, f"node/{NODE}", f'--output=jsonpath={{.status.allocatable.{RESOURCE}}}{{"\\n"}}']
    vfs = str(VFS * len(PFS))
    cluster.kubectl.run("label", "--overwrite", "node", NODE, f"{LABEL}=true")  # as a node is before Railnet comes
    with Watch(command("events")) as tasks, Watch(bound) as pods, Watch(allocatable) as nodes:
        wait_until(lambda: bool(nodes.lines), _SECONDS, "the watches to begin")
        began = time.time()
        cluster.railnet.apply()
        cluster.railnet.start()
        wait_until(lambda: nodes.first(vfs) is not None, _SECONDS, f"allocatable {RESOURCE}")
        starts, ends = task_times(tasks, "start"), task_times(tasks, "exit")
        (socket,) = _REGISTRY.glob("railnet-*.sock")
        points = [
            ("", began),
            ("the pod is bound to the node", pods.first(NODE)),
            ("its sandbox has started", next(starts)),
            ("its init container has started", next(starts)),
            ("its init container has ended", next(ends)),
            ("the daemon's container has started", next(starts)),
            ("the daemon's socket is where kubelet looks", socket.stat().st_mtime),
            ("kubelet has its first ListAndWatch", cluster.railnet.said_at(" devices, ")),
            (f"{RESOURCE} is allocatable", nodes.first(vfs)),
        ]
    times = [(until, at) for until, at in points if at is not None]
    yield "installation: from `kubectl apply` to allocatable VFs", times[-1][1] - began
    for (_, before), (until, at) in pairwise(times):
        yield f"installation: … {until}", at - before


def task_times(tasks: Watch, kind: str) -> Iterator[float]:
    """Yield when containerd says that tasks began or ended, in its order."""
    for _, line in tuple(tasks.lines):
        task = _TASK.match(line)
        if task is not None and task[2] == kind:
            yield parse_time(task[1])


def plain_pods(cluster: ClusterNode, *, flannel_first: bool) -> Iterator[tuple[str, float]]:
    """Kill the daemon; yield the seconds until pods without a rail run, with Railnet's configuration and without."""
    dead_daemon.kill(cluster)
    content = CONFLIST.read_bytes()
    for alone in (flannel_first, not flannel_first):
        if alone:
            CONFLIST.unlink()
        else:
            CONFLIST.write_bytes(content)
        began = time.monotonic()
        names = dead_daemon.run_plain_pods(cluster, "alone" if alone else "ours")
        yield _FLANNEL if alone else _DEAD, time.monotonic() - began
        cluster.delete(*names)
        leave_nothing(cluster.left_over())
    CONFLIST.write_bytes(content)


def settle(cluster: ClusterNode) -> None:
    """Have a daemon that serves the node, no pod, and nothing that is left of one."""
    cluster.railnet.start()
    leave_nothing(cluster.forget_pods())
    cluster.wait_for_vfs(VFS * len(PFS))


def leave_nothing(left: list[str]) -> None:
    """Raise RuntimeError if pods have left something on the node: then the next figure would not be comparable."""
    if left:
        raise RuntimeError(f"pods have left: {', '.join(left)}")


def report(figures: Figures, as_json: bool) -> None:
    """Print medians and the largest, in milliseconds."""
    rows = [(what, *summary(values), len(values)) for what, values in figures.items()]
    if as_json:
        print(json.dumps([dict(zip(("until", "p50", "p99", "rounds"), row, strict=True)) for row in rows]))
        return
    print(f"milliseconds\n\n{'':84}{'p50':>9}{'p99':>9}{'rounds':>8}")
    for what, p50, p99, rounds in rows:
        print(f"{what:84}{p50:9.0f}{p99:9.0f}{rounds:8}")


if __name__ == "__main__":
    main()
