"""Plugins that the daemon itself runs on the host, for a container whose runtime sends no DEL any more.

Plugins of a request are not run here: the request's executable runs them (`cni.connection`).
"""

import threading
from collections.abc import Generator
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path
from typing import Protocol, TypeVar

from cni.host import chain, lock
from cni.host.chain import Exec, ExecOutput
from cni.host.errors import TRY_AGAIN, CniError
from cni.host.flannel_state_backup import KeptState, keep
from railnet.kernel.files import followed
from railnet.kernel.processes.host_process import Stopped, Terms, execute
from railnet.vf.record import SandboxPod

_Result = TypeVar("_Result")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # for programs that a plugin itself executes, such as iptables


class CniAttachment(Protocol):
    """The container and interface that plugins are run for; a record is one."""

    @property
    def container_id(self) -> str:
        """CNI_CONTAINERID."""
        ...

    @property
    def ifname(self) -> str:
        """CNI_IFNAME, unless a step names another."""
        ...

    @property
    def pod(self) -> SandboxPod:
        """The pod, for CNI_ARGS."""
        ...


@dataclass(frozen=True, slots=True)
class HostDelegates:
    """Runs plugins on the host, which is seen at `root`: each for at most `seconds`.

    `locks` is the folder with the locks of the sandboxes.
    """

    root: Path
    seconds: float
    locks: Path = Path(lock.FOLDER)

    def lock_of(self, key: str) -> str:
        """Return the path of the lock of `<container id>@<ifname>`, which an executable holds while it runs plugins."""
        return str(self.locks / key)

    def run(
        self,
        steps: Generator[Exec, ExecOutput, _Result],
        attachment: CniAttachment,
        path: str,
        held: tuple[int, ...],
        stopped: threading.Event,
    ) -> _Result:
        """Execute every plugin that a generator of a chain or of an IPAM plugin yields; return the generator's result.

        `path` is CNI_PATH as it was at ADD. Each plugin inherits the locks `held`, so that no request of the sandbox begins
        before the plugin has ended, even if the daemon dies. Blocks: not for an event loop's thread.

        Raises:
            CniError: what the generator raises. Code 11: `stopped` was set, and the remaining plugins were not run.
        """
        terms = Terms(self.seconds, stopped, held)
        try:
            step = next(steps)
            while True:
                step = steps.send(_execute(step, attachment, path, self.root, terms))
        except Stopped as ended:
            raise CniError(TRY_AGAIN, f"{ended}, because its caller was cancelled; it is run again later") from None
        except StopIteration as stop:
            result: _Result = stop.value
            return result


def _execute(step: Exec, attachment: CniAttachment, path: str, root: Path, terms: Terms) -> ExecOutput:
    program = _find(step.plugin, path, root)
    if program is None:
        return ExecOutput(-ENOENT, b"", f"no folder of CNI_PATH {path} has {step.plugin}".encode())
    environ = _environ(step, attachment, path)
    state = _flannel_state(step, environ, root)
    output = None
    try:
        output = _output(root, program, environ, step.stdin, terms)
    finally:
        if state is not None:
            state.ended(success=output is not None and output.status == 0)
    return output


def _flannel_state(step: Exec, environ: dict[str, str], root: Path) -> KeptState | None:
    if (step.command, step.plugin) != ("DEL", "flannel"):
        return None
    return keep({name.encode(): value.encode() for name, value in environ.items()}, step.stdin, str(root).rstrip("/"))


def _output(root: Path, program: str, environ: dict[str, str], stdin: bytes, terms: Terms) -> ExecOutput:
    try:
        return ExecOutput(*execute(root, program, environ, stdin, terms))
    except TimeoutError as error:
        return ExecOutput(chain.TIMED_OUT, b"", str(error).encode())
    except OSError as error:
        return ExecOutput(-(error.errno or ENOENT), b"", str(error).encode())


def _find(plugin: str, path: str, root: Path) -> str | None:
    candidates = (f"{folder}/{plugin}" for folder in path.split(":") if folder)
    # K3s' plugins are links with absolute targets (k3s-io/k3s, cmd/k3s/main.go, extract).
    return next((candidate for candidate in candidates if followed(root, candidate).is_file()), None)


def _environ(step: Exec, attachment: CniAttachment, path: str) -> dict[str, str]:
    pod = attachment.pod
    # IgnoreUnknown must come first: otherwise plugins refuse the other keys (CNI specification 0.3.1, "CNI_ARGS").
    args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={pod.namespace};K8S_POD_NAME={pod.name};K8S_POD_UID={pod.uid}"
    return {
        "CNI_COMMAND": step.command,
        "CNI_CONTAINERID": attachment.container_id,
        "CNI_NETNS": "",  # gone: DEL must work without it (CNI specification 1.1.0, section 2, "DEL")
        "CNI_IFNAME": step.ifname or attachment.ifname,
        "CNI_ARGS": args,
        "CNI_PATH": path,
        "PATH": _PATH,
    }
