"""Delegates that the daemon runs itself on the host, for a container whose runtime sends no DEL any more.

While a request is served its executable runs them instead (`cni.connection`).
"""

from collections.abc import Generator
from errno import ENOENT
from pathlib import Path
from typing import Protocol, TypeVar

from cni.host import chain
from cni.host.chain import Exec, Output
from cni.host.errors import TRY_AGAIN, CniError
from cni.host.flannel import Kept, kept
from kernel.files import below
from kernel.host_process import Stopped, Terms, execute
from vf.record import Pod

_Result = TypeVar("_Result")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # for what a plugin executes in turn, such as iptables


class Attached(Protocol):
    """Whose delegates are run; a record is one."""

    @property
    def container_id(self) -> str:
        """CNI_CONTAINERID."""
        ...

    @property
    def ifname(self) -> str:
        """CNI_IFNAME, where a step names no other."""
        ...

    @property
    def pod(self) -> Pod:
        """The pod, for CNI_ARGS."""
        ...


def drive(steps: Generator[Exec, Output, _Result], of: Attached, path: str, root: Path, terms: Terms) -> _Result:
    """Have everything that a chain or IPAM plugin's generator yields executed; gives its result.

    `path` is CNI_PATH as the runtime said it at ADD, `root` where the host's mount namespace is seen, `terms` what each plugin
    has; it inherits the locks of whom it is run for, so that nobody comes before its end, whatever becomes of the daemon.
    Blocks: not for an event loop's thread.

    Raises:
        CniError: what the generator raises. Code 11, it was stopped; what is left of it is not run.
    """
    try:
        step = next(steps)
        while True:
            step = steps.send(_execute(step, of, path, root, terms))
    except Stopped as stopped:
        raise CniError(TRY_AGAIN, f"{stopped}, since what it was for has ended; it is not finished") from None
    except StopIteration as stop:
        result: _Result = stop.value
        return result


def _execute(step: Exec, of: Attached, path: str, root: Path, terms: Terms) -> Output:
    program = _find(step.plugin, path, root)
    if program is None:
        return Output(-ENOENT, b"", f"no folder of CNI_PATH {path} has {step.plugin}".encode())
    environ = _environ(step, of, path)
    state = _flannels_state(step, environ, root)
    output = None
    try:
        output = _output(root, program, environ, step.stdin, terms)
    finally:
        if state is not None:
            state.ended(success=output is not None and output.status == 0)
    return output


def _flannels_state(step: Exec, environ: dict[str, str], root: Path) -> Kept | None:
    if (step.command, step.plugin) != ("DEL", "flannel"):
        return None
    return kept({name.encode(): value.encode() for name, value in environ.items()}, step.stdin, str(root).rstrip("/"))


def _output(root: Path, program: str, environ: dict[str, str], stdin: bytes, terms: Terms) -> Output:
    try:
        return Output(*execute(root, program, environ, stdin, terms))
    except TimeoutError as error:
        return Output(chain.TIMED_OUT, b"", str(error).encode())
    except OSError as error:
        return Output(-(error.errno or ENOENT), b"", str(error).encode())


def _find(plugin: str, path: str, root: Path) -> str | None:
    candidates = (f"{folder}/{plugin}" for folder in path.split(":") if folder)
    return next((candidate for candidate in candidates if below(root, candidate).is_file()), None)


def _environ(step: Exec, of: Attached, path: str) -> dict[str, str]:
    pod = of.pod
    # IgnoreUnknown must come first, or plugins refuse the rest (CNI specification 0.3.1, "CNI_ARGS").
    args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={pod.namespace};K8S_POD_NAME={pod.name};K8S_POD_UID={pod.uid}"
    return {
        "CNI_COMMAND": step.command,
        "CNI_CONTAINERID": of.container_id,
        "CNI_NETNS": "",  # gone: DEL must do without (CNI specification 1.1.0, section 2, "DEL")
        "CNI_IFNAME": step.ifname or of.ifname,
        "CNI_ARGS": args,
        "CNI_PATH": path,
        "PATH": _PATH,
    }
