"""Measure STATUS, DEL and ADD while no daemon runs and while the daemon is stopped, beside the plain chain.

Run by `scripts/bench absent`, inside a simulated node: the real flannel chain. Rounds of the plain chain, of Railnet without a
daemon and with a stopped one (SIGSTOP) follow one another; medians of all rounds are compared. STATUS must say that `eth0` is
fine, DEL must succeed, ADD of a pod with a rail must fail with code 11 when `timeouts.daemon` is over and not later. The chain's own
DEL takes longer when the machine has rested for a second, as it does while a stopped daemon is waited for; so that is measured, too.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from simnode.kubernetes import cni_config
from simnode.kubernetes.cni_load_generator import Executed, execute
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import Sandbox
from simnode.linux import libc
from simnode.node import RESOURCE, Node

ROUNDS, PER_ROUND = 5, 10
HELLO_SECONDS = 1.0
_PLUGINS = Path("/opt/cni/bin")


def main() -> None:
    """Measure and print; the exit status is 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(prog="scripts/bench absent", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"interleaved rounds ({ROUNDS})")
    arguments = parser.parse_args()
    plugins = Path(os.environ["RAILNET_CNI_PLUGINS"])
    with tempfile.TemporaryDirectory(dir="/var/tmp") as disk, on_disk(disk), Node(plugins) as node:
        node.install()
        node.start_daemon()
        bench = Bench(node)
        bench.run(arguments.rounds)
    figures = bench.figures()
    print(json.dumps(figures) if arguments.json else "\n".join(f"{name:<64}{value}" for name, value in figures.items()))
    sys.exit(1 if bench.wrong else 0)


@contextmanager
def on_disk(disk: str) -> Iterator[None]:
    """Put CNI's programs on a disk, as on a node."""
    libc.mount(disk, str(_PLUGINS), flags=libc.MS_BIND)
    yield
    libc.unmount(str(_PLUGINS))


def configuration(name: str) -> cni_config.NetworkList:
    """Return a CNI configuration of the node."""
    network = cni_config.parse(Path("/etc/cni/net.d") / name)
    if network is None:
        sys.exit("scripts/bench: the node has no CNI configuration")
    return network


class Bench:
    """Runs the rounds; keeps the milliseconds of each measurement, and the wrong answers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._plain = configuration("10-flannel.conflist")
        self._ours = configuration("00-railnet.conflist")
        self._daemon_seconds = float(self._ours.plugins[0]["seconds"]["daemon"])
        self.times: dict[str, list[float]] = {}
        self.wrong: list[str] = []

    def run(self, rounds: int) -> None:
        """Measure; the daemon serves between the rounds, so that each round begins with pods that the daemon made."""
        for number in range(rounds):
            print(f"round {number + 1} of {rounds} …", file=sys.stderr, flush=True)
            states = [("absent", self._absent), ("stopped", self._stopped)]
            for state, away in states if number % 2 == 0 else reversed(states):
                self._round(state, away)

    def figures(self) -> dict[str, object]:
        """Return medians in milliseconds, and ratios."""
        medians = {name: statistics.median(times) for name, times in sorted(self.times.items())}
        plain, rested = medians[_PLAIN["absent"]], medians[_PLAIN["stopped"]]
        stopped = medians["DEL, daemon stopped"] - HELLO_SECONDS * 1000
        return {
            **{f"{name}, ms": round(value, 1) for name, value in medians.items()},
            "DEL, daemon absent : plain chain": round(medians["DEL, daemon absent"] / plain, 2),
            "DEL, daemon stopped, less 1 s : plain chain": round(stopped / plain, 2),
            "DEL, daemon stopped, less 1 s : plain chain after 1 s of rest": round(stopped / rested, 2),
            "slowest STATUS, ms": round(max(max(self.times[f"STATUS, daemon {state}"]) for state in _STATES), 1),
            "slowest ADD of a pod with a rail, over timeouts.daemon, ms": round(
                max(max(self.times[f"ADD with a rail, daemon {state}"]) for state in _STATES)
                - self._daemon_seconds * 1000,
                1,
            ),
            "wrong answers": self.wrong or "none",
        }

    def _round(self, state: str, away: Callable[[], Callable[[], None]]) -> None:
        ours = [self._pod(self._ours) for _ in range(PER_ROUND)]
        plain = [self._pod(self._plain) for _ in range(PER_ROUND)]
        identity = PodIdentity("train", "default", str(uuid.uuid4()))
        self._node.kubelet.allocate(identity, RESOURCE, 1)
        train = self._node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)
        back = away()
        for _ in range(PER_ROUND):
            self._timed(f"STATUS, daemon {state}", self._status)
        for through_railnet, direct in zip(ours, plain, strict=True):
            self._timed(f"DEL, daemon {state}", partial(self._del, self._ours, through_railnet))
            time.sleep(_REST_SECONDS[state])
            self._timed(_PLAIN[state], partial(self._del, self._plain, direct))
        refused = self._timed(f"ADD with a rail, daemon {state}", lambda: self._first("ADD", train), fails=True)
        if refused.status == 0 or json.loads(refused.printed)["code"] != 11:  # noqa: PLR2004
            self.wrong.append(f"ADD of a pod with a rail: {refused.printed.decode()}")
        back()
        self._node.kubelet.remove(identity)
        self._first("DEL", train)
        for sandbox in (*ours, *plain, train):
            self._node.runtime.remove_sandbox(sandbox)

    def _absent(self) -> Callable[[], None]:
        self._node.stop_daemon()
        return self._node.start_daemon

    def _stopped(self) -> Callable[[], None]:
        process = self._node.daemon.process
        if process is None:
            raise RuntimeError("the daemon does not run")
        process.send_signal(signal.SIGSTOP)
        return lambda: process.send_signal(signal.SIGCONT)

    def _timed(self, what: str, call: Callable[[], Executed], *, fails: bool = False) -> Executed:
        began = time.perf_counter()
        done = call()
        self.times.setdefault(what, []).append((time.perf_counter() - began) * 1000)
        if done.status and not fails:
            self.wrong.append(f"{what}: {done.printed.decode()}")
        return done

    def _pod(self, network: cni_config.NetworkList) -> Sandbox:
        sandbox = self._node.runtime.create_sandbox("default", "plain", str(uuid.uuid4()))
        result: bytes | None = None
        for plugin in network.plugins:
            done = execute(self._node.runtime, "ADD", sandbox, network, plugin, result)
            if done.status:
                raise RuntimeError(f"ADD of {plugin['type']}: {done.printed.decode()}")
            result = done.printed
        return sandbox

    def _del(self, network: cni_config.NetworkList, sandbox: Sandbox) -> Executed:
        done = Executed(0, b"")
        for plugin in reversed(network.plugins):
            done = max(done, execute(self._node.runtime, "DEL", sandbox, network, plugin))
        return done

    def _status(self) -> Executed:
        newer = replace(self._ours, version="1.1.0")  # libcni picks it from `cniVersions`
        no_sandbox = Sandbox("", Path(), "", "", "")
        return execute(self._node.runtime, "STATUS", no_sandbox, newer, newer.plugins[0])

    def _first(self, command: str, sandbox: Sandbox) -> Executed:
        return execute(self._node.runtime, command, sandbox, self._ours, self._ours.plugins[0])


_STATES = ("absent", "stopped")
_PLAIN = {"absent": "DEL, plain chain", "stopped": "DEL, plain chain after 1 s of rest"}
_REST_SECONDS = {"absent": 0.0, "stopped": HELLO_SECONDS}


if __name__ == "__main__":
    main()
