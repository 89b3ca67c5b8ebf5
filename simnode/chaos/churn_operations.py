"""The operations of a churn on a node: run each, count it, and judge its result by whether a fault disturbed it.

`churn_schedule` decides which operations run, `churn` orders them.
"""

import contextlib
import hashlib
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import grpc

from railnet.kernel.waiting import block_until
from railnet.vf.pci_address import PciAddress
from simnode import preinstalled_files
from simnode.chaos import hostile_pod
from simnode.chaos.churn_schedule import Disturbance, Fault
from simnode.chaos.churn_statistics import OK, PLAIN_ADD, RAIL_ADD, ChurnStatistics
from simnode.chaos.disturbances import Disturbances
from simnode.chaos.plugin_kills import DelayedFault, Process, kill
from simnode.judge.invariants import LiveSandbox, Violation, of_sandboxes, violations
from simnode.judge.node_state import NodeState
from simnode.kubernetes.kubelet import PodIdentity, UnexpectedAdmissionError
from simnode.kubernetes.runtime import CniFailed, Invocation, Sandbox, Started
from simnode.node import RESOURCE, Node
from simnode.waiting import until_empty

TRY_AGAIN = 11  # CNI specification, "Error"
_MAY_FAIL_WITH = {RAIL_ADD: (TRY_AGAIN,), PLAIN_ADD: (TRY_AGAIN,), "DEL": (TRY_AGAIN,), "CHECK": (), "GC": ()}
_HUNG = "hung"
_REFUSALS = (grpc.RpcError, ValueError)  # ValueError: the daemon has ended, and kubelet has closed its channel
_PATIENCE_SECONDS = 240.0  # as in `churn`
_KEPT_FAILURES = 5  # of each pod
_PAUSE_SECONDS, _LOOK_SECONDS, _COLLECT_SECONDS = 0.1, 0.5, 2.0
_CHAIN_CHARACTERS = 28  # the longest name that iptables accepts
ADD_SECONDS = 20  # the limit of ADD in the node's configuration: GC does not touch what is younger
_RETURN_SECONDS = 20.0  # until a netdev is back from a dead namespace, on a busy machine
_WITHOUT_OWNER = f" of {('', '')}"  # how `invariants` names an address whose reservation file is empty
_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_QUIET_SECONDS = 120.0  # the daemon looks for leftovers every ten seconds, and machines are busy


class Outcome(NamedTuple):
    """The outcome of an operation: `result` in one or two words; code and error of a failed operation."""

    result: str
    milliseconds: float | None = None
    code: int | None = None
    error: Exception | None = None


class Stuck(RuntimeError):
    """An operation is tried again and again and does not succeed."""


class CardDisturbed(RuntimeError):
    """A pod gets no network because a card of its VFs was disturbed after kubelet had allocated them: a user deletes such a pod."""


