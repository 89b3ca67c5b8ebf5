"""Pods come and go on a node while things die; then nothing may be left. `python -m simnode.chaos.churn`, inside `simnode exec`.

What happens is decided in `lives`, done and judged by `operations`, counted in `tally`.
"""

import argparse
import json
import os
import sys
import threading
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from simnode.chaos import churn_schedule
from simnode.chaos.churn_schedule import Block, Fate, Hit, Life, NodeFate
from simnode.chaos.interference import Meddling
from simnode.chaos.operations import ADD_SECONDS, Operations, Stuck
from simnode.chaos.tally import RAIL_ADD, Tally, rendered
from simnode.hardware.hardware_model import SimulatedPf
from simnode.host_files import CONFIGURATION
from simnode.judge.facts import Facts
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import Sandbox
from simnode.linux import raise_priority
from simnode.node import Node
from vf.address import PciAddress
from vf.guid import Guid

PFS = tuple(
    SimulatedPf(PciAddress(0, 3 + 0x10 * rail, 0, 0), Guid(0xB8599F0300F98F00 + 0x10 * rail), f"ibs{rail}")
    for rail in range(8)
)
VFS = 8  # of each PF
_PRIMARY = Path("/etc/cni/net.d/10-flannel.conflist")
_RESIDENTS = (1, 0, 2, 1)  # pods that stay from beginning to end, with so many VFs
_WARM_AT_ONCE = 8
_PATIENCE_SECONDS = 60.0
_SWITCH_SECONDS = 0.0005  # the HCA's thread, which is the kernel's part, is among all those that wait for plugins
_LATEST = 1000  # lives after which no DEL comes any more


