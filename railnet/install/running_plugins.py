"""The executable's processes on the host: requests of the container runtime that are being served right now.

Read from /proc: a request knows its environment's CNI_COMMAND and the script that it runs, and no other process on the host has both.
In a pod any process may look like that, so a process with a PID namespace of its own is no request.
"""

import time
from pathlib import Path

from railnet.kernel.files import below
from railnet.kernel.waiting import block_until

_NAME = b"railnet"
_LOOK_SECONDS = 0.05
_EXEC_SECONDS = 1.0  # for one execve(2), on a node with hundreds of processes that can run


def requests(root: Path) -> frozenset[int]:
    """Return the process ids, as the host's /proc (at `root`) has them."""
    proc = below(root, "/proc")
    return frozenset(int(path.name) for path in proc.iterdir() if path.name.isdecimal() and _is_request(path))


def describe(root: Path, process: int) -> str:
    """Name a request for a user: its command and its pod, as the runtime named them. It may have ended by now."""
    try:
        environ = _environ(below(root, f"/proc/{process}"))
    except OSError:
        environ = {}
    arguments = dict(pair.partition("=")[::2] for pair in environ.get("CNI_ARGS", "").split(";"))
    namespace, name = (arguments.get(f"K8S_POD_{part}", "") for part in ("NAMESPACE", "NAME"))
    command = f"request {environ.get('CNI_COMMAND', '')}".rstrip()
    return f"{command} of pod {namespace}/{name} (process {process})" if name else f"{command} of process {process}"


def await_end(root: Path, seconds: float) -> frozenset[int]:
    """Wait until the requests that run at this moment have ended; return those that have not in time.

    A process looks like a request only at the end of execve(2), after the kernel has read the executable and opened the interpreter
    that it names. What began before this call is seen a moment later.
    """
    time.sleep(_EXEC_SECONDS)
    processes = requests(root)
    block_until(lambda: requests(root).isdisjoint(processes), seconds, _LOOK_SECONDS)
    return requests(root).intersection(processes)


def _is_request(process: Path) -> bool:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        if not any(argument.rpartition(b"/")[2] == _NAME for argument in arguments):
            return False
        if "CNI_COMMAND" not in _environ(process):
            return False
        return _is_in_the_hosts_pid_namespace((process / "status").read_bytes())
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return False


def _environ(process: Path) -> dict[str, str]:
    entries = (process / "environ").read_bytes().decode(errors="backslashreplace").split("\0")
    return dict(entry.partition("=")[::2] for entry in entries if entry)


def _is_in_the_hosts_pid_namespace(status: bytes) -> bool:
    """Return whether /proc/<pid>/status names the process by one number: NSpid has one for each namespace from /proc's down."""
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith(b"NSpid:")), [b"the only one"])
    return len(numbers) == 1  # a kernel without PID namespaces has no such line