class ChurnOperations:
    """Operations on a node, which many threads may call at once.

    `quiet_seconds` is the time in which the daemon and the kernel may clean up before the node is judged.
    """

    def __init__(self, node: Node, statistics: ChurnStatistics, quiet_seconds: float = _QUIET_SECONDS) -> None:
        self._node, self._statistics, self._quiet_seconds = node, statistics, quiet_seconds
        self._kept: frozenset[PciAddress] = frozenset()
        self._disturbances = Disturbances(node, lambda: self._kept)
        self._one_outage = threading.Lock()
        self._outages = 0  # the number of begins and ends of outages: odd while there is no daemon
        self._vfs: dict[str, tuple[str, ...]] = {}
        self._allocated: dict[str, float] = {}  # pod UID → time at which kubelet allocated its VFs
        self._forgotten: list[str] = []
        self._died: dict[str, float] = {}  # VF → time at which its namespace died
        self._failures: dict[str, deque[str]] = {}  # pod UID → why its last sandboxes got no networks

    def keep(self, *sandboxes: Sandbox) -> None:
        """Keep the cards of these sandboxes' VFs in the node: the sandboxes are judged as whole at any time."""
        self._kept = frozenset(PciAddress.parse(vf) for sandbox in sandboxes for vf in self._vfs[sandbox.container_id])

    def disturb(self, kind: Disturbance, moment: float, pick: float) -> None:
        """Disturb the node's hardware, disk or health port for a while."""
        if self._disturbances.disturb(kind, moment, pick):
            self._statistics.add_disturbance(kind)

    def spoil_links(self, sandbox: Sandbox) -> None:
        """Do to a sandbox's rails what a pod with NET_ADMIN can do to keep a VF, or to leave something on it."""
        for number, _ in enumerate(self._vfs[sandbox.container_id], start=1):
            hostile_pod.spoil(sandbox.netns, f"net{number}", self._node.pfs)
        self._statistics.add_disturbance("hostile pod")

    def admit(self, identity: PodIdentity, vfs: int) -> None:
        """Have kubelet allocate devices to a pod as soon as enough are free.

        Raises:
            Stuck: there are not enough free devices in time.
        """
        refusal: Exception | None = None

        def is_admitted() -> bool:
            nonlocal refusal
            refusal = None if self.is_over else self._allocate(identity, vfs)
            return refusal is None

        if vfs and not block_until(is_admitted, _PATIENCE_SECONDS, _PAUSE_SECONDS):
            raise Stuck(f"pod {identity.name} does not get {vfs} devices within {_PATIENCE_SECONDS} s: {refusal}")

    def _allocate(self, identity: PodIdentity, vfs: int) -> Exception | None:
        """Allocate devices to a pod; return the error if kubelet or the daemon refuses."""
        outages, began = self._outages, time.monotonic()
        self._allocated[identity.uid] = began
        try:
            self._node.kubelet.allocate(identity, RESOURCE, vfs)
        except UnexpectedAdmissionError as error:  # a scheduler would not have assigned the pod to this node yet
            return error
        except _REFUSALS as error:
            named = _ADDRESS.findall(str(error))
            disturbed = self._disturbed(outages) or (named and self._disturbances.concern(named, began))
            if not (disturbed or self._is_coming_back(str(error))):
                self.report(f"kubelet's Allocate was refused, and the pod fails for good: {error}")
            return error
        return None

    def make_sandbox(self, identity: PodIdentity, host_port: int | None) -> Sandbox:
        """Make a sandbox for a pod, with a port mapping if `host_port` is given."""
        ports = [] if host_port is None else [{"hostPort": host_port, "containerPort": 80, "protocol": "tcp"}]
        arguments = {"portMappings": ports} if ports else {}
        sandbox = self._node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid, arguments)
        given = self._node.kubelet.allocations(identity)
        self._vfs[sandbox.container_id] = tuple(device for one in given for device in one.device_ids)
        return sandbox

    def add(self, sandbox: Sandbox, fault: DelayedFault | None = None) -> bool:
        """Run ADD and return whether it succeeded."""
        kind = RAIL_ADD if self._vfs[sandbox.container_id] else PLAIN_ADD

        def add(started: Started) -> tuple[Invocation, ...]:
            return self._node.runtime.add(sandbox, started=started).invocations

        return self._run(kind, sandbox, add, fault)

    def failures(self, identity: PodIdentity) -> str:
        """Return why the last sandboxes of a pod got no networks, each with its container id."""
        return "; ".join(self._failures.get(identity.uid, ["none has failed"]))

    def _add_failure(self, sandbox: Sandbox, what: str, outages: int) -> None:
        """Note why a sandbox got no networks; `outages` is as it was before."""
        outage = " (without a daemon for a part of the time)" if self._disturbed(outages) else ""
        line = f"{time.strftime('%H:%M:%S')} {sandbox.container_id}: {what}{outage}"
        self._failures.setdefault(sandbox.uid, deque(maxlen=_KEPT_FAILURES)).append(line)

    def require_sound_cards(self, identity: PodIdentity, sandbox: Sandbox) -> None:
        """Raise if the pod's VFs were made anew after kubelet had allocated them: it keeps the old answer for the pod's life.

        Raises:
            CardDisturbed: a card of the pod's VFs was disturbed since then.
        """
        if self._disturbances.concern(self._vfs[sandbox.container_id], self._allocated.get(identity.uid, 0.0)):
            raise CardDisturbed(identity.name)

    def delete(self, sandbox: Sandbox, fault: DelayedFault | None = None) -> bool:
        """Run DEL once and return whether it succeeded."""
        return self._run("DEL", sandbox, lambda started: self._node.runtime.delete(sandbox, started=started), fault)

    def tear_down(self, sandbox: Sandbox, fault: DelayedFault | None = None) -> None:
        """Run DEL until it succeeds, the first time with a fault; then remove the network namespace.

        Raises:
            Stuck: no DEL succeeds in time.
        """
        first = [fault]

        def is_deleted() -> bool:
            return self.delete(sandbox, first.pop() if first else None)

        if not block_until(is_deleted, _PATIENCE_SECONDS, _PAUSE_SECONDS):
            raise Stuck(f"DEL of {sandbox.container_id} does not succeed within {_PATIENCE_SECONDS} s")
        self._node.runtime.remove_sandbox(sandbox)

    def check(self, sandbox: Sandbox) -> None:
        """Run CHECK."""
        self._run("CHECK", sandbox, lambda _: self._node.runtime.check(sandbox), None)

    def collect(self) -> None:
        """Run GC as libcni does: DEL for each cached attachment without a sandbox, then GC."""
        self._run("GC", None, lambda _: self._node.runtime.collect(), None)

    def pre_start(self, identity: PodIdentity, sandbox: Sandbox) -> bool:
        """Have kubelet call PreStartContainer; return whether the container may start."""
        outages, began = self._outages, time.monotonic()
        try:
            self._node.kubelet.pre_start(identity)
        except (UnexpectedAdmissionError, *_REFUSALS) as error:
            self._add_failure(sandbox, f"PreStartContainer: {error}", outages)
            if not (self._disturbed(outages) or self._disturbances.concern(self._vfs[sandbox.container_id], began)):
                self.report(f"PreStartContainer of {sandbox.container_id} was refused: {error}")
            return False
        return True

    def destroy_namespace(self, sandbox: Sandbox) -> None:
        """Remove the sandbox's network namespace; call no plugin."""
        self._node.hca.settle()  # the simulated sysfs shows a change later than the kernel's sysfs would
        self._died |= dict.fromkeys(self._vfs.get(sandbox.container_id, ()), time.monotonic())
        self._node.runtime.remove_sandbox(sandbox)
        self._statistics.add_kill("namespace", self._names(sandbox))

    def forget(self, sandbox: Sandbox) -> None:
        """Remove the sandbox's network namespace without a DEL, as a runtime that lost its own state."""
        self._forgotten += [sandbox.container_id, _chain(sandbox.container_id)]
        self.destroy_namespace(sandbox)

    def kill_daemon(self, seconds: float) -> None:
        """Kill the daemon, and start it again `seconds` later."""
        with self._outage():
            self._node.kill_daemon()
            self._statistics.add_kill("daemon")
            time.sleep(seconds)

    def restart_daemon(self) -> None:
        """End the daemon by SIGTERM and start it again."""
        with self._outage():
            self._node.stop_daemon()

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        with self._one_outage:
            self._outages += 1
            yield
            self._node.start_daemon_beside_faults(self._disturbances.lost)
            self._outages += 1
            self._statistics.add_operation("daemon start", OK, ())

    def _disturbed(self, outages: int) -> bool:
        """Return whether there was a moment without a daemon since `outages` was read."""
        return outages % 2 == 1 or self._outages != outages

    def _is_coming_back(self, refusal: str) -> bool:
        """Return whether a refusal names a VF whose namespace has just died; kubelet may still list that VF as healthy."""
        since = time.monotonic() - _RETURN_SECONDS
        return any(vf in refusal for vf, died in self._died.copy().items() if died > since)

    @property
    def is_over(self) -> bool:
        """Whether a violation was found; then all threads stop."""
        return bool(self._statistics.violations)

    def live_sandbox(self, sandbox: Sandbox) -> LiveSandbox:
        """Return the VFs and names that a sandbox should have, for `judge.invariants`."""
        vfs = frozenset(map(PciAddress.parse, self._vfs[sandbox.container_id]))
        return LiveSandbox(sandbox.container_id, sandbox.netns, vfs)

    def look_at(self, before: NodeState, sandbox: Sandbox) -> None:
        """Judge one sandbox, on which no operation runs at the moment, unless a card of its VFs is disturbed."""
        began = time.monotonic()
        found = of_sandboxes(before, self._node.look_at([sandbox.netns]), [self.live_sandbox(sandbox)])
        if self._disturbances.concern(self._vfs[sandbox.container_id], began):
            return
        self._statistics.add_judgement()
        for one in found:
            self.report(str(one))

    def look(self, before: NodeState, *living: Sandbox) -> None:
        """Judge the node, on which no operation runs at the moment, after a time in which daemon and kernel may clean up.

        The remains of forgotten sandboxes are not judged, and neither are addresses whose reservation names no owner,
        because host-local was killed: the daemon must not collect either before it is old enough.
        """
        self._look(lambda: self._violations(before, living, [*self._forgotten, _WITHOUT_OWNER]), self._quiet_seconds)

    def look_until_collected(self, before: NodeState) -> None:
        """Judge the node after its last sandbox, and run GC until the remains of forgotten sandboxes are old enough for it."""

        def collected() -> list[Violation]:
            time.sleep(_COLLECT_SECONDS)
            self.collect()
            return self._violations(before, (), ())

        self._look(collected, self._quiet_seconds + ADD_SECONDS)

    def _look(self, found: Callable[[], list[Violation]], seconds: float) -> None:
        left = until_empty(found, seconds, _LOOK_SECONDS)
        self._statistics.add_judgement()
        for one in left:
            self.report(str(one))

    def _violations(
        self, before: NodeState, living: Collection[Sandbox], forgotten: Collection[str]
    ) -> list[Violation]:
        found = violations(before, self._node.look(), [self.live_sandbox(sandbox) for sandbox in living])
        return [one for one in found if not any(container_id in one.what for container_id in forgotten)]

    def report(self, violation: str) -> None:
        """Record a violation, with the daemon's log."""
        self._statistics.add_violation(violation, self._node.daemon.log())

    def usual_seconds(self, kind: str) -> float:
        """Return the seconds that an operation usually takes on this machine."""
        return self._statistics.usual_seconds(kind, 0.2)

    def inject(self, fault: Fault, pick: float, process: Process, sandbox: Sandbox) -> bool:
        """Inject a fault while an operation on a sandbox runs; return whether the fault happened."""
        match fault:
            case "namespace":
                self.destroy_namespace(sandbox)
            case "DEL":
                self.delete(sandbox)
            case _:
                if not kill(fault, process, pick):
                    return False
                self._statistics.add_kill(fault, self._names(sandbox))
        return True

    def _run(
        self,
        kind: str,
        sandbox: Sandbox | None,
        call: Callable[[Started], tuple[Invocation, ...]],
        fault: DelayedFault | None,
    ) -> bool:
        began, outages, names = time.monotonic(), self._outages, () if sandbox is None else self._names(sandbox)
        with fault or DelayedFault(0, lambda _: False) as running:
            outcome = _outcome(call, running.started if fault else lambda _: None)
        disturbed = running.happened or self._disturbed(outages) or self._is_excused(kind, sandbox, began)
        ok = outcome.error is None
        if sandbox and outcome.error and kind in (RAIL_ADD, PLAIN_ADD):
            self._add_failure(sandbox, f"{kind}: {outcome.error}", outages)
        result = f"{outcome.result} (disturbed)" if disturbed and not ok else outcome.result
        self._statistics.add_operation(kind, result, names, None if disturbed else outcome.milliseconds)
        if not (ok or (disturbed and outcome.result != _HUNG) or outcome.code in _MAY_FAIL_WITH[kind]):
            self.report(f"{kind} of {' '.join(names)} failed, and no fault disturbed it: {outcome.error}")
        return ok

    def _is_excused(self, kind: str, sandbox: Sandbox | None, began: float) -> bool:
        """Return whether a disturbance may have made an operation fail: never one on a sandbox without VFs."""
        if sandbox is None:
            return self._disturbances.any_card(began)
        if kind == RAIL_ADD and self._disturbances.was_full(began):
            return True
        if kind == RAIL_ADD:
            began = min(began, self._allocated.get(sandbox.uid, began))
        return self._disturbances.concern(self._vfs.get(sandbox.container_id, ()), began)

    def _names(self, sandbox: Sandbox) -> tuple[str, ...]:
        """Return the container id and the VFs of a sandbox."""
        return sandbox.container_id, *self._vfs.get(sandbox.container_id, ())


def _chain(container_id: str) -> str:
    """Return the name of the iptables chain of a container's port mappings; its rules do not contain the container id.

    Source: containernetworking/plugins, pkg/utils/utils.go, MustFormatChainNameWithPrefix.
    """
    name, prefix = f"{preinstalled_files.NETWORK}{container_id}", "CNI-DN-"
    return prefix + hashlib.sha512(name.encode()).hexdigest()[: _CHAIN_CHARACTERS - len(prefix)]


def _outcome(call: Callable[[Started], tuple[Invocation, ...]], started: Started) -> Outcome:
    try:
        return Outcome(OK, sum(one.milliseconds for one in call(started)))
    except CniFailed as failure:
        return Outcome("killed" if failure.code is None else f"code {failure.code}", None, failure.code, failure)
    except subprocess.TimeoutExpired as error:
        return Outcome(_HUNG, error=error)
