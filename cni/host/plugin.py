"""The plugin executable: one process for each request of the container runtime.

It checks the environment, sends the request to the daemon and runs delegates for it (`cni.host.daemon`). If no daemon answers, the
slow lane serves (`cni.host.without_daemon`). Both take the attachment's lock before they start a delegate. At its top this module
imports only modules that are built into the interpreter, and modules of this package that do the same.
"""

import fcntl
import posix
import time

from cni.host import daemon, lock, multus_circle
from cni.host.environment import ADD, DEL, GC, STATUS, VERSION, Environment
from cni.host.errors import DECODE, ENVIRONMENT, IO, CniError

_NS_GET_NSTYPE = 0xB703  # include/uapi/linux/nsfs.h
_NO_NETNS = -1
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h
_MAX_STDIN = 64 << 20  # far beyond every request: it only keeps a runtime gone wrong from using up the node's memory


def main() -> None:
    """Serve the request in this process's environment and on its stdin, and end the process."""
    status, stdout = answer(dict(posix.environ))
    while stdout:
        stdout = stdout[posix.write(1, stdout) :]
    posix._exit(status)  # nothing is buffered, and tearing the interpreter down takes a millisecond


def answer(raw: dict[bytes, bytes]) -> tuple[int, bytes]:
    """Serve one request. Return the exit status and what to print, which is JSON in every case."""
    try:
        environment = Environment(raw)
        stdin = _read_stdin()
        if environment.command == VERSION:
            return 0, _versions(stdin)
        if environment.command == STATUS:
            return _status(environment, stdin)
        if environment.command == GC and multus_circle.MARK not in raw:
            return _serve(environment, stdin, _NO_NETNS, lock.Lock(""))
        return _locked(environment, stdin)
    except CniError as error:
        return 1, error.stdout()
    except Exception as error:  # noqa: BLE001 - a runtime understands CNI errors, not tracebacks
        return 1, CniError(IO, f"Railnet failed: {type(error).__name__}: {error}").stdout()


def _status(environment: Environment, stdin: bytes) -> tuple[int, bytes]:
    from cni.host import without_daemon  # late: an ADD need not load it. STATUS does not depend on the daemon

    if multus_circle.MARK in environment.raw:
        raise multus_circle.called_in_a_circle()
    return without_daemon.serve(environment, stdin, _NO_NETNS, lock.Lock(""), time.monotonic())


def _locked(environment: Environment, stdin: bytes) -> tuple[int, bytes]:
    if multus_circle.MARK in environment.raw:
        if environment.command in (DEL, GC):  # what is to be taken back, the Railnet that called Multus takes back
            return 0, b""
        raise multus_circle.called_in_a_circle()
    held = lock.Lock(f"{lock.FOLDER}/{environment.key}")
    try:
        return _serve(environment, stdin, _open_netns(environment), held)
    finally:
        held.release()


def _serve(environment: Environment, stdin: bytes, netns_fd: int, held: lock.Lock) -> tuple[int, bytes]:
    began = time.monotonic()
    executed: list[daemon.ExecutedDelegate | None] = []
    try:
        return daemon.ask(environment, stdin, netns_fd, held)
    except daemon.NoDaemon:
        pass
    except daemon.RequestLost as lost:
        began, executed = time.monotonic(), lost.executed
    from cni.host import without_daemon  # late: the fast lane does not need its imports

    return without_daemon.serve_on(environment, stdin, netns_fd, held, began, executed)


def _open_netns(environment: Environment) -> int:
    """Open CNI_NETNS; the descriptor lives as long as the process. Only an ADD must have a namespace: else `_NO_NETNS`.

    Raises:
        CniError: code 4, an ADD's CNI_NETNS is no network namespace, or is the node's own.
    """
    try:
        # O_NONBLOCK: the path may be a FIFO, and opening that must not wait.
        fd = posix.open(environment.netns, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    except OSError as error:
        return _no_netns(environment, f"cannot be opened: {error.strerror}")
    try:
        kind = fcntl.ioctl(fd, _NS_GET_NSTYPE)
    except OSError:
        kind = 0
    if kind != _CLONE_NEWNET:
        posix.close(fd)
        return _no_netns(environment, "is not a network namespace")
    if _is_nodes_own(posix.fstat(fd).st_ino):
        posix.close(fd)
        return _no_netns(environment, "is the node's own network namespace")
    return fd


def _is_nodes_own(inode: int) -> bool:
    """Return whether it is this process's namespace or that of the host's process 1: a runtime may itself be in a container."""
    for path in ("/proc/self/ns/net", "/proc/1/ns/net"):
        try:
            if posix.stat(path).st_ino == inode:
                return True
        except OSError:  # this process may not see it
            continue
    return False


def _no_netns(environment: Environment, why: str) -> int:
    if environment.command == ADD:
        raise CniError(
            ENVIRONMENT, f"CNI_NETNS {environment.netns!r} {why}; it should be the sandbox's network namespace"
        )
    return _NO_NETNS


def _read_stdin() -> bytes:
    data = bytearray()  # bytes would be copied with each chunk
    while chunk := posix.read(0, 1 << 16):
        data += chunk
        if len(data) > _MAX_STDIN:
            raise CniError(DECODE, f"the configuration on stdin is larger than {_MAX_STDIN} bytes")
    return bytes(data)


def _versions(stdin: bytes) -> bytes:
    from cni.host import json_object, json_text  # late: runtimes send VERSION once, if ever
    from cni.host.netconf import SUPPORTED_VERSIONS

    asked = (
        json_object.load_object(stdin, "the configuration on stdin").get("cniVersion", "1.0.0")
        if stdin.strip()
        else "1.0.0"
    )
    if not isinstance(asked, str):
        raise CniError(DECODE, f"cniVersion is {asked!r}; it should be a string")
    return json_text.dumps({"cniVersion": asked, "supportedVersions": SUPPORTED_VERSIONS}).encode() + b"\n"