class Churn:
    """One run on a node whose daemon serves."""

    def __init__(self, node: Node, tally: Tally, seed: int, at_once: int) -> None:
        self._node, self._tally, self._seed, self._at_once = node, tally, seed, at_once
        self._operations = Operations(node, tally)
        self._late_lock = threading.Lock()
        self._late: list[tuple[int, Sandbox]] = []
        self._before: Facts

    def run(self, operations: int) -> None:
        """Go on until there were so many operations, or something is wrong."""
        self._warm()
        self._before = self._node.look()
        residents = [self._resident(number, vfs) for number, vfs in enumerate(_RESIDENTS)]
        first = number = 0
        while self._tally.operations < operations and not self._operations.is_over:
            block = churn_schedule.block(self._seed, number, first, self._at_once)
            self._live(block)
            self._rest(*(sandbox for _, sandbox in residents))
            first, number = first + len(block.lives), number + 1
            self._say(block)
        if self._operations.is_over:
            return
        for identity, sandbox in residents:
            self._node.kubelet.remove(identity)
            self._operations.tear_down(sandbox)
        self._late_deletes(first + _LATEST)
        self._operations.look_until_collected(self._before)

    def _warm(self) -> None:
        """Have everything made that pods leave for good: the bridge, chains of iptables, the daemon's threads."""

        def pod(number: int) -> None:
            identity, sandbox = self._resident(number, 1, host_port=20000)
            self._node.kubelet.remove(identity)
            self._operations.tear_down(sandbox)

        with ThreadPoolExecutor(_WARM_AT_ONCE) as pool:
            list(pool.map(pod, range(_WARM_AT_ONCE)))
        self._operations.collect()

    def _resident(self, number: int, vfs: int, host_port: int | None = None) -> tuple[PodIdentity, Sandbox]:
        identity = PodIdentity(f"resident-{number}", "default", str(uuid.uuid4()))
        self._operations.admit(identity, vfs)
        return identity, self._bring_up(identity, host_port)

    def _live(self, block: Block) -> None:
        with ThreadPoolExecutor(block.at_once, initializer=raise_priority.raise_own) as pool:
            list(pool.map(self._life, block.lives))

    def _life(self, life: Life) -> None:
        if self._operations.is_over:
            return
        try:
            if isinstance(life.fate, Fate):
                self._pod(life, life.fate)
            else:
                self._node_fate(life, life.fate)
            self._late_deletes(life.number)
        except Stuck as stuck:
            if not self._operations.is_over:
                self._operations.wrong(f"life {life.number} ({life.fate}): {stuck}")
        except Exception:  # noqa: BLE001 - reported with the seed
            self._operations.wrong(f"life {life.number} ({life.fate}): {traceback.format_exc()}")

    def _node_fate(self, life: Life, fate: NodeFate) -> None:
        match fate:
            case "GC":
                self._operations.collect()
            case "daemon killed":
                self._operations.kill_daemon(life.moment)
            case "daemon restarted":
                self._operations.restart_daemon()

    def _pod(self, life: Life, fate: Fate) -> None:
        identity = PodIdentity(f"life-{life.number}", "default", str(uuid.uuid4()))
        self._operations.admit(identity, life.vfs)
        sandbox = self._first_sandbox(life, fate, identity) or self._bring_up(identity, life.host_port)
        self._stay(fate, sandbox)
        self._node.kubelet.remove(identity)  # its devices may be another pod's before its DEL, as on a real node
        if fate.end.startswith("DEL"):
            hit = None if fate.delete is None else self._hit(fate.delete, "DEL", life, sandbox)
            self._operations.tear_down(sandbox, hit)
        if fate.end == "DEL twice":
            self._operations.delete(sandbox)
        elif "late" in fate.end:
            with self._late_lock:
                self._late.append((life.number + life.late, sandbox))

    def _first_sandbox(self, life: Life, fate: Fate, identity: PodIdentity) -> Sandbox | None:
        """Make the sandbox whose ADD is hit; None if it has no networks then, as if nothing was to hit it."""
        if fate.add is None:
            return None
        sandbox = self._operations.make_sandbox(identity, life.host_port)
        meddling = self._hit(fate.add, "ADD", life, sandbox)
        if self._operations.add(sandbox, meddling) and not meddling.happened:
            if self._operations.pre_start(identity, sandbox):
                return sandbox
        elif fate.forgotten:
            self._operations.forget(sandbox)
            return None
        self._operations.tear_down(sandbox)  # also where it has succeeded: what hit it has taken it away
        return None

    def _bring_up(self, identity: PodIdentity, host_port: int | None) -> Sandbox:
        """Make sandboxes until one has its networks, as kubelet does."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < give_up and not self._operations.is_over:
            sandbox = self._operations.make_sandbox(identity, host_port)
            if self._operations.add(sandbox) and self._operations.pre_start(identity, sandbox):
                return sandbox
            self._operations.tear_down(sandbox)
        raise Stuck(f"no sandbox of pod {identity.name} gets its networks")

    def _stay(self, fate: Fate, sandbox: Sandbox) -> None:
        match fate.stay:
            case "CHECK":
                self._operations.check(sandbox)
            case "look":
                self._operations.look_at(self._before, sandbox)
            case "namespace dies":
                self._operations.destroy_namespace(sandbox)
            case None:
                pass

    def _hit(self, what: Hit, verb: str, life: Life, sandbox: Sandbox) -> Meddling:
        """Return what hits an operation in this life."""
        usual = self._operations.usual(RAIL_ADD if verb == "ADD" else verb)
        return Meddling(life.moment * usual, lambda process: self._operations.hit(what, life.pick, process, sandbox))

    def _late_deletes(self, number: int) -> None:
        with self._late_lock:
            due = [sandbox for at, sandbox in self._late if at <= number]
            self._late = [one for one in self._late if one[0] > number]
        for sandbox in due:
            self._operations.tear_down(sandbox)

    def _rest(self, *residents: Sandbox) -> None:
        """Look at the node while only residents are on it; what was never deleted is collected first."""
        if self._operations.is_over:
            return
        self._operations.collect()
        for sandbox in residents:
            self._operations.check(sandbox)
        self._operations.look(self._before, *residents)

    def _say(self, block: Block) -> None:
        done = self._tally.operations
        sys.stderr.write(f"  {done} operations, the last {len(block.lives)} lives with {block.at_once} at once …\n")
        sys.stderr.flush()


def run(plugins: Path, seed: int, operations: int, at_once: int) -> dict[str, Any]:
    """Make a node, churn, and give the summary; inside `simnode exec` only."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    tally, began = Tally(seed), time.monotonic()
    with Node(plugins, PFS, VFS) as node:
        # kube-flannel writes 0.3.1, which has no CHECK; its plugin knows this version.
        _PRIMARY.write_text(_PRIMARY.read_text().replace('"cniVersion": "0.3.1"', '"cniVersion": "0.4.0"'))
        configuration = json.loads(CONFIGURATION.read_text())
        CONFIGURATION.write_text(json.dumps({**configuration, "timeouts": {"add": f"{ADD_SECONDS}s"}}))
        node.install()
        node.start_daemon()
        Churn(node, tally, seed, at_once).run(operations)
    return tally.summary(time.monotonic() - began)


def main(arguments: list[str]) -> int:
    """Churn and print; gives 1 if something is left over or was wrong."""
    parser = argparse.ArgumentParser(prog="scripts/churn", description=__doc__)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"), help="repeat a churn")
    parser.add_argument("--operations", type=int, default=10_000, help="go on until there were so many (10000)")
    parser.add_argument("--parallel", type=int, default=32, help="lives at once, at most (32)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    asked = parser.parse_args(arguments)
    sys.stderr.write(f"  seed {asked.seed} …\n")
    summary = run(Path(os.environ["RAILNET_CNI_PLUGINS"]), asked.seed, asked.operations, asked.parallel)
    sys.stdout.write((json.dumps(summary, indent=2) if asked.json else "\n".join(rendered(summary))) + "\n")
    return 1 if summary["left_over"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
