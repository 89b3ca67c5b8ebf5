"""Measure pods on a real cluster: from `kubectl create` to Ready, and from CRI's RunPodSandbox to its answer.

Run by `scripts/bench pods`, inside scripts/with-cluster: a control plane and nodes with kubelet, containerd and flanneld, eight PFs with 30 VFs on
each. The first node has Railnet. The last node does not, and has the plain chain alone. All loads run in rounds whose order alternates. Before
Railnet is installed, the same plain pods run on both nodes: their ratio is the difference of the nodes, not of Railnet.
Ready is seen by watching the API server; RunPodSandbox is timed by containerd's own log.
"""

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import NODE
from tests.cluster.node import ClusterNode
from tests.cluster.pods import pod
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import parse_time
from tests.cluster.worker import Worker

CARDS, VFS = 8, 30  # so that thirty pods of eight rails fit
AT_ONCE = (1, 8, 30)
SINGLE = 5  # pods one after another, in each round
MANY = 100  # pods with a rail over all nodes, as dranet's paper measures
_SECONDS = 300.0
_READY = '{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\\n"}'
_SANDBOX = re.compile(r'time="([^"]+)" level=info msg="RunPodSandbox for name:\\"([\w-]+)\\"')
_RETURNS = " returns sandbox id "


class Load(NamedTuple):
    """Pods of one kind: how many VFs each asks for, and whether their node has Railnet."""

    name: str
    vfs: int
    railnet: bool


LOADS = (
    Load("plain pod, primary chain alone", 0, railnet=False),
    Load("plain pod, with Railnet", 0, railnet=True),
    Load("one rail", 1, railnet=True),
    Load("eight rails", 8, railnet=True),
)


class Times(NamedTuple):
    """Milliseconds for each pod, from `kubectl create` to Ready, and of RunPodSandbox."""

    ready: list[float]
    sandbox: list[float]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench pods", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=2, help="at least two")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with ClusterNode(arguments.nodes, CARDS, VFS) as cluster:
        report(measure(cluster, arguments.rounds), arguments.json)


Figures = dict[str, dict[str, Times]]
"""By load, and by how many pods were created at once, what each pod took."""


def measure(cluster: ClusterNode, rounds: int) -> Figures:
    """Return all figures."""
    bare = list(cluster.others)[-1]
    figures = compare_nodes(cluster, bare, rounds)
    cluster.railnet.start()
    cluster.wait_for_vfs(CARDS * VFS)
    figures |= {load.name: {str(count): Times([], []) for count in AT_ONCE} for load in LOADS}
    for number in range(rounds):
        for load in LOADS[:: 1 if number % 2 else -1]:
            tell(f"round {number + 1} of {rounds}: {load.name}")
            measure_load(cluster, load, NODE if load.railnet else bare, figures[load.name])
    return figures | measure_many(cluster, rounds)


def compare_nodes(cluster: ClusterNode, bare: str, rounds: int) -> Figures:
    """Measure plain pods on both nodes before Railnet is installed."""
    times = {NODE: Times([], []), bare: Times([], [])}
    for node in itertools.islice(itertools.cycle(times), 2 * SINGLE * rounds):
        run(cluster, [node], 0, 1, times[node])
    return {f"plain pod, no Railnet yet, {node}": {"1": taken} for node, taken in times.items()}


def measure_load(cluster: ClusterNode, load: Load, node: str, figures: dict[str, Times]) -> None:
    """Run one load once, for each count that the node has VFs for."""
    for count in AT_ONCE:
        if load.vfs * count <= CARDS * VFS:
            for _ in range(SINGLE if count == 1 else 1):
                run(cluster, [node], load.vfs, count, figures[str(count)])


def measure_many(cluster: ClusterNode, rounds: int) -> Figures:
    """Run many pods with a rail over all nodes."""
    times = Times([], [])
    nodes = [NODE, *cluster.others]
    with cluster.all_nodes():
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}: {MANY} pods with a rail over {len(nodes)} nodes")
            run(cluster, nodes, 1, MANY, times)
    return {f"one rail, over {len(nodes)} nodes": {str(MANY): times}}


_SERIAL = itertools.count(1)


