"""The node on which faults are tried, and what runtime, kubelet and DaemonSet do about a fault: DEL, try again, start again."""

import os
import re
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from simnode.chaos.syscall_supervisor import Supervisor, Watch
from simnode.judge.facts import Facts
from simnode.judge.invariants import violations
from simnode.kubernetes.kubelet import PodIdentity
from simnode.kubernetes.runtime import CniFailed, Sandbox
from simnode.node import RESOURCE, Node
from tests.faults.table import LEFT
from tests.node.primaries import OURS, set_seconds

_TRIES = 5
_PORTS = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
_SECONDS = 20.0  # the daemon's own sweep of rails comes every ten
_AGE_SECONDS = 100.0  # more than what an ADD may take, which is the grace of an address that nobody's name is on
_LOOK_SECONDS = 0.05
_END_SECONDS = 10.0
_DAEMON_SECONDS = 0.3  # what the slow lane waits for a daemon that nobody starts meanwhile


class Ground:
    """A node whose daemon and executables are supervised."""

    def __init__(self, node: Node, supervisor: Supervisor) -> None:
        self.node, self._supervisor = node, supervisor
        self._admitted: list[PodIdentity] = []
        node.install()
        node.daemon.starter = supervisor.command("daemon", sys.executable)
        node.start_daemon()
        OURS.parent.mkdir()
        for name in ("00-railnet.conflist", "10-flannel.conflist"):
            shutil.copy(Path("/etc/cni/net.d", name), OURS.with_name(name))
        node.runtime.configurations = OURS.parent
        set_seconds(daemon=_DAEMON_SECONDS)
        node.runtime.starter = supervisor.command("executable", sys.executable)
        # What pods leave on a node for good: cni0, host-local's last address, portmap's chains; and the daemon's threads.
        node.remove_pod(node.run_pod("first", vfs=1, capability_args=_PORTS))
        self.come_and_go(self.admit(1))
        self.before = self.look()

    def look(self) -> Facts:
        """Look at the node; the socket that kubelet finds has another name after each start of the daemon."""
        found = self.node.look()
        files = {
            re.sub(r"(plugins_registry/.*)-[0-9a-f]+\.sock", r"\1.sock", name): what
            for name, what in found.things["file"].items()
        }
        return replace(found, things={**found.things, "file": files})

    def admit(self, vfs: int) -> PodIdentity:
        """Have kubelet admit a pod: it chooses VFs."""
        identity = PodIdentity("train", "default", str(uuid.uuid4()))
        self._admitted.append(identity)
        if vfs:
            self.node.kubelet.allocate(identity, RESOURCE, vfs)
        return identity

    def sandbox(self, identity: PodIdentity) -> Sandbox:
        """Have the runtime make a sandbox; nothing is called."""
        return self.node.runtime.create_sandbox(identity.namespace, identity.name, identity.uid)

    def come_and_go(self, identity: PodIdentity) -> None:
        """Run a pod's ADD, PreStartContainer and DEL; kubelet forgets it."""
        box = self.sandbox(identity)
        self.node.runtime.add(box)
        self.node.kubelet.pre_start(identity)
        self.node.kubelet.remove(identity)
        self.node.runtime.tear_down(box)

    def watched(self, watch: Watch, call: str, box: Sandbox) -> CniFailed | None:
        """Run a sandbox's ADD or DEL with a watch; gives its failure."""
        verb = {"ADD": self.node.runtime.add, "DEL": self.node.runtime.delete}[call]
        with self._supervisor.watching(watch):
            try:
                verb(box)
            except CniFailed as failure:
                return failure
        return None

    def watched_start(self, watch: Watch) -> str | None:
        """Start the daemon with a watch; says how it ended if it did before all VFs were healthy."""
        with self._supervisor.watching(watch):
            self.node.start_daemon(wait=False)
            process = self.node.daemon.process
            give_up = time.monotonic() + _SECONDS
            while process.poll() is None and time.monotonic() < give_up:
                if len(self.node.kubelet.healthy(RESOURCE)) == self.node.vfs:
                    return None
                time.sleep(_LOOK_SECONDS / 5)
        return f"status {process.poll()}"

    def wake(self) -> None:
        """Let a stopped daemon go on."""
        with suppress(ProcessLookupError):
            os.kill(self.node.daemon.process.pid, signal.SIGCONT)

    def revive(self, *, killed: bool = False) -> list[str]:
        """Start the daemon again if it is dead, as the DaemonSet does; one that died of itself is a problem."""
        process = self.node.daemon.process
        if killed:
            process.wait(_END_SECONDS)
        if process.poll() is None:
            return []
        end = process.returncode
        self.node.start_daemon()
        return [] if killed else [f"the daemon ended by itself with status {end}"]

    def delete(self, box: Sandbox) -> list[str]:
        """Have the runtime run DEL until it succeeds, and take the network namespace away."""
        problems = []
        for _ in range(_TRIES):
            try:
                self.node.runtime.delete(box)
            except CniFailed as failure:
                problems.append(f"DEL fails again and again: {failure}")
            else:
                problems.clear()
                break
        self.node.runtime.remove_sandbox(box)
        return problems

    def again(self, identity: PodIdentity) -> list[str]:
        """See that nothing is left; then have kubelet try the same pod again, which has the same VFs, in another sandbox."""
        if left := self.left():
            return left
        try:
            self.come_and_go(identity)
        except CniFailed as failure:
            return [f"the following ADD or DEL failed: {failure}"]
        return []

    def left(self) -> list[str]:
        """Say what is left over once the node had time to tidy up."""
        self.pass_time(_is_empty)
        give_up = time.monotonic() + _SECONDS
        while found := [str(one) for one in violations(self.before, self.look())]:
            if time.monotonic() > give_up:
                return [f"{LEFT}{one}" for one in found]
            time.sleep(_LOOK_SECONDS)
        return []

    def pass_time(self, path: Callable[[Path], bool]) -> None:
        """Have those of host-local's addresses be as old as they would be at a later sweep, and the sweep come.

        The daemon looks for addresses of nobody at its start and every minute, and leaves the young alone.
        """
        found = [one for one in Path("/var/lib/cni/networks").glob("*/*.*.*.*") if path(one)]
        for one in found:
            old = time.time() - _AGE_SECONDS
            with suppress(FileNotFoundError):  # a sweep has come already
                os.utime(one, (old, old))
        if found:
            self.node.stop_daemon()
            self.node.start_daemon()

    def mend(self) -> None:
        """Take away by hand what one point left, so that it is not counted at the next."""
        for identity in self._admitted:
            self.node.kubelet.remove(identity)
        self.node.runtime.remove_sandboxes()
        self.node.kill_daemon()
        at_rest = self.before.things["file"]
        for name in sorted(self.look().things["file"].keys() - at_rest.keys(), reverse=True):
            path = Path(name)
            if path.is_relative_to("/run/railnet") or path.is_relative_to("/var/lib/cni"):
                path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        with IPRoute() as route:
            for link in route.get_links():
                if link.get_attr("IFLA_IFNAME").startswith("veth"):
                    with suppress(NetlinkError):  # gone with its other end
                        route.link("del", index=link["index"])
        self.remove_vfs()
        self.node.start_daemon()
        if violations(self.before, self.look()):
            self.before = self.look()

    def remove_vfs(self) -> None:
        """Take all VFs away; the daemon must be dead, and makes them at its next start."""
        for numvfs in Path("/sys/bus/pci/devices").glob("*/sriov_numvfs"):
            numvfs.write_text("0\n")
        self.node.hca.settle()


def _is_empty(address: Path) -> bool:
    """Tell whether an address was reserved for nobody: its plugin died before it wrote for whom."""
    try:
        return not address.stat().st_size
    except FileNotFoundError:  # a sweep is taking it back
        return False
