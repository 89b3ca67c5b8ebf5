"""The node of the fault matrix, whose daemon and executables are supervised.

It also does what container runtime, kubelet and DaemonSet do after a fault: DEL, another attempt, a new start.
"""

import os
import re
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from railnet.kernel.waiting import block_until
from simnode.chaos.syscall_supervisor import CallWatch, Supervisor
from simnode.judge.invariants import violations
from simnode.judge.node_state import NodeState
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed, Sandbox
from simnode.node import RESOURCE, Node
from simnode.waiting import until_empty
from tests.faults.matrix import LEFT
from tests.faults.supervised_daemon import SupervisedDaemon
from tests.node.primaries import OURS, set_seconds

_TRIES = 5
_PORTS = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
_SECONDS = 60.0  # the daemon looks for stale records every ten
_CLEANED = ("/run/railnet", "/run/cdi", "/var/lib/cni")
_AGE_SECONDS = 100.0  # longer than an ADD may take; the daemon collects an address without an owner only at that age
_LOOK_SECONDS = 0.05
_END_SECONDS = 60.0
_DAEMON_SECONDS = 0.3  # the executable waits so long for a daemon, and no daemon starts meanwhile
_PATIENT_SECONDS = 30.0  # … and so long where there is a daemon, which may have no processor for a while


