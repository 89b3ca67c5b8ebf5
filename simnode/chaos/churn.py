"""The churn: pods come and go on a node while processes are killed, and nothing may be left over. `scripts/churn` runs it.

`churn_schedule` decides what happens, `churn_operations` does and judges it, `churn_statistics` counts it. A webhook runs beside the node;
`webhook_flood` floods and judges it.
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

from railnet.kernel.waiting import block_until
from railnet.vf.guid import Guid
from railnet.vf.pci_address import PciAddress
from simnode import webhook_process
from simnode.chaos import churn_schedule, disturbances
from simnode.chaos.churn_operations import ADD_SECONDS, CardDisturbed, ChurnOperations, Stuck
from simnode.chaos.churn_schedule import Block, Fault, NodeEvent, PodPlan, Step
from simnode.chaos.churn_statistics import RAIL_ADD, ChurnStatistics, rendered
from simnode.chaos.plugin_kills import DelayedFault
from simnode.chaos.webhook_flood import WebhookFlood
from simnode.hardware.pf_properties import SimulatedPf
from simnode.judge.node_state import NodeState
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import Sandbox
from simnode.linux import raise_priority
from simnode.node import Node
from simnode.preinstalled_files import CONFIGURATION
from simnode.webhook_process import Webhook

PFS = tuple(
    SimulatedPf(PciAddress(0, 3 + 0x10 * rail, 0, 0), Guid(0xB8599F0300F98F00 + 0x10 * rail), f"ibs{rail}")
    for rail in range(8)
)
VFS = 8  # on each PF
_PRIMARY = Path("/etc/cni/net.d/10-flannel.conflist")
_RESIDENTS = (1, 0, 2, 1)  # numbers of VFs of the pods that run from the beginning to the end
_WARM_AT_ONCE = 8
# Several kills of the daemon may follow one another, and the starts between them take long on a machine that does much else: with one after
# another, a pod gets no networks for as long. What never gets them is found all the same.
_PATIENCE_SECONDS = 240.0
_PAUSE_SECONDS = 0.3  # kubelet waits longer before it makes another sandbox
_SWITCH_SECONDS = 0.0005  # the HCA's thread simulates the kernel, and all threads that wait for plugins compete with it
_LATEST = 1000  # more steps than any late DEL is late


class Churn:
    """One churn, on a node whose daemon serves, beside a webhook that is ready."""

    def __init__(self, node: Node, webhook: Webhook, statistics: ChurnStatistics, seed: int, at_once: int) -> None:
        self._node, self._statistics, self._seed, self._at_once = node, statistics, seed, at_once
        self._operations = ChurnOperations(node, statistics)
        self._webhook_flood = WebhookFlood(webhook, statistics)
        self._late_lock = threading.Lock()
        self._late: list[tuple[int, Sandbox]] = []
        self._before: NodeState

    def run(self, operations: int) -> None:
        """Run blocks of steps until there were `operations` operations, or a violation is found."""
        self._warm()
        self._before = self._node.look()
        residents = [self._resident(number, vfs) for number, vfs in enumerate(_RESIDENTS)]
        self._operations.keep(*(sandbox for _, sandbox in residents))
        first = number = 0
        while self._statistics.operations < operations and not self._operations.is_over:
            block = churn_schedule.block(self._seed, number, first, self._at_once)
            self._run_block(block)
            self._rest(*(sandbox for _, sandbox in residents))
            first, number = first + len(block.steps), number + 1
            self._print_progress(block)
        if self._operations.is_over:
            return
        for identity, sandbox in residents:
            self._node.kubelet.remove(identity)
            self._operations.tear_down(sandbox)
        self._late_deletes(first + _LATEST)
        self._operations.look_until_collected(self._before)

    def _warm(self) -> None:
        """Run pods and a review, so that all that they leave for good exists: the bridge, chains of iptables, the daemon's threads."""

        def pod(number: int) -> None:
            identity, sandbox = self._resident(number, 1, host_port=20000)
            self._node.kubelet.remove(identity)
            self._operations.tear_down(sandbox)

        with ThreadPoolExecutor(_WARM_AT_ONCE) as pool:
            list(pool.map(pod, range(_WARM_AT_ONCE)))
        self._operations.collect()
        self._webhook_flood.warm()

    def _resident(self, number: int, vfs: int, host_port: int | None = None) -> tuple[PodIdentity, Sandbox]:
        identity = PodIdentity(f"resident-{number}", "default", str(uuid.uuid4()))
        self._operations.admit(identity, vfs)
        return identity, self._bring_up(identity, host_port)

    def _run_block(self, block: Block) -> None:
        with ThreadPoolExecutor(block.at_once, initializer=raise_priority.raise_own) as pool:
            list(pool.map(self._step, block.steps))

    def _step(self, step: Step) -> None:
        if self._operations.is_over:
            return
        try:
            if isinstance(step.plan, PodPlan):
                self._pod(step, step.plan)
            else:
                self._node_event(step, step.plan)
            self._late_deletes(step.number)
        except Stuck as stuck:
            if not self._operations.is_over:
                self._operations.report(f"step {step.number} ({step.plan}): {stuck}")
        except Exception:  # noqa: BLE001 - reported with the seed
            self._operations.report(f"step {step.number} ({step.plan}): {traceback.format_exc()}")

    def _node_event(self, step: Step, plan: NodeEvent) -> None:
        match plan:
            case "GC":
                self._operations.collect()
            case "daemon killed":
                self._operations.kill_daemon(step.moment)
            case "daemon restarted":
                self._operations.restart_daemon()
            case "webhook flooded":
                if self._webhook_flood.flood(step.moment):
                    self._statistics.add_disturbance(plan)
            case _:
                self._operations.disturb(plan, step.moment, step.pick)

    def _pod(self, step: Step, plan: PodPlan) -> None:
        identity = PodIdentity(f"pod-{step.number}", "default", str(uuid.uuid4()))
        self._operations.admit(identity, step.vfs)
        try:
            self._live(step, plan, identity)
        except CardDisturbed:
            self._node.kubelet.remove(identity)

    def _live(self, step: Step, plan: PodPlan, identity: PodIdentity) -> None:
        """Run a pod that kubelet has admitted, to its end.

        Raises:
            CardDisturbed: it got no network, and its sandboxes are gone.
        """
        sandbox = self._first_sandbox(step, plan, identity) or self._bring_up(identity, step.host_port)
        self._run_between(plan, sandbox)
        self._node.kubelet.remove(identity)  # another pod may have the devices before this pod's DEL, as on a real node
        if plan.end.startswith("DEL"):
            fault = None if plan.delete is None else self._delayed_fault(plan.delete, "DEL", step, sandbox)
            self._operations.tear_down(sandbox, fault)
        if plan.end == "DEL twice":
            self._operations.delete(sandbox)
        elif "late" in plan.end:
            with self._late_lock:
                self._late.append((step.number + step.late, sandbox))

    def _first_sandbox(self, step: Step, plan: PodPlan, identity: PodIdentity) -> Sandbox | None:
        """Make the sandbox whose ADD has a fault; return None if it has no networks then, or if there is no fault to inject."""
        if plan.add is None:
            return None
        sandbox = self._operations.make_sandbox(identity, step.host_port)
        fault = self._delayed_fault(plan.add, "ADD", step, sandbox)
        if self._operations.add(sandbox, fault) and not fault.happened:
            if self._operations.pre_start(identity, sandbox):
                return sandbox
        elif plan.forgotten:
            self._operations.forget(sandbox)
            return None
        # Also after a successful ADD, because the fault may have removed the networks.
        self._operations.tear_down(sandbox)
        return None

    def _bring_up(self, identity: PodIdentity, host_port: int | None) -> Sandbox:
        """Make sandboxes until one has its networks, as kubelet does."""
        sandbox = block_until(lambda: self._try_sandbox(identity, host_port), _PATIENCE_SECONDS, _PAUSE_SECONDS)
        if sandbox is None:
            raise Stuck(
                f"no sandbox of pod {identity.name} gets its networks within {_PATIENCE_SECONDS} s; the last of them: "
                f"{self._operations.failures(identity)}"
            )
        return sandbox

    def _try_sandbox(self, identity: PodIdentity, host_port: int | None) -> Sandbox | None:
        """Make a sandbox and run ADD; on failure run DEL and return None."""
        if self._operations.is_over:
            raise Stuck(f"pod {identity.name} gets no sandbox, because the churn ends")
        sandbox = self._operations.make_sandbox(identity, host_port)
        if self._operations.add(sandbox) and self._operations.pre_start(identity, sandbox):
            return sandbox
        self._operations.tear_down(sandbox)
        self._operations.require_sound_cards(identity, sandbox)
        return None

    def _run_between(self, plan: PodPlan, sandbox: Sandbox) -> None:
        match plan.between:
            case "CHECK":
                self._operations.check(sandbox)
            case "look":
                self._operations.look_at(self._before, sandbox)
            case "namespace dies":
                self._operations.destroy_namespace(sandbox)
            case "hostile":
                self._operations.spoil_links(sandbox)
            case None:
                pass

    def _delayed_fault(self, fault: Fault, verb: str, step: Step, sandbox: Sandbox) -> DelayedFault:
        """Return a fault that comes at the step's moment of an ADD or DEL."""
        usual = self._operations.usual_seconds(RAIL_ADD if verb == "ADD" else verb)
        return DelayedFault(
            step.moment * usual, lambda process: self._operations.inject(fault, step.pick, process, sandbox)
        )

    def _late_deletes(self, number: int) -> None:
        with self._late_lock:
            due = [sandbox for at, sandbox in self._late if at <= number]
            self._late = [one for one in self._late if one[0] > number]
        for sandbox in due:
            self._operations.tear_down(sandbox)

    def _rest(self, *residents: Sandbox) -> None:
        """Judge the node while only the residents are on it, after a GC of the sandboxes that had no DEL."""
        if self._operations.is_over:
            return
        self._operations.collect()
        for sandbox in residents:
            self._operations.check(sandbox)
        self._operations.look(self._before, *residents)

    def _print_progress(self, block: Block) -> None:
        done = self._statistics.operations
        sys.stderr.write(f"  {done} operations, the last {len(block.steps)} steps with {block.at_once} at once …\n")
        sys.stderr.flush()


