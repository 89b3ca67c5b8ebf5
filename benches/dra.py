"""Measure claims: Prepare and Unprepare, a claim and its ADD beside the device plugin's way, and the daemon's memory in both ways.

Run by `scripts/bench dra`, inside a simulated node: 8 PFs with 9 VFs each, the real flannel chain, the API server's stand-in in this process. Kubelet's
own histogram of these calls begins at 100 ms, so they are made as kubelet makes them, by a connection that is kept. The node is switched between its two
ways of offering VFs in turns. Of a pod with one VF, the time counts from kubelet's first call until its ADD has succeeded: Allocate, or Prepare with
both writes of `dra_manager_state`. The memory is VmRSS, of a daemon that has just started, without its supervisor, and with 64 VFs attached.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benches.memory import PFS, RAILS, VFS, kibibytes
from railnet.apiserver.service_account import FOLDER
from railnet.vf.dra_device_name import device_name
from railnet.vf.pci_address import PciAddress
from simnode.kubernetes.api_server import ApiServer
from simnode.kubernetes.cni_load_generator import at_once
from simnode.kubernetes.kubelet import PodIdentity
from simnode.node import RESOURCE, Node, Pod
from simnode.preinstalled_files import CONFIGURATION

ROUNDS, CALLS, PODS = 3, 210, 40
AT_ONCE = 30
NODE = "bench"
WAYS = ("device-plugin", "dra")
_SECONDS = 120.0  # for a machine under load
_STARTED_SECONDS, _REST_SECONDS = 5.0, 2.0  # as benches.memory


@dataclass(slots=True)
class Times:
    """Milliseconds of each call and each pod, by what was measured; and MiB of the daemon, by way and moment."""

    milliseconds: dict[str, list[float]] = field(default_factory=dict)
    mebibytes: dict[str, list[float]] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        """Return what is reported: percentiles of all rounds, and medians of memory."""
        return {
            "ms": {name: _percentiles(times) for name, times in self.milliseconds.items()},
            "MiB": {name: round(statistics.median(sizes), 1) for name, sizes in self.mebibytes.items()},
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench dra", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds, each with both ways ({ROUNDS})")
    arguments = parser.parse_args()
    plugins = Path(os.environ["RAILNET_CNI_PLUGINS"])
    with tempfile.TemporaryDirectory() as bytecode, ApiServer(FOLDER) as server, Node(plugins, PFS, VFS) as node:
        server.nodes["", NODE] = {"metadata": {"name": NODE, "uid": NODE, "labels": {}}, "spec": {}, "status": {}}
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode, "PYTHONOPTIMIZE": "2"}
        node.daemon.environment = {**server.environment, "NODE_NAME": NODE, **compiled}
        node.install()
        times = Bench(node, server).run(arguments.rounds)
    print(json.dumps(times.figures()) if arguments.json else "\n".join(_table(times.figures())))


class Bench:
    """Runs rounds of both ways in turn."""

    def __init__(self, node: Node, server: ApiServer) -> None:
        """Measure a node beside the API server of its daemon."""
        self._node, self._server = node, server
        self._times = Times()
        self._vfs = [
            PciAddress(0, pf.address.bus, (number + 1) // 8, (number + 1) % 8) for pf in PFS for number in range(VFS)
        ]

    def run(self, rounds: int) -> Times:
        """Return the times of all rounds."""
        self._offer("dra")  # the first daemon of each way compiles
        self._offer("device-plugin")
        for number in range(rounds):
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                print(f"round {number + 1} of {rounds}, {way} …", file=sys.stderr, flush=True)
                self._offer(way)
                self._round(way)
        return self._times

    def _round(self, way: str) -> None:
        time.sleep(_STARTED_SECONDS)
        self._note_memory(f"{way}: started")
        stay = [self._run(way, f"stays-{rail}", self._vfs[rail * RAILS : (rail + 1) * RAILS]) for rail in range(RAILS)]
        time.sleep(_REST_SECONDS)
        self._note_memory(f"{way}: {RAILS * RAILS} VFs attached")
        for pod in stay:
            self._remove(way, pod)
        for _ in range(PODS):
            began = time.perf_counter()
            pod = self._run(way, "comes-and-goes", self._vfs[:1])
            self._note(f"{way}: kubelet's first call to ADD done", began)
            self._remove(way, pod)
        if way == "dra":
            self._calls()

    def _calls(self) -> None:
        """Prepare and unprepare claims, one after the other and many at once."""
        kubelet = self._node.kubelet.dra
        for parallel in (1, AT_ONCE):
            for _ in range(CALLS // parallel):
                claims = [self._claim([vf], a_pod("waits")) for vf in self._vfs[:parallel]]
                for name, call in (("Prepare", kubelet.call_prepare), ("Unprepare", kubelet.call_unprepare)):
                    self._call(f"{name}, {parallel} at once", [partial(call, claim) for claim in claims])
                self._server.claims.clear()

    def _call(self, name: str, calls: Sequence[Callable[[], str]]) -> None:
        _, answers = at_once(calls)
        refused = [answer.answer for answer in answers if answer.answer]
        if refused:
            raise RuntimeError(refused[0])
        self._times.milliseconds.setdefault(name, []).extend(answer.milliseconds for answer in answers)

    def _offer(self, way: str) -> None:
        """Start the daemon of a node that offers its VFs in this way."""
        self._node.stop_daemon()
        document = json.loads(CONFIGURATION.read_text())
        CONFIGURATION.write_text(json.dumps({**document, "offer": way}))
        before = self._node.kubelet.dra.registrations
        self._node.start_daemon(wait=False)
        if way == "dra":
            self._node.kubelet.dra.wait_for_registration(before, _SECONDS)
            self._server.wait_until(lambda: self._offered() == len(self._vfs))
        else:
            self._node.kubelet.wait_for_devices(RESOURCE, len(self._vfs), _SECONDS)
            self._server.wait_until(lambda: not self._server.slices)

    def _offered(self) -> int:
        return sum(len(document["spec"]["devices"]) for document in tuple(self._server.slices.values()))

    def _run(self, way: str, name: str, vfs: list[PciAddress]) -> Pod:
        identity = a_pod(name)
        if way == "dra":
            self._node.kubelet.dra.prepare(identity.uid, self._claim(vfs, identity))
        else:
            self._node.kubelet.allocate(identity, RESOURCE, len(vfs))
        return self._node.run_sandbox(identity)

    def _remove(self, way: str, pod: Pod) -> None:
        self._node.remove_pod(pod)
        if way == "dra":
            self._node.kubelet.dra.unprepare(pod.uid)
        self._node.hca.settle()  # a real card's sysfs shows a moved netdev at once

    def _claim(self, vfs: list[PciAddress], pod: PodIdentity) -> dict[str, Any]:
        """Make a claim in the API server that the scheduler has allocated and reserved for a pod."""
        uid = str(uuid.uuid4())
        results = [
            {"request": "vf", "driver": "rdma.railnet.io", "pool": NODE, "device": device_name(vf)} for vf in vfs
        ]
        claim = {
            "metadata": {"namespace": pod.namespace, "name": uid, "uid": uid},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}],
            },
        }
        self._server.claims[pod.namespace, uid] = claim
        return claim

    def _note(self, name: str, began: float) -> None:
        self._times.milliseconds.setdefault(name, []).append((time.perf_counter() - began) * 1000)

    def _note_memory(self, name: str) -> None:
        pid = self._node.daemon.daemon_pid()
        self._times.mebibytes.setdefault(name, []).append(kibibytes(f"/proc/{pid}/status", "VmRSS:") / 1024)


def a_pod(name: str) -> PodIdentity:
    """Return a pod that has just been made."""
    return PodIdentity(name, "default", str(uuid.uuid4()))


def _percentiles(milliseconds: list[float]) -> dict[str, float]:
    return {
        "p50": round(statistics.median(milliseconds), 1),
        "p99": round(statistics.quantiles(milliseconds, n=100, method="inclusive")[98], 1),
        "of": len(milliseconds),
    }


def _table(figures: dict[str, Any]) -> Iterator[str]:
    yield f"{'ms':<60}{'p50':>10}{'p99':>10}{'of':>10}"
    for name, row in figures["ms"].items():
        yield f"{name:<60}{row['p50']:>10.1f}{row['p99']:>10.1f}{row['of']:>10}"
    yield f"\n{'the daemon, MiB':<60}"
    for name, size in figures["MiB"].items():
        yield f"{name:<60}{size:>10.1f}"


if __name__ == "__main__":
    main()
