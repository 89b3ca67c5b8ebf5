"""containerd with runc, and what its own client knows of pods' sandboxes."""

import signal
import subprocess
from pathlib import Path

from tests.cluster import busybox
from tests.cluster.ground import RUN
from tests.cluster.process import Program, until_found, wait_until

SOCKET = RUN / "containerd.sock"
_CONFIGURATION = RUN / "containerd.toml"
_START_SECONDS = 180.0
_FOUND_SECONDS = 180.0
_COMMAND_SECONDS = 400  # an import of the image with PyTorch, onto a slow disk
_END_SECONDS = 180.0  # of all at once, each by a shim of its own
# restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower a score, and fails.
_TOML = f"""\
version = 3
root = "{RUN}/containerd"
state = "{RUN}/containerd-state"

[grpc]
address = "{SOCKET}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{busybox.NAME}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
"""


class Containerd:
    """The runtime; its shims, and so the pods, outlive it."""

    def __init__(self) -> None:
        self.program = Program(["containerd", f"--config={_CONFIGURATION}"])

    def start(self) -> None:
        """Start it and wait until it answers."""
        _CONFIGURATION.write_text(_TOML)
        self.program.start()
        self.program.wait(self._answers, _START_SECONDS)

    def restart(self) -> None:
        self.program.stop()
        self.start()

    def load(self, archive: Path) -> None:
        """Import an image for kubelet's use."""
        _ctr("images", "import", str(archive))

    def tag(self, image: str, name: str) -> None:
        """Give an image another name, too."""
        _ctr("images", "tag", image, name)

    def forget(self, image: str) -> None:
        """Delete an image that no container uses."""
        _ctr("images", "remove", "--sync", image)

    def sandbox(self, pod: str) -> str:
        """Give the id of a pod's running sandbox."""
        return _running(pod, "sandbox")

    def kill_sandbox(self, pod: str) -> str:
        """Kill the process that holds a pod's sandbox, and give the sandbox's id; kubelet then makes another."""
        sandbox = self.sandbox(pod)
        _ctr("tasks", "kill", f"--signal={signal.SIGKILL.name}", sandbox)
        return sandbox

    def kill_container(self, pod: str) -> None:
        """Kill the one container of a pod; what follows from its exit code 137 is kubelet's or an operator's to do."""
        _ctr("tasks", "kill", f"--signal={signal.SIGKILL.name}", _running(pod, "container"))

    def tasks(self, namespace: str) -> set[str]:
        """Return the ids of a namespace's sandboxes and containers that have a task: a stopped sandbox has none, and kubelet removes it minutes later."""
        pods = f'labels."io.kubernetes.pod.namespace"=={namespace}'
        known = set(_ctr("containers", "list", "--quiet", pods).split())
        return known & set(_ctr("tasks", "list", "--quiet").split())

    def end(self) -> None:
        """End every sandbox and container, then the runtime; kubelet must have ended."""
        for task in _ctr("tasks", "list", "--quiet").split():
            subprocess.run(command("tasks", "kill", "--signal=SIGKILL", task), check=False, capture_output=True)
        wait_until(lambda: "RUNNING" not in _ctr("tasks", "list"), _END_SECONDS, "every container to end")
        self.program.stop()

    def _answers(self) -> bool:
        return subprocess.run(command("version"), check=False, capture_output=True).returncode == 0


def _running(pod: str, kind: str) -> str:
    """Return the id of the one running task of a kind that a pod has.

    containerd leaves a task out of its list whose shim does not say in two seconds how the task is (services/tasks/local.go, addTasks), and lists
    one that has ended until its pod's sandbox is taken down.
    """
    pods = f'labels."io.kubernetes.pod.name"=={pod},labels."io.cri-containerd.kind"=={kind}'

    def look() -> set[str]:
        tasks = [line.split() for line in _ctr("tasks", "list").splitlines()]
        running = {fields[0] for fields in tasks if fields[-1] == "RUNNING"}
        found = running & set(_ctr("containers", "list", "--quiet", pods).split())
        return found if len(found) == 1 else set()

    (found,) = until_found(look, _FOUND_SECONDS, f"one running {kind} of pod {pod}")
    return found


def _ctr(*arguments: str) -> str:
    return subprocess.run(
        command(*arguments), check=True, capture_output=True, text=True, timeout=_COMMAND_SECONDS
    ).stdout


def command(*arguments: str) -> list[str]:
    """Give a command line of containerd's own client."""
    return ["ctr", f"--address={SOCKET}", "--namespace=k8s.io", *arguments]
