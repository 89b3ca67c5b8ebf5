"""The system calls that change state which outlives the process or which another process sees: the points of fault injection.

Calls that change only the caller are left out. The kernel closes the descriptors of a dead process and frees its memory. So
death before `close`, `wait4`, `mmap`, `socket` or `pipe` has the same effect as death after the call before it. The same
is true for signals between threads (Go's scheduler sends them) and for reads.
"""

import platform
from errno import EAGAIN, EINTR, EIO, ENOBUFS, ENOLCK, ENOMEM, ENOSPC

if platform.machine() != "x86_64":
    raise ImportError(f"system call numbers are known of x86_64, this is {platform.machine()}")

# Number (arch/x86/entry/syscalls/syscall_64.tbl) → name, and the error with which the call fails: one that the kernel may return.
CALLS = {
    1: ("write", ENOSPC),
    18: ("pwrite64", ENOSPC),
    20: ("writev", ENOSPC),
    40: ("sendfile", EIO),
    42: ("connect", EAGAIN),
    44: ("sendto", ENOBUFS),
    46: ("sendmsg", ENOBUFS),
    49: ("bind", ENOMEM),
    50: ("listen", ENOBUFS),
    56: ("clone", EAGAIN),
    57: ("fork", EAGAIN),
    58: ("vfork", EAGAIN),
    59: ("execve", ENOMEM),
    62: ("kill", EINTR),
    73: ("flock", ENOLCK),
    74: ("fsync", EIO),
    75: ("fdatasync", EIO),
    77: ("ftruncate", EIO),
    82: ("rename", ENOSPC),
    83: ("mkdir", ENOSPC),
    84: ("rmdir", EIO),
    85: ("creat", ENOSPC),
    86: ("link", ENOSPC),
    87: ("unlink", EIO),
    88: ("symlink", ENOSPC),
    90: ("chmod", EIO),
    91: ("fchmod", EIO),
    92: ("chown", EIO),
    93: ("fchown", EIO),
    133: ("mknod", ENOSPC),
    165: ("mount", ENOMEM),
    166: ("umount2", ENOMEM),
    257: ("openat", ENOSPC),
    258: ("mkdirat", ENOSPC),
    259: ("mknodat", ENOSPC),
    260: ("fchownat", EIO),
    263: ("unlinkat", EIO),
    264: ("renameat", ENOSPC),
    265: ("linkat", ENOSPC),
    266: ("symlinkat", ENOSPC),
    268: ("fchmodat", EIO),
    272: ("unshare", ENOMEM),
    285: ("fallocate", ENOSPC),
    296: ("pwritev", ENOSPC),
    307: ("sendmmsg", ENOBUFS),
    308: ("setns", ENOMEM),
    316: ("renameat2", ENOSPC),
    322: ("execveat", ENOMEM),
    326: ("copy_file_range", EIO),
    424: ("pidfd_send_signal", EINTR),
    435: ("clone3", EAGAIN),
}
# Calls that count only if they create or truncate a file: number → index of the flags among the arguments.
OPENS = {257: 2}
O_CREAT_OR_TRUNC = 0o100 | 0o1000  # include/uapi/asm-generic/fcntl.h

# The operand of a call: DESCRIPTORS have it in the first argument, PATHS in the argument with this index.
DESCRIPTORS = frozenset(
    (
        "write",
        "pwrite64",
        "writev",
        "sendfile",
        "sendto",
        "sendmsg",
        "listen",
        "flock",
        "fsync",
        "fdatasync",
        "ftruncate",
        "fchmod",
        "fchown",
        "fallocate",
        "pwritev",
        "sendmmsg",
        "setns",
    )
)
PATHS = {
    **dict.fromkeys(("mkdir", "rmdir", "creat", "unlink", "chmod", "chown", "mknod", "execve", "umount2"), 0),
    **dict.fromkeys(("rename", "link", "symlink", "mount", "openat", "mkdirat", "mknodat", "fchownat", "unlinkat"), 1),
    **dict.fromkeys(("fchmodat", "symlinkat", "execveat"), 1),
    **dict.fromkeys(("renameat", "renameat2", "linkat"), 3),
}
