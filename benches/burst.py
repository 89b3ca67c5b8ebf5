"""Start 200 pods at once, beside 64 pods whose device belongs to another pod; then the same with a delegate that hangs.

Run by `scripts/bench burst`, inside a simulated node: 8 PFs with 9 VFs each, the real flannel chain. A round is 64 pods with a rail
and 136 without, all started at the same moment, with 64 more for which kubelet's checkpoint names a VF of a pod that runs: those
must get code 100. STATUS is asked every 100 ms meanwhile. Rounds with a hung delegate alternate with rounds without one, and have
one pod more: its flannel does nothing for half a minute. The figure is the ratio of the two p99 of all ADDs but the hung one.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import SimulatedPf
from simnode.kubernetes import cni_config
from simnode.kubernetes.cni_load_generator import Executed, Timed, at_once, execute
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import Sandbox
from simnode.linux import libc
from simnode.node import RESOURCE, Node, Pod

ROUNDS = 3
RAIL_PODS, PLAIN_PODS, STRANGERS = 64, 136, 64
RAILS, VFS = 8, 9  # on each PF: eight for the burst, one for a pod that runs all the time
HUNG_SECONDS = 30
STATUS_EVERY = 0.1
HUNG = "hung"  # the pod's name, which its flannel knows
PFS = tuple(
    SimulatedPf(PciAddress(0, 3 + 0x10 * rail, 0, 0), Guid(0xB8599F0300F98F00 + 0x10 * rail), f"ibs{rail}")
    for rail in range(RAILS)
)
_PLUGINS = Path("/opt/cni/bin")
_READY_SECONDS = 60  # the next sweep, where a DEL was served without the daemon
_FLANNEL = f"""#!/bin/sh
case "$CNI_COMMAND $CNI_ARGS" in "ADD "*K8S_POD_NAME={HUNG}*) exec sleep {HUNG_SECONDS} ;; esac
exec {_PLUGINS}/flannel.real
"""


@dataclass(slots=True)
class Burst:
    """The results of the rounds of one kind: milliseconds by kind of pod, and the wrong answers."""

    milliseconds: dict[str, list[float]] = field(default_factory=lambda: {"rail": [], "plain": [], "stranger": []})
    status_ms: list[float] = field(default_factory=list)
    hung_ms: list[float] = field(default_factory=list)
    rounds_p99: list[float] = field(default_factory=list)
    wrong: Counter[str] = field(default_factory=Counter)

    def served(self) -> list[float]:
        """Return the times of all ADDs that had to succeed."""
        return self.milliseconds["rail"] + self.milliseconds["plain"]

    def figures(self) -> dict[str, Any]:
        """Return what is reported."""
        kinds = {kind: _percentiles(times) for kind, times in self.milliseconds.items() if times}
        more = {"hung": _percentiles(self.hung_ms)} if self.hung_ms else {}
        return {
            "ms": {**kinds, "all served": _percentiles(self.served()), **more, "STATUS": _percentiles(self.status_ms)},
            "rounds_p99_ms": self.rounds_p99,
            "STATUS asked": len(self.status_ms),
            "wrong": dict(self.wrong),
        }


@dataclass(frozen=True, slots=True)
class Job:
    """One sandbox, ready for its ADD; `kind` is the expected result."""

    kind: str
    identity: PodIdentity
    sandbox: Sandbox


def main() -> None:
    """Measure and print; the exit status is 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="scripts/bench burst", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"interleaved rounds of each kind ({ROUNDS})")
    arguments = parser.parse_args()
    plugins = Path(os.environ["RAILNET_CNI_PLUGINS"])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as disk, on_disk(disk), Node(plugins, PFS, VFS) as node:
        hang_some(_PLUGINS)
        node.install()
        node.start_daemon()
        bursts = Bench(node).run(arguments.rounds)
    figures: dict[str, Any] = {kind: burst.figures() for kind, burst in bursts.items()}
    figures["p99 with a hung delegate : without"] = round(ratio(bursts), 2)
    print(json.dumps(figures) if arguments.json else "\n".join(_table(figures)))
    sys.exit(1 if any(burst.wrong for burst in bursts.values()) else 0)


@contextmanager
def on_disk(disk: str) -> Iterator[None]:
    """Put CNI's programs on a disk, as on a node."""
    libc.mount(disk, str(_PLUGINS), flags=libc.MS_BIND)
    yield
    libc.unmount(str(_PLUGINS))


def hang_some(folder: Path) -> None:
    """Put a program in the place of flannel that hangs for the pod `HUNG` and runs flannel for all others."""
    (folder / "flannel").rename(folder / "flannel.real")
    (folder / "flannel").write_text(_FLANNEL)
    (folder / "flannel").chmod(0o755)


def ratio(bursts: dict[str, Burst]) -> float:
    """Compare the p99 of all served pods: each round with the round beside it, then the median of the rounds."""
    pairs = zip(bursts["one hung"].rounds_p99, bursts["none hung"].rounds_p99, strict=True)
    return statistics.median(hung / without for hung, without in pairs)


