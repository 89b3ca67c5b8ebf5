"""Railnet on the node as its users have it: the image in containerd, what the chart renders applied by kubectl.

The node's label says whether the DaemonSet has a pod there; so a daemon can be absent without another revision of it.
"""

import contextlib
import glob
import http.client
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from railnet import VERSION
from tests.cluster.api_requests import ApiRequests
from tests.cluster.chart import Values, render
from tests.cluster.ground import NODE
from tests.cluster.kubectl import Kubectl
from tests.cluster.manifests import LABEL, NAMESPACE, NAMESPACE_FILE, ROOT, on_simulated_cards
from tests.cluster.process import until_found, wait_until
from tests.cluster.runtime import Containerd

IMAGE = f"railnet.io/railnet:{VERSION}"
DAEMON_SET = "daemonset/railnet"
EXECUTABLE = Path("/opt/cni/bin/railnet")
BUNDLES = Path("/opt/cni/bin/.railnet")
CONFLIST = Path("/etc/cni/net.d/00-railnet.conflist")
STATE = Path("/run/railnet")
# Command lines of daemons; the second one is that of versions up to 0.5.1.
_DAEMONS = b"-P\0-m\0railnet.daemon_process\0node\0", b"/opt/railnet/bin/railnet\0node\0"
_READY = "http://127.0.0.1:9474/readyz"
_LOGS = Path("/var/log/pods")
_START_SECONDS = 240.0
_SAID_SECONDS = 120.0  # from the daemon through the runtime to its file
_END_SECONDS = 240.0  # terminationGracePeriodSeconds, and the time kubelet takes to tell


class Railnet:
    """The DaemonSet, and its daemon on the first node: at most one.

    Attributes:
        values: further ones of the chart, with which it is applied until they are others.
    """

    def __init__(self, kubectl: Kubectl, containerd: Containerd, sysfs: Path, configuration: dict[str, Any]) -> None:
        """Use the image at $RAILNET_IMAGE; the tree at `sysfs` stands for the node's cards."""
        self._kubectl, self._containerd = kubectl, containerd
        self._configuration, self._sysfs = configuration, sysfs
        self.values: Values = {}

    def load(self) -> None:
        """Import the image."""
        self._containerd.load(Path(os.environ["RAILNET_IMAGE"]))

    def forget(self) -> None:
        """Delete the image."""
        self._containerd.forget(IMAGE)

    def apply(self, **changes: Any) -> None:
        """Apply the chart, with these keys of the node configuration in place of the node's own; returns at once."""
        namespace = yaml.safe_load(NAMESPACE_FILE.read_text())
        self._kubectl.apply(namespace, *self.objects(self.values, {"node": {"configuration": changes}}))

    def objects(self, *features: Values) -> list[dict[str, Any]]:
        """Return what the chart renders for the node, with more values."""
        return on_simulated_cards(render({"node": {"configuration": self._configuration}}, *features), self._sysfs)

    def start(self) -> None:
        """Have the daemon run, installed if it is not; returns when it is ready."""
        self._label("true")
        self.apply()
        try:
            wait_until(self._serves, _START_SECONDS, "the daemon to be ready")
        except TimeoutError as error:
            error.add_note(self.log())
            raise

    def stop(self) -> None:
        """End the daemon as for an upgrade; there is none until `start`."""
        self._label(None)
        self._wait_for_end()

    def hang(self) -> int:
        """Stop the daemon in its tracks, as if it hung; its supervisor goes on. Gives the daemon's process."""
        process = daemon()
        os.kill(process, signal.SIGSTOP)
        return process

    def freeze(self) -> int:
        """Stop the supervisor and the daemon in their tracks; gives the supervisor's process, without which the daemon ends."""
        process = daemon()
        supervisor = _parent(process)
        for each in (supervisor, process):
            os.kill(each, signal.SIGSTOP)
        return supervisor

    def kill(self) -> None:
        """End the supervisor by SIGKILL, and the daemon with it; there is none until `start`.

        They are stopped in their tracks before their pod is deleted, so they never hear of that, and kubelet starts no other.
        """
        process = self.freeze()
        self._label(None)
        wait_until(self._is_being_deleted, _START_SECONDS, "the DaemonSet's pod to be deleted")
        with contextlib.suppress(ProcessLookupError):  # kubelet was first: the pod's grace was over
            os.kill(process, signal.SIGKILL)
        self._wait_for_end()
        # There is no other pod before the API server has forgotten this one. A busy kubelet may report its end
        # later than an ADD may wait for the next daemon.
        names = [pod["metadata"]["name"] for pod in self.pods()]
        forget = ("--force", "--grace-period=0", "--ignore-not-found")
        if names:
            self._kubectl.run("delete", "pod", *names, f"--namespace={NAMESPACE}", *forget)

    def roll_out(self) -> str:
        """Wait until every pod is the newest and ready; gives what kubectl says."""
        return self._kubectl.run("rollout", "status", DAEMON_SET, f"--namespace={NAMESPACE}", "--timeout=200s")

    def restart(self) -> None:
        """Have every pod be replaced, as an upgrade does; returns at once."""
        self._kubectl.run("rollout", "restart", DAEMON_SET, f"--namespace={NAMESPACE}")

    def uninstall(self) -> None:
        """Patch the DaemonSet as docs/install.md says; returns at once."""
        patch = f"--patch-file={ROOT}/daemonset/uninstall-patch.yaml"
        self._kubectl.run("patch", DAEMON_SET, f"--namespace={NAMESPACE}", patch)

    def delete(self) -> None:
        """`kubectl delete -f`, and the namespace; returns when the API server has forgotten all of it."""
        self._kubectl.delete(*self.objects())
        self._kubectl.run("delete", f"--filename={NAMESPACE_FILE}", "--ignore-not-found")

    def exists(self) -> bool:
        """Tell whether there is anything of it in the cluster."""
        return self._kubectl.answers("get", "namespace", NAMESPACE)

    def lose_pod(self) -> None:
        """Have the API server forget the pod at once, whatever still runs of it; the DaemonSet makes another."""
        (pod,) = self.pods()
        self._kubectl.run(
            "delete", "pod", pod["metadata"]["name"], f"--namespace={NAMESPACE}", "--force", "--grace-period=0"
        )

    def pods(self, node: str = NODE) -> list[dict[str, Any]]:
        """Return the DaemonSet's pods on a node, the first one if none is named."""
        with ApiRequests() as api:
            found = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=spec.nodeName%3D{node}")["items"]
        return [pod for pod in found if _owner_kind(pod) == "DaemonSet"]

    def status(self, *options: str) -> str:
        """Give what `railnet status` says in the DaemonSet's pod."""
        (pod,) = self.pods()
        command = ("railnet", "status", *options)
        return self._kubectl.run("exec", pod["metadata"]["name"], f"--namespace={NAMESPACE}", "--", *command)

    def last_lines(self, node: str) -> str:
        """Give the name, the container's restarts, and the last lines of the log, of each of the DaemonSet's pods on a node."""
        return "\n".join(map(self._last_lines_of, self.pods(node)))

    def _last_lines_of(self, pod: dict[str, Any]) -> str:
        name = pod["metadata"]["name"]
        restarts = [one["restartCount"] for one in pod["status"].get("containerStatuses", ())]
        logs = self._kubectl.run("logs", name, f"--namespace={NAMESPACE}", "--all-containers", "--tail=40")
        return f"{name}, restarts {restarts}, since {pod['metadata']['creationTimestamp']}\n{logs}"

    def log(self) -> str:
        """Give what the containers said that kubelet still knows."""
        return "\n".join(_read_logs())

    def said_at(self, words: str) -> float:
        """Give when (time.time) the daemon last said something with these words, as the runtime noted it.

        Raises:
            TimeoutError: it never did.
        """
        lines = until_found(
            lambda: [line.split(" ", 3) for line in self.log().splitlines() if words in line],
            _SAID_SECONDS,
            f"the daemon to say {words!r}",
        )
        return max(parse_time(fields[0].removesuffix("Z")) for fields in lines)

    def _label(self, value: str | None) -> None:
        with ApiRequests() as api:
            api.merge(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {LABEL: value}}})

    def _serves(self) -> bool:
        """Return whether the newest daemon is ready. The daemon is asked first: most waits are for it. It is asked again if it may be another one."""
        return is_ready() and self._is_current() and is_ready()

    def _is_current(self) -> bool:
        """Return whether the DaemonSet's pods are of its newest revision; they may be ready before their probes say so."""
        with ApiRequests() as api:
            found = api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/railnet")
        status = found["status"]
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        updated = status.get("updatedNumberScheduled", 0)
        return seen and 1 <= updated == status["desiredNumberScheduled"] and len(self.pods()) == 1

    def _is_being_deleted(self) -> bool:
        return all("deletionTimestamp" in pod["metadata"] for pod in self.pods())

    def _wait_for_end(self) -> None:
        """Wait for the process alone; kubelet lets go of the pod later, which `start` waits for."""
        wait_until(lambda: not list(_processes()), _END_SECONDS, "the daemon to end")


