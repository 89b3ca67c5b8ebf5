"""The mount, network and process namespaces of a simulated node, and its process 1, whose end kills all its processes.

`preinstalled_files` and `node` fill the folders that are made here; `netns` makes the network namespaces of pods.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from simnode.linux import empty_folders, libc, netns
from simnode.linux.cgroups import Cgroups

# Each folder that a node writes to: private to the simulated node, and empty at its start.
PRIVATE_FOLDERS = (
    Path("/run"),
    Path("/sys"),
    Path("/var/lib/cni"),
    Path("/var/lib/kubelet"),
    Path("/var/lib/railnet"),
    Path("/etc/cni"),
    Path("/etc/railnet"),
    Path("/opt/cni/bin"),
)
MARK = Path("/run/simnode")
_SI_KERNEL = 0x80  # include/uapi/asm-generic/siginfo.h; the terminal sent the signal, and the command got it, too
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_REFUSED = 125  # the command was not run; env(1), timeout(1) and docker(1) have the same status


class NamespacesRefused(RuntimeError):
    """The kernel refuses new namespaces; the message says what to do."""


def inside() -> bool:
    """Return whether this process is in the namespaces of a simulated node, where it may write to the real paths."""
    return MARK.is_dir()


def run(command: Sequence[str], *, cgroups: bool = False) -> int:
    """Run a command in new namespaces and return its exit status (128 + N for signal N).

    All processes that the command left running are killed when the command ends, and when this process ends.

    Args:
        command: the program and its arguments.
        cgroups: give the node separate control groups and mount the kernel's sysfs at /sys, as a real kubelet and a real
            container runtime need. The simulated tree must then be elsewhere. Needs root.

    Raises:
        NamespacesRefused: the kernel refuses namespaces both to this user and in a new user namespace.
    """
    if not cgroups:
        return _run(command, None)
    with _own_cgroups() as own:
        return _run(command, own)


def _own_cgroups() -> Cgroups:
    try:
        return Cgroups(f"simnode-{os.getpid()}")
    except OSError as error:
        raise NamespacesRefused(f"cannot make a control group, the kernel refuses it ({error}): run as root") from error


def _run(command: Sequence[str], cgroups: Cgroups | None) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_FORWARDED, signal.SIGCHLD))
    _unshare()
    alive_read, alive_write = os.pipe()  # only this process has the write end: end of file means that it has ended
    init = os.fork()
    if init == 0:
        os.close(alive_write)
        _run_init(alive_read, command, cgroups)
    os.close(alive_read)
    try:
        return _wait(init)
    finally:
        os.close(alive_write)


def _unshare() -> None:
    own = libc.CLONE_NEWNS | libc.CLONE_NEWNET | libc.CLONE_NEWPID
    try:
        if os.geteuid() == 0:
            libc.unshare(own)
        else:
            _unshare_as_user(own)
    except OSError as error:
        raise NamespacesRefused(
            f"the kernel refuses new mount, network and process namespaces ({error.strerror}): run as root, "
            "or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)"
        ) from error


def _unshare_as_user(own: int) -> None:
    """Make the namespaces in a new user namespace, in which this user is root, and report that on stderr."""
    uid, gid = os.geteuid(), os.getegid()
    sys.stderr.write("simnode: not root, so the node runs in a user namespace\n")
    libc.unshare(libc.CLONE_NEWUSER | own)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def _run_init(alive_fd: int, command: Sequence[str], cgroups: Cgroups | None) -> NoReturn:
    """Run as process 1 of the node: prepare the node, run the command, reap, and exit with the command's status."""
    status = _REFUSED
    try:
        libc.die_with_parent(signal.SIGKILL)
        if not _parent_is_alive(alive_fd):
            os._exit(_REFUSED)
        _prepare(cgroups)
        child = os.fork()
        if child == 0:
            os.close(alive_fd)
            _exec(command)
        status = _wait(child)
    except OSError as error:
        sys.stderr.write(f"simnode: cannot prepare the node's namespaces: {error}\n")
    finally:
        os._exit(status)


def _parent_is_alive(alive_fd: int) -> bool:
    os.set_blocking(alive_fd, False)
    try:
        return os.read(alive_fd, 1) != b""
    except BlockingIOError:
        return True


def _prepare(cgroups: Cgroups | None) -> None:
    libc.mount("", "/", flags=libc.MS_REC | libc.MS_PRIVATE)
    if cgroups is not None:
        cgroups.enter()
    libc.mount("proc", "/proc", fstype="proc", flags=libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    for folder in PRIVATE_FOLDERS:
        empty_folders.mount_empty(folder)
    if cgroups is not None:
        libc.mount("sysfs", "/sys", fstype="sysfs", flags=libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
        cgroups.mount()
    empty_folders.mount_dev()
    MARK.mkdir()
    netns.set_up("lo")


def _exec(command: Sequence[str]) -> NoReturn:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # or gRPC reports the end of each device plugin on stderr
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        sys.stderr.write(f"simnode: cannot run {command[0]!r}: {error.strerror}\n")
    os._exit(127)


def _wait(child: int) -> int:
    """Reap all children until `child` ends and return its status; forward signals to it, which must be blocked."""
    while True:
        arrived = signal.sigwaitinfo((*_FORWARDED, signal.SIGCHLD))
        if arrived.si_signo != signal.SIGCHLD:
            if arrived.si_code != _SI_KERNEL:
                os.kill(child, arrived.si_signo)
            continue
        status = _reap(child)
        if status is not None:
            return status


def _reap(child: int) -> int | None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == child:
            return _shell_status(os.waitstatus_to_exitcode(status))


def _shell_status(exitcode: int) -> int:
    return exitcode if exitcode >= 0 else 128 - exitcode