def run(cluster: ClusterNode, nodes: Sequence[str], vfs: int, count: int, times: Times) -> None:
    """Create pods at once, wait until all are ready, delete them, and wait until none has a running sandbox: its DEL has ended."""
    pods = []
    for _, node in zip(range(count), itertools.cycle(nodes)):
        described = pod(f"bench-{next(_SERIAL)}", vfs)
        described["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        described["spec"]["tolerations"] = [{"operator": "Exists"}]
        described["spec"]["terminationGracePeriodSeconds"] = 0
        pods.append(described)
    names = {described["metadata"]["name"] for described in pods}
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    with watched() as watch:
        began = time.time()
        cluster.kubectl.run("create", "--filename=-", stdin=body)
        wait_until(lambda: names <= ready(watch).keys(), _SECONDS, f"{count} pods to be ready")
        at = ready(watch)
    times.ready.extend((at[name] - began) * 1000 for name in names)
    times.sandbox.extend(itertools.chain.from_iterable(sandboxes(cluster, node, names) for node in nodes))
    cluster.kubectl.run("delete", "pods", "--all", "--wait=true")
    for node in nodes:
        wait_until(partial(is_at_rest, cluster, node), _SECONDS, f"{node} to be at rest")


def is_at_rest(cluster: ClusterNode, node: str) -> bool:
    """Return whether a node has no task of a pod."""
    return not cluster.on(node, Worker.tasks, "default")


class Watch:
    """A program that tells of each change by a line, until the end of the block.

    Attributes:
        lines: each with the time at which it was read.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read)
        self.lines: list[tuple[float, str]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._thread.join()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def first(self, line: str) -> float | None:
        """Give when a line came first, in seconds of time.time; None if it has not."""
        return next((at for at, text in self.lines if text == line), None)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append((time.time(), line.rstrip("\n")))


@contextmanager
def watched() -> Iterator[Watch]:
    """Watch the pods of the default namespace, from before the block on."""
    command = ["kubectl", f"--kubeconfig={ADMIN}", "get", "pods", "--watch", f"--output=jsonpath={_READY}"]
    with Watch(command) as watch:
        time.sleep(0.5)  # an empty list prints nothing, so nothing says that the watch has begun
        yield watch


def ready(watch: Watch) -> dict[str, float]:
    """Return when each pod was first seen to be ready, in seconds of time.time."""
    seen: dict[str, float] = {}
    for at, line in watch.lines:
        name, _, status = line.partition(" ")
        if status == "True":
            seen.setdefault(name, at)
    return seen


def sandboxes(cluster: ClusterNode, node: str, names: set[str]) -> list[float]:
    """Return what RunPodSandbox took for those of the pods that are on a node, in milliseconds."""
    began: dict[str, float] = {}
    took: list[float] = []
    for line in cluster.on(node, Worker.runtime_log).splitlines():
        match = _SANDBOX.match(line)
        if match is None or match[2] not in names:
            continue
        at = parse_time(match[1].removesuffix("Z"))
        if _RETURNS in line:
            took.append((at - began[match[2]]) * 1000)
        else:
            began[match[2]] = at
    return took


def tell(text: str) -> None:
    """Say on stderr how far the run is."""
    print(text, file=sys.stderr, flush=True)


def report(figures: Figures, as_json: bool) -> None:
    """Print medians and 99th percentiles, in milliseconds."""
    rows = [
        (name, count, *summary(times.ready), *summary(times.sandbox), len(times.ready))
        for name, counts in figures.items()
        for count, times in counts.items()
        if times.ready
    ]
    if as_json:
        keys = ("load", "at_once", "ready_p50", "ready_p99", "sandbox_p50", "sandbox_p99", "pods")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
        return
    print(f"milliseconds\n\n{'':42}{'at once':>8}{'create to Ready':>18}{'RunPodSandbox':>18}{'pods':>6}")
    print(f"{'':50}{'p50':>9}{'p99':>9}{'p50':>9}{'p99':>9}")
    for name, count, *values, pods in rows:
        print(f"{name:42}{count:>8}" + "".join(f"{value:9.0f}" for value in values) + f"{pods:>6}")


def summary(values: list[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile, which is the largest of fewer than a hundred values."""
    return statistics.median(values), sorted(values)[int(len(values) * 0.99)]


if __name__ == "__main__":
    main()