def _owner_kind(pod: dict[str, Any]) -> str:
    owners = pod["metadata"].get("ownerReferences", ())
    return str(owners[0]["kind"]) if owners else ""


def is_ready() -> bool:
    """Ask the daemon whether it serves the node."""
    return why_not_ready() is None


def why_not_ready() -> str | None:
    """Give what the daemon says, or that there is none; None if it is ready."""
    try:
        return _ask_readiness()
    except (OSError, http.client.HTTPException) as error:  # it may end in the middle of its answer
        return str(error)


def _ask_readiness() -> str | None:
    try:
        with urllib.request.urlopen(_READY, timeout=5):
            return None
    except urllib.error.HTTPError as error:
        return error.read().decode()


def parse_time(text: str) -> float:
    """Read a time of UTC, which may have nanoseconds or end before, as seconds of time.time."""
    return datetime.fromisoformat(f"{text[:26]:0<26}+00:00").timestamp()


def daemon() -> int:
    """Give the daemon's process. A child of it has its command line, too, until it executes a program of its own."""
    parents = {}
    for process in _processes():
        with contextlib.suppress(OSError):  # such a child has ended
            parents[process] = _parent(process)
    (found,) = (process for process, parent in parents.items() if parent not in parents)
    return found


def _parent(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])  # proc_pid_stat(5): state, ppid


def _read_logs() -> Iterator[str]:
    """Read what there is; kubelet takes ended pods' files and folders away when it likes."""
    for path in sorted(glob.glob(f"{_LOGS}/{NAMESPACE}_*/*/*.log")):  # noqa: PTH207 - Path.glob fails at a folder that goes
        with contextlib.suppress(FileNotFoundError):
            yield Path(path).read_text(errors="replace")


def _processes() -> Iterator[int]:
    """Yield the processes of this node's daemon: it is in the node's network namespace, and those of other nodes are not."""
    own = Path("/proc/self/ns/net").readlink()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            is_daemon = path.read_bytes().partition(b"\0")[2].startswith(_DAEMONS)  # without the interpreter's path
            if is_daemon and (path.parent / "ns/net").readlink() == own:
                yield int(path.parent.name)
