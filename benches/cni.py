"""Measure a pod's ADD and DEL: the plain chain, and Railnet without a rail, with one rail and with eight.

Run by `scripts/bench cni`, inside a simulated node: 8 PFs with 8 VFs each, the real flannel chain. All loads run in one
process, in rounds whose order alternates; sandboxes are made and devices allocated outside the timed part. Beside them it
measures what the kernel takes for the bare move of such a netdev to a new namespace, and the processor time of the daemon. Of that, the daemon's
look at the whole node, each ten seconds, has a share that grows with the node's VFs and not with its pods: it is measured at rest.

A DEL is timed until the runtime has its answer. The rails go back after it, so the bench waits for them before the next pod.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode.hardware.pf_properties import SimulatedPf
from simnode.kubernetes import cni_config
from simnode.kubernetes.cni_load_generator import at_once, execute
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import Sandbox
from simnode.linux import libc
from simnode.node import RESOURCE, Node

ROUNDS = 5
VFS = 8
PER_ROUND = {1: 40, 8: 40}
LOADS = {"plain": 0, "no_rail": 0, "one_rail": 1, "eight_rails": 8}
PLAIN = "plain"  # the only load without the daemon
MOVES = 40  # in each round
REST_SECONDS = 20.0  # two looks at the whole node (railnet/daemon/resync/periodic_resync.py)
_CPUCLOCK_SCHED = 2  # include/linux/posix-timers_types.h


@dataclass(slots=True)
class Times:
    """Milliseconds of each ADD and DEL; of each round ADDs per second, milliseconds for a pod, and of those the daemon's processor time."""

    add: list[float] = field(default_factory=list)
    delete: list[float] = field(default_factory=list)
    add_per_s: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    daemon: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return what is reported."""
        return {
            "add_ms": _percentiles(self.add),
            "del_ms": _percentiles(self.delete),
            "add_per_s": round(statistics.median(self.add_per_s), 1),
            "whole_ms": round(statistics.mean(self.whole), 1),
            "daemon_cpu_ms": round(statistics.mean(self.daemon), 2),
            "rounds_add_p50_ms": [round(statistics.median(part), 2) for part in _parts(self.add)],
            "rounds_del_p50_ms": [round(statistics.median(part), 2) for part in _parts(self.delete)],
        }


@dataclass(frozen=True, slots=True)
class Job:
    """One sandbox of one load, ready to be timed."""

    identity: PodIdentity
    sandbox: Sandbox
    network: cni_config.NetworkList


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench cni", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"interleaved rounds ({ROUNDS})")
    parser.add_argument("--vfs", type=int, default=VFS, help=f"VFs of each of the 8 PFs ({VFS})")
    parser.add_argument("--plugin-conf", type=Path, help="measure this CNI configuration, too")
    parser.add_argument("--plugin-dir", type=Path, help="copy this folder's plugins to the node for --plugin-conf")
    arguments = parser.parse_args()
    plugins = Path(os.environ["RAILNET_CNI_PLUGINS"])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as disk, on_disk(disk), _node(plugins, arguments.vfs) as node:
        if arguments.plugin_dir:
            _copy_plugins(arguments.plugin_dir)
        node.install()
        node.start_daemon()
        results = Bench(node, _networks(arguments.plugin_conf)).run(arguments.rounds)
    print(json.dumps(results) if arguments.json else "\n".join(_table(results)))


def _node(plugins: Path, vfs: int) -> Node:
    pfs = (
        SimulatedPf(
            PciAddress(0, 3 + 0x10 * rail, 0, 0),
            Guid(0xB8599F0300F98F00 + 0x100 * rail),
            f"ibs{rail}",
            totalvfs=max(vfs, 16),
        )
        for rail in range(8)
    )
    return Node(plugins, pfs, vfs)


@contextmanager
def on_disk(disk: str) -> Iterator[None]:
    """Put CNI's programs on a disk, as on a node. On a tmpfs they are mapped in smaller pieces: half a millisecond more each."""
    libc.mount(disk, "/opt/cni/bin", flags=libc.MS_BIND)
    yield
    libc.unmount("/opt/cni/bin")


