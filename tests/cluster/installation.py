"""From the manifests to allocatable VFs: how long each program takes.

Each time is recorded by the program that acted: containerd's events, the kernel's time of the daemon's socket, the daemon's log. What the
API server knows is seen by watching it.
"""

import re
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.cluster.control_plane import ADMIN
from tests.cluster.ground import NODE
from tests.cluster.node import PFS, VFS, ClusterNode
from tests.cluster.pods import RESOURCE
from tests.cluster.process import wait_until
from tests.cluster.railnet_on_node import NAMESPACE, parse_time
from tests.cluster.runtime import command

_REGISTRY = Path("/var/lib/kubelet/plugins_registry")
_TASK = re.compile(r"(\S+ \S+) \+0000 UTC k8s\.io /tasks/(start|exit) ")
_SECONDS = 120.0


class Step(NamedTuple):
    """What took its seconds until something had happened."""

    until: str
    seconds: float


def measure(node: ClusterNode) -> list[Step]:
    """Install Railnet on a node without it, and give the steps in their order."""
    imported = _timed(node.railnet.load)
    kubectl = ["kubectl", f"--kubeconfig={ADMIN}", "get", "--watch"]
    bound = [*kubectl, "pods", f"--namespace={NAMESPACE}", '--output=jsonpath={.spec.nodeName}{"\\n"}']
    allocatable = [*kubectl, f"node/{NODE}", f'--output=jsonpath={{.status.allocatable.{RESOURCE}}}{{"\\n"}}']
    with Watch(command("events")) as tasks, Watch(bound) as pods, Watch(allocatable) as nodes:
        wait_until(lambda: bool(nodes.lines), _SECONDS, "the watches to begin")
        began = time.time()
        node.railnet.apply()
        applied = time.time()
        node.railnet.start()
        wait_until(lambda: nodes.first(str(VFS * len(PFS))) is not None, _SECONDS, f"allocatable {RESOURCE}")
        starts, ends = iter(tasks.times("start")), iter(tasks.times("exit"))
        points = [
            ("", began),
            ("kubectl has applied what the chart renders", applied),
            ("the pod is bound to the node", pods.first(NODE)),
            ("its sandbox has started", next(starts, None)),
            ("its init container has started", next(starts, None)),
            ("its init container has ended", next(ends, None)),
            ("the daemon's container has started", next(starts, None)),
            ("the daemon's socket is where kubelet looks", _socket()),
            ("kubelet has its first ListAndWatch", node.railnet.said_at(" devices, ")),
            (f"{RESOURCE} is allocatable", nodes.first(str(VFS * len(PFS)))),
        ]
    return [Step("the image is imported", imported), *_steps(points)]


def _steps(points: list[tuple[str, float | None]]) -> list[Step]:
    known = [(until, at) for until, at in points if at is not None]
    return [Step(until, at - before) for (_, before), (until, at) in pairwise(known)]


def _timed(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


def _socket() -> float:
    (found,) = _REGISTRY.glob("railnet-*.sock")
    return found.stat().st_mtime


class Watch:
    """A program that tells of each change by a line, until the end of the block.

    Attributes:
        lines: each with the time at which it was read.
    """

    def __init__(self, arguments: list[str]) -> None:
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
        """Give when a line came first; None if it has not."""
        return next((at for at, found in self.lines if found == line), None)

    def times(self, kind: str) -> list[float]:
        """Give when containerd says that tasks began or ended, in its order."""
        tasks = [_TASK.match(line) for _, line in self.lines]
        return [parse_time(found[1]) for found in tasks if found is not None and found[2] == kind]

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self.lines.append((time.time(), line.rstrip("\n")))