class Bench:
    """Runs rounds of both kinds in turn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        network = cni_config.find(node.runtime.configurations)
        self._network = network

    def run(self, rounds: int) -> dict[str, Burst]:
        """Return the results of each kind."""
        bursts = {"none hung": Burst(), "one hung": Burst()}
        staying = [self._node.run_pod(f"stays-{number}", vfs=1) for number in range(RAILS)]
        for number in range(rounds):
            kinds = list(bursts)
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                print(f"round {number + 1} of {rounds}, {kind} …", file=sys.stderr, flush=True)
                self._round(bursts[kind], staying, hung=kind == "one hung")
        for pod in staying:
            self._node.remove_pod(pod)
        return bursts

    def _round(self, burst: Burst, staying: list[Pod], *, hung: bool) -> None:
        jobs = [
            *(self._job("rail", vfs=1) for _ in range(RAIL_PODS)),
            *(self._job("plain") for _ in range(PLAIN_PODS)),
            *(self._stranger(staying[number % RAILS]) for number in range(STRANGERS)),
        ]
        # As on a node, the kinds are mixed: not one kind after the other.
        jobs.sort(key=lambda job: job.identity.uid)
        if hung:
            jobs.insert(len(jobs) // 4, self._job(HUNG))
        with self._asking_status(burst):
            _, timed = at_once([self._verb("ADD", job) for job in jobs])
        for job, request in zip(jobs, timed, strict=True):
            self._judge(burst, job, request)
        served = [
            request.milliseconds for job, request in zip(jobs, timed, strict=True) if job.kind in ("rail", "plain")
        ]
        burst.rounds_p99.append(_percentiles(served)["p99"])
        _, deleted = at_once([self._verb("DEL", job) for job in jobs])
        burst.wrong.update(f"DEL: {request.answer.printed.decode()}" for request in deleted if request.answer.status)
        for job in jobs:
            self._node.runtime.remove_sandbox(job.sandbox)
            self._node.kubelet.remove(job.identity)
        self._node.hca.settle()
        self._node.kubelet.wait_for_devices(RESOURCE, RAILS * VFS, _READY_SECONDS)

    def _judge(self, burst: Burst, job: Job, request: Timed) -> None:
        code = None if request.answer.status == 0 else json.loads(request.answer.printed).get("code")
        expected = {"stranger": 100, HUNG: 106}.get(job.kind)
        if code != expected:
            burst.wrong[f"{job.kind}: {'success' if code is None else request.answer.printed.decode()}"] += 1
        elif job.kind == HUNG:
            burst.hung_ms.append(request.milliseconds)
        else:
            burst.milliseconds[job.kind].append(request.milliseconds)

    def _job(self, kind: str, vfs: int = 0) -> Job:
        identity = PodIdentity(kind, "default", str(uuid.uuid4()))
        if vfs:
            self._node.kubelet.allocate(identity, RESOURCE, vfs)
        return self._ready(kind, identity)

    def _stranger(self, owner: Pod) -> Job:
        identity = PodIdentity("stranger", "default", str(uuid.uuid4()))
        self._node.kubelet.claim(identity, RESOURCE, owner.device_ids)
        return self._ready("stranger", identity)

    def _ready(self, kind: str, identity: PodIdentity) -> Job:
        sandbox = self._node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
        return Job(kind, identity, sandbox)

    def _verb(self, command: str, job: Job) -> Callable[[], Executed]:
        plugin = self._network.plugins[0]
        return lambda: execute(self._node.runtime, command, job.sandbox, self._network, plugin)

    @contextmanager
    def _asking_status(self, burst: Burst) -> Iterator[None]:
        """Ask STATUS every 100 ms, in a thread, until the end of the block."""
        over = threading.Event()
        thread = threading.Thread(target=self._ask_status, args=(burst, over))
        thread.start()
        yield
        over.set()
        thread.join()

    def _ask_status(self, burst: Burst, over: threading.Event) -> None:
        newer = replace(self._network, version="1.1.0")  # libcni picks it from `cniVersions`
        no_sandbox = Sandbox("", Path(), "", "", "")
        while not over.wait(STATUS_EVERY):
            began = time.perf_counter()
            done = execute(self._node.runtime, "STATUS", no_sandbox, newer, newer.plugins[0])
            burst.status_ms.append((time.perf_counter() - began) * 1000)
            if done != Executed(0, b""):
                burst.wrong[f"STATUS: {done.printed.decode()}"] += 1


def _percentiles(milliseconds: list[float]) -> dict[str, float]:
    if len(milliseconds) < 2:  # noqa: PLR2004 - quantiles need two
        return dict.fromkeys(("p50", "p99", "max"), round(sum(milliseconds), 1))
    return {
        "p50": round(statistics.median(milliseconds), 1),
        "p99": round(statistics.quantiles(milliseconds, n=100, method="inclusive")[98], 1),
        "max": round(max(milliseconds), 1),
    }


def _table(figures: dict[str, Any]) -> Iterator[str]:
    for kind, figure in figures.items():
        if not isinstance(figure, dict):
            yield f"\n{kind:<40}{figure:>8.2f}"
            continue
        yield f"\n{kind + ', ms':<28}" + "".join(f"{name:>12}" for name in ("p50", "p99", "max"))
        for name, percentiles in figure["ms"].items():
            yield f"{name:<28}" + "".join(f"{number:>12.1f}" for number in percentiles.values())
        yield f"STATUS asked {figure['STATUS asked']} times; wrong answers: {figure['wrong'] or 'none'}"


if __name__ == "__main__":
    main()