class Bench:
    """Runs every load at every parallelism, round by round."""

    def __init__(self, node: Node, networks: Mapping[str, cni_config.NetworkList]) -> None:
        self._node = node
        self._networks = networks

    def run(self, rounds: int) -> dict[str, Any]:
        """Return the figures by load and parallelism."""
        cells = [cell for cell in itertools.product(self._networks, PER_ROUND) if self._fits(*cell)]
        times = {cell: Times() for cell in cells}
        moves: list[float] = []
        for load in self._networks:  # warm: bridge, caches, host-local's folder
            self._round(load, 2, 4, Times())
        for number in range(rounds):
            print(f"round {number + 1} of {rounds} …", file=sys.stderr, flush=True)
            for load, parallel in cells if number % 2 == 0 else reversed(cells):
                self._round(load, parallel, PER_ROUND[parallel], times[load, parallel])
            moves += self._moves()
        figures = {
            load: {str(parallel): taken.figures() for (of, parallel), taken in times.items() if of == load}
            for load in self._networks
        }
        rest = self._at_rest()
        rounds_of_moves = [round(statistics.median(part), 2) for part in _parts(moves)]
        return {
            **figures,
            "move": {"1": {"ms": _percentiles(moves), "rounds_p50_ms": rounds_of_moves}},
            "rest": {"daemon_cpu_ms_per_s": round(rest, 2)},
        }

    def _at_rest(self) -> float:
        """Return the milliseconds of a processor that the daemon takes in a second in which no pod comes or goes."""
        print(f"the daemon at rest, {REST_SECONDS:g} s …", file=sys.stderr, flush=True)
        began = self._daemon_seconds()
        time.sleep(REST_SECONDS)
        return (self._daemon_seconds() - began) * 1000 / REST_SECONDS

    def _fits(self, load: str, parallel: int) -> bool:
        return LOADS.get(load, 0) * parallel <= len(self._node.pfs) * self._node.vfs

    def _round(self, load: str, parallel: int, count: int, times: Times) -> None:
        busy = 0.0
        began, began_seconds = time.perf_counter(), self._daemon_seconds()
        for _ in range(count // parallel):
            jobs = [self._prepared(load) for _ in range(parallel)]
            took, adds = at_once([_adder(self._node, job) for job in jobs])
            busy += took
            _, deletes = at_once([_deleter(self._node, job, add.answer) for job, add in zip(jobs, adds, strict=True)])
            times.add += [add.milliseconds for add in adds]
            times.delete += [delete.milliseconds for delete in deletes]
            for job in jobs:
                self._node.runtime.remove_sandbox(job.sandbox)
                self._node.kubelet.remove(job.identity)
            self._node.wait_for_answered_deletes()
        pods = count // parallel * parallel
        times.add_per_s.append(pods / busy)
        times.whole.append((time.perf_counter() - began) * 1000 / pods)
        times.daemon.append(0.0 if load == PLAIN else (self._daemon_seconds() - began_seconds) * 1000 / pods)

    def _daemon_seconds(self) -> float:
        """Return the processor time of the daemon and its threads (clock_getcpuclockid(3): the clock of a process)."""
        process = self._node.daemon.process
        if process is None:
            raise RuntimeError("the daemon does not run")
        return time.clock_gettime((~process.pid << 3) | _CPUCLOCK_SCHED)

    def _moves(self) -> list[float]:
        """Move the netdev of a free VF to a new namespace, again and again; return the milliseconds of each move."""
        netdev, took = f"{self._node.pfs[-1].netdev}v0", []
        with IPRoute() as route:
            (ifindex,) = route.link_lookup(ifname=netdev)
            for _ in range(MOVES):
                sandbox = self._node.runtime.create_sandbox("default", "move", str(uuid.uuid4()))
                with sandbox.netns.open() as inside, Path("/proc/self/ns/net").open() as outside:
                    began = time.perf_counter()
                    route.link("set", index=ifindex, net_ns_fd=inside.fileno(), state="up")
                    took.append((time.perf_counter() - began) * 1000)
                    with IPRoute(netns=str(sandbox.netns)) as there:
                        there.link("set", index=ifindex, net_ns_fd=outside.fileno())
                self._node.runtime.remove_sandbox(sandbox)
        self._node.hca.settle()
        return took

    def _prepared(self, load: str) -> Job:
        identity = PodIdentity(f"bench-{load.replace('_', '-')}", "default", str(uuid.uuid4()))
        if rails := LOADS.get(load, 0):
            self._node.kubelet.allocate(identity, RESOURCE, rails)
        sandbox = self._node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
        return Job(identity, sandbox, self._networks[load])


def _networks(extra: Path | None) -> dict[str, cni_config.NetworkList]:
    folder = Path("/etc/cni/net.d")
    paths = {"plain": folder / "10-flannel.conflist"}
    paths |= dict.fromkeys(("no_rail", "one_rail", "eight_rails"), folder / "00-railnet.conflist")
    if extra is not None:
        paths[extra.name] = extra
    networks = {}
    for load, path in paths.items():
        network = cni_config.parse(path)
        if network is None:
            sys.exit(f"scripts/bench: {path} is no CNI configuration")
        networks[load] = network
    return networks


def _copy_plugins(folder: Path) -> None:
    for plugin in folder.iterdir():
        target = Path("/opt/cni/bin") / plugin.name
        if plugin.is_file() and not target.exists():
            target.write_bytes(plugin.read_bytes())
            target.chmod(0o755)


def _adder(node: Node, job: Job) -> Callable[[], bytes]:
    def add() -> bytes:
        result: bytes | None = None
        for plugin in job.network.plugins:
            result = _execute(node, "ADD", job, plugin, result)
        return result or b""

    return add


def _deleter(node: Node, job: Job, result: bytes) -> Callable[[], bytes]:
    def delete() -> bytes:
        cached = result if job.network.caches_results else None
        for plugin in reversed(job.network.plugins):
            _execute(node, "DEL", job, plugin, cached)
        return b""

    return delete


def _execute(node: Node, command: str, job: Job, plugin: Mapping[str, Any], result: bytes | None) -> bytes:
    done = execute(node.runtime, command, job.sandbox, job.network, plugin, result)
    if done.status:
        printed = done.printed.decode(errors="replace")
        raise RuntimeError(f"{command} of {plugin['type']} ended with {done.status}: {printed}")
    return done.printed


def _percentiles(milliseconds: list[float]) -> dict[str, float]:
    return {
        "p50": round(statistics.median(milliseconds), 2),
        "p99": round(statistics.quantiles(milliseconds, n=100, method="inclusive")[98], 2),
    }


def _parts(values: list[float]) -> Iterator[list[float]]:
    size = max(PER_ROUND.values())
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _table(results: Mapping[str, Any]) -> Iterator[str]:
    header = "".join(f"{name:>12}" for name in ("ADD p50", "p99", "DEL p50", "p99", "ADD/s", "daemon"))
    for parallel in PER_ROUND:
        yield f"\n{parallel} at once, ms{header}"
        for load, cells in results.items():
            if "add_ms" not in cells.get(str(parallel), ()):  # moves, the rest, and loads that need more VFs
                continue
            cell = cells[str(parallel)]
            numbers = (*cell["add_ms"].values(), *cell["del_ms"].values(), cell["add_per_s"], cell["daemon_cpu_ms"])
            yield f"{load:<14}" + "".join(f"{number:>12.1f}" for number in numbers)
    moved = results["move"]["1"]["ms"]
    yield f"\n{'move':<14}" + "".join(f"{number:>12.1f}" for number in moved.values())
    yield "daemon: its processor time for one pod, with the kubelet's calls before the ADD, and with its share at rest:"
    yield f"{results['rest']['daemon_cpu_ms_per_s']:.1f} ms in a second without pods"
    yield ""
    yield from _ratios(results)


def _ratios(results: Mapping[str, Any]) -> Iterator[str]:
    """Compare medians of the rounds with the plain chain's and with bare moves; and give the target of each."""

    def add(load: str) -> float:
        return float(statistics.median(results[load]["1"]["rounds_add_p50_ms"]))

    def delete(load: str) -> float:
        return float(statistics.median(results[load]["1"]["rounds_del_p50_ms"]))

    def per_second(load: str) -> float:
        return float(results[load]["8"]["add_per_s"])

    def moves(load: str) -> float:
        return (add(load) - add(PLAIN)) / float(statistics.median(results["move"]["1"]["rounds_p50_ms"]))

    one_rail, at_rest = results["one_rail"]["1"], results["rest"]["daemon_cpu_ms_per_s"]
    rows = (
        ("ADD, plain pod / plain chain", add("no_rail") / add(PLAIN), "1.30"),
        ("eight at once, plain pods / chain", per_second(PLAIN) / per_second("no_rail"), "1.05"),
        ("ADD, one rail: chain + … moves", moves("one_rail"), "1.25"),
        ("ADD, eight rails: chain + … moves", moves("eight_rails"), "8.50"),
        ("DEL, one rail / chain's DEL", delete("one_rail") / delete(PLAIN), "1.50"),
        ("daemon's ms for a rail pod", one_rail["daemon_cpu_ms"], "8.00"),
        ("… without its share at rest", one_rail["daemon_cpu_ms"] - at_rest * one_rail["whole_ms"] / 1000, ""),
    )
    yield f"{'':<36}{'measured':>10}{'target':>10}"
    for what, measured, target in rows:
        yield f"{what:<36}{measured:>10.2f}{target:>10}"


if __name__ == "__main__":
    main()
