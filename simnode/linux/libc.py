"""System calls that Python 3.11 has no function for: namespaces, mounts, prctl, inotify.

Only the bare calls: what they are used for stands in `namespaces`, `mounts` and `inotify`.
"""

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)

# include/uapi/linux/sched.h
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# include/uapi/linux/mount.h
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

MNT_DETACH = 0x2  # include/linux/fs.h
# include/uapi/linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _check(result: int, operation: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{operation}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Put the calling thread into namespaces of its own."""
    _check(_LIBC.unshare(flags), f"unshare({flags:#x})")


def setns(namespace_fd: int, kind: int) -> None:
    """Put the calling thread into a namespace; the descriptor stays the caller's."""
    _check(_LIBC.setns(namespace_fd, kind), "setns")


def mount(source: str, target: str, *, fstype: str = "", flags: int = 0, data: str = "") -> None:
    """Attach a file system at `target`, or a directory (MS_BIND)."""
    arguments = (source.encode(), target.encode(), fstype.encode() or None, ctypes.c_ulong(flags), data.encode())
    _check(_LIBC.mount(*arguments), f"mount {source or fstype} on {target}")


def unmount(target: str) -> None:
    """Detach a mount; whoever still uses it keeps it until they are done."""
    _check(_LIBC.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def die_with_parent(signal: int) -> None:
    """Have the kernel send `signal` to this process when the thread that made it ends."""
    _check(_LIBC.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends, as process 1 is of all others."""
    _check(_LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def inotify_init(flags: int) -> int:
    """Return a new inotify descriptor, the caller's to close."""
    return _check(_LIBC.inotify_init1(flags), "inotify_init1")


def inotify_add_watch(inotify_fd: int, path: str, mask: int) -> int:
    """Watch a path; returns the watch descriptor."""
    return _check(_LIBC.inotify_add_watch(inotify_fd, path.encode(), mask), f"inotify_add_watch {path}")
