"""A churn's operations on a node: each is done, counted, and judged by whether something disturbed it.

Which are done is decided in `lives`, and ordered in `churn`.
"""

import contextlib
import hashlib
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import grpc

from simnode import host_files
from simnode.chaos.churn_schedule import Hit
from simnode.chaos.interference import Meddling, Process, kill
from simnode.chaos.tally import OK, PLAIN_ADD, RAIL_ADD, Tally
from simnode.judge.facts import Facts
from simnode.judge.invariants import Living, Violation, of_sandboxes, violations
from simnode.kubernetes.kubelet import PodIdentity, UnexpectedAdmissionError
from simnode.kubernetes.runtime import CniFailed, Invocation, Sandbox, Started
from simnode.node import RESOURCE, Node
from vf.address import PciAddress

TRY_AGAIN = 11  # CNI specification, "Error"
_MAY_FAIL_WITH = {RAIL_ADD: (TRY_AGAIN,), PLAIN_ADD: (TRY_AGAIN,), "DEL": (TRY_AGAIN,), "CHECK": (), "GC": ()}
_HUNG = "hung"
_REFUSALS = (grpc.RpcError, ValueError)  # ValueError: the daemon has ended, and kubelet has closed its channel
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS, _LOOK_SECONDS, _COLLECT_SECONDS = 0.1, 0.5, 2.0
_CHAIN_NAME = 28  # the longest that iptables takes
ADD_SECONDS = 20  # of the node's configuration: what is younger than an ADD may take, GC leaves alone
_RETURN_SECONDS = 20.0  # of a netdev from a namespace that died, on a machine that is busy with all the others
_NOBODYS = f" of {('', '')}"  # an address whose file is empty, as `invariants` tells of it
_QUIET_SECONDS = 45.0  # a daemon looks every ten seconds for what is left


class Outcome(NamedTuple):
    """What came of an operation: `result` in a word or two; code and error of one that failed."""

    result: str
    milliseconds: float | None = None
    code: int | None = None
    error: Exception | None = None


class Stuck(RuntimeError):
    """Something that is done again and again does not succeed."""


