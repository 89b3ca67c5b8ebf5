"""Enter the host's namespaces and execute a program there: `host_entry.py enter|chroot ROOT PROGRAM`.

`railnet.kernel.processes.host_process` starts it. It is a separate process because only a process without threads may enter a mount
namespace (mntns_install(), fs/namespace.c). It imports nothing of Railnet: it runs by its path, in PROGRAM's environment.
"""

import ctypes
import os
import sys

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000  # include/uapi/linux/sched.h
_CANNOT = 126  # the exit status of shells and env(1) for a program that was found but could not be executed


def main() -> None:
    """Replace this process by the program. A failure is reported on stderr."""
    _, how, root, program = sys.argv
    try:
        (os.chroot if how == "chroot" else _enter)(root)
        os.chdir("/")
        os.execv(program, [program])
    except OSError as error:
        print(f"cannot execute {program} on the host at {root}: {error}", file=sys.stderr)
        sys.exit(_CANNOT)


def _enter(root: str) -> None:
    """Enter the namespaces of the process that `root` belongs to, such as /proc/1/root. For any other folder, only change the root."""
    namespaces = os.path.join(os.path.dirname(root), "ns")
    if not os.path.isdir(namespaces):
        os.chroot(root)
        return
    fds = [os.open(f"{namespaces}/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("net", "mnt")]
    libc = ctypes.CDLL(None, use_errno=True)
    for fd, kind in zip(fds, (_CLONE_NEWNET, _CLONE_NEWNS), strict=True):
        if libc.setns(fd, kind) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}")


if __name__ == "__main__":
    main()
