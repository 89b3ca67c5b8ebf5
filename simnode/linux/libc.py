"""System calls for which Python 3.11 has no function: namespaces, mounts, prctl, inotify.

This module has only the calls; `namespaces`, `empty_folders` and `inotify` use them.
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
MS_SHARED = 0x100000

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
    """Move the calling thread into new namespaces."""
    _check(_LIBC.unshare(flags), f"unshare({flags:#x})")


def setns(namespace_fd: int, kind: int) -> None:
    """Move the calling thread into an existing namespace; the caller closes the descriptor."""
    _check(_LIBC.setns(namespace_fd, kind), "setns")


def mount(source: str, target: str, *, fstype: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system at `target`, or a directory (MS_BIND)."""
    arguments = (source.encode(), target.encode(), fstype.encode() or None, ctypes.c_ulong(flags), data.encode())
    _check(_LIBC.mount(*arguments), f"mount {source or fstype} on {target}")


def unmount(target: str) -> None:
    """Detach a mount; a process that still uses the mount keeps it until it is done."""
    _check(_LIBC.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def die_with_parent(signal: int) -> None:
    """Make the kernel send `signal` to this process when the parent's thread that made this process ends."""
    _check(_LIBC.prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def adopt_orphans() -> None:
    """Become the parent of each descendant whose own parent ends, as process 1 does for all other processes."""
    _check(_LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def inotify_init(flags: int) -> int:
    """Return a new inotify descriptor; the caller closes it."""
    return _check(_LIBC.inotify_init1(flags), "inotify_init1")


def inotify_add_watch(inotify_fd: int, path: str, mask: int) -> int:
    """Watch a path and return the watch descriptor."""
    return _check(_LIBC.inotify_add_watch(inotify_fd, path.encode(), mask), f"inotify_add_watch {path}")