class Operations:
    """What is done to a node, by many threads at once; what dies by itself is given `quiet_seconds` for it."""

    def __init__(self, node: Node, tally: Tally, quiet_seconds: float = _QUIET_SECONDS) -> None:
        self._node, self._tally, self._quiet_seconds = node, tally, quiet_seconds
        self._one_outage = threading.Lock()
        self._outages = 0  # begun and ended ones: odd while there is no daemon
        self._vfs: dict[str, tuple[str, ...]] = {}
        self._forgotten: list[str] = []
        self._died: dict[str, float] = {}  # VFs whose namespace did, and when

    def admit(self, identity: PodIdentity, vfs: int) -> None:
        """Have kubelet give devices to a pod, as soon as there are so many.

        Raises:
            Stuck: there never are.
        """
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while vfs and not self.is_over:
            outages = self._outages
            try:
                self._node.kubelet.allocate(identity, RESOURCE, vfs)
            except UnexpectedAdmissionError as error:  # a scheduler would have held it back
                why: Exception = error
            except _REFUSALS as error:
                why = error
                if not (self._disturbed(outages) or self._is_coming_back(str(error))):
                    self.wrong(f"kubelet's Allocate was refused, and the pod fails for good: {error}")
            else:
                return
            if time.monotonic() > give_up:
                raise Stuck(f"pod {identity.name} gets no {vfs} devices: {why}")
            time.sleep(_PAUSE_SECONDS)

    def make_sandbox(self, identity: PodIdentity, host_port: int | None) -> Sandbox:
        """Make a sandbox for a pod."""
        ports = [] if host_port is None else [{"hostPort": host_port, "containerPort": 80, "protocol": "tcp"}]
        arguments = {"portMappings": ports} if ports else {}
        sandbox = self._node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid, arguments)
        given = self._node.kubelet.allocations(identity)
        self._vfs[sandbox.container_id] = tuple(device for one in given for device in one.device_ids)
        return sandbox

    def add(self, sandbox: Sandbox, meddling: Meddling | None = None) -> bool:
        """Run ADD; tells whether it succeeded."""
        kind = RAIL_ADD if self._vfs[sandbox.container_id] else PLAIN_ADD

        def add(started: Started) -> tuple[Invocation, ...]:
            return self._node.runtime.add(sandbox, started=started).invocations

        return self._run(kind, sandbox, add, meddling)

    def delete(self, sandbox: Sandbox, meddling: Meddling | None = None) -> bool:
        """Run DEL once; tells whether it succeeded."""
        return self._run("DEL", sandbox, lambda started: self._node.runtime.delete(sandbox, started=started), meddling)

    def tear_down(self, sandbox: Sandbox, meddling: Meddling | None = None) -> None:
        """Run DEL until it succeeds, the first time with what happens to it; then let the namespace go.

        Raises:
            Stuck: it never does.
        """
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while not self.delete(sandbox, meddling):
            meddling = None
            if time.monotonic() > give_up:
                raise Stuck(f"DEL of {sandbox.container_id} does not succeed")
            time.sleep(_PAUSE_SECONDS)
        self._node.runtime.remove_sandbox(sandbox)

    def check(self, sandbox: Sandbox) -> None:
        """Run CHECK."""
        self._run("CHECK", sandbox, lambda _: self._node.runtime.check(sandbox), None)

    def collect(self) -> None:
        """Run GC as libcni does: what has no sandbox any more is deleted, then collected."""
        self._run("GC", None, lambda _: self._node.runtime.collect(), None)

    def pre_start(self, identity: PodIdentity, sandbox: Sandbox) -> bool:
        """Have kubelet ask whether the container may start."""
        outages = self._outages
        try:
            self._node.kubelet.pre_start(identity)
        except (UnexpectedAdmissionError, *_REFUSALS) as error:
            if not self._disturbed(outages):
                self.wrong(f"PreStartContainer of {sandbox.container_id} was refused: {error}")
            return False
        return True

    def destroy_namespace(self, sandbox: Sandbox) -> None:
        """Let the namespace die; no plugin is called."""
        self._node.hca.settle()  # unlike the kernel's own, the simulated sysfs is behind what it tells of
        self._died |= dict.fromkeys(self._vfs.get(sandbox.container_id, ()), time.monotonic())
        self._node.runtime.remove_sandbox(sandbox)
        self._tally.kill("namespace", self._whose(sandbox))

    def forget(self, sandbox: Sandbox) -> None:
        """Let the namespace die, and be a runtime that knows nothing of the sandbox any more."""
        self._forgotten += [sandbox.container_id, _chain(sandbox.container_id)]
        self.destroy_namespace(sandbox)

    def kill_daemon(self, seconds: float) -> None:
        """Kill the daemon, and start it again some seconds later."""
        with self._outage():
            self._node.kill_daemon()
            self._tally.kill("daemon")
            time.sleep(seconds)

    def restart_daemon(self) -> None:
        """End the daemon and start it again."""
        with self._outage():
            self._node.stop_daemon()

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        with self._one_outage:
            self._outages += 1
            yield
            self._node.start_daemon()
            self._outages += 1
            self._tally.operation("daemon start", OK, ())

    def _disturbed(self, outages: int) -> bool:
        """Return whether there was a moment without a daemon since `outages` was read."""
        return outages % 2 == 1 or self._outages != outages

    def _is_coming_back(self, refusal: str) -> bool:
        """Return whether what was refused names a VF whose namespace has just died: kubelet may not know yet that it has no netdev."""
        since = time.monotonic() - _RETURN_SECONDS
        return any(vf in refusal for vf, died in self._died.copy().items() if died > since)

    @property
    def is_over(self) -> bool:
        """Whether something was wrong: then nobody goes on."""
        return bool(self._tally.wrong)

    def living(self, sandbox: Sandbox) -> Living:
        """Say what a sandbox should have."""
        vfs = frozenset(map(PciAddress.parse, self._vfs[sandbox.container_id]))
        return Living(sandbox.container_id, sandbox.netns, vfs)

    def look_at(self, before: Facts, sandbox: Sandbox) -> None:
        """Judge a sandbox to which nothing is done just now."""
        found = of_sandboxes(before, self._node.look_at([sandbox.netns]), [self.living(sandbox)])
        self._tally.look()
        for one in found:
            self.wrong(str(one))

    def look(self, before: Facts, *living: Sandbox) -> None:
        """Judge the node, to which nothing is done just now; what dies by itself is given time.

        What is left of sandboxes that the runtime forgot is not judged, nor is an address that host-local was killed over
        before it wrote for whom: nobody may collect them before they are old enough.
        """
        self._look(lambda: self._violations(before, living, [*self._forgotten, _NOBODYS]), self._quiet_seconds)

    def look_until_collected(self, before: Facts) -> None:
        """Judge the node after the last sandbox, when GC has had the time that what was forgotten must be old."""

        def collected() -> list[Violation]:
            time.sleep(_COLLECT_SECONDS)
            self.collect()
            return self._violations(before, (), ())

        self._look(collected, self._quiet_seconds + ADD_SECONDS)

    def _look(self, found: Callable[[], list[Violation]], seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while (left := found()) and time.monotonic() < give_up:
            time.sleep(_LOOK_SECONDS)
        self._tally.look()
        for one in left:
            self.wrong(str(one))

    def _violations(self, before: Facts, living: Collection[Sandbox], forgotten: Collection[str]) -> list[Violation]:
        found = violations(before, self._node.look(), [self.living(sandbox) for sandbox in living])
        return [one for one in found if not any(container_id in one.what for container_id in forgotten)]

    def wrong(self, what: str) -> None:
        """Note what must not be."""
        self._tally.violation(what, self._node.daemon.log())

    def usual(self, kind: str) -> float:
        """Return the seconds that an operation usually takes here."""
        return self._tally.usual(kind, 0.2)

    def hit(self, what: Hit, pick: float, process: Process, sandbox: Sandbox) -> bool:
        """Do to a sandbox what is to happen while one of its operations runs; tells whether it happened."""
        match what:
            case "namespace":
                self.destroy_namespace(sandbox)
            case "DEL":
                self.delete(sandbox)
            case _:
                if not kill(what, process, pick):
                    return False
                self._tally.kill(what, self._whose(sandbox))
        return True

    def _run(
        self,
        kind: str,
        sandbox: Sandbox | None,
        call: Callable[[Started], tuple[Invocation, ...]],
        meddling: Meddling | None,
    ) -> bool:
        outages, whose = self._outages, () if sandbox is None else self._whose(sandbox)
        with meddling or Meddling(0, lambda _: False) as running:
            outcome = _outcome(call, running.started if meddling else lambda _: None)
        disturbed = running.happened or self._disturbed(outages)
        ok = outcome.error is None
        result = f"{outcome.result} (disturbed)" if disturbed and not ok else outcome.result
        self._tally.operation(kind, result, whose, None if disturbed else outcome.milliseconds)
        if not (ok or (disturbed and outcome.result != _HUNG) or outcome.code in _MAY_FAIL_WITH[kind]):
            self.wrong(f"{kind} of {' '.join(whose)} failed though nothing disturbed it: {outcome.error}")
        return ok

    def _whose(self, sandbox: Sandbox) -> tuple[str, ...]:
        return sandbox.container_id, *self._vfs.get(sandbox.container_id, ())


def _chain(container_id: str) -> str:
    """Name the chain of a container's port mappings, whose rules do not say whose they are.

    Source: containernetworking/plugins, pkg/utils/utils.go, MustFormatChainNameWithPrefix.
    """
    name, prefix = f"{host_files.NETWORK}{container_id}", "CNI-DN-"
    return prefix + hashlib.sha512(name.encode()).hexdigest()[: _CHAIN_NAME - len(prefix)]


def _outcome(call: Callable[[Started], tuple[Invocation, ...]], started: Started) -> Outcome:
    try:
        return Outcome(OK, sum(one.milliseconds for one in call(started)))
    except CniFailed as failure:
        return Outcome("killed" if failure.code is None else f"code {failure.code}", None, failure.code, failure)
    except subprocess.TimeoutExpired as error:
        return Outcome(_HUNG, error=error)