class SupervisedNode:
    """A node whose daemon and executables are supervised.

    Attributes:
        before: the state of the node at rest, with which the state after each fault is compared.
    """

    def __init__(self, node: Node, supervisor: Supervisor) -> None:
        self.node, self._supervisor = node, supervisor
        self._admitted: list[PodIdentity] = []
        node.daemon = SupervisedDaemon(supervisor.path)
        node.install()
        node.start_daemon()
        OURS.parent.mkdir()
        for name in ("00-railnet.conflist", "10-flannel.conflist"):
            shutil.copy(Path("/etc/cni/net.d", name), OURS.with_name(name))
        node.runtime.configurations = OURS.parent
        set_seconds(daemon=_DAEMON_SECONDS)
        node.runtime.starter = supervisor.command("executable", sys.executable)
        # These pods make what pods leave on a node for good: cni0, host-local's last address, portmap's chains, and the
        # daemon's threads.
        node.remove_pod(node.run_pod("first", vfs=1, capability_args=_PORTS))
        self.run_pod(self.admit(1))
        self.before = self.look()

    def look(self) -> NodeState:
        """Return the state of the node, without the random part of the name of the daemon's socket for kubelet."""
        found = self.node.look()
        files = {
            re.sub(r"(plugins_registry/.*)-[0-9a-f]+\.sock", r"\1.sock", name): what
            for name, what in found.snapshot["file"].items()
        }
        return replace(found, snapshot={**found.snapshot, "file": files})

    def admit(self, vfs: int) -> PodIdentity:
        """Have kubelet admit a pod and allocate VFs to it."""
        identity = PodIdentity("train", "default", str(uuid.uuid4()))
        self._admitted.append(identity)
        if vfs:
            self.node.kubelet.allocate(identity, RESOURCE, vfs)
        return identity

    def sandbox(self, identity: PodIdentity) -> Sandbox:
        """Have the runtime make a sandbox; no plugin is called."""
        return self.node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)

    def run_pod(self, identity: PodIdentity) -> None:
        """Run ADD, PreStartContainer and DEL of a pod, and have kubelet remove the pod."""
        sandbox = self.sandbox(identity)
        self.node.runtime.add(sandbox)
        self.node.kubelet.pre_start(identity)
        self.node.kubelet.remove(identity)
        self.node.runtime.tear_down(sandbox)

    def serve_two_pods(self) -> None:
        """Run two plain pods: a daemon that has just started leaves flannel out only for the third one."""
        for _ in range(2):
            self.run_pod(self.admit(0))

    def watching(self, watch: CallWatch) -> AbstractContextManager[CallWatch]:
        """Give all calls to a watch inside a block."""
        return self._supervisor.watching(watch)

    def run_watched(self, watch: CallWatch, call: str, sandbox: Sandbox) -> CniFailed | None:
        """Run a sandbox's ADD or DEL with a watch, which lasts until a DEL's rails are back; return its failure, or None."""
        verb = {"ADD": self.node.runtime.add, "DEL": self.node.runtime.delete}[call]
        with self._supervisor.watching(watch):
            try:
                verb(sandbox)
            except CniFailed as failure:
                return failure
            self.node.wait_for_answered_deletes(lambda: watch.hit is not None)
        return None

    def start_watched(self, watch: CallWatch) -> str | None:
        """Start the daemon with a watch; return its status if it ended before all VFs were healthy, else None."""
        with self._supervisor.watching(watch):
            self.node.start_daemon(wait=False)
            process = self.node.daemon.process

            def is_ready() -> bool:
                return len(self.node.kubelet.healthy(RESOURCE)) == self.node.vfs

            block_until(lambda: process.poll() is not None or is_ready(), _SECONDS, _LOOK_SECONDS / 5)
            return None if process.poll() is None and is_ready() else f"status {process.poll()}"

    def continue_daemon(self) -> None:
        """Continue a stopped daemon."""
        with suppress(ProcessLookupError):
            os.kill(self.node.daemon.process.pid, signal.SIGCONT)

    def restart_dead_daemon(self, *, killed: bool = False) -> list[str]:
        """Start the daemon again if it is dead, as the DaemonSet does; return a problem if no fault has killed it."""
        process = self.node.daemon.process
        if killed:
            process.wait(_END_SECONDS)
        if process.poll() is None:
            return []
        end = process.returncode
        self.node.start_daemon()
        return [] if killed else [f"the daemon ended by itself with status {end}"]

    def delete(self, sandbox: Sandbox) -> list[str]:
        """Have the runtime run DEL until it succeeds and remove the network namespace; return the problems."""
        problems = []
        for _ in range(_TRIES):
            try:
                self.node.runtime.delete(sandbox)
            except CniFailed as failure:
                problems.append(f"DEL still fails: {failure}")
            else:
                problems.clear()
                break
        self.node.runtime.remove_sandbox(sandbox)
        return problems

    def run_again(self, identity: PodIdentity) -> list[str]:
        """Check that nothing is left over, and then run the same pod with the same VFs in another sandbox, as kubelet does."""
        if left := self.left_over():
            return left
        try:
            with self.patient():
                self.run_pod(identity)
        except CniFailed as failure:
            return [f"the following ADD or DEL failed: {failure}"]
        return []

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Have executables wait long for the daemon, in the block: nothing has killed or stopped it for good."""
        set_seconds(daemon=_PATIENT_SECONDS)
        try:
            yield
        finally:
            set_seconds(daemon=_DAEMON_SECONDS)

    def left_over(self) -> list[str]:
        """Return what is left over after a time in which the node may clean up."""
        self.age_reservations(_is_empty)
        found = until_empty(lambda: violations(self.before, self.look()), _SECONDS, _LOOK_SECONDS)
        return [f"{LEFT}{one}" for one in found]

    def age_reservations(self, path: Callable[[Path], bool]) -> None:
        """Make these reservations of host-local old and restart the daemon, so that it collects those without an owner.

        The daemon looks for reservations without an owner at its start and every minute, and keeps young ones.
        """
        found = [one for one in Path("/var/lib/cni/networks").glob("*/*.*.*.*") if path(one)]
        for one in found:
            old = time.time() - _AGE_SECONDS
            with suppress(FileNotFoundError):  # the daemon has collected it already
                os.utime(one, (old, old))
        if found:
            self.node.stop_daemon()
            self.node.start_daemon()

    def clean_up(self) -> None:
        """Remove by hand what one point left over, so that it does not count at the next point."""
        for identity in self._admitted:
            self.node.kubelet.remove(identity)
        self.node.runtime.remove_sandboxes()
        self.node.kill_daemon()
        at_rest = self.before.snapshot["file"]
        for name in sorted(self.look().snapshot["file"].keys() - at_rest.keys(), reverse=True):
            path = Path(name)
            if any(map(path.is_relative_to, _CLEANED)):
                path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        with IPRoute() as route:
            for link in route.get_links():
                if link.get_attr("IFLA_IFNAME").startswith("veth"):
                    with suppress(NetlinkError):  # its other end was deleted before
                        route.link("del", index=link["index"])
        self.remove_vfs()
        self.node.start_daemon()
        if violations(self.before, self.look()):
            self.before = self.look()

    def remove_vfs(self) -> None:
        """Disable all VFs; the daemon must be dead, and enables them at its next start."""
        for numvfs in Path("/sys/bus/pci/devices").glob("*/sriov_numvfs"):
            numvfs.write_text("0\n")
        self.node.hca.settle()


def _is_empty(address: Path) -> bool:
    """Return whether a reservation has no owner, because its plugin died before it wrote the owner."""
    try:
        return not address.stat().st_size
    except FileNotFoundError:  # the daemon has just collected it
        return False