def run(plugins: Path, seed: int, operations: int, at_once: int) -> dict[str, Any]:
    """Make a node, churn on it, and return the summary; only inside `simnode exec`."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    statistics, began = ChurnStatistics(seed), time.monotonic()
    with Node(plugins, PFS, VFS) as node, disturbances.small_run_folder():
        # kube-flannel writes version 0.3.1, which has no CHECK; its plugin knows version 0.4.0, too.
        _PRIMARY.write_text(_PRIMARY.read_text().replace('"cniVersion": "0.3.1"', '"cniVersion": "0.4.0"'))
        configuration = json.loads(CONFIGURATION.read_text())
        CONFIGURATION.write_text(json.dumps({**configuration, "timeouts": {"add": f"{ADD_SECONDS}s"}}))
        node.install()
        node.start_daemon()
        with webhook_process.running() as webhook:
            Churn(node, webhook, statistics, seed, at_once).run(operations)
        node.stop_daemon()
    return statistics.summary(time.monotonic() - began)


def main(arguments: list[str]) -> int:
    """Churn and print the summary; return 1 if there was a violation."""
    parser = argparse.ArgumentParser(prog="scripts/churn", description=__doc__)
    parser.add_argument(
        "--seed",
        type=int,
        default=int.from_bytes(os.urandom(4), "big"),
        help="the schedule; the same seed repeats it (random)",
    )
    parser.add_argument("--operations", type=int, default=10_000, help="the number of operations (10000)")
    parser.add_argument("--parallel", type=int, default=32, help="the largest number of steps at once (32)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    asked = parser.parse_args(arguments)
    sys.stderr.write(f"  seed {asked.seed} …\n")
    summary = run(Path(os.environ["RAILNET_CNI_PLUGINS"]), asked.seed, asked.operations, asked.parallel)
    sys.stdout.write((json.dumps(summary, indent=2) if asked.json else "\n".join(rendered(summary))) + "\n")
    return 1 if summary["left_over"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
